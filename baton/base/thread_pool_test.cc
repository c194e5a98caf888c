// The pool runs every piece exactly once, on the threads it has, call after call, asleep or awake.
#include "baton/base/thread_pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <numeric>
#include <thread>
#include <vector>

namespace baton {
namespace {

TEST(ThreadPool, RunCallsEachThreadOnce) {
  for (const uint32_t threads : {1u, 2u, 5u}) {
    ThreadPool pool(threads);
    ASSERT_EQ(pool.size(), threads);
    for (int round = 0; round < 50; ++round) {
      std::vector<int> calls(threads, 0);
      std::vector<std::thread::id> ids(threads);
      pool.run([&](uint32_t thread) {
        ++calls[thread];
        ids[thread] = std::this_thread::get_id();
      });
      EXPECT_EQ(calls, std::vector<int>(threads, 1));
      EXPECT_EQ(ids[0], std::this_thread::get_id());
    }
  }
}

TEST(ThreadPool, ParallelForCoversEveryItemOnce) {
  ThreadPool pool(3);
  for (const int64_t items : {0, 1, 2, 7, 100, 1000}) {
    for (const int64_t grain : {1, 3, 64, 5000}) {
      std::vector<int> counts(static_cast<size_t>(items), 0);
      pool.parallel_for(items, grain, [&](int64_t begin, int64_t end, uint32_t thread) {
        EXPECT_LT(thread, 3u);
        EXPECT_LE(end - begin, grain);
        for (int64_t i = begin; i < end; ++i) ++counts[static_cast<size_t>(i)];
      });
      EXPECT_EQ(counts, std::vector<int>(static_cast<size_t>(items), 1));
    }
  }
}

// Whoever holds a piece up does not hold up the rest of its share.
TEST(ThreadPool, SharesAreFinishedByOthers) {
  ThreadPool pool(2);
  std::atomic<int> done{0};
  pool.parallel_for(20, 1, [&](int64_t begin, int64_t, uint32_t) {
    if (begin == 0) {
      while (done < 19) std::this_thread::yield();
    }
    ++done;
  });
  EXPECT_EQ(done, 20);
}

TEST(ThreadPool, OwnShareComesFirstAndInOrder) {
  ThreadPool pool(2);
  std::atomic<int> started{0};
  std::vector<int64_t> taken[2];
  pool.parallel_for(8, 1, [&](int64_t begin, int64_t, uint32_t thread) {
    if (taken[thread].empty()) {
      ++started;
      while (started < 2) std::this_thread::yield();
    }
    taken[thread].push_back(begin);
  });
  EXPECT_EQ(taken[0][0], 0);
  EXPECT_EQ(taken[1][0], 4);
  for (const std::vector<int64_t>& pieces : taken) {
    for (size_t i = 1; i < pieces.size() && pieces[i] / 4 == pieces[0] / 4; ++i)
      EXPECT_GT(pieces[i], pieces[i - 1]);  // gaps: taken by the other
  }
}

// Writes of one call are seen by the next, whichever thread makes them.
TEST(ThreadPool, CallsAreOrdered) {
  ThreadPool pool(4);
  std::vector<int64_t> values(256, 0);
  for (int round = 0; round < 2000; ++round) {
    pool.parallel_for(256, 8, [&](int64_t begin, int64_t end, uint32_t) {
      for (int64_t i = begin; i < end; ++i) ++values[static_cast<size_t>(i)];
    });
  }
  EXPECT_EQ(std::accumulate(values.begin(), values.end(), int64_t{0}), 256 * 2000);
}

TEST(ThreadPool, WakesWorkersThatSleep) {
  ThreadPool pool(3);
  for (int round = 0; round < 20; ++round) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));  // longer than workers spin
    std::atomic<int> calls{0};
    pool.run([&](uint32_t) { ++calls; });
    EXPECT_EQ(calls, 3);
  }
}

// The caller sleeps too when a worker takes long.
TEST(ThreadPool, WaitsForASlowWorker) {
  ThreadPool pool(2);
  bool done = false;
  pool.run([&](uint32_t thread) {
    if (thread != 1) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    done = true;
  });
  EXPECT_TRUE(done);
}

TEST(ThreadPool, DefaultIsPhysicalCores) {
  EXPECT_GE(physical_cores(), 1u);
  EXPECT_LE(physical_cores(), std::max(1u, std::thread::hardware_concurrency()));
  EXPECT_EQ(ThreadPool(0).size(), physical_cores());
}

}  // namespace
}  // namespace baton
