// Shares, and the bounds on how far they are off.
#include "baton/engine/fair_shares.h"

#include <gtest/gtest.h>

#include "baton/base/random.h"

namespace baton {
namespace {

// Serves whoever is next of those that wait, `rounds` times; what each got.
std::vector<double> serve_all(FairShares& shares, const std::vector<uint32_t>& weights, int rounds, Random& random) {
  std::vector<double> got(weights.size());
  for (int i = 0; i < rounds; ++i) {
    size_t next = 0;
    for (size_t tenant = 1; tenant < weights.size(); ++tenant) {
      if (shares.start(tenant, 0) < shares.start(next, 0)) next = tenant;
    }
    const double cost = static_cast<double>(1 + random.below(50));
    shares.serve(next, 0);
    shares.charge(next, 0, cost);
    got[next] += cost;
  }
  return got;
}

// The bound of the paper: shares per weight differ by at most one service of each of the two.
TEST(FairShares, WhoAlwaysWaitsGetsItsWeight) {
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Random random(seed);
    FairShares shares(1);
    std::vector<uint32_t> weights(2 + random.below(4));
    for (size_t tenant = 0; tenant < weights.size(); ++tenant)
      shares.join(tenant, weights[tenant] = static_cast<uint32_t>(1 + random.below(9)));
    const std::vector<double> got = serve_all(shares, weights, 500, random);
    for (size_t a = 0; a < weights.size(); ++a) {
      for (size_t b = 0; b < a; ++b) {
        EXPECT_LE(std::abs(got[a] / weights[a] - got[b] / weights[b]), 50.0 / weights[a] + 50.0 / weights[b])
            << "seed " << seed;
      }
    }
  }
}

TEST(FairShares, WhoAskedForNothingHasSavedNothingUp) {
  Random random(1);
  FairShares shares(1);
  shares.join(0, 1);
  serve_all(shares, {1}, 100, random);
  shares.join(1, 1);
  const std::vector<double> got = serve_all(shares, {1, 1}, 100, random);
  EXPECT_LE(std::abs(got[0] - got[1]), 100);
}

// A tenant that came along with others' steps all day waits for a bounded time when there is not enough for all.
TEST(FairShares, WhatComesAlongRunsUpABoundedDebt) {
  FairShares shares(1);
  shares.join(0, 9);
  shares.join(1, 1);
  for (int i = 0; i < 1000; ++i) {
    shares.serve(0, 0);
    shares.charge(0, 0, 1);
    shares.charge(1, 0, 1);
  }
  int waited = 0;
  for (; shares.start(0, 0) <= shares.start(1, 0); ++waited) {
    shares.serve(0, 0);
    shares.charge(0, 0, 1);
  }
  EXPECT_GT(waited, 20);
  EXPECT_LE(waited, 9 * (FairShares::kLeadMax + 1));
}

TEST(FairShares, AccountsOfThoseThatLeftAreFew) {
  FairShares shares(2);
  for (uint64_t tenant = 0; tenant < 10000; ++tenant) {
    shares.join(tenant, 1);
    shares.charge(tenant, 1, 1);
    shares.leave(tenant);
  }
  EXPECT_LE(shares.tenants(), 100u);
}

}  // namespace
}  // namespace baton
