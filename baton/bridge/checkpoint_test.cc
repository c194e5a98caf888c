// Checkpoints of random states: kept in pages, shared, restored, judged one element at a time.
#include "baton/bridge/checkpoint.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <optional>

#include "tests/support/fake_state.h"
#include "tests/support/smoke.h"

namespace baton {
namespace {

using test::fake_layout;
using test::fake_program;
using test::FakeOrder;
using test::FakeState;

Program hybrid() { return fake_program(4, 2, 3, 5, 7, 11, 3, 13); }
Program attention_only() { return fake_program(2, 1, 3, 5, 7, 11, 3, 13); }

std::unique_ptr<FakeState> state_of(const Program& program, uint64_t seed, uint64_t tokens, FakeOrder how = {}) {
  auto state = std::make_unique<FakeState>(fake_layout(program, tokens + 3, how), tokens + 3);
  state->fill(seed, tokens);
  return state;
}

std::vector<std::byte> values_of(const SequenceState& state) {
  std::vector<std::byte> all;
  for (size_t i = 0; i < state.shape().segments.size(); ++i) {
    const Segment& segment = state.shape().segments[i];
    const Dims dims = dims_at(segment, state.position());
    const uint64_t rows = dims[0] * dims[1], before = all.size();
    all.resize(before + rows * dims[2] * value_bytes(segment.dtype));
    EXPECT_TRUE(state.read(i, {0, rows}, all.data() + before));
  }
  return all;
}

std::shared_ptr<const Checkpoint> keep(CheckpointMemory& memory, const SequenceState& state,
                                       const std::shared_ptr<const Checkpoint>& before = nullptr) {
  auto kept = memory.keep(state, before);
  EXPECT_TRUE(kept.has_value()) << kept.error().message;
  return kept ? std::move(*kept) : nullptr;
}

TEST(Checkpoint, RandomStatesComeBack) {
  for (int seed = 0; seed < scaled(300, 40); ++seed) {
    Random random(static_cast<uint64_t>(seed));
    const auto size = [&](uint64_t most) { return static_cast<int32_t>(1 + random.below(most)); };
    const Program program = fake_program(4, size(3), size(4), size(70), size(70), size(40), size(4), size(70));
    const uint64_t tokens = random.below(80);
    FakeState from(test::random_layout(program, tokens + 1, random), tokens + 1);
    from.fill(random.next(), tokens);
    CheckpointMemory memory;
    const auto kept = keep(memory, from);
    ASSERT_NE(kept, nullptr);
    EXPECT_EQ(values_of(*kept), values_of(from));
    EXPECT_EQ(memory.bytes(), kept->bytes());
    EXPECT_EQ(memory.bytes(), CheckpointMemory::bytes_for(from, nullptr));
    const test::FakeLayout layout = test::random_layout(program, tokens + 5, random);
    FakeState to(layout, tokens + 5), direct(layout, tokens + 5);
    ASSERT_TRUE(restore_state(*kept, to));
    ASSERT_TRUE(move_state(from, direct));
    EXPECT_EQ(values_of(to), values_of(direct));
  }
}

TEST(Checkpoint, WhatGoesOnSharesWholePages) {
  CheckpointMemory memory;
  const auto made = state_of(hybrid(), 1, 100);
  FakeState& state = *made;
  const auto first = keep(memory, state);
  const uint64_t alone = memory.bytes();
  const auto made_longer = state_of(hybrid(), 2, 137);
  FakeState& longer = *made_longer;
  // What both hold alike: the first 100 tokens.
  for (size_t i = 0; i < state.shape().segments.size(); ++i) {
    if (!has_tokens_dim(state.shape().segments[i].kind)) continue;
    state.for_each_index(i, [&](const Dims& index) { longer.set(i, index, state.get(i, index)); });
  }
  const auto second = keep(memory, longer, first);
  EXPECT_EQ(values_of(*second), values_of(longer));
  EXPECT_EQ(memory.bytes() - alone, CheckpointMemory::bytes_for(longer, first.get()));
  EXPECT_EQ(memory.bytes() - alone, second->bytes_beside(*first));
  EXPECT_EQ(first->bytes_beside(*first), 0u);
  EXPECT_EQ(memory.count(), 2);
}

TEST(Checkpoint, OtherTypesShareNothing) {
  CheckpointMemory memory;
  const auto half = keep(memory, *state_of(hybrid(), 1, 40, {.kv = DType::kF16}));
  const auto made = state_of(hybrid(), 2, 60);
  FakeState& state = *made;
  EXPECT_EQ(values_of(*keep(memory, state, half)), values_of(state));
}

// The nearest value of 8 significant bits, the even one of two: of what is no subnormal.
double nearest_bf16(double value) {
  int exponent = 0;
  std::frexp(value, &exponent);
  const double step = std::ldexp(1.0, exponent - 8);
  return std::nearbyint(value / step) * step;
}

TEST(Checkpoint, RoundedPartsAreHalfAndSayByHowMuch) {
  for (int seed = 0; seed < scaled(100, 20); ++seed) {
    Random random(static_cast<uint64_t>(seed));
    const uint64_t tokens = random.below(80);
    const auto state = state_of(hybrid(), random.next(), tokens);
    CheckpointMemory memory, exact;
    const auto whole = keep(exact, *state);
    const auto kept = memory.keep(*state, nullptr, AtRest::kBf16).value();
    uint64_t values = 0;
    RoundingError error;
    FakeState to(fake_layout(hybrid(), tokens + 3, {}), tokens + 3);
    ASSERT_TRUE(restore_state(*kept, to));
    for (size_t i = 0; i < state->shape().segments.size(); ++i) {
      const bool rounds = !has_tokens_dim(state->shape().segments[i].kind);
      state->for_each_index(i, [&](const Dims& index) {
        const double was = state->get(i, index), is = to.get(i, index);
        EXPECT_EQ(is, !rounds || was == 0 ? was : nearest_bf16(was));
        values += rounds ? 1 : 0;
        if (rounds && was != 0) error.add({std::fabs(is - was), std::fabs(is - was) / std::fabs(was)});
      });
    }
    EXPECT_EQ(exact.bytes() - memory.bytes(), 2 * values);
    EXPECT_EQ(memory.bytes(), kept->bytes());
    EXPECT_EQ(memory.bytes(), CheckpointMemory::bytes_for(*state, nullptr, AtRest::kBf16));
    ASSERT_TRUE(kept->rounding());
    EXPECT_EQ(kept->rounding()->max_abs, error.max_abs);
    EXPECT_EQ(kept->rounding()->max_rel, error.max_rel);
    EXPECT_EQ(error.max_rel > 0, tokens > 0);
    EXPECT_LE(error.max_rel, 1.0 / 256);
    EXPECT_FALSE(whole->rounding());
  }
}

TEST(Checkpoint, RoundedOnesShareThePagesOfOthers) {
  CheckpointMemory memory;
  const auto state = state_of(hybrid(), 1, 100);
  const auto first = keep(memory, *state);
  const uint64_t one = memory.bytes(), parts = section_bytes(state->shape(), 0);
  const auto rounded = memory.keep(*state, first, AtRest::kBf16).value();
  const uint64_t rest = 100 % kPageTokens * bytes_per_token(state->shape());
  EXPECT_EQ(memory.bytes() - one, parts / 2 + rest);
  EXPECT_EQ(memory.bytes() - one, CheckpointMemory::bytes_for(*state, first.get(), AtRest::kBf16));
  const auto again = keep(memory, *state, rounded);
  EXPECT_EQ(values_of(*again), values_of(*state));
  EXPECT_EQ(again->bytes_beside(*rounded), parts + rest);
}

TEST(Checkpoint, RoundingTakesTheLargestValuesAndNoneThatIsNoNumber) {
  CheckpointMemory memory;
  const auto state = state_of(hybrid(), 1, 20);
  size_t part = 0;
  while (has_tokens_dim(state->shape().segments[part].kind)) ++part;
  state->set(part, {0, 0, 0}, std::numeric_limits<float>::max());
  FakeState to(fake_layout(hybrid(), 23, {}), 23);
  ASSERT_TRUE(restore_state(**memory.keep(*state, nullptr, AtRest::kBf16), to));
  EXPECT_EQ(to.get(part, {0, 0, 0}), 0x1.fep127f);
  state->set(part, {0, 0, 0}, std::numeric_limits<float>::infinity());
  const auto refused = memory.keep(*state, nullptr, AtRest::kBf16);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kCorrupt);
}

TEST(Checkpoint, BytesReturnToNothing) {
  CheckpointMemory memory;
  {
    auto first = keep(memory, *state_of(hybrid(), 1, 40));
    auto second = keep(memory, *state_of(hybrid(), 1, 50), first);
    first.reset();
    EXPECT_EQ(memory.bytes(), second->bytes());  // shared pages live on
  }
  EXPECT_EQ(memory.bytes(), 0u);
  EXPECT_EQ(memory.count(), 0);
}

TEST(Checkpoint, GoesBackWhereTokensAreAll) {
  CheckpointMemory memory;
  const auto made = state_of(attention_only(), 3, 50);
  FakeState& state = *made;
  const auto kept = keep(memory, state);
  for (const uint64_t position : {0, 1, 15, 16, 17, 49, 50}) {
    auto earlier = kept->at(position);
    ASSERT_TRUE(earlier.has_value());
    FakeState to(fake_layout(attention_only(), 60, {}), 60);
    ASSERT_TRUE(restore_state(**earlier, to));
    ASSERT_EQ(to.position(), position);
    for (size_t i = 0; i < to.shape().segments.size(); ++i)
      to.for_each_index(i, [&](const Dims& index) { ASSERT_EQ(to.get(i, index), state.get(i, index)); });
  }
  const auto recurrent = keep(memory, *state_of(hybrid(), 3, 50));
  EXPECT_EQ(*recurrent->at(49), nullptr);
}

TEST(Checkpoint, ValuesThatAreNoNumbersAreRefused) {
  for (const size_t segment : {size_t{1}, size_t{2}}) {  // recurrent; keys
    CheckpointMemory memory;
    const auto made = state_of(hybrid(), 1, 40);
    FakeState& state = *made;
    state.set(segment, {2, 4, 3}, std::numeric_limits<float>::infinity());
    const auto kept = memory.keep(state, nullptr);
    ASSERT_FALSE(kept.has_value());
    EXPECT_EQ(kept.error().code, Code::kCorrupt);
    EXPECT_NE(kept.error().message.find(segment == 1 ? "layer 0 recurrent" : "layer 1 keys"), std::string::npos)
        << kept.error().message;
    EXPECT_EQ(memory.bytes(), 0u);
  }
}

TEST(Checkpoint, DamageIsNotRestored) {
  for (const size_t segment : {size_t{1}, size_t{3}}) {
    CheckpointMemory memory;
    const auto kept = keep(memory, *state_of(hybrid(), 1, 40));
    // One row of it, as another thread's stray write would.
    auto* at = const_cast<std::byte*>(kept->view(segment, {segment == 1 ? 5u : 17u, 1}));
    ASSERT_NE(at, nullptr);
    at[2] ^= std::byte{1};
    FakeState to(fake_layout(hybrid(), 60, {}), 60);
    const Status looked = kept->check();
    const auto moved = restore_state(*kept, to);
    ASSERT_FALSE(looked.has_value() || moved.has_value());
    for (const Error& error : {looked.error(), moved.error()}) {
      EXPECT_EQ(error.code, Code::kCorrupt);
      EXPECT_NE(error.message.find(segment == 1 ? "recurrent part" : "tokens 16 to 31"), std::string::npos)
          << error.message;
    }
    EXPECT_EQ(to.position(), 0u);
  }
}

TEST(Checkpoint, SealsLikeTheStateItWas) {
  CheckpointMemory memory;
  const auto made = state_of(hybrid(), 1, 40);
  FakeState& state = *made;
  const auto tokens = test::fake_tokens(2, 40);
  const auto kept = keep(memory, state);
  EXPECT_EQ(*seal_state(*kept, {1, 2, 3}, tokens), *seal_state(state, {1, 2, 3}, tokens));
}

}  // namespace
}  // namespace baton
