// Moves between random layouts, judged one element at a time.
#include "baton/bridge/bridge.h"

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <limits>

#include "tests/support/fake_state.h"
#include "tests/support/smoke.h"

namespace baton {
namespace {

using test::fake_layout;
using test::fake_program;
using test::fake_tokens;
using test::FakeOrder;
using test::FakeState;

constexpr StateIdentity kIdentity{1, 2, 3};

Program small_program() { return fake_program(4, 2, 3, 5, 7, 11, 3, 13); }

// What one value becomes on its way: exactly the conversion of base/float.h.
float through(DType type, float value) {
  if (type == DType::kF32) return value;
  return type == DType::kF16 ? f16_to_f32(f32_to_f16(value)) : bf16_to_f32(f32_to_bf16(value));
}

void expect_same_values(const FakeState& from, const FakeState& to) {
  ASSERT_EQ(from.position(), to.position());
  for (size_t i = 0; i < from.shape().segments.size(); ++i) {
    const DType type = to.shape().segments[i].dtype;
    from.for_each_index(i, [&](const Dims& index) {
      ASSERT_EQ(to.get(i, index), through(type, from.get(i, index)))
          << "segment " << i << " [" << index[0] << ", " << index[1] << ", " << index[2] << "]\n"
          << to_text(from.shape()) << to_text(to.shape());
    });
  }
}

TEST(Bridge, RandomLayoutsAndPositions) {
  for (int seed = 0; seed < scaled(400, 60); ++seed) {
    Random random(static_cast<uint64_t>(seed));
    const auto size = [&](uint64_t most) { return static_cast<int32_t>(1 + random.below(most)); };
    const Program program = fake_program(4, size(3), size(4), size(70), size(70), size(40), size(4), size(70));
    const uint64_t room_from = 1 + random.below(80);
    const uint64_t position = random.below(room_from + 1);
    const uint64_t room_to = position + random.below(10);
    FakeState from(test::random_layout(program, room_from, random), room_from);
    FakeState to(test::random_layout(program, room_to, random), room_to);
    from.fill(random.next(), position);
    const auto moved = move_state(from, to);
    ASSERT_TRUE(moved.has_value()) << moved.error().message;
    expect_same_values(from, to);
  }
}

TEST(Bridge, SameTypeComesBackBitByBit) {
  for (const DType type : {DType::kF32, DType::kF16, DType::kBF16}) {
    FakeState from(fake_layout(small_program(), 40, FakeOrder{{1, 2, 0}, type, type, 2}), 40);
    FakeState to(fake_layout(small_program(), 40, FakeOrder{{0, 2, 1}, type, type, 1}), 40);
    from.fill(3, 33);
    const auto tokens = fake_tokens(2, 33);
    const auto block = seal_state(from, kIdentity, tokens);
    ASSERT_TRUE(block.has_value());
    const auto back = unseal_state(SealSource::borrowed(*block), {kIdentity, nullptr, &tokens}, to);
    ASSERT_TRUE(back.has_value()) << back.error().message;
    EXPECT_EQ(*back, tokens);
    EXPECT_EQ(*seal_state(to, kIdentity, tokens), *block);
  }
}

TEST(Bridge, TheSealDoesNotDependOnTheSendersOrder) {
  std::vector<std::byte> first;
  for (const std::array<size_t, 3> order :
       {std::array<size_t, 3>{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0}, {2, 0, 1}, {2, 1, 0}}) {
    FakeState state(fake_layout(small_program(), 50, FakeOrder{order, DType::kF16}), 50);
    state.fill(9, 47);
    const auto block = seal_state(state, kIdentity, fake_tokens(1, 47));
    ASSERT_TRUE(block.has_value());
    if (first.empty()) first = *block;
    EXPECT_EQ(*block, first);
  }
}

TEST(Bridge, ReadsAndWritesOnlyWhatThePositionHolds) {
  // Everything else in the sender is NaN; everything else in the receiver must stay as it was.
  FakeState from(fake_layout(small_program(), 40, FakeOrder{{1, 0, 2}, DType::kF32, DType::kF32, 3}), 40);
  FakeState to(fake_layout(small_program(), 30, FakeOrder{{0, 1, 2}, DType::kF16, DType::kF32, 5}), 30);
  from.fill(4, 12);
  ASSERT_TRUE(move_state(from, to).has_value());
  expect_same_values(from, to);
  for (size_t i = 0; i < to.memory().size(); ++i) {
    const uint64_t width = value_bytes(to.shape().segments[i].dtype);
    uint64_t untouched = 0;
    for (uint64_t at = 0; at < to.memory()[i].size(); at += width) {
      untouched += std::all_of(&to.memory()[i][at], &to.memory()[i][at] + width,
                               [](std::byte b) { return b == std::byte{0xff}; });
    }
    const Dims dims = dims_at(to.shape().segments[i], 12);
    EXPECT_EQ(untouched, to.place_of(i).elements - dims[0] * dims[1] * dims[2]);
  }
}

// A receiver in whose memory any write shows.
struct Receiver {
  FakeState state;
  std::vector<std::vector<std::byte>> before;

  Receiver(test::FakeLayout layout, uint64_t room) : state(std::move(layout), room), before(state.memory()) {}
  bool untouched() const { return state.memory() == before && state.position() == 0; }
};

TEST(Bridge, WhatTheReceiversTypeCannotHoldIsRefused) {
  const auto move = [](float value, DType to_type, std::string* message) {
    FakeState from(fake_layout(small_program(), 20, {}), 20);
    Receiver to(fake_layout(small_program(), 20, FakeOrder{{1, 0, 2}, to_type}), 20);
    from.fill(6, 20);
    from.set(3, {2, 19, 4}, value);
    const auto moved = move_state(from, to.state);
    EXPECT_TRUE(moved.has_value() || to.state.position() == 0);
    EXPECT_TRUE(moved.has_value() || moved.error().code == Code::kUnsupported);
    *message = moved ? "" : moved.error().message;
    return moved.has_value();
  };
  std::string message;
  EXPECT_TRUE(move(65519.0f, DType::kF16, &message));
  EXPECT_FALSE(move(-65520.0f, DType::kF16, &message));
  EXPECT_NE(message.find("layer 1 values: value 299 is -65520, more than F16 can hold"), std::string::npos) << message;
  EXPECT_TRUE(move(-65520.0f, DType::kBF16, &message));
  EXPECT_FALSE(move(std::numeric_limits<float>::max(), DType::kBF16, &message));
  EXPECT_TRUE(move(std::numeric_limits<float>::max(), DType::kF32, &message));
}

// Values of 1e-8 are zero in F16: a state that loses all of them is not moved in silence.
TEST(Bridge, WhatIsTooSmallForTheReceiversTypeIsRefused) {
  const auto move = [](float largest, DType to_type) {
    FakeState from(fake_layout(small_program(), 20, {}), 20);
    Receiver to(fake_layout(small_program(), 20, FakeOrder{{1, 0, 2}, to_type}), 20);
    from.fill(6, 20);
    from.for_each_index(3, [&](const Dims& index) { from.set(3, index, index[2] == 0 ? 0.0f : -1e-8f); });
    from.set(3, {2, 19, 4}, largest);
    const auto moved = move_state(from, to.state);
    EXPECT_TRUE(moved.has_value() || (to.state.position() == 0 && moved.error().code == Code::kUnsupported));
    return moved ? "" : moved.error().message;
  };
  EXPECT_NE(move(1e-8f, DType::kF16).find("all values are too small for F16"), std::string::npos);
  EXPECT_NE(move(0x1.fp-15f, DType::kF16).find("all values are too small for F16"), std::string::npos);
  EXPECT_EQ(move(0x1p-14f, DType::kF16), "") << "one value of size gives the rest its scale";
  EXPECT_EQ(move(1e-8f, DType::kBF16), "");
  EXPECT_EQ(move(1e-8f, DType::kF32), "");
}

TEST(Bridge, NotANumberIsRefusedWhereItWasMade) {
  for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    FakeState from(fake_layout(small_program(), 20, {}), 20);
    Receiver to(fake_layout(small_program(), 20, {}), 20);
    from.fill(6, 20);
    from.set(1, {2, 6, 10}, value);
    const auto moved = move_state(from, to.state);
    ASSERT_FALSE(moved.has_value());
    EXPECT_EQ(moved.error().code, Code::kCorrupt);
    EXPECT_NE(moved.error().message.find("layer 0 recurrent: value 230 is"), std::string::npos)
        << moved.error().message;
    EXPECT_EQ(to.state.position(), 0u);
  }
}

TEST(Bridge, RefusalsLeaveTheReceiverAlone) {
  FakeState from(fake_layout(small_program(), 20, {}), 20);
  from.fill(6, 20);
  const auto tokens = fake_tokens(1, 20);
  const auto refused = [&](const Program& program, uint64_t room, std::string_view part) {
    Receiver to(fake_layout(program, room, {}), room);
    const auto moved = move_state(from, to.state);
    ASSERT_FALSE(moved.has_value());
    EXPECT_NE(moved.error().message.find(part), std::string::npos) << moved.error().message;
    EXPECT_TRUE(to.untouched());
  };
  refused(small_program(), 19, "position 20");
  refused(fake_program(4, 2, 3, 6, 7, 11, 3, 13), 20, "layer 1 keys");
  refused(fake_program(6, 2, 3, 5, 7, 11, 3, 13), 20, "8 segments on one side, 12");
  EXPECT_NE(seal_state(from, kIdentity, std::span(tokens).first(19)).error().message.find("position 20"),
            std::string::npos);

  Receiver to(fake_layout(small_program(), 20, {}), 20);
  const auto block = seal_state(from, kIdentity, tokens);
  auto prompt = tokens;
  prompt[12] += 1;
  const auto other = unseal_state(SealSource::borrowed(*block), {kIdentity, nullptr, &prompt}, to.state);
  EXPECT_TRUE(!other && other.error().message.find("another prompt: token 12 of 20") != std::string::npos);
  const auto foreign = unseal_state(SealSource::borrowed(*block), {{1, 2, 4}, nullptr, &tokens}, to.state);
  EXPECT_TRUE(!foreign && foreign.error().message.find("tokenizer") != std::string::npos);
  EXPECT_TRUE(to.untouched());
}

// Memory that gives back something else than was written to it, be it read or, when it `shows`, looked at.
class Forgetful final : public SequenceState {
 public:
  Forgetful(FakeState& right, size_t segment, uint64_t bit, bool shows)
      : SequenceState(right.tokens_max(), test::stray_states()),
        right_(right),
        segment_(segment),
        bit_(bit),
        shows_(shows) {}
  const StateShape& shape() const override { return right_.shape(); }
  uint64_t bytes() const override { return right_.bytes(); }

 private:
  Status read_rows(size_t segment, const Dims&, RowRange rows, std::byte* out) const override {
    return right_.read(segment, rows, out);
  }
  Status write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) override {
    const uint64_t size = dims[2] * value_bytes(shape().segments[segment].dtype);
    std::vector<std::byte> changed(in, in + rows.count * size);
    const uint64_t at = bit_ / 8;
    if (segment == segment_ && rows.first * size <= at && at < (rows.first + rows.count) * size)
      changed[at - rows.first * size] ^= std::byte{1} << (bit_ % 8);
    return right_.write(segment, rows, changed.data());
  }
  std::span<const std::byte> view_rows(size_t segment, const Dims& dims, RowRange rows) const override {
    if (!shows_) return {};
    shown_.resize(rows.count * dims[2] * value_bytes(shape().segments[segment].dtype));
    EXPECT_TRUE(right_.read(segment, rows, shown_.data()));
    return shown_;
  }
  FakeState& right_;
  const size_t segment_;
  const uint64_t bit_;
  const bool shows_;
  mutable std::vector<std::byte> shown_;
};

// The check at the receiver's end: any one bit of any segment, in its first piece and in later ones.
TEST(Bridge, MemoryThatForgetsABitIsFoundOut) {
  const Program program = fake_program(2, 2, 3, 5, 70, 150, 3, 13);
  FakeState from(fake_layout(program, 40, {}), 40);
  from.fill(4, 33);
  Random random(12);
  for (size_t segment = 0; segment < from.shape().segments.size(); ++segment) {
    for (int i = 0; i < 20; ++i) {
      const Dims dims = dims_at(from.shape().segments[segment], 33);
      FakeState memory(fake_layout(program, 40, FakeOrder{{0, 1, 2}, DType::kF16}), 40);
      const uint64_t size = value_bytes(memory.shape().segments[segment].dtype);
      Forgetful to(memory, segment, random.below(dims[0] * dims[1] * dims[2] * size * 8), i % 2 == 0);
      memory.begin_write(33);
      const auto moved = move_state(from, to);
      ASSERT_FALSE(moved.has_value());
      EXPECT_EQ(moved.error().code, Code::kCorrupt);
      EXPECT_NE(moved.error().message.find("do not come back"), std::string::npos) << moved.error().message;
      EXPECT_EQ(to.position(), 0u);
    }
  }
}

TEST(Bridge, AStateIsFilledOnceAndWhole) {
  FakeState state(fake_layout(small_program(), 20, {}), 20);
  state.begin_write(2);
  const std::vector<std::byte> row(1024);
  ASSERT_TRUE(state.write(0, {0, 1}, row.data()));
  const Status early = state.finish_write();
  EXPECT_TRUE(!early && early.error().code == Code::kInternal);
  EXPECT_EQ(state.position(), 0u);
  EXPECT_DEATH(state.begin_write(2), "");
  EXPECT_DEATH(static_cast<void>(state.write(0, {3, 1}, row.data())), "") << "rows outside";
  FakeState full(fake_layout(small_program(), 20, {}), 20);
  full.fill(1, 3);
  EXPECT_DEATH(full.begin_write(2), "") << "it holds something";
  EXPECT_DEATH(static_cast<void>(full.write(0, {0, 1}, row.data())), "");
}

}  // namespace
}  // namespace baton
