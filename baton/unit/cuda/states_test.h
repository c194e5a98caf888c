// States on an emulated card, filled as kernels would, for their tests.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <cstring>

#include "baton/base/random.h"
#include "baton/unit/cuda/driver_emulated.h"
#include "baton/unit/cuda/state.h"

namespace baton::cuda {

inline constexpr uint64_t kPage = kPageTokens;
inline constexpr uint64_t kTaps = 4;

class CudaStates : public testing::Test {
 protected:
  static Program program() {
    Program program;
    program.slots = {{SlotKind::kKeys, 0, 2, 0, 24},         {SlotKind::kValues, 0, 2, 0, 24},
                     {SlotKind::kConv, 1, 0, kTaps - 1, 42}, {SlotKind::kRecurrent, 1, 2, 8, 8},
                     {SlotKind::kKeys, 2, 1, 0, 9},          {SlotKind::kValues, 2, 1, 0, 9}};
    return program;
  }
  static Program keys_only() {
    Program keys = program();
    keys.slots.erase(keys.slots.begin() + 2, keys.slots.begin() + 4);
    return keys;
  }
  void SetUp() override {
    emulated_reset();
    before_ = emulated_use();
    card_ = *Card::open(emulated_driver(), 0);
    pool_ = pool(program());
  }
  void TearDown() override {
    pool_.reset();
    EXPECT_EQ(card_->held_bytes(), 0u);
    card_.reset();
    EXPECT_EQ(emulated_use(), before_);
    EXPECT_EQ(emulated_misuse(), "");
    emulated_reset();
  }
  std::unique_ptr<StatePool> pool(const Program& of, DType kv_type = DType::kF16) {
    auto made = StatePool::make(*card_, of, kv_type, "test", live_);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  std::unique_ptr<SequenceState> make(uint64_t tokens_max) {
    auto made = pool_->state(tokens_max);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  static CudaState& own(SequenceState& state) { return static_cast<CudaState&>(state); }

  // As kernels do: where the row of a token, or column or row of the parts, of a slot lies.
  static std::byte* row(const StatePool& pool, const cuda::Run& run, SlotId slot, uint64_t head, uint64_t index) {
    const Place& place = pool.place(slot);
    const Segment& segment = pool.shape().segments[static_cast<size_t>(slot)];
    const auto pitch = static_cast<uint64_t>(place.row_bytes);
    if (!has_tokens_dim(segment.kind)) {
      const uint64_t rows = segment.dims[1] + (segment.kind == SlotKind::kConv ? 1 : 0);
      return reinterpret_cast<std::byte*>(run.parts) + place.offset + (head * rows + index) * pitch;
    }
    const Address page = reinterpret_cast<const Address*>(run.pages)[index / kPage];
    return reinterpret_cast<std::byte*>(page) + place.offset + (head * kPage + index % kPage) * pitch;
  }
  // Of one row: no two of a sequence are alike.
  static void fill_row(const Segment& segment, std::byte* at, uint64_t head, uint64_t index, uint64_t seed) {
    for (uint64_t i = 0; i < segment.dims[2]; ++i) {
      const uint64_t mixed = (seed * 131 + static_cast<uint64_t>(segment.layer) * 977 + head * 31 + index) * 64 + i;
      const auto small = static_cast<uint16_t>(mixed * 2654435761u >> 7 & 0x3bff);
      segment.dtype == DType::kF32 ? std::memcpy(at + 4 * i, std::array<uint16_t, 2>{small, 0x3f00}.data(), 4)
                                   : std::memcpy(at + 2 * i, &small, 2);
    }
  }
  // A step of so many tokens, of a sequence named `seed`, as kernels would leave it.
  void go_on(SequenceState& any, uint64_t count, uint64_t seed) { go_on(*pool_, any, count, seed); }
  static void go_on(const StatePool& pool, SequenceState& any, uint64_t count, uint64_t seed) {
    CudaState& state = own(any);
    const uint64_t begin = state.position(), end = begin + count;
    const Status room = state.make_room(end);
    ASSERT_TRUE(room) << room.error().message;
    const cuda::Run run = state.run(0, static_cast<int32_t>(count), false);
    for (SlotId slot = 0; slot < static_cast<SlotId>(pool.shape().segments.size()); ++slot) {
      const Segment& segment = pool.shape().segments[static_cast<size_t>(slot)];
      for (uint64_t head = 0; head < segment.dims[0]; ++head) {
        if (segment.kind == SlotKind::kRecurrent) {
          for (uint64_t i = 0; i < segment.dims[1]; ++i)
            fill_row(segment, row(pool, run, slot, head, i), head, end * 100 + i, seed);
          continue;
        }
        for (uint64_t token = begin; token < end; ++token) {
          const uint64_t index = segment.kind == SlotKind::kConv ? token % kTaps : token;
          fill_row(segment, row(pool, run, slot, head, index), head, token, seed);
        }
      }
    }
    state.advance(count);
  }
  // What reads must bring.
  static std::vector<std::byte> wanted(const Segment& segment, uint64_t position, uint64_t seed) {
    const Dims dims = dims_at(segment, position);
    const uint64_t row_bytes = row_bytes_of(segment.dtype, dims[2]);
    std::vector<std::byte> all(dims[0] * dims[1] * row_bytes);
    for (uint64_t head = 0; head < dims[0]; ++head) {
      for (uint64_t i = 0; i < dims[1]; ++i) {
        std::byte* const at = all.data() + (head * dims[1] + i) * row_bytes;
        if (segment.kind == SlotKind::kConv) {
          if (position + i >= dims[1]) fill_row(segment, at, head, position + i - dims[1], seed);
        } else if (segment.kind == SlotKind::kRecurrent) {
          if (position > 0) fill_row(segment, at, head, position * 100 + i, seed);
        } else {
          fill_row(segment, at, head, i, seed);
        }
      }
    }
    return all;
  }
  static std::vector<std::byte> read(const SequenceState& state, size_t segment) {
    const Segment& of = state.shape().segments[segment];
    const Dims dims = dims_at(of, state.position());
    std::vector<std::byte> all(dims[0] * dims[1] * row_bytes_of(of.dtype, dims[2]), std::byte{0x55});
    const Status status = state.read(segment, {0, dims[0] * dims[1]}, all.data());
    EXPECT_TRUE(status) << status.error().message;
    return all;
  }
  static std::vector<std::vector<std::byte>> read(const SequenceState& state) {
    std::vector<std::vector<std::byte>> all;
    for (size_t i = 0; i < state.shape().segments.size(); ++i) all.push_back(read(state, i));
    return all;
  }
  static bool holds(const SequenceState& state, uint64_t seed) {
    bool all = true;
    for (size_t i = 0; i < state.shape().segments.size(); ++i) {
      const bool same = read(state, i) == wanted(state.shape().segments[i], state.position(), seed);
      EXPECT_TRUE(same) << "segment " << i << " at " << state.position();
      all = all && same;
    }
    return all;
  }
  // A segment of a state that tells of its layers.
  static bool shows(const SequenceState& state, size_t segment, uint64_t position, uint64_t seed) {
    const std::vector<std::byte> all = wanted(state.shape().segments[segment], position, seed);
    std::vector<std::byte> seen(all.size());
    const Dims dims = dims_at(state.shape().segments[segment], position);
    EXPECT_TRUE(state.read(segment, {0, dims[0] * dims[1]}, seen.data()));
    return seen == all;
  }
  // Whether all rows that a step could look at are zero, in pages and parts.
  static bool is_zero(const StatePool& pool, SequenceState& any, uint64_t tokens) {
    CudaState& state = own(any);
    EXPECT_TRUE(state.make_room(tokens));
    const cuda::Run run = state.run(0, static_cast<int32_t>(tokens), false);
    uint64_t sum = 0;
    for (SlotId slot = 0; slot < static_cast<SlotId>(pool.shape().segments.size()); ++slot) {
      const Segment& segment = pool.shape().segments[static_cast<size_t>(slot)];
      const Dims dims = dims_at(segment, (tokens + kPage - 1) / kPage * kPage);
      const uint64_t rows = dims[1] + (segment.kind == SlotKind::kConv ? 1 : 0);
      for (uint64_t head = 0; head < dims[0]; ++head) {
        for (uint64_t i = 0; i < rows; ++i) {
          const std::byte* const at = row(pool, run, slot, head, i);
          for (int32_t b = 0; b < pool.place(slot).row_bytes; ++b) sum += at[b] != std::byte{0};
        }
      }
    }
    return sum == 0;
  }
  // Fills `to` as `from`, rows in pieces of up to `most`, in any order.
  static void copy(const SequenceState& from, SequenceState& to, Random& random, uint64_t most) {
    struct Piece {
      size_t segment;
      RowRange rows;
    };
    std::vector<Piece> pieces;
    for (size_t i = 0; i < from.shape().segments.size(); ++i) {
      const Dims dims = dims_at(from.shape().segments[i], from.position());
      for (uint64_t row = 0; row < dims[0] * dims[1];) {
        const uint64_t count = std::min(dims[0] * dims[1] - row, 1 + random.below(most));
        pieces.push_back({i, {row, count}});
        row += count;
      }
    }
    for (size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[random.below(i)]);
    to.begin_write(from.position());
    for (const Piece& piece : pieces) {
      const Segment& segment = from.shape().segments[piece.segment];
      std::vector<std::byte> bytes(piece.rows.count * row_bytes_of(segment.dtype, segment.dims[2])), back = bytes;
      ASSERT_TRUE(from.read(piece.segment, piece.rows, bytes.data()));
      ASSERT_TRUE(to.write(piece.segment, piece.rows, bytes.data()));
      if (random.below(3) > 0) continue;
      ASSERT_TRUE(to.read(piece.segment, piece.rows, back.data()));
      ASSERT_EQ(back, bytes);
    }
    ASSERT_TRUE(to.finish_write(true));
  }
  uint64_t page_bytes() const { return pool_->bytes_for(kPage + 1) - pool_->bytes_for(1); }
  uint64_t table_bytes() const { return pool_->bytes_for(1) - pool_->bytes_for(0) - page_bytes(); }

  EmulatedUse before_;
  LiveStates live_;
  std::shared_ptr<Card> card_;
  std::unique_ptr<StatePool> pool_;
  uint64_t copies_ = 0;
};

}  // namespace baton::cuda
