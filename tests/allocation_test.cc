// No memory for the n-th allocation that the engine's threads make, for each n: alone, or for all from there on.
// Requests end with kOutOfMemory or are answered right, nothing leaks, the process goes on.
#include <gtest/gtest.h>

#include <atomic>
#include <cstdlib>
#include <iostream>
#include <new>

#include "baton/api/units.h"
#include "tests/support/engine_rig.h"
#include "tests/support/golden.h"
#include "tests/support/smoke.h"

namespace {

std::atomic<int64_t> left{-1};  // allocations until one fails; below zero: none does
std::atomic<bool> all_behind{false};
std::atomic<uint64_t> refused{0};
thread_local bool exempt = false;  // the test's own thread

void* allocate(std::size_t bytes) {
  if (!exempt && left.load(std::memory_order_relaxed) >= 0) {
    const int64_t now = left.fetch_sub(1);
    const bool behind = now < 0 && all_behind;
    if (now == 0 || behind) {
      if (behind || all_behind) left = 0;
      refused.fetch_add(1);
      return nullptr;
    }
  }
  return std::malloc(bytes == 0 ? 1 : bytes);
}

void* allocate_or_throw(std::size_t bytes) {
  void* memory = allocate(bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Not inlined: seen together with its caller, GCC 12 takes a replaced delete for one that does not fit its new.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return allocate_or_throw(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return allocate_or_throw(bytes); }
[[gnu::noinline]] void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept { return allocate(bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace baton::fake {
namespace {

class Allocations : public testing::Test {
 protected:
  Allocations() { exempt = true; }
  ~Allocations() override {
    left = -1;
    exempt = false;
  }
  static void fail_from(int64_t number, bool all) {
    refused = 0;
    all_behind = all;
    left = number;
  }
  // Runs `round` for more and more allocations, until it needs no more of them. How many rounds there were.
  static int64_t each(int64_t step, const std::function<void()>& round) {
    int64_t rounds = 0;
    for (const bool all : {false, true}) {
      for (int64_t number = 0; number < 20000; number += step, ++rounds) {
        fail_from(number, all);
        SCOPED_TRACE(std::to_string(number) + (all ? " and all behind it" : ""));
        round();
        left = -1;
        if (refused == 0 || HasFailure()) break;
      }
    }
    return rounds;
  }
};

void expect_right_or_no_memory(Answer answer, const std::vector<int32_t>& expected) {
  if (answer.finished.reason == FinishReason::kError) {
    EXPECT_EQ(answer.finished.error.code, Code::kOutOfMemory) << answer.finished.error.message;
    EXPECT_NE(answer.finished.error.message, "");
    answer.tokens.resize(std::min(answer.tokens.size(), expected.size()));
    EXPECT_TRUE(std::equal(answer.tokens.begin(), answer.tokens.end(), expected.begin()));
  } else {
    EXPECT_EQ(answer.tokens, expected);
  }
}

TEST_F(Allocations, OfTheEngineMayFail) {
  uint64_t errors = 0;
  const int64_t rounds = each(scaled(1, 13), [&] {
    const int64_t number = left;
    left = -1;
    EngineLimits limits;
    limits.checkpoint_bytes_max = 1 << 20;
    Rig rig(limits, {{}, {.storage = {DType::kF16, true}}});
    left = number;
    std::vector<Request> requests = {make_request(40, 6, 1), make_request(40, 6, 1), make_request(9, 6, 2)};
    requests[0].reuse = requests[1].reuse = ReuseMode::kAny;
    requests[1].want_sealed_state = true;
    requests[2].verify = VerifyMode::kAll;
    {
      std::vector<Ticket> tickets;
      std::vector<size_t> asked;
      for (size_t i = 0; i < requests.size(); ++i) {
        auto ticket = rig.engine->submit(requests[i]);
        if (!ticket) {
          EXPECT_EQ(ticket.error().code, Code::kOutOfMemory) << "the engine had gone down already";
          continue;
        }
        tickets.push_back(*std::move(ticket));
        asked.push_back(i);
      }
      for (size_t i = 0; i < tickets.size(); ++i) {
        Answer answer = read_answer(tickets[i]);
        errors += answer.finished.reason == FinishReason::kError ? 1 : 0;
        expect_right_or_no_memory(std::move(answer), expected_of(requests[asked[i]]));
      }
    }
    rig.engine.reset();
    EXPECT_TRUE(comes_true([&] { return rig.live_states() == 0; }));
  });
  std::cout << rounds << " rounds, " << errors << " requests ended for want of memory\n";
  EXPECT_GT(errors, 5u);
}

// The same of a real unit's: its step throws, and its lane goes on.
TEST_F(Allocations, OfAUnitMayFail) {
  const auto model = load_model(test::data_folder() / "golden" / "tiny-qwen3.5");
  ASSERT_TRUE(model);
  const auto unit = create_unit("cpu");
  ASSERT_TRUE(unit);
  const auto executor = (*unit)->load(*model, 1);
  ASSERT_TRUE(executor);
  Request request;
  for (int32_t i = 0; i < 40; ++i) request.tokens.push_back(7 * i % (*model)->program.vocab);
  request.max_new_tokens = 4;
  request.prefill_unit = request.decode_unit = "cpu";
  std::vector<int32_t> expected;
  uint64_t errors = 0;
  const auto round = [&] {
    const int64_t number = left;
    left = -1;
    EngineOptions options;
    options.units.push_back({"cpu", &(*unit)->caps(), executor->get()});
    auto engine = Engine::create(options);
    ASSERT_TRUE(engine);
    left = number;
    {
      auto ticket = (*engine)->submit(request);
      if (!ticket) return;
      Answer answer = read_answer(*ticket);
      left = -1;
      if (expected.empty()) expected = answer.tokens;
      errors += answer.finished.reason == FinishReason::kError ? 1 : 0;
      expect_right_or_no_memory(std::move(answer), expected);
    }
  };
  round();
  ASSERT_EQ(expected.size(), 4u);
  each(scaled(1, 13), round);
  std::cout << errors << " requests ended for want of memory\n";
  EXPECT_GT(errors, 2u);
}

}  // namespace
}  // namespace baton::fake
