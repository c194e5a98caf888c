// What a state holds, for comparisons in tests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "baton/quant/format.h"
#include "baton/unit/sequence_state.h"

namespace baton::test {

// Of states that no executor made.
inline LiveStates& stray_states() {
  static LiveStates states;
  return states;
}

// A state that keeps nothing but its position.
class EmptyState : public SequenceState {
 public:
  EmptyState(uint64_t tokens_max, LiveStates& live) : SequenceState(tokens_max, live) {}
  const StateShape& shape() const override { return shape_; }
  uint64_t bytes() const override { return 0; }
  void advance(uint64_t tokens) { set_position(position() + tokens); }

 private:
  Status read_rows(size_t, const Dims&, RowRange, std::byte*) const override { return {}; }
  Status write_rows(size_t, const Dims&, RowRange, const std::byte*) override { return {}; }
  const StateShape shape_;
};

// A segment's values in canonical order, in its own type; of all segments.
inline std::vector<std::byte> segment_bytes(const SequenceState& state, size_t segment) {
  const Segment& part = state.shape().segments.at(segment);
  const Dims dims = dims_at(part, state.position());
  std::vector<std::byte> bytes(dims[0] * dims[1] * row_bytes_of(part.dtype, dims[2]));
  BATON_CHECK(state.read(segment, {0, dims[0] * dims[1]}, bytes.data()));
  return bytes;
}
inline std::vector<std::byte> state_bytes(const SequenceState& state) {
  std::vector<std::byte> all;
  for (size_t i = 0; i < state.shape().segments.size(); ++i) {
    const std::vector<std::byte> part = segment_bytes(state, i);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

// Makes the last of rows of a segment end in what is no number: a value, or a block's scale.
inline void spoil_end(const Segment& segment, std::span<std::byte> rows) {
  const uint64_t block = format_of(segment.dtype).block_bytes;
  const auto end = rows.last(block);
  std::fill_n(end.begin(), in_blocks(segment.dtype) ? 2 : block, std::byte{0xff});
}

// Units with each type of keys and values that is not their own, to be put behind the list of units.
inline std::vector<std::string> kv_units() {
  return {"cpu:kv=bf16", "cpu:kv=q8_0", "cpu:kv=q4_0", "ref:kv=f16", "ref:kv=q8_0", "ref:kv=q4_0"};
}

// The same as f32.
inline std::vector<float> segment_values(const SequenceState& state, size_t segment) {
  const std::vector<std::byte> bytes = segment_bytes(state, segment);
  const Segment& part = state.shape().segments[segment];
  const uint64_t columns = part.dims[2], rows = bytes.size() / row_bytes_of(part.dtype, columns);
  std::vector<float> values(rows * columns);
  decode_rows(part.dtype, bytes.data(), columns, rows, values.data());
  return values;
}
inline std::vector<float> state_values(const SequenceState& state) {
  std::vector<float> all;
  for (size_t i = 0; i < state.shape().segments.size(); ++i) {
    const std::vector<float> part = segment_values(state, i);
    all.insert(all.end(), part.begin(), part.end());
  }
  return all;
}

}  // namespace baton::test
