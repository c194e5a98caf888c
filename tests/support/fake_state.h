// A sequence state without a unit: memory in any layout, for tests of the seal, the bridge and the engine. Read and
// written one element at a time through the strides, so that it can judge the fast paths.
#pragma once

#include <array>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/base/random.h"
#include "baton/unit/unit.h"
#include "tests/support/state_values.h"

namespace baton::test {

// How a fake unit keeps its segments: dims from outermost to innermost, types, and unused elements after each dim.
struct FakeOrder {
  std::array<size_t, 3> order{0, 1, 2};
  DType kv = DType::kF32;
  DType fixed = DType::kF32;  // convolution and recurrent state
  uint64_t pad = 0;
};

// Where a fake unit keeps each segment: strides and room in elements, by canonical dim.
struct FakePlace {
  Dims dims{};  // tokens dim: room
  Dims strides{};
  uint64_t elements = 0;
};
struct FakeLayout {
  StateShape shape;
  std::vector<FakePlace> places;  // by segment
};

inline void place_segment(FakeLayout& layout, size_t index, uint64_t tokens_max, const FakeOrder& how) {
  Segment& segment = layout.shape.segments[index];
  segment.dtype = has_tokens_dim(segment.kind) ? how.kv : how.fixed;
  FakePlace& place = layout.places[index];
  place.dims = dims_at(segment, tokens_max);
  uint64_t stride = 1;
  for (size_t i = 3; i-- > 0;) {
    const size_t dim = how.order[i];
    place.strides[dim] = stride;
    stride = stride * place.dims[dim] + how.pad;
  }
  place.elements = stride;
}

inline FakeLayout fake_layout(const Program& program, uint64_t tokens_max, const FakeOrder& how) {
  FakeLayout layout{state_shape(program, how.kv), {}};
  layout.places.resize(layout.shape.segments.size());
  for (size_t i = 0; i < layout.places.size(); ++i) place_segment(layout, i, tokens_max, how);
  return layout;
}

// Every segment in its own order, types and padding.
inline FakeLayout random_layout(const Program& program, uint64_t tokens_max, Random& random) {
  constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
  FakeLayout layout = fake_layout(program, tokens_max, {});
  for (size_t segment = 0; segment < layout.places.size(); ++segment) {
    FakeOrder how;
    for (size_t i = 2; i > 0; --i) std::swap(how.order[i], how.order[random.below(i + 1)]);
    how.kv = how.fixed = kTypes[random.below(3)];
    how.pad = random.below(3) == 0 ? random.below(7) : 0;
    place_segment(layout, segment, tokens_max, how);
  }
  return layout;
}

// Slots of a hybrid model: every `period`-th layer full attention, the others convolution and recurrent state.
inline Program fake_program(int32_t layers, int32_t period, int32_t heads, int32_t head_dim, int32_t key_dim,
                            int32_t value_dim, int32_t columns, int32_t channels) {
  Program program;
  for (int32_t layer = 0; layer < layers; ++layer) {
    if (layer % period == period - 1) {
      program.slots.push_back({SlotKind::kKeys, layer, heads, 0, head_dim});
      program.slots.push_back({SlotKind::kValues, layer, heads, 0, head_dim});
    } else {
      program.slots.push_back({SlotKind::kConv, layer, 0, columns, channels});
      program.slots.push_back({SlotKind::kRecurrent, layer, heads, key_dim, value_dim});
    }
  }
  return program;
}

// Memory that a test has not written reads as NaN in every type: whatever reads it is found out.
class FakeState final : public SequenceState {
 public:
  FakeState(FakeLayout layout, uint64_t tokens_max)
      : SequenceState(tokens_max, stray_states()), layout_(std::move(layout)) {
    for (size_t i = 0; i < layout_.places.size(); ++i) {
      memory_.emplace_back(layout_.places[i].elements * value_bytes(layout_.shape.segments[i].dtype), std::byte{0xff});
    }
  }

  const StateShape& shape() const override { return layout_.shape; }
  uint64_t bytes() const override {
    uint64_t sum = 0;
    for (const auto& part : memory_) sum += part.size();
    return sum;
  }
  const FakePlace& place_of(size_t segment) const { return layout_.places[segment]; }
  using SequenceState::set_position;

  // All memory, unused elements included: to see that nothing was touched.
  const std::vector<std::vector<std::byte>>& memory() const { return memory_; }

  float get(size_t segment, const Dims& index) const {
    const std::byte* at = place(segment, index);
    switch (layout_.shape.segments[segment].dtype) {
      case DType::kF32:
        return load_as<float>(at);
      case DType::kF16:
        return f16_to_f32(load_as<uint16_t>(at));
      default:
        return bf16_to_f32(load_as<uint16_t>(at));
    }
  }
  void set(size_t segment, const Dims& index, float value) {
    std::byte* at = place(segment, index);
    switch (layout_.shape.segments[segment].dtype) {
      case DType::kF32:
        return store_as<float>(at, value);
      case DType::kF16:
        return store_as<uint16_t>(at, f32_to_f16(value));
      default:
        return store_as<uint16_t>(at, f32_to_bf16(value));
    }
  }

  // Random values of mixed magnitudes in everything a state at `position` holds; zeros at 0, as in a fresh sequence.
  void fill(uint64_t seed, uint64_t position) {
    Random random(seed);
    set_position(position);
    for (size_t i = 0; i < memory_.size(); ++i) {
      for_each_index(i, [&](const Dims& index) {
        const float value = random.normal() * std::ldexp(1.0f, static_cast<int>(random.below(20)) - 12);
        set(i, index, position == 0 ? 0 : value);
      });
    }
  }

  // Calls `visit(index)` for everything the state holds at its position, in canonical order.
  template <class Visit>
  void for_each_index(size_t segment, Visit visit) const {
    const Dims dims = dims_at(layout_.shape.segments[segment], position());
    Dims index{};
    for (index[0] = 0; index[0] < dims[0]; ++index[0]) {
      for (index[1] = 0; index[1] < dims[1]; ++index[1]) {
        for (index[2] = 0; index[2] < dims[2]; ++index[2]) visit(index);
      }
    }
  }

 private:
  const std::byte* place(size_t segment, const Dims& index) const {
    const FakePlace& where = layout_.places[segment];
    uint64_t element = 0;
    for (size_t i = 0; i < 3; ++i) {
      BATON_CHECK(index[i] < where.dims[i]);
      element += index[i] * where.strides[i];
    }
    BATON_CHECK(element < where.elements);
    return memory_[segment].data() + element * value_bytes(layout_.shape.segments[segment].dtype);
  }
  std::byte* place(size_t segment, const Dims& index) {
    return const_cast<std::byte*>(std::as_const(*this).place(segment, index));
  }
  // Calls copy(place, bytes before, bytes) for each value of the rows.
  template <class Self, class Copy>
  static void for_values(Self& self, size_t segment, const Dims& dims, RowRange rows, Copy copy) {
    const uint64_t size = value_bytes(self.layout_.shape.segments[segment].dtype);
    for (uint64_t i = 0; i < rows.count * dims[2]; ++i) {
      const uint64_t row = rows.first + i / dims[2];
      copy(self.place(segment, {row / dims[1], row % dims[1], i % dims[2]}), i * size, size);
    }
  }
  Status read_rows(size_t segment, const Dims& dims, RowRange rows, std::byte* out) const override {
    for_values(*this, segment, dims, rows,
               [&](const std::byte* at, uint64_t done, uint64_t size) { std::memcpy(out + done, at, size); });
    return {};
  }
  Status write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) override {
    for_values(*this, segment, dims, rows,
               [&](std::byte* at, uint64_t done, uint64_t size) { std::memcpy(at, in + done, size); });
    return {};
  }

  FakeLayout layout_;
  std::vector<std::vector<std::byte>> memory_;
};

// Token ids below `vocab`, the same for the same seed.
inline std::vector<int32_t> fake_tokens(uint64_t seed, uint64_t count, int32_t vocab = 1000) {
  Random random(seed);
  std::vector<int32_t> tokens(count);
  for (int32_t& token : tokens) token = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab)));
  return tokens;
}

}  // namespace baton::test
