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
  for (size_t i = 0; i < from.segments().size(); ++i) {
    const DType type = to.layout().segments[i].dtype;
    from.for_each_index(i, [&](const Dims& index) {
      ASSERT_EQ(to.get(i, index), through(type, from.get(i, index)))
          << "segment " << i << " [" << index[0] << ", " << index[1] << ", " << index[2] << "]\n"
          << to_text(from.layout()) << to_text(to.layout());
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
    const auto moved = move_state(from, to, kIdentity, fake_tokens(1, position));
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
    const auto back = unseal_state(*block, {kIdentity, nullptr, &tokens}, to);
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
  ASSERT_TRUE(move_state(from, to, kIdentity, fake_tokens(1, 12)).has_value());
  expect_same_values(from, to);
  for (size_t i = 0; i < to.memory().size(); ++i) {
    const uint64_t width = value_bytes(to.layout().segments[i].dtype);
    uint64_t untouched = 0;
    for (uint64_t at = 0; at < to.memory()[i].size(); at += width) {
      untouched += std::all_of(&to.memory()[i][at], &to.memory()[i][at] + width,
                               [](std::byte b) { return b == std::byte{0xff}; });
    }
    const Dims dims = dims_at(to.layout().segments[i], 12);
    EXPECT_EQ(untouched, to.layout().segments[i].elements - dims[0] * dims[1] * dims[2]);
  }
}

TEST(Bridge, OntoItself) {
  FakeState state(fake_layout(small_program(), 20, FakeOrder{{2, 1, 0}, DType::kBF16}), 20);
  state.fill(5, 20);
  const auto before = state.memory();
  ASSERT_TRUE(move_state(state, state, kIdentity, fake_tokens(1, 20)).has_value());
  EXPECT_EQ(state.memory(), before);
}

TEST(Bridge, ScratchIsUsedAgain) {
  FakeState from(fake_layout(small_program(), 40, {}), 40), to(fake_layout(small_program(), 40, {}), 40);
  std::vector<std::byte> scratch;
  for (const uint64_t position : {40u, 3u, 20u}) {
    from.fill(position, position);
    const auto moved = move_state(from, to, kIdentity, fake_tokens(1, position), {}, &scratch);
    ASSERT_TRUE(moved.has_value());
    EXPECT_EQ(moved->bytes, scratch.size());
    EXPECT_EQ(moved->bytes, sealed_bytes(from.layout(), position));
    expect_same_values(from, to);
  }
  EXPECT_GE(scratch.capacity(), sealed_bytes(from.layout(), 40));
}

// A receiver with values in it, to see that it stays as it was.
struct Receiver {
  FakeState state;
  std::vector<std::vector<std::byte>> before;

  Receiver(Layout layout, uint64_t room) : state(std::move(layout), room) {
    state.fill(77, room / 2);
    before = state.memory();
  }
  bool untouched() const { return state.memory() == before && state.position() == state.tokens_max() / 2; }
};

TEST(Bridge, WhatTheReceiversTypeCannotHoldIsRefused) {
  const auto move = [](float value, DType to_type, std::string* message) {
    FakeState from(fake_layout(small_program(), 20, {}), 20);
    Receiver to(fake_layout(small_program(), 20, FakeOrder{{1, 0, 2}, to_type}), 20);
    from.fill(6, 20);
    from.set(3, {2, 19, 4}, value);
    const auto moved = move_state(from, to.state, kIdentity, fake_tokens(1, 20));
    EXPECT_TRUE(moved.has_value() || to.untouched());
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
    const auto moved = move_state(from, to.state, kIdentity, fake_tokens(1, 20));
    EXPECT_TRUE(moved.has_value() || (to.untouched() && moved.error().code == Code::kUnsupported));
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
    const auto moved = move_state(from, to.state, kIdentity, fake_tokens(1, 20));
    ASSERT_FALSE(moved.has_value());
    EXPECT_EQ(moved.error().code, Code::kCorrupt);
    EXPECT_NE(moved.error().message.find("layer 0 recurrent: value 230 is"), std::string::npos)
        << moved.error().message;
    EXPECT_TRUE(to.untouched());
  }
}

TEST(Bridge, RefusalsLeaveTheReceiverAlone) {
  FakeState from(fake_layout(small_program(), 20, {}), 20);
  from.fill(6, 20);
  const auto tokens = fake_tokens(1, 20);
  const auto refused = [&](const Program& program, uint64_t room, std::span<const int32_t> given,
                           std::string_view part) {
    Receiver to(fake_layout(program, room, {}), room);
    const auto moved = move_state(from, to.state, kIdentity, given);
    ASSERT_FALSE(moved.has_value());
    EXPECT_NE(moved.error().message.find(part), std::string::npos) << moved.error().message;
    EXPECT_TRUE(to.untouched());
  };
  refused(small_program(), 19, tokens, "position");
  refused(fake_program(4, 2, 3, 6, 7, 11, 3, 13), 20, tokens, "layer 1 keys");
  refused(fake_program(6, 2, 3, 5, 7, 11, 3, 13), 20, tokens, "8 sections, expected 12");
  refused(small_program(), 20, std::span(tokens).first(19), "position 20");
  auto negative = tokens;
  negative[3] = -5;
  refused(small_program(), 20, negative, "token 3 is -5");

  Receiver to(fake_layout(small_program(), 20, {}), 20);
  const auto block = seal_state(from, kIdentity, tokens);
  auto prompt = tokens;
  prompt[12] += 1;
  const auto other = unseal_state(*block, {kIdentity, nullptr, &prompt}, to.state);
  EXPECT_TRUE(!other && other.error().message.find("another prompt: token 12 of 20") != std::string::npos);
  const auto foreign = unseal_state(*block, {{1, 2, 4}, nullptr, &tokens}, to.state);
  EXPECT_TRUE(!foreign && foreign.error().message.find("tokenizer") != std::string::npos);
  EXPECT_TRUE(to.untouched());
}

TEST(Bridge, AStateThatBreaksItsContractIsRefused) {
  Layout layout = fake_layout(small_program(), 10, {});
  FakeState from(layout, 20);  // says that it has room for 20
  FakeState to(fake_layout(small_program(), 20, {}), 20);
  from.fill(1, 10);
  from.set_position(12);
  const auto moved = move_state(from, to, kIdentity, fake_tokens(1, 12));
  EXPECT_TRUE(!moved && moved.error().code == Code::kInternal) << (moved ? "" : moved.error().message);
  to.fill(1, 5);
  const auto back = move_state(to, from, kIdentity, fake_tokens(1, 5));
  EXPECT_TRUE(!back && back.error().code == Code::kInternal);
}

TEST(Bridge, FilesNameThemselves) {
  const auto path = std::filesystem::path(testing::TempDir()) / "bridge_test.state";
  FakeState from(fake_layout(small_program(), 20, {}), 20);
  FakeState to(fake_layout(small_program(), 30, FakeOrder{{1, 0, 2}, DType::kF16}), 30);
  from.fill(6, 20);
  const auto tokens = fake_tokens(1, 20);
  ASSERT_TRUE(save_state(path, from, kIdentity, tokens).has_value());
  const auto loaded = load_state(path, {kIdentity, nullptr, nullptr}, to);
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_EQ(*loaded, tokens);
  expect_same_values(from, to);

  Receiver other(fake_layout(small_program(), 30, {}), 30);
  const auto refused = load_state(path, {{9, 2, 3}, nullptr, nullptr}, other.state);
  EXPECT_TRUE(!refused && refused.error().message.find(path.string()) == 0 && refused.error().code == Code::kMismatch);
  EXPECT_TRUE(other.untouched());
  from.set(0, {0, 0, 0}, NAN);
  const auto nan = save_state(path, from, kIdentity, tokens);
  EXPECT_TRUE(!nan && nan.error().message.find(path.string()) == 0);
  EXPECT_TRUE(load_state(path, {kIdentity, nullptr, nullptr}, to).has_value());  // the old file is still there
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace baton
