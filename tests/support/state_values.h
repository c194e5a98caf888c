// What a state holds, for comparisons in tests.
#pragma once

#include <cstddef>
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
  std::vector<std::byte> bytes(dims[0] * dims[1] * dims[2] * value_bytes(part.dtype));
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

// The same as f32.
inline std::vector<float> segment_values(const SequenceState& state, size_t segment) {
  const std::vector<std::byte> bytes = segment_bytes(state, segment);
  const DType dtype = state.shape().segments[segment].dtype;
  std::vector<float> values(bytes.size() / value_bytes(dtype));
  format_of(dtype).decode(bytes.data(), values.data(), values.size());
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
