// Which way of decoding several sequences is taken (sharing.h).
#include "baton/unit/cuda/sharing.h"

#include <gtest/gtest.h>

namespace baton::cuda {
namespace {

// Steps of so many sequences that take so long, until nothing is tried any more.
Sharing tried(size_t seats, int64_t alone_ns, int64_t shared_ns) {
  Sharing sharing;
  int steps = 0;
  while (sharing.tries(seats) && ++steps < 100) {
    const bool alone = sharing.alone(seats);
    // The very first is slow.
    sharing.took(seats, alone, (alone ? alone_ns : shared_ns) + (steps == 1 ? 1000 : 0));
  }
  EXPECT_EQ(steps, 2 * static_cast<int>(Sharing::kTries));
  return sharing;
}

TEST(Sharing, TheFasterWayIsTaken) {
  EXPECT_TRUE(tried(2, 10, 20).alone(2));
  EXPECT_FALSE(tried(2, 20, 10).alone(2));
  EXPECT_FALSE(tried(2, 10, 10).alone(2));
}

TEST(Sharing, EachNumberOfSequencesIsTriedByItself) {
  Sharing sharing = tried(4, 30, 20);
  EXPECT_FALSE(sharing.alone(4));
  EXPECT_TRUE(sharing.tries(2));
  EXPECT_TRUE(sharing.alone(2));
}

TEST(Sharing, OneAndManyAreNotTried) {
  Sharing sharing;
  for (const size_t seats : {size_t{0}, size_t{1}, Sharing::kSeatsMax + 1, size_t{1000}}) {
    EXPECT_FALSE(sharing.alone(seats)) << seats;
    EXPECT_FALSE(sharing.tries(seats)) << seats;
    sharing.took(seats, true, 1);
  }
}

TEST(Sharing, WhatIsKnownDoesNotChange) {
  Sharing sharing = tried(3, 10, 20);
  sharing.took(3, false, 1);
  EXPECT_TRUE(sharing.alone(3));
}

}  // namespace
}  // namespace baton::cuda
