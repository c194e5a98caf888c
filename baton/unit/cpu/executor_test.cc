// The executor on a small hybrid model made here: prefill in any pieces equals token by token, results do not depend on
// threads or on who shares a decode step, no allocation in decode, states copied whole, kernel sets agree.
#include "baton/unit/cpu/executor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cstring>
#include <new>
#include <set>

#include "baton/unit/cpu/small_model_test.h"
#include "baton/unit/entry.h"
#include "baton/unit/host/kernel_sets.h"
#include "tests/support/seats.h"
#include "tests/support/smoke.h"
#include "tests/support/state_values.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

void* counted_or_null(std::size_t bytes) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* counted(std::size_t bytes) {
  void* memory = counted_or_null(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

// Not inlined: seen together with its caller, GCC 12 takes a replaced delete for one that does not fit its new.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return counted(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return counted(bytes); }
// Every new that a delete below may be given memory of.
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted_or_null(bytes);
}
[[gnu::noinline]] void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return counted_or_null(bytes);
}
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace baton {
extern const UnitEntry k_unit_cpu;
}

namespace baton::cpu {
namespace {

using test::state_bytes;

using host::kernel_sets;
using host::Kernels;

TEST(CpuExecutor, AnyPiecesGiveTheSameLogits) {
  const std::vector<int32_t> ids = prompt(150);
  for (const HeadMap map : {HeadMap::kGrouped, HeadMap::kTiled}) {
    const auto executor = load(SmallModel(DType::kF32, map), best());
    const std::vector<float> whole = all_logits(*executor, ids, ids.size());
    for (const size_t piece : {1, 7, 64, 65}) {
      SCOPED_TRACE(piece);
      expect_near(all_logits(*executor, ids, piece), whole, 1e-3f);
    }
  }
}

TEST(CpuExecutor, LongPromptsGoThroughInChunks) {
  const std::vector<int32_t> ids = prompt(static_cast<size_t>(2 * chunk_tokens(best()) + 5));
  const auto executor = load(SmallModel(DType::kQ8_0), best());
  const std::vector<float> whole = all_logits(*executor, ids, ids.size());
  const double error = normalized_error(all_logits(*executor, ids, 100), whole);
  EXPECT_LE(error, rounding_of(best(), DType::kQ8_0));
  // The logits of the last tokens alone are those rows.
  auto state = executor->new_state(ids.size());
  std::vector<float> last(3 * 77, kPoison);
  ASSERT_TRUE(executor->prefill(**state, ids, last));
  expect_near(last, std::span(whole).last(3 * 77), 1e-4f);
  EXPECT_EQ((*state)->position(), ids.size());
}

TEST(CpuExecutor, LogitsNotWantedLeaveTheSameState) {
  const std::vector<int32_t> ids = prompt(40);
  const auto executor = load(SmallModel(DType::kQ4_K), best());
  auto with = executor->new_state(64), without = executor->new_state(64);
  std::vector<float> logits(ids.size() * 77);
  ASSERT_TRUE(executor->prefill(**with, ids, logits));
  ASSERT_TRUE(executor->prefill(**without, ids, {}));
  EXPECT_EQ(state_bytes(**with), state_bytes(**without));
  ASSERT_TRUE(executor->decode(**with, 3, {}));
  ASSERT_TRUE(executor->decode(**without, 3, std::span(logits).first(77)));
  EXPECT_EQ(state_bytes(**with), state_bytes(**without));
}

TEST(CpuExecutor, ThreadsDoNotChangeABit) {
  const std::vector<int32_t> ids = prompt(40);
  for (const DType dtype : {DType::kBF16, DType::kQ6_K}) {
    const SmallModel small(dtype);
    const auto one = load(small, best(), 1);
    for (const uint32_t threads : {2u, 3u}) {
      const auto many = load(small, best(), threads);
      for (const size_t piece : {1, 40}) {
        const std::vector<float> a = all_logits(*one, ids, piece), b = all_logits(*many, ids, piece);
        EXPECT_EQ(0, std::memcmp(a.data(), b.data(), a.size() * sizeof(float)))
            << threads << " threads, pieces of " << piece;
      }
    }
  }
}

TEST(CpuExecutor, DecodeSeatsDoNotTouchEachOther) {
  const auto executor = load(SmallModel(DType::kQ8_0), best());
  const std::vector<int32_t> ids = prompt(30);
  std::vector<std::unique_ptr<SequenceState>> alone, together;
  for (size_t i = 0; i < 5; ++i) {
    alone.push_back(*executor->new_state(600));
    together.push_back(*executor->new_state(600));
    const auto part = std::span(ids).first(1 + 7 * i);
    ASSERT_TRUE(executor->prefill(*alone[i], part, {}));
    ASSERT_TRUE(executor->prefill(*together[i], part, {}));
  }
  std::vector<float> apart(5 * 77, kPoison), joined(5 * 100, kPoison);
  for (int step = 0; step < 3; ++step) {
    std::vector<test::SeatRows> slots;
    for (size_t i = 0; i < 5; ++i) {
      const auto token = static_cast<int32_t>(10 * step + static_cast<int>(i));
      ASSERT_TRUE(executor->decode(*alone[i], token, std::span(apart).subspan(77 * i, 77)));
      // One wants no logits; the others' rows are unevenly spaced in memory.
      const std::span<float> to =
          i == 2 ? std::span<float>() : std::span(joined).subspan((i == 4 ? 23 : 0) + 77 * i, 77);
      slots.push_back({together[i].get(), token, to});
    }
    ASSERT_TRUE(test::step_together(*executor, slots));
    for (const size_t i : {0, 1, 3, 4}) {
      EXPECT_EQ(0, std::memcmp(apart.data() + 77 * i, slots[i].rows.data(), 77 * sizeof(float))) << "slot " << i;
    }
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(state_bytes(*alone[i]), state_bytes(*together[i]));
  }
}

// Tiles round another way: a decode of as many sequences as they take rows goes without them.
TEST(CpuExecutor, DecodeOfManySeatsTakesNoTiles) {
  Kernels tiled = best();
  tiled.to_tiles = [](const float*, int64_t, uint16_t*, uint16_t*) {};
  for (auto& matmul : tiled.tile_matmul) {
    matmul = [](const host::Multiply&) { ADD_FAILURE() << "a product of tiles"; };
  }
  const auto executor = load(SmallModel(DType::kBF16), tiled);
  std::vector<std::unique_ptr<SequenceState>> states;
  std::vector<test::SeatRows> slots;
  for (uint32_t i = 0; i < kDecodeSeatsMax; ++i) {
    states.push_back(*executor->new_state(4));
    slots.push_back({states.back().get(), static_cast<int32_t>(i), {}});
  }
  EXPECT_TRUE(test::step_together(*executor, slots));
}

constexpr size_t kVocab = 77;

// As many as fit a step: more rows than are multiplied as they lie, and pieces of attention merged by all threads.
TEST(CpuExecutor, AFullDecodeStepIsAsEachAlone) {
  for (const DType dtype : {DType::kF32, DType::kQ8_0, DType::kQ4_K}) {
    SCOPED_TRACE(to_string(dtype));
    const auto executor = load(SmallModel(dtype), best(), 3);
    std::vector<std::unique_ptr<SequenceState>> alone, together;
    std::vector<float> rows(kDecodeSeatsMax * kVocab, std::nanf("")), row(kVocab);
    for (uint32_t step = 0; step < 2; ++step) {
      std::vector<test::SeatRows> slots;
      for (uint32_t i = 0; i < kDecodeSeatsMax; ++i) {
        if (step == 0) {
          alone.push_back(*executor->new_state(4));
          together.push_back(*executor->new_state(4));
        }
        slots.push_back({together[i].get(), static_cast<int32_t>((7 * i + step) % kVocab),
                         std::span(rows).subspan(i * kVocab, kVocab)});
      }
      ASSERT_TRUE(test::step_together(*executor, slots));
      for (uint32_t i = 0; i < kDecodeSeatsMax; ++i) {
        ASSERT_TRUE(executor->decode(*alone[i], static_cast<int32_t>((7 * i + step) % kVocab), row));
        ASSERT_EQ(0, std::memcmp(row.data(), rows.data() + i * kVocab, kVocab * sizeof(float))) << "seat " << i;
        ASSERT_EQ(state_bytes(*alone[i]), state_bytes(*together[i])) << "seat " << i;
      }
    }
  }
}

// Tiles take all rows that prefill, be it one, and none of those that decode beside them.
TEST(CpuExecutor, WhatARowIsForDecidesAboutTiles) {
  Kernels tiled = best();
  tiled.to_tiles = [](const float*, int64_t, uint16_t*, uint16_t*) {};
  static std::set<int64_t> taken;
  for (auto& matmul : tiled.tile_matmul) {
    matmul = [](const host::Multiply& m) { taken.insert(m.tokens); };
  }
  const auto executor = load(SmallModel(DType::kBF16), tiled, 1);
  for (const std::vector<size_t>& prefills : {std::vector<size_t>{1}, {1, 3}, {64, 1}, {64, 17, 2}}) {
    taken.clear();
    int64_t rows = 0;
    std::vector<std::unique_ptr<SequenceState>> states;
    std::vector<std::vector<int32_t>> ids;
    std::vector<test::SeatRows> seats;
    for (const size_t tokens : prefills) {
      states.push_back(*executor->new_state(tokens));
      ids.push_back(prompt(tokens));
      rows += static_cast<int64_t>(tokens);
    }
    for (size_t i = 0; i < ids.size(); ++i) seats.emplace_back(states[i].get(), ids[i]);
    for (int i = 0; i < 3; ++i) {
      states.push_back(*executor->new_state(1));
      seats.emplace_back(states.back().get(), 5 + i);
    }
    ASSERT_TRUE(test::step_together(*executor, seats));
    EXPECT_EQ(taken, std::set<int64_t>{rows});
  }
}

TEST(CpuExecutor, DecodeDoesNotAllocate) {
  for (const DType dtype : {DType::kQ8_0, DType::kBF16, DType::kQ4_K}) {
    const auto executor = load(SmallModel(dtype), best());
    std::vector<std::unique_ptr<SequenceState>> states;
    const int32_t token = 5;
    std::vector<Seat> seats;
    std::vector<float> logits(8 * 77);
    for (size_t i = 0; i < 8; ++i) {
      states.push_back(*executor->new_state(120));
      seats.push_back({states[i].get(), {&token, 1}, 1});
      ASSERT_TRUE(executor->prefill(*states[i], prompt(50), {}));
    }
    ASSERT_TRUE(executor->settle());
    ASSERT_TRUE(executor->step(seats, logits, {}));
    allocations = 0;
    counting = true;
    bool ok = true;
    for (int step = 0; step < 20; ++step) {
      ok = ok && executor->step({seats.data(), 1}, std::span(logits).first(77), {}).has_value() &&
           executor->step(seats, logits, {}).has_value();
    }
    counting = false;
    EXPECT_TRUE(ok);
    EXPECT_EQ(allocations, 0) << to_string(dtype);
  }
}

// A state may lie where another was.
TEST(CpuExecutor, WhatMemoryHeldBeforeDoesNotShow) {
  const std::vector<int32_t> ids = prompt(100);
  const auto executor = load(SmallModel(DType::kQ8_0), best());
  const auto run = [&](uint64_t tokens_max) {
    auto state = executor->new_state(tokens_max);
    std::vector<float> logits(ids.size() * 77), next(77);
    EXPECT_TRUE(executor->prefill(**state, ids, logits));
    EXPECT_TRUE(executor->decode(**state, 3, next));
    logits.insert(logits.end(), next.begin(), next.end());
    return logits;
  };
  const std::vector<float> first = run(256);
  EXPECT_EQ(run(256), first);
  EXPECT_EQ(run(200), first);
}

// However many it was made for.
TEST(CpuExecutor, AStateTakesMemoryAsTokensCome) {
  const auto executor = load(SmallModel(DType::kQ8_0), best());
  auto state = executor->new_state(uint64_t{1} << 15);
  const uint64_t none = (*state)->bytes();
  EXPECT_EQ(none, executor->state_bytes(0));
  ASSERT_TRUE(executor->prefill(**state, prompt(35), {}));
  EXPECT_EQ((*state)->bytes(), executor->state_bytes(35));
  EXPECT_EQ((*state)->bytes(), executor->state_bytes(64));
  ASSERT_TRUE(executor->prefill(**state, prompt(30), {}));
  EXPECT_EQ((*state)->bytes() - none, 2 * (executor->state_bytes(1) - none));
}

TEST(CpuExecutor, AForkIsDeepAndWhole) {
  const auto executor = load(SmallModel(DType::kQ5_K), best());
  const std::vector<int32_t> ids = prompt(50);
  auto state = executor->new_state(110);
  ASSERT_TRUE(executor->prefill(**state, ids, {}));
  auto copy = executor->fork(**state, 50);
  ASSERT_TRUE(copy);
  EXPECT_EQ((*copy)->position(), 50u);
  EXPECT_EQ((*copy)->shape(), (*state)->shape());
  const auto before = state_bytes(**copy);
  EXPECT_EQ(before, state_bytes(**state));
  const std::vector<float> first = all_logits(*executor, **state, ids, 10);
  EXPECT_EQ(before, state_bytes(**copy));
  EXPECT_EQ(first, all_logits(*executor, **copy, ids, 10));
}

TEST(CpuExecutor, KernelSetsAgree) {
  const std::vector<int32_t> ids = prompt(smoke_run() ? 40 : 80);
  for (const Format& format : formats()) {
    const SmallModel small(format.dtype);
    const std::vector<float> want = all_logits(*load(small, *kernel_sets().back()), ids, ids.size());
    for (const Kernels* set : kernel_sets()) {
      SCOPED_TRACE(testing::Message() << set->name << " " << format.name);
      const std::vector<float> got = all_logits(*load(small, *set), ids, ids.size());
      const double error = normalized_error(got, want);
      EXPECT_LE(error, rounding_of(*set, format.dtype));
    }
  }
}

// The type of keys and values would make them zeros; that must not pass for an answer.
TEST(CpuExecutor, ValuesThatF16LosesAreNoNumbers) {
  const std::vector<int32_t> ids = prompt(9);
  for (const size_t piece : {1, 9}) {
    for (const float logit : all_logits(*load(SmallModel(DType::kF32, HeadMap::kGrouped, 1e-6f), best()), ids, piece))
      ASSERT_TRUE(std::isfinite(logit));
    for (const float logit : all_logits(*load(SmallModel(DType::kF32, HeadMap::kGrouped, 1e-9f), best()), ids, piece))
      ASSERT_FALSE(std::isfinite(logit));
    for (const float logit : all_logits(*load(SmallModel(DType::kF32, HeadMap::kGrouped, 0), best()), ids, piece))
      ASSERT_TRUE(std::isfinite(logit)) << "zeros are kept as they are";
  }
}

TEST(CpuExecutor, RefusesWhatDoesNotFit) {
  const auto executor = load(SmallModel(DType::kF32), best());
  auto state = executor->new_state(4);
  const std::vector<int32_t> ids = prompt(5), bad{1, 77};
  EXPECT_EQ(executor->prefill(**state, ids, {}).error().code, Code::kOutOfMemory);
  EXPECT_EQ(executor->prefill(**state, bad, {}).error().code, Code::kInvalidInput);
  EXPECT_EQ((*state)->position(), 0u);
  EXPECT_EQ(executor->new_state(uint64_t{1} << 60).error().code, Code::kOutOfMemory);
}

// Every slot of a step is looked at before any is read or written.
TEST(CpuExecutor, DecodeRefusesBadSeatsBeforeItRuns) {
  const auto executor = load(SmallModel(DType::kF32), best());
  const std::vector<int32_t> ids = prompt(3);
  std::vector<std::unique_ptr<SequenceState>> states;
  for (int i = 0; i < 3; ++i) {
    states.push_back(*executor->new_state(4));
    ASSERT_TRUE(executor->prefill(*states.back(), ids, {}));
  }
  std::vector<float> logits(77, kPoison);
  const auto refused = [&](const std::vector<test::SeatRows>& slots) {
    std::vector<std::vector<std::byte>> before;
    for (const auto& state : states) before.push_back(state_bytes(*state));
    const Status status = test::step_together(*executor, slots);
    for (size_t i = 0; i < states.size(); ++i) EXPECT_EQ(state_bytes(*states[i]), before[i]) << "state " << i;
    EXPECT_TRUE(std::isnan(logits[0]));
    return status ? Code::kInternal : status.error().code;
  };
  for (const int32_t token : {-1, 77, 1 << 30}) {
    for (size_t bad = 0; bad < 3; ++bad) {
      std::vector<test::SeatRows> slots;
      for (size_t i = 0; i < 3; ++i) slots.push_back({states[i].get(), i == bad ? token : 5, logits});
      EXPECT_EQ(refused(slots), Code::kInvalidInput) << "token " << token << " in slot " << bad;
      EXPECT_EQ(refused({slots[bad]}), Code::kInvalidInput) << "token " << token << " alone";
    }
  }
  ASSERT_TRUE(executor->decode(*states[2], 5, {}));  // the third is full now
  const std::vector<test::SeatRows> slots = {{states[0].get(), 5, logits}, {states[2].get(), 5, logits}};
  EXPECT_EQ(refused(slots), Code::kOutOfMemory);
  EXPECT_EQ(refused({test::SeatRows(states[2].get(), 5)}), Code::kOutOfMemory);
  EXPECT_EQ(states[0]->position(), 3u);
}

// Behind 256 keys a decode step reads them in pieces, each with a softmax of its own, and merges these.
TEST(CpuExecutor, DecodeMergesItsPiecesOfManyKeys) {
  const std::vector<int32_t> ids = prompt(1100);
  const auto executor = load(SmallModel(DType::kF32), best());
  const std::vector<float> whole = all_logits(*executor, ids, ids.size());
  auto state = *executor->new_state(ids.size());
  size_t done = 0;
  for (const size_t from : {250u, 505u, 760u, 1090u}) {  // one piece and two, two and three, three, four and five
    SCOPED_TRACE(from);
    ASSERT_TRUE(executor->prefill(*state, std::span(ids).subspan(done, from - done), {}));
    const std::vector<float> got = all_logits(*executor, *state, std::span(ids).subspan(from, 10), 1);
    expect_near(got, std::span(whole).subspan(from * 77, 770), 1e-3f);
    done = from + 10;
  }
}

// Steps of the scheduler are multiples of 64 tokens: how they fall does not show in an answer.
TEST(CpuExecutor, CutAtMultiplesOf64GivesTheSameBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kQ8_0, DType::kQ4_K}) {
    const auto executor = load(SmallModel(dtype), best());
    for (const size_t tokens : {65, 70, 128 + 20, 192 + 50, 300, 512 + 65}) {
      if (smoke_run() && tokens > 150) continue;
      const std::vector<int32_t> ids = prompt(tokens);
      const std::vector<float> whole = all_logits(*executor, ids, ids.size());
      for (const size_t piece : {64, 128, 256}) {
        const std::vector<float> cut = all_logits(*executor, ids, piece);
        EXPECT_EQ(0, std::memcmp(whole.data(), cut.data(), whole.size() * sizeof(float)))
            << to_string(dtype) << " " << tokens << " tokens in pieces of " << piece;
      }
    }
  }
}

// The first pass packs into scratch, later ones use more and more that is packed: the same bits.
TEST(CpuExecutor, PackingDoesNotChangeABit) {
  const std::vector<int32_t> ids = prompt(40);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    const SmallModel small(dtype);
    const auto executor = load(small, best());
    const auto settled = load(small, best());
    ASSERT_TRUE(settled->settle());
    const std::vector<float> want = all_logits(*settled, ids, ids.size());
    for (int pass = 0; pass < 3; ++pass) {
      const std::vector<float> got = all_logits(*executor, ids, ids.size());
      EXPECT_EQ(0, std::memcmp(got.data(), want.data(), want.size() * sizeof(float)))
          << to_string(dtype) << " pass " << pass;
    }
  }
}

TEST(CpuUnit, OptionsRun) {
  for (const Kernels* set : kernel_sets()) {
    const auto options =
        UnitOptions::parse("cpu", fmt::format("kernels={},threads=2", set->name), k_unit_cpu.options());
    ASSERT_TRUE(options) << options.error().message;
    auto unit = k_unit_cpu.create(*options);
    ASSERT_TRUE(unit);
    auto executor = (*unit)->load(SmallModel(DType::kF32).model(), 1);
    ASSERT_TRUE(executor);
    EXPECT_EQ((*executor)->placement().ran, "cpu");
    EXPECT_EQ((*executor)->placement().kernels, set->name);
    EXPECT_EQ((*executor)->placement().text(), fmt::format("{} kernels, 2 threads", set->description));
    // On which prefix reuse rests.
    EXPECT_TRUE((*unit)->caps().shared_prefills_exact) << set->name;
    const bool rounds = set->name == std::string_view("avx512bf16");
    EXPECT_EQ((*unit)->caps().product_type, rounds ? DType::kBF16 : DType::kF32) << set->name;
  }
  const auto unknown = UnitOptions::parse("cpu", "kernels=abacus", k_unit_cpu.options());
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("scalar"), std::string::npos) << unknown.error().message;
}

// Whatever the machine has that is quicker.
TEST(CpuUnit, ExactKernelsMultiply16BitWeightsInF32) {
  auto unit = k_unit_cpu.create(*UnitOptions::parse("cpu", "kernels=exact", k_unit_cpu.options()));
  ASSERT_TRUE(unit) << unit.error().message;
  EXPECT_EQ((*unit)->caps().product_type, DType::kF32);
  EXPECT_TRUE((*unit)->caps().shared_prefills_exact);
  auto executor = (*unit)->load(SmallModel(DType::kF32).model(), 1);
  ASSERT_TRUE(executor);
  for (const Kernels* set : kernel_sets()) {
    if (set->name == std::string_view("amx") || set->name == std::string_view("avx512bf16")) continue;
    EXPECT_EQ((*executor)->placement().kernels, set->name);
    break;
  }
}

}  // namespace
}  // namespace baton::cpu
