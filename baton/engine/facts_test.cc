// Which states count as made exactly: a request for the same bits may begin from them.
#include "baton/engine/facts.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

const StateMaker kCpu{"cpu", "cpu/a"};

Provenance of(const std::vector<StateStep>& steps, std::vector<StateMaker> makers = {kCpu}) {
  return {std::move(makers), steps};
}
StateStep prefill(uint32_t tokens, uint32_t count = 1, bool shared = false) {
  return {0, StepKind::kPrefill, shared, tokens, count};
}

TEST(MadeExactly, ByPrefillsFromMultipleToMultiple) {
  EXPECT_TRUE(made_exactly(of({prefill(256, 3), prefill(64)}), kCpu, true));
  EXPECT_TRUE(made_exactly(of({prefill(256), prefill(128, 1, true)}), kCpu, true));
  EXPECT_TRUE(made_exactly(of({prefill(192)}), kCpu, false));
}

TEST(MadeExactly, NotOtherwise) {
  EXPECT_FALSE(made_exactly(of({prefill(256), prefill(37)}), kCpu, true)) << "ends between";
  EXPECT_FALSE(made_exactly(of({prefill(37), prefill(27)}), kCpu, true)) << "is cut between";
  EXPECT_FALSE(made_exactly(of({prefill(32, 2)}), kCpu, true)) << "is cut between";
  EXPECT_FALSE(made_exactly(of({prefill(64), {0, StepKind::kDecode, false, 1, 64}}), kCpu, true)) << "decoded";
  EXPECT_FALSE(made_exactly(of({{0, StepKind::kMixed, false, 64, 1}}), kCpu, true)) << "nobody knows";
  EXPECT_FALSE(made_exactly(of({prefill(128, 1, true)}), kCpu, false)) << "neighbours show";
  EXPECT_FALSE(made_exactly(of({prefill(128)}, {{"cpu", "cpu/b"}}), kCpu, true)) << "another arithmetic";
  EXPECT_FALSE(made_exactly(of({prefill(128)}, {{"ref", "cpu/a"}}), kCpu, true)) << "another unit";
  StateStep second = prefill(64);
  second.maker = 1;
  EXPECT_FALSE(made_exactly(of({prefill(64), second}, {kCpu, {"ref", "ref/a"}}), kCpu, true)) << "two units";
  EXPECT_FALSE(made_exactly(Provenance::unknown(64), kCpu, true));
}

TEST(ScoredTokens, AreWholePiecesOfBoundedRows) {
  const auto most = [](int32_t vocab) { return scored_tokens_max({.name = "", .vocab = vocab}); };
  EXPECT_EQ(most(248'320), 64u);
  EXPECT_EQ(most(32'000), 512u);
  EXPECT_EQ(most(2'000'000'000), 64u);
  EXPECT_EQ(most(32) % 64, 0u);
}

}  // namespace
}  // namespace baton
