// States that ask for large pieces, as those of a device do: rows that follow each other are put together before they
// are written and read back, all are there behind each part of a stream, and each bit is compared all the same.
#include <gtest/gtest.h>

#include <optional>

#include "baton/bridge/bridge.h"
#include "baton/bridge/checkpoint.h"
#include "tests/support/fake_state.h"

namespace baton {
namespace {

using test::fake_layout;
using test::fake_program;
using test::fake_tokens;
using test::FakeOrder;
using test::FakeState;

constexpr uint64_t kTokens = 150;

// Layers with keys and values of 60 bytes a row, and recurrent parts of 96 KiB.
Program piece_program() { return fake_program(4, 2, 3, 15, 64, 128, 3, 13); }

class Device final : public SequenceState {
 public:
  explicit Device(uint64_t piece, FakeOrder how = {})
      : SequenceState(kTokens + 5, test::stray_states()),
        piece_(piece),
        right_(fake_layout(piece_program(), kTokens + 5, how), kTokens + 5) {}
  const StateShape& shape() const override { return right_.shape(); }
  uint64_t bytes() const override { return right_.bytes(); }
  uint64_t piece_bytes() const override { return piece_; }

  void fill(uint64_t seed, uint64_t tokens) {
    right_.fill(seed, tokens);
    set_position(tokens);
  }
  FakeState& right() { return right_; }
  uint64_t writes = 0, largest = 0;
  mutable uint64_t reads = 0, turns = 0;  // to another segment
  mutable std::optional<size_t> last;
  std::optional<uint64_t> damaged_write;  // its last byte

 private:
  Status read_rows(size_t segment, const Dims&, RowRange rows, std::byte* out) const override {
    ++reads;
    turns += last == segment ? 0 : 1;
    last = segment;
    return right_.read(segment, rows, out);
  }
  Status write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) override {
    const uint64_t size = rows.count * row_bytes_of(shape().segments[segment].dtype, dims[2]);
    largest = std::max(largest, size);
    std::vector<std::byte> changed(in, in + size);
    if (damaged_write == writes++) changed[size - 1] ^= std::byte{1};
    return right_.write(segment, rows, changed.data());
  }

  const uint64_t piece_;
  FakeState right_;
};

std::vector<std::vector<std::byte>> piece_values(const SequenceState& state) {
  std::vector<std::vector<std::byte>> all;
  for (size_t i = 0; i < state.shape().segments.size(); ++i) {
    const Segment& segment = state.shape().segments[i];
    const Dims dims = dims_at(segment, state.position());
    all.emplace_back(dims[0] * dims[1] * row_bytes_of(segment.dtype, dims[2]));
    EXPECT_TRUE(state.read(i, {0, dims[0] * dims[1]}, all.back().data()));
  }
  return all;
}

class DevicePieces : public testing::TestWithParam<uint64_t> {
 protected:
  void SetUp() override { from_.fill(6, kTokens); }
  // Of a segment, when it comes in order.
  static uint64_t pieces(const SequenceState& of) {
    uint64_t count = 0;
    for (const Segment& segment : of.shape().segments) {
      const Dims dims = dims_at(segment, kTokens);
      const uint64_t bytes = dims[0] * dims[1] * row_bytes_of(segment.dtype, dims[2]);
      count += bytes / (GetParam() - kStatePieceBytes) + 1;
    }
    return count;
  }
  static std::unique_ptr<Device> begun() {
    auto to = std::make_unique<Device>(GetParam(), FakeOrder{{1, 0, 2}, DType::kF16});
    to->right().begin_write(kTokens);
    return to;
  }

  FakeState from_{fake_layout(piece_program(), kTokens, {}), kTokens};
};
INSTANTIATE_TEST_SUITE_P(Bytes, DevicePieces, testing::Values(12 * 1024, 40 * 1024, 4 << 20));

TEST_P(DevicePieces, AMoveWritesFew) {
  const auto to = begun();
  FakeState direct(fake_layout(piece_program(), kTokens, {{0, 1, 2}, DType::kF16}), kTokens);
  ASSERT_TRUE(move_state(from_, *to));
  ASSERT_TRUE(move_state(from_, direct));
  EXPECT_LE(to->writes, pieces(*to));
  EXPECT_EQ(to->reads, to->writes);
  EXPECT_LE(to->largest, GetParam());
  EXPECT_EQ(piece_values(*to), piece_values(direct));
}

TEST_P(DevicePieces, DamageInAnyIsFound) {
  const auto whole = begun();
  ASSERT_TRUE(move_state(from_, *whole));
  for (uint64_t write = 0; write < whole->writes; ++write) {
    const auto to = begun();
    to->damaged_write = write;
    const auto moved = move_state(from_, *to);
    ASSERT_FALSE(moved);
    EXPECT_EQ(moved.error().code, Code::kCorrupt);
    EXPECT_NE(moved.error().message.find("do not come back"), std::string::npos);
    EXPECT_EQ(to->position(), 0u);
  }
}

// What was moved is there, and not waiting for the next step.
TEST_P(DevicePieces, AStreamLeavesNothingWaiting) {
  const auto to = begun();
  auto stream = StateStream::begin(from_, *to, kTokens);
  ASSERT_TRUE(stream);
  uint64_t rows = 0;
  for (const uint64_t position : {70, 71, 140}) {
    FakeState part(fake_layout(piece_program(), kTokens, {}), kTokens);
    part.fill(6, kTokens);
    part.set_position(position);
    ASSERT_TRUE((*stream)->move(part, position));
    for (uint64_t head = 0; head < 3; ++head)
      EXPECT_EQ(to->right().get(2, {head, position - 1, 3}),
                f16_to_f32(f32_to_f16(from_.get(2, {head, position - 1, 3}))));
    EXPECT_GT(to->writes, rows);
    rows = to->writes;
  }
  ASSERT_TRUE((*stream)->move(from_, kTokens));
  ASSERT_TRUE((*stream)->finish(from_));
  const auto whole = begun();
  ASSERT_TRUE(move_state(from_, *whole));
  EXPECT_EQ(piece_values(*to), piece_values(*whole));
}

TEST_P(DevicePieces, ACheckpointGoesSegmentBySegment) {
  Device from(GetParam());
  from.fill(6, kTokens);
  CheckpointMemory memory;
  const auto kept = memory.keep(from, nullptr);
  ASSERT_TRUE(kept) << kept.error().message;
  EXPECT_LE(from.turns, 2 * from.shape().segments.size());
  EXPECT_EQ(piece_values(**kept), piece_values(from_));
  const auto to = begun();
  ASSERT_TRUE(restore_state(**kept, *to));
  EXPECT_LE(to->writes, pieces(*to));
  const auto whole = begun();
  ASSERT_TRUE(move_state(from_, *whole));
  EXPECT_EQ(piece_values(*to), piece_values(*whole));

  // One that goes on reads the new pages alone.
  from.reads = 0;
  const auto next = memory.keep(from, *kept);
  ASSERT_TRUE(next);
  EXPECT_EQ(from.reads, 4u + 4 * 3);
  EXPECT_EQ(piece_values(**next), piece_values(from_));
  const auto again = begun();
  again->damaged_write = whole->writes - 1;
  EXPECT_EQ(restore_state(**next, *again).error().code, Code::kCorrupt);
}

TEST_P(DevicePieces, ASealIsOpenedIntoOne) {
  const auto tokens = fake_tokens(1, kTokens);
  const Provenance made = Provenance::unknown(kTokens);
  const auto source = sealed_source(from_, {1, 2, 3}, tokens, made);
  ASSERT_TRUE(source);
  const auto to = begun();
  SealExpectation expected;
  expected.identity = {1, 2, 3};
  const auto opened = unseal_state(*source, expected, *to);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_LE(to->writes, pieces(*to));
  const auto whole = begun();
  ASSERT_TRUE(move_state(from_, *whole));
  EXPECT_EQ(piece_values(*to), piece_values(*whole));
}

}  // namespace
}  // namespace baton
