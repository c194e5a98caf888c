// Pieces are carried out once each, in the order of their batches, whoever helps.
#include "baton/bridge/crew.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>

#include "baton/base/random.h"
#include "tests/support/smoke.h"

namespace baton {
namespace {

// Counts what is done, and reads what the caller wrote before it was put there.
class Counted final : public ShiftWork {
 public:
  std::array<uint64_t, Shift::kBatches> number{};  // of the batch's first piece
  std::array<std::atomic<int>, 20'000> done{};
  std::array<std::atomic<uint64_t>, Crew::kThreadsMax> by{};  // threads

 private:
  void piece(uint32_t batch, uint32_t piece, uint32_t thread) override {
    ++done[number[batch] + piece];
    ++by[thread];
  }
};

// So many batches, as many of them at a time as `others` allows.
uint64_t put_all(Shift& shift, Counted& work, Random& random, uint64_t first, int batches, uint32_t others) {
  for (int i = 0; i < batches; ++i) {
    const uint32_t batch = shift.next_batch(others);
    const auto pieces = static_cast<uint32_t>(random.below(9));
    work.number[batch] = first;
    shift.add(pieces);
    first += pieces;
  }
  return first;
}

TEST(Crew, DoesEachPieceOnce) {
  for (const uint32_t threads : {1u, 2u, 5u}) {
    Crew crew(threads);
    for (int seed = 0; seed < scaled(40, 10); ++seed) {
      Random random(static_cast<uint64_t>(seed));
      Counted work;
      uint64_t count = 0;
      {
        Shift shift(&crew, work, static_cast<uint32_t>(random.below(6)));
        count = put_all(shift, work, random, 0, 500, static_cast<uint32_t>(random.below(Shift::kBatches)));
        shift.finish();
        for (uint64_t i = 0; i < count; ++i) ASSERT_EQ(work.done[i], 1) << i;
        count = put_all(shift, work, random, count, 3, 2);
      }
      for (uint64_t i = 0; i < work.done.size(); ++i) ASSERT_EQ(work.done[i], i < count ? 1 : 0) << i;
    }
  }
}

TEST(Crew, HelpsSeveralAtOnce) {
  Crew crew(4);
  std::vector<std::thread> callers;
  for (uint64_t caller = 0; caller < 3; ++caller) {
    callers.emplace_back([&, caller] {
      Random random(caller);
      for (int i = 0; i < scaled(60, 15); ++i) {
        Counted work;
        uint64_t count = 0;
        {
          Shift shift(&crew, work, 2);
          count = put_all(shift, work, random, 0, 50, 7);
        }
        for (uint64_t at = 0; at < count; ++at) ASSERT_EQ(work.done[at], 1);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
}

// The order, where one thread alone does it; and that nobody else did.
TEST(Crew, WhoHasNoneDoesItAlone) {
  class Listed final : public ShiftWork {
   public:
    std::vector<std::pair<uint32_t, uint32_t>> seen;

   private:
    void piece(uint32_t batch, uint32_t piece, uint32_t thread) override {
      EXPECT_EQ(thread, 0u);
      seen.emplace_back(batch, piece);
    }
  };
  Crew crew(3);
  for (Crew* const with : {static_cast<Crew*>(nullptr), &crew}) {
    Listed work;
    Shift shift(with, work, 0);
    for (int i = 0; i < 3; ++i) {
      EXPECT_EQ(shift.next_batch(2), static_cast<uint32_t>(i));
      shift.add(2);
    }
    EXPECT_TRUE(work.seen.empty());
    EXPECT_EQ(shift.next_batch(2), 3u);
    EXPECT_GE(work.seen.size(), 2u);
    EXPECT_LT(work.seen.size(), 6u);
    shift.finish();
    EXPECT_EQ(work.seen.size(), 6u);
    EXPECT_TRUE(std::is_sorted(work.seen.begin(), work.seen.end()));
  }
}

TEST(Crew, HasAtMostSoManyThreads) {
  EXPECT_GE(Crew().threads(), 1u);
  EXPECT_LE(Crew().threads(), Crew::kThreadsMax);
  Crew crew(3);
  crew.start();
  Counted work;
  {
    Shift shift(&crew, work, 100);
    Random random(1);
    put_all(shift, work, random, 0, 1000, 20);
  }
  for (size_t thread = 3; thread < work.by.size(); ++thread) EXPECT_EQ(work.by[thread], 0u);
}

TEST(Crew, NoMoreHelpThanWereAskedFor) {
  class Slow final : public ShiftWork {
   public:
    std::array<std::atomic<uint64_t>, Crew::kThreadsMax> by{};

   private:
    void piece(uint32_t, uint32_t, uint32_t thread) override {
      ++by[thread];
      std::this_thread::sleep_for(std::chrono::microseconds(200));
    }
  };
  Crew crew(4);
  Slow work;
  {
    Shift shift(&crew, work, 1);
    for (int i = 0; i < 20; ++i) {
      shift.next_batch(5);
      shift.add(5);
    }
  }
  EXPECT_GT(work.by[1], 0u);
  EXPECT_EQ(work.by[2] + work.by[3], 0u);
}

}  // namespace
}  // namespace baton
