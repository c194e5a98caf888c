// Several sequences in one prefill: each gets the logits and the state of a prefill of its own.
#include <gtest/gtest.h>

#include <cstring>

#include "baton/unit/cpu/executor.h"
#include "baton/unit/cpu/small_model_test.h"
#include "baton/unit/host/kernel_sets.h"
#include "tests/support/seats.h"
#include "tests/support/smoke.h"
#include "tests/support/state_values.h"

namespace baton::cpu {
namespace {

using test::state_bytes;

constexpr size_t kVocab = 77;

struct Sequence {
  size_t before;  // tokens of an earlier prefill
  size_t tokens;
  size_t wanted;  // rows of logits
};

struct Outcome {
  std::vector<std::unique_ptr<SequenceState>> states;
  std::vector<std::vector<float>> logits;
};

std::vector<int32_t> tokens_of(size_t sequence, const Sequence& shape) {
  const std::vector<int32_t> all = prompt(sequence + shape.before + shape.tokens);
  return {all.begin() + static_cast<ptrdiff_t>(sequence + shape.before), all.end()};
}

Outcome prefill(Executor& executor, std::span<const Sequence> sequences, bool batch) {
  Outcome out;
  std::vector<std::vector<int32_t>> ids;
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Sequence& shape = sequences[i];
    out.states.push_back(*executor.new_state(shape.before + shape.tokens + 4));
    if (shape.before > 0) {
      EXPECT_TRUE(executor.prefill(*out.states[i], prompt(shape.before), {}));
    }
    ids.push_back(tokens_of(i, shape));
    // One value more than asked for: rows of neighbours do not follow each other in memory.
    out.logits.emplace_back(shape.wanted * kVocab + 1, kPoison);
  }
  std::vector<test::SeatRows> slots;
  for (size_t i = 0; i < sequences.size(); ++i) {
    slots.push_back({out.states[i].get(), ids[i], std::span(out.logits[i]).first(sequences[i].wanted * kVocab)});
  }
  if (batch) {
    const Status status = test::step_together(executor, slots);
    EXPECT_TRUE(status) << status.error().message;
  } else {
    for (const test::SeatRows& slot : slots) EXPECT_TRUE(executor.prefill(*slot.state, slot.tokens, slot.rows));
  }
  for (size_t i = 0; i < sequences.size(); ++i) {
    EXPECT_EQ(out.states[i]->position(), sequences[i].before + sequences[i].tokens) << "sequence " << i;
    EXPECT_TRUE(std::isnan(out.logits[i].back())) << "sequence " << i;
    out.logits[i].pop_back();
  }
  return out;
}

// The last tokens go on by decode, all sequences that fit a step together.
void decode_on(Executor& executor, Outcome& outcome) {
  for (int32_t step = 0; step < 3; ++step) {
    std::vector<test::SeatRows> slots;
    for (size_t i = 0; i < std::min<size_t>(outcome.states.size(), kDecodeSeatsMax); ++i) {
      outcome.logits[i].assign(kVocab, kPoison);
      slots.push_back(
          {outcome.states[i].get(), static_cast<int32_t>(step + 2 * static_cast<int32_t>(i)), outcome.logits[i]});
    }
    ASSERT_TRUE(test::step_together(executor, slots));
  }
}

void expect_same(const Outcome& got, const Outcome& want) {
  for (size_t i = 0; i < want.states.size(); ++i) {
    SCOPED_TRACE(testing::Message() << "sequence " << i);
    ASSERT_EQ(got.logits[i].size(), want.logits[i].size());
    EXPECT_EQ(0, std::memcmp(got.logits[i].data(), want.logits[i].data(), want.logits[i].size() * sizeof(float)));
    EXPECT_EQ(state_bytes(*got.states[i]), state_bytes(*want.states[i]));
  }
}

void check(const host::Kernels& kernels, DType dtype, std::span<const Sequence> sequences, uint32_t threads = 2) {
  SCOPED_TRACE(testing::Message() << kernels.name << " " << to_string(dtype));
  const auto executor = load(SmallModel(dtype), kernels, threads);
  Outcome want = prefill(*executor, sequences, false), got = prefill(*executor, sequences, true);
  expect_same(got, want);
  decode_on(*executor, want);
  decode_on(*executor, got);
  expect_same(got, want);
}

TEST(CpuPrefillBatch, EachSequenceIsAsByItself) {
  const size_t longest = smoke_run() ? 66 : 130;
  const Sequence sequences[] = {{0, 7, 1}, {0, 1, 1},   {5, 33, 33}, {0, longest, 3},
                                {0, 2, 0}, {64, 64, 1}, {3, 65, 20}};
  for (const host::Kernels* kernels : host::kernel_sets()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kQ8_0, DType::kQ4_K}) {
      check(*kernels, dtype, sequences);
    }
  }
}

TEST(CpuPrefillBatch, ThreadsDoNotChangeABit) {
  const Sequence sequences[] = {{0, 13, 1}, {0, 66, 1}, {9, 30, 2}, {0, 5, 5}};
  const auto one = load(SmallModel(DType::kQ8_0), best(), 1);
  const Outcome want = prefill(*one, sequences, true);
  for (const uint32_t threads : {2u, 5u}) {
    const auto many = load(SmallModel(DType::kQ8_0), best(), threads);
    const Outcome got = prefill(*many, sequences, true);
    for (size_t i = 0; i < std::size(sequences); ++i) {
      EXPECT_EQ(got.logits[i], want.logits[i]) << threads << " threads, sequence " << i;
      EXPECT_EQ(state_bytes(*got.states[i]), state_bytes(*want.states[i])) << threads << " threads, sequence " << i;
    }
  }
}

// A step that mixes prefills of any length with decodes at any depth: each as by itself.
TEST(CpuPrefillBatch, DecodesRideWithPrefills) {
  struct Part {
    size_t before, tokens;  // 0 tokens: one that decodes
  };
  const auto chunk = static_cast<size_t>(chunk_tokens(best()));
  const Part parts[] = {{0, 66}, {300, 0}, {0, 300}, {5, 0}, {0, 1}, {700, 0}, {33, 2}, {0, chunk + 1}, {1, 0}};
  for (const DType dtype : {DType::kQ8_0, DType::kBF16, DType::kF16}) {
    const auto executor = load(SmallModel(dtype), best());
    std::vector<std::unique_ptr<SequenceState>> together, alone;
    std::vector<std::vector<float>> got, want;
    std::vector<test::SeatRows> seats;
    for (const Part& part : parts) {
      for (auto* states : {&together, &alone}) {
        states->push_back(*executor->new_state(part.before + part.tokens + 2));
        if (part.before > 0) {
          ASSERT_TRUE(executor->prefill(*states->back(), prompt(part.before), {}));
        }
      }
      got.emplace_back(kVocab, kPoison);
      want.emplace_back(kVocab, kPoison);
      if (part.tokens == 0) {
        ASSERT_TRUE(executor->decode(*alone.back(), 7, want.back()));
      } else {
        ASSERT_TRUE(executor->prefill(*alone.back(), prompt(part.tokens), want.back()));
      }
    }
    for (size_t i = 0; i < std::size(parts); ++i) {
      parts[i].tokens == 0 ? seats.emplace_back(together[i].get(), 7, got[i])
                           : seats.emplace_back(together[i].get(), prompt(parts[i].tokens), got[i]);
    }
    ASSERT_TRUE(test::step_together(*executor, seats));
    for (size_t i = 0; i < std::size(parts); ++i) {
      EXPECT_EQ(got[i], want[i]) << to_string(dtype) << " part " << i;
      EXPECT_EQ(state_bytes(*together[i]), state_bytes(*alone[i])) << to_string(dtype) << " part " << i;
    }
  }
}

// What prefix reuse rests on: however a prompt is cut at multiples of 64 and whatever shares its steps, the same bits.
TEST(CpuPrefillBatch, NeitherCutsNorNeighboursShow) {
  const size_t pieces = smoke_run() ? 2 : 5;
  const std::vector<int32_t> ids = prompt(64 * pieces + 3), other = prompt(75);
  for (const host::Kernels* kernels : host::kernel_sets()) {
    for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kQ8_0}) {
      SCOPED_TRACE(testing::Message() << kernels->name << " " << to_string(dtype));
      const auto executor = load(SmallModel(dtype), *kernels);
      const auto whole = *executor->new_state(ids.size());
      std::vector<float> want(kVocab, kPoison), got = want;
      ASSERT_TRUE(executor->prefill(*whole, ids, want));
      for (const size_t first : {size_t{64}, 64 * (pieces / 2 + 1), 64 * pieces}) {  // the last leaves 3 tokens
        const auto state = *executor->new_state(ids.size());
        const auto before = *executor->new_state(100), behind = *executor->new_state(100);
        ASSERT_TRUE(executor->prefill(*behind, other, {}));
        const std::vector<test::SeatRows> step = {{state.get(), std::span(ids).first(first)}};
        ASSERT_TRUE(test::step_together(*executor, step));
        const std::vector<test::SeatRows> rest = {{before.get(), std::span(other).first(first / 5)},
                                                  {state.get(), std::span(ids).subspan(first), got},
                                                  {behind.get(), 7}};
        ASSERT_TRUE(test::step_together(*executor, rest));
        EXPECT_EQ(got, want) << "cut at " << first;
        EXPECT_EQ(state_bytes(*state), state_bytes(*whole)) << "cut at " << first;
      }
    }
  }
}

TEST(CpuPrefillBatch, ACancelledStepEndsBetweenPasses) {
  const auto executor = load(SmallModel(DType::kQ8_0), best());
  const std::vector<int32_t> ids = prompt(2 * static_cast<size_t>(chunk_tokens(best())));
  const auto state = *executor->new_state(ids.size());
  const Seat seat{state.get(), ids};
  std::atomic<bool> cancelled{true};
  const Status early = executor->step({&seat, 1}, {}, {.cancelled = &cancelled});
  EXPECT_TRUE(!early && early.error().code == Code::kCancelled);
  EXPECT_EQ(state->position(), 0u);
  const Status late = executor->step({&seat, 1}, {}, {.deadline_ns = 1});
  EXPECT_TRUE(!late && late.error().code == Code::kCancelled);
  cancelled = false;
  EXPECT_TRUE(executor->step({&seat, 1}, {}, {.cancelled = &cancelled}));
}

TEST(CpuPrefillBatch, MoreSequencesThanAPassTakes) {
  std::vector<Sequence> sequences;
  for (size_t i = 0; i < 2 * kPrefillSeatsMax + 3; ++i) sequences.push_back({i % 3, 1 + i % 11, i % 4 == 0 ? 0u : 1u});
  check(best(), DType::kQ8_0, sequences);
}

TEST(CpuPrefillBatch, MoreTokensThanAPassTakes) {
  const auto chunk = static_cast<size_t>(chunk_tokens(best()));
  const Sequence sequences[] = {{0, chunk - 30, 1}, {0, 20, 20},       {2, 2 * chunk + 7, chunk + 9},
                                {0, 100, 0},        {0, chunk, chunk}, {0, 3, 3}};
  for (const DType dtype : {DType::kBF16, DType::kQ4_K}) check(best(), dtype, sequences);
}

TEST(CpuPrefillBatch, ABadTokenIsFoundBeforeAnythingRuns) {
  const auto executor = load(SmallModel(DType::kF32), best());
  std::vector<std::unique_ptr<SequenceState>> states;
  for (int i = 0; i < 3; ++i) states.push_back(*executor->new_state(8));
  const std::vector<int32_t> good{1, 2, 3}, bad{4, 5, 77}, long_one(9, 1);
  const auto prefill_second = [&](std::span<const int32_t> ids) {
    const std::vector<test::SeatRows> slots = {
        {states[0].get(), good}, {states[1].get(), ids}, {states[2].get(), good}};
    return test::step_together(*executor, slots);
  };
  const Status outside = prefill_second(bad);
  ASSERT_FALSE(outside);
  EXPECT_EQ(outside.error().code, Code::kInvalidInput);
  EXPECT_EQ(outside.error().message, "sequence 1: token 77 at index 2 is outside the vocabulary of 77");
  const Status full = prefill_second(long_one);
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kOutOfMemory);
  EXPECT_EQ(full.error().message.rfind("sequence 1: 9 tokens", 0), 0u) << full.error().message;
  EXPECT_EQ(prefill_second({}).error().message, "sequence 1: no tokens to process");
  for (const auto& state : states) EXPECT_EQ(state->position(), 0u);
  EXPECT_TRUE(executor->step({}, {}, {}));
}

}  // namespace
}  // namespace baton::cpu
