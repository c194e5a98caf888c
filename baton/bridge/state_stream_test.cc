// A state that is moved while it grows arrives as one that is moved at once, whatever the layouts and the steps.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "baton/bridge/bridge.h"
#include "tests/support/fake_state.h"
#include "tests/support/smoke.h"

namespace baton {
namespace {

using test::fake_layout;
using test::fake_program;
using test::FakeOrder;
using test::FakeState;

Program streamed_program() { return fake_program(4, 2, 3, 5, 7, 11, 3, 13); }

// Layer by layer or all at once, as the seed has it.
Status move_some(StateStream& stream, const FakeState& from, uint64_t position, bool by_layers) {
  for (int32_t layer = 0; by_layers && layer < 4; ++layer) BATON_OK(stream.move(from, position, {&layer, 1}));
  return stream.move(from, position);
}

TEST(StateStream, ArrivesAsOneMovedAtOnce) {
  for (int seed = 0; seed < scaled(300, 60); ++seed) {
    Random random(static_cast<uint64_t>(seed));
    const auto size = [&](uint64_t most) { return static_cast<int32_t>(1 + random.below(most)); };
    const Program program = fake_program(4, size(3), size(4), size(70), size(70), size(40), size(4), size(70));
    const uint64_t tokens = 1 + random.below(80), room = tokens + random.below(10);
    FakeState from(test::random_layout(program, room, random), room);
    const auto layout = test::random_layout(program, room, random);
    FakeState whole(layout, room), streamed(layout, room);
    from.fill(random.next(), tokens);
    const auto moved = move_state(from, whole);
    auto stream = StateStream::begin(from, streamed, tokens);
    ASSERT_TRUE(stream) << stream.error().message;
    for (uint64_t position = 0; position < tokens;) {
      position += 1 + random.below(tokens - position);
      from.set_position(position);
      const Status status = move_some(**stream, from, position, random.below(2) != 0);
      ASSERT_EQ(status.has_value(), moved.has_value() || position < tokens) << seed;
    }
    if (!moved) continue;  // values too large for the receiver: said by both
    ASSERT_TRUE((*stream)->finish(from));
    EXPECT_EQ(streamed.position(), tokens);
    EXPECT_EQ(streamed.memory(), whole.memory()) << seed;
    EXPECT_EQ((*stream)->report().bytes, moved->bytes);
  }
}

TEST(StateStream, WhatIsNotWholeDoesNotCount) {
  FakeState from(fake_layout(streamed_program(), 40, {}), 40), to(fake_layout(streamed_program(), 40, {}), 40);
  from.fill(3, 33);
  auto stream = StateStream::begin(from, to, 33);
  ASSERT_TRUE(stream);
  from.set_position(20);
  ASSERT_TRUE((*stream)->move(from, 20));
  EXPECT_EQ((*stream)->finish(from).error().code, Code::kInternal);
  FakeState small(fake_layout(streamed_program(), 8, {}), 8);
  EXPECT_EQ(StateStream::begin(from, small, 9).error().code, Code::kMismatch);
}

// In a row that came early, and in a part that comes with the last step.
TEST(StateStream, ValuesThatAreNoNumbersAreNamed) {
  for (const size_t segment : {size_t{1}, size_t{2}}) {
    FakeState from(fake_layout(streamed_program(), 40, {}), 40), to(fake_layout(streamed_program(), 40, {}), 40);
    from.fill(3, 33);
    from.set(segment, {1, 2, 3}, std::numeric_limits<float>::quiet_NaN());
    auto stream = StateStream::begin(from, to, 33);
    ASSERT_TRUE(stream);
    from.set_position(10);
    const Status early = (*stream)->move(from, 10);
    const bool grows = from.shape().segments[segment].kind == SlotKind::kKeys;
    EXPECT_EQ(early.has_value(), !grows);
    from.set_position(33);
    const Status status = grows ? early : (*stream)->move(from, 33);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kCorrupt);
    const Segment& bad = from.shape().segments[segment];
    EXPECT_NE(status.error().message.find(segment_name(bad.kind, bad.layer)), std::string::npos)
        << status.error().message;
  }
}

}  // namespace
}  // namespace baton
