// The bridge at its edges: exactly one token too many, a section longer than one piece, the smallest bad token, and
// states that keep more than keys and values.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "baton/bridge/bridge.h"
#include "tests/support/fake_state.h"

namespace baton {
namespace {

using test::fake_layout;
using test::fake_program;
using test::fake_tokens;
using test::FakeOrder;
using test::FakeState;

constexpr StateIdentity kAnyIdentity{1, 2, 3};

Program bounds_program() { return fake_program(4, 2, 3, 5, 7, 11, 3, 13); }
// A recurrent state of 96 KiB: three pieces of 32 KiB.
Program large_program() { return fake_program(2, 2, 3, 5, 64, 128, 3, 13); }

// Convolution and recurrent state are f32 on every unit now; a receiver that keeps them in f16 must refuse what it
// cannot hold as it does for keys and values.
TEST(BridgeBounds, WhatTheReceiversTypeCannotHoldIsRefusedInEverySegment) {
  const test::FakeLayout layout = fake_layout(bounds_program(), 20, {});
  for (size_t segment = 0; segment < layout.places.size(); ++segment) {
    for (const float value : {65519.0f, 65520.0f, -1e30f}) {
      FakeState from(layout, 20);
      FakeState to(fake_layout(bounds_program(), 20, FakeOrder{{0, 1, 2}, DType::kF16, DType::kF16}), 20);
      from.fill(6, 20);
      from.set(segment, {0, 1, 3}, value);
      const auto moved = move_state(from, to);
      EXPECT_EQ(moved.has_value(), value == 65519.0f) << "segment " << segment << " value " << value;
      if (moved) continue;
      EXPECT_EQ(moved.error().code, Code::kUnsupported);
      EXPECT_EQ(to.position(), 0u);
    }
  }
}

TEST(BridgeBounds, NotANumberInAnyPieceIsRefusedBySealing) {
  const test::FakeLayout layout = fake_layout(large_program(), 20, {});
  ASSERT_GE(layout.places[1].elements * 4, 3 * kStatePieceBytes);
  for (const Dims& index : {Dims{0, 0, 0}, {0, 63, 127}, {1, 0, 0}, {1, 17, 5}, {2, 63, 127}}) {
    FakeState from(layout, 20);
    from.fill(6, 20);
    ASSERT_TRUE(seal_state(from, kAnyIdentity, fake_tokens(1, 20)).has_value());
    from.set(1, index, std::numeric_limits<float>::quiet_NaN());
    const auto sealed = seal_state(from, kAnyIdentity, fake_tokens(1, 20));
    ASSERT_FALSE(sealed.has_value()) << index[0] << " " << index[1] << " " << index[2];
    EXPECT_EQ(sealed.error().code, Code::kCorrupt);
    const std::string place = "value " + std::to_string((index[0] * 64 + index[1]) * 128 + index[2]) + " is";
    EXPECT_NE(sealed.error().message.find(place), std::string::npos) << sealed.error().message;
  }
}

// What no token has made is no state of a sequence: not moved, not sealed.
TEST(BridgeBounds, AStateOfNoTokensIsZero) {
  for (const size_t segment : {size_t{0}, size_t{1}}) {
    FakeState from(fake_layout(large_program(), 20, {}), 20), to(fake_layout(large_program(), 20, {}), 20);
    from.fill(6, 0);
    const Dims last = dims_at(from.shape().segments[segment], 0);
    from.set(segment, {last[0] - 1, last[1] - 1, last[2] - 1}, 0x1p-149f);
    for (const Status& refused : {Status(move_state(from, to).map([](const auto&) {})),
                                  Status(seal_state(from, kAnyIdentity, {}).map([](const auto&) {}))}) {
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, Code::kCorrupt);
      EXPECT_NE(refused.error().message.find("a sequence of no tokens holds zeros"), std::string::npos);
    }
    from.fill(6, 0);
    FakeState right(fake_layout(large_program(), 20, {}), 20);
    EXPECT_TRUE(move_state(from, right));
    EXPECT_EQ(right.position(), 0u);
  }
}

// A receiver that asks for pieces as they come: nothing is its own before all has held.
TEST(BridgeBounds, AStreamFillsAStateLayerByLayer) {
  const auto tokens = fake_tokens(1, 20);
  FakeState from(fake_layout(large_program(), 20, {}), 20), to(fake_layout(large_program(), 20, {}), 20);
  from.fill(6, 20);
  SealExpectation expected;
  expected.identity = kAnyIdentity;
  StateOpener opener(expected, to);
  const Provenance made = Provenance::unknown(20);
  StateSealer sealer(from, kAnyIdentity, tokens, made,
                     [&](uint64_t offset, auto bytes) { return opener.take(offset, bytes); });
  ASSERT_TRUE(sealer.begin());
  for (const size_t segment : {2, 0, 3, 1}) {
    ASSERT_TRUE(sealer.segment(segment));
    EXPECT_EQ(to.position(), 0u);
    EXPECT_EQ(to.get(segment, {0, 2, 1}), from.get(segment, {0, 2, 1})) << "it is there when the segment is";
  }
  ASSERT_TRUE(sealer.finish());
  EXPECT_EQ(to.position(), 0u);
  ASSERT_TRUE(opener.finish());
  EXPECT_EQ(to.position(), 20u);
  EXPECT_EQ(seal_state(to, kAnyIdentity, tokens).value(), seal_state(from, kAnyIdentity, tokens).value());
}

TEST(BridgeBounds, EveryNegativeTokenIsRefused) {
  FakeState from(fake_layout(bounds_program(), 20, {}), 20);
  from.fill(6, 20);
  for (const int32_t token : {-1, -2, std::numeric_limits<int32_t>::min()}) {
    auto tokens = fake_tokens(1, 20);
    tokens[19] = token;
    const auto sealed = seal_state(from, kAnyIdentity, tokens);
    ASSERT_FALSE(sealed.has_value()) << token;
    EXPECT_EQ(sealed.error().code, Code::kInvalidInput);
    EXPECT_NE(sealed.error().message.find("token 19 is " + std::to_string(token)), std::string::npos);
  }
  auto tokens = fake_tokens(1, 20);
  tokens[19] = 0;
  EXPECT_TRUE(seal_state(from, kAnyIdentity, tokens).has_value());
}

}  // namespace
}  // namespace baton
