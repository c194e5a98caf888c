// Pages of states: taken as tokens come, shared by forks, zeroed before another sequence has them, counted.
#include "baton/unit/host/host_state.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

namespace baton::host {
namespace {

constexpr uint64_t kPage = kPageTokens;

class HostStates : public testing::Test {
 protected:
  static Program program() {
    Program program;
    program.slots = {{SlotKind::kKeys, 0, 2, 0, 24}, {SlotKind::kValues, 0, 2, 0, 24},
                     {SlotKind::kConv, 1, 0, 3, 40}, {SlotKind::kRecurrent, 1, 2, 8, 8},
                     {SlotKind::kKeys, 2, 1, 0, 8},  {SlotKind::kValues, 2, 1, 0, 8}};
    return program;
  }
  static bool grows(SlotId slot) { return slot < 2 || slot > 3; }
  std::unique_ptr<SequenceState> make(uint64_t tokens_max) {
    auto made = pool_.make(tokens_max);
    EXPECT_TRUE(made) << made.error().message;
    return std::move(*made);
  }
  static HostState& own(SequenceState& state) { return static_cast<HostState&>(state); }
  // Each value of `count` more tokens, and of the parts.
  static void go_on(SequenceState& any, uint64_t count, uint8_t value) {
    HostState& state = own(any);
    ASSERT_TRUE(state.make_room(state.position() + count));
    for_rows(state, state.position(), state.position() + count, [&](std::byte* row, uint64_t bytes, bool is_parts) {
      // Bytes of which no value is infinite or no number.
      std::memset(row, is_parts ? value / 2 : value, bytes);
    });
    state.advance(count);
  }
  // Rows of tokens [begin, end), then those of the parts.
  template <class Visit>
  static void for_rows(const HostState& state, uint64_t begin, uint64_t end, Visit visit) {
    for (SlotId slot = 0; slot < static_cast<SlotId>(state.shape().segments.size()); ++slot) {
      const Segment& segment = state.shape().segments[static_cast<size_t>(slot)];
      const Dims dims = dims_at(segment, end);
      for (uint64_t a = 0; a < dims[0]; ++a) {
        for (uint64_t b = grows(slot) ? begin : 0; b < dims[1]; ++b)
          visit(state.row(slot, a, b), dims[2] * value_bytes(segment.dtype), !grows(slot));
      }
    }
  }
  // Of the rows of tokens, that hold `value` throughout.
  static uint64_t count_of(const HostState& state, uint64_t begin, uint64_t end, uint8_t value, bool parts = false) {
    uint64_t count = 0;
    for_rows(state, begin, end, [&](const std::byte* row, uint64_t bytes, bool is_parts) {
      if (is_parts != parts) return;
      count += static_cast<uint64_t>(std::count(row, row + bytes, std::byte{value})) == bytes ? 1 : 0;
    });
    return count;
  }
  static uint64_t rows_of(uint64_t tokens) { return tokens * 2 * (2 + 1); }

  LiveStates live_;
  StatePool pool_{program(), DType::kF16, "test", live_};
};

TEST_F(HostStates, TakeAPageWhenItsFirstTokenComes) {
  const auto state = make(1000);
  const uint64_t parts = pool_.bytes_for(0), page = pool_.bytes_for(1) - parts;
  EXPECT_GT(page, 0u);
  for (uint64_t tokens = 1; tokens <= 3 * kPage; ++tokens) {
    go_on(*state, 1, 7);
    ASSERT_EQ(state->bytes(), parts + (tokens + kPage - 1) / kPage * page);
    ASSERT_EQ(state->bytes(), pool_.bytes_for(tokens));
    ASSERT_EQ(pool_.memory().bytes, state->bytes());
  }
  EXPECT_EQ(count_of(own(*state), 0, 3 * kPage, 7), rows_of(3 * kPage));
}

TEST_F(HostStates, ForksHoldOnePageUntilOneOfThemWrites) {
  const uint64_t page = pool_.bytes_for(1) - pool_.bytes_for(0), parts = pool_.bytes_for(0);
  auto first = make(1000);
  go_on(*first, 2 * kPage + 10, 7);
  auto second = own(*first).fork(2 * kPage + 10);
  ASSERT_TRUE(second);
  EXPECT_EQ((*second)->bytes(), first->bytes());
  EXPECT_EQ(pool_.memory().bytes, 3 * page + 2 * parts);
  EXPECT_EQ(count_of(own(**second), 0, 2 * kPage + 10, 7), rows_of(2 * kPage + 10));
  const std::byte* const shared = own(*first).row(0, 0, 2 * kPage);
  EXPECT_EQ(own(**second).row(0, 0, 2 * kPage), shared);

  go_on(**second, 5, 9);
  EXPECT_EQ(pool_.memory().bytes, 4 * page + 2 * parts);
  EXPECT_EQ(own(*first).row(0, 0, 2 * kPage), shared);
  go_on(*first, 5, 8);  // alone with it now: no copy
  EXPECT_EQ(own(*first).row(0, 0, 2 * kPage), shared);
  EXPECT_EQ(pool_.memory().bytes, 4 * page + 2 * parts);
  for (const auto& [state, value] : {std::pair(first.get(), 8), std::pair(second->get(), 9)}) {
    EXPECT_EQ(count_of(own(*state), 0, 2 * kPage + 10, 7), rows_of(2 * kPage + 10));
    EXPECT_EQ(count_of(own(*state), 2 * kPage + 10, 2 * kPage + 15, static_cast<uint8_t>(value)), rows_of(5));
  }
  first.reset();
  EXPECT_EQ(pool_.memory().bytes, 4 * page + parts - page);
  second->reset();
  EXPECT_EQ(pool_.memory().bytes, 0u);
}

// Into another executor's state, which outlives the first executor, and grows, in its memory; each counts its own.
TEST_F(HostStates, AnAdoptedStateHasTheMemoryOfTheOther) {
  LiveStates other_live;
  auto other = std::make_unique<StatePool>(program(), DType::kF16, "other", other_live);
  const uint64_t page = pool_.bytes_for(1) - pool_.bytes_for(0), parts = pool_.bytes_for(0);
  auto from = std::move(*other->make(200));
  const auto to = make(1000);
  go_on(*from, kPage + 10, 7);
  const std::byte* const row = own(*from).row(0, 1, kPage + 3);
  ASSERT_TRUE(to->adopt(*from));
  EXPECT_EQ(own(*to).row(0, 1, kPage + 3), row);
  EXPECT_EQ(to->position(), kPage + 10);
  EXPECT_EQ(count_of(own(*to), 0, kPage + 10, 7), rows_of(kPage + 10));
  EXPECT_GT(count_of(own(*to), 0, 1, 3, true), 0u);
  EXPECT_EQ(pool_.memory().bytes, 2 * page + parts);
  EXPECT_EQ(other->memory().bytes, parts);

  EXPECT_EQ(from->position(), 0u);
  EXPECT_EQ(count_of(own(*from), 0, 0, 0, true), count_of(own(*to), 0, 0, 3, true));
  go_on(*from, 5, 9);
  EXPECT_EQ(other->memory().bytes, parts + page);
  from.reset();
  EXPECT_EQ(other->memory().bytes, 0u);
  other.reset();

  go_on(*to, 3 * kPage, 8);
  EXPECT_EQ(count_of(own(*to), kPage + 10, 4 * kPage + 10, 8), rows_of(3 * kPage));
  EXPECT_EQ(to->bytes(), pool_.bytes_for(to->position()));
  const auto fork = own(*to).fork(to->position());
  ASSERT_TRUE(fork);
  EXPECT_EQ(count_of(own(**fork), 0, kPage + 10, 7), rows_of(kPage + 10));
  EXPECT_EQ(pool_.memory().bytes, 5 * page + 2 * parts);
  // Shared pages would be counted by two.
  const auto third = make(1000);
  EXPECT_FALSE(third->adopt(*to));
  EXPECT_EQ(third->position(), 0u);
  EXPECT_EQ(count_of(own(*to), 0, kPage + 10, 7), rows_of(kPage + 10));
}

TEST_F(HostStates, NothingIsLeftOfAnAdoptedState) {
  LiveStates other_live;
  StatePool other(program(), DType::kF16, "other", other_live);
  for (int i = 0; i < 3; ++i) {
    auto from = std::move(*other.make(300));
    auto to = make(300);
    EXPECT_EQ(count_of(own(*from), 0, 0, 0, true), 2u * 8 + 3);
    go_on(*from, 100, 7);
    EXPECT_EQ(count_of(own(*from), 0, 100, 7), rows_of(100));
    ASSERT_TRUE(to->adopt(*from));
    if (i == 1) from.reset();
    to.reset();
  }
  EXPECT_EQ(pool_.memory().bytes, 0u);
  EXPECT_EQ(other.memory().bytes, 0u);
  auto next = std::move(*other.make(300));
  ASSERT_TRUE(own(*next).make_room(200));
  EXPECT_EQ(count_of(own(*next), 0, 200, 0), rows_of(200));
  StatePool wide(program(), DType::kF32, "wide", other_live);
  EXPECT_FALSE(next->can_adopt(**wide.make(300)));
  EXPECT_FALSE(next->can_adopt(*next));
}

// Of a fork's pages too, whoever goes first; and of what was behind a rewind.
TEST_F(HostStates, WhatASequenceWroteIsZeroForTheNext) {
  for (const int first_to_go : {0, 1}) {
    auto one = make(1000);
    go_on(*one, kPage + 40, 7);
    auto other = own(*one).fork(kPage + 40);
    ASSERT_TRUE(other);
    go_on(**other, 70, 8);
    go_on(*one, 3, 9);
    if (first_to_go == 0) {
      one.reset();
      other->reset();
    } else {
      other->reset();
      one.reset();
    }
    const auto next = make(1000);
    ASSERT_TRUE(own(*next).make_room(4 * kPage));
    EXPECT_EQ(count_of(own(*next), 0, 4 * kPage, 0), rows_of(4 * kPage));
    EXPECT_EQ(count_of(own(*next), 0, 0, 0, true), 3u + 2 * 8);
  }
}

TEST_F(HostStates, WhatWasBehindARewindIsZeroForTheNext) {
  Program keys;
  keys.slots = {program().slots[0]};
  StatePool pool(keys, DType::kF16, "test", live_);
  auto made = pool.make(100);
  ASSERT_TRUE(made);
  const auto all_rows = [&](SequenceState& state, auto visit) {
    for (uint64_t head = 0; head < 2; ++head) {
      for (uint64_t token = 0; token < 50; ++token) visit(own(state).row(0, head, token));
    }
  };
  ASSERT_TRUE(own(**made).make_room(50));
  all_rows(**made, [](std::byte* row) { std::memset(row, 7, 24 * 2); });
  own(**made).advance(50);
  ASSERT_TRUE(own(**made).rewind(10));
  ASSERT_TRUE(own(**made).make_room(11));
  made->reset();
  made = pool.make(100);
  ASSERT_TRUE(made && own(**made).make_room(50));
  all_rows(**made, [](const std::byte* row) { ASSERT_EQ(std::count(row, row + 24 * 2, std::byte{0}), 24 * 2); });
}

TEST_F(HostStates, WhatWasKeptIsZeroForTheNext) {
  for (const float wanted : {1.0f, 2.0f}) {
    const auto state = make(10);
    ASSERT_TRUE(own(*state).keep());
    for (const uint64_t at : {0, 5, 15}) {
      EXPECT_EQ(*own(*state).kept(3, at), 0.0f);
      *own(*state).kept(3, at) = wanted;
    }
    EXPECT_EQ(state->bytes(), pool_.memory().bytes);
  }
  EXPECT_EQ(pool_.memory().bytes, 0u);
}

TEST_F(HostStates, AFilledStateLeavesZerosBehind) {
  auto filled = make(100);
  filled->begin_write(70);
  for (size_t i = 0; i < filled->shape().segments.size(); ++i) {
    const Segment& segment = filled->shape().segments[i];
    const Dims dims = dims_at(segment, 70);
    const std::vector<std::byte> ones(dims[0] * dims[1] * dims[2] * value_bytes(segment.dtype), std::byte{1});
    ASSERT_TRUE(filled->write(i, {0, dims[0] * dims[1]}, ones.data()));
  }
  ASSERT_TRUE(filled->finish_write());
  EXPECT_EQ(filled->bytes(), pool_.bytes_for(70));
  EXPECT_EQ(count_of(own(*filled), 0, 70, 1), rows_of(70));
  filled.reset();
  const auto next = make(128);
  ASSERT_TRUE(own(*next).make_room(128));
  EXPECT_EQ(count_of(own(*next), 0, 128, 0), rows_of(128));
}

// Many more than are kept for the next: they are the system's again, and zero when they come back.
TEST_F(HostStates, PagesBeyondWhatIsKeptGoBackToTheSystem) {
  HeldBytes held;
  WaitingBytes waiting;
  const PagePool::Taker taker{"test", held};
  constexpr uint64_t kBytes = uint64_t{64} << 20;
  PagePool pool({{0, 1}}, kBytes, waiting);
  std::vector<Page*> pages;
  for (int i = 0; i < 6; ++i) {
    auto page = pool.take(taker);
    ASSERT_TRUE(page) << page.error().message;
    (*page)->data[0] = 3;
    (*page)->rows = 1;
    pages.push_back(*page);
  }
  EXPECT_EQ(held.now().bytes, 6 * kBytes);
  pool.give(pages, held);
  EXPECT_EQ(held.now().bytes, 0u);
  EXPECT_EQ(held.now().most, 6 * kBytes);
  for (int i = 0; i < 6; ++i) {
    auto page = pool.take(taker);
    ASSERT_TRUE(page);
    EXPECT_NE(std::find(pages.begin(), pages.end(), *page), pages.end());
    EXPECT_EQ((*page)->data[0], 0);
  }
}

TEST_F(HostStates, NoMemoryForAPageLeavesAllAsItWas) {
  HeldBytes held;
  WaitingBytes waiting;
  const PagePool::Taker taker{"test", held};
  PagePool pool({{0, 1}}, uint64_t{1} << 62, waiting);
  const auto none = pool.take(taker);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kOutOfMemory);
  EXPECT_EQ(none.error().message.rfind("test: no memory for keys and values; use a smaller context", 0), 0u)
      << none.error().message;
  EXPECT_EQ(held.now().bytes, 0u);
}

#if defined(__linux__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
// Where the system gives little more, a state is made of the pages that another one left.
TEST_F(HostStates, IdlePagesAreAskedForFirst) {
  constexpr uint64_t kTokens = 200'000;
  constexpr int kNoLimits = 9;
  const auto made = [&] {
    std::unique_ptr<SequenceState> first = make(kTokens);
    if (!own(*first).make_room(kTokens)) return 3;
    const uint64_t bytes = first->bytes();
    first.reset();
    uint64_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const rlim_t most = pages * static_cast<uint64_t>(::sysconf(_SC_PAGESIZE)) + bytes / 4;
    const struct rlimit limit { most, most };
    if (::setrlimit(RLIMIT_AS, &limit) != 0) return 4;
    if (Memory::allocate(4 * bytes, "a probe", "test")) return kNoLimits;
    if (pool_.make(3 * kTokens)) return 5;
    const auto again = pool_.make(kTokens);
    if (!again) return 6;
    return own(**again).make_room(kTokens) ? 0 : 7;
  };
  const pid_t child = ::fork();
  if (child == 0) std::_Exit(made());
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status)) << "ended by signal " << WTERMSIG(status);
  if (WEXITSTATUS(status) == kNoLimits) GTEST_SKIP() << "an emulator that keeps no limits";
  EXPECT_EQ(WEXITSTATUS(status), 0);
}
#endif

// What forks share is let go of by any thread while others copy it: for the thread sanitizer, and the counter.
TEST_F(HostStates, ForksEndOnAnyThread) {
  auto from = make(1000);
  go_on(*from, kPage + 20, 7);
  const uint64_t alone = pool_.memory().bytes;
  for (int round = 0; round < 20; ++round) {
    std::vector<std::unique_ptr<SequenceState>> forks;
    for (int i = 0; i < 4; ++i) forks.push_back(*own(*from).fork(kPage + 20));
    std::vector<std::thread> threads;
    for (size_t i = 0; i < forks.size(); ++i) {
      threads.emplace_back([&, i] {
        if (i % 2 == 0) go_on(*forks[i], 60, static_cast<uint8_t>(i + 1));
        forks[i].reset();
      });
    }
    go_on(*from, 0, 7);
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(pool_.memory().bytes, alone);
    ASSERT_EQ(count_of(own(*from), 0, kPage + 20, 7), rows_of(kPage + 20));
  }
  EXPECT_LE(pool_.memory().most, pool_.bytes_for(kPage + 20) + 4 * pool_.bytes_for(kPage + 80));
}

}  // namespace
}  // namespace baton::host
