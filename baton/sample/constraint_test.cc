// What a request adds to its draws: constraint, logit bias, logprobs.
#include "baton/sample/constraint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <new>
#include <set>

#include "baton/sample/sampler.h"
#include "tests/support/fake_constraint.h"

namespace baton {
namespace {

constexpr int32_t kIds = 45;  // no multiple of 32

Sampler make_sampler(SamplerParams params, int32_t vocab_size = kIds) {
  Result<Sampler> sampler = Sampler::create(std::move(params), vocab_size);
  EXPECT_TRUE(sampler.has_value()) << (sampler ? "" : sampler.error().message);
  return *std::move(sampler);
}

std::vector<float> some_logits(uint64_t seed, size_t count = kIds) {
  std::vector<float> logits(count);
  Random random(seed);
  for (float& logit : logits) logit = random.uniform(-3.0f, 3.0f);
  return logits;
}

// Each of these draws in another way.
std::vector<SamplerParams> ways() {
  SamplerParams greedy, all{.temperature = 1.5f, .seed = 4}, top_k{.temperature = 1.0f, .top_k = 3, .seed = 5},
      top_p{.temperature = 1.0f, .top_p = 0.5f, .seed = 6}, min_p{.temperature = 2.0f, .min_p = 0.2f, .seed = 7},
      repeat{.temperature = 1.0f, .seed = 8, .repeat_penalty = 1.4f};
  return {greedy, all, top_k, top_p, min_p, repeat};
}

TEST(Constraint, OnlyAllowedIdsAreDrawnAndEachIsToldOnce) {
  for (SamplerParams params : ways()) {
    for (const bool beyond : {false, true}) {
      const auto constraint = std::make_shared<fake::Constraint>(3, kIds, 8);
      constraint->allows_beyond = beyond;
      params.constraint = constraint;
      Sampler sampler = make_sampler(params);
      std::vector<int32_t> ids;
      for (uint64_t i = 0; i < 200; ++i) {
        const auto allowed = constraint->again();
        for (const int32_t id : ids) ASSERT_TRUE(allowed->accept(id));
        const auto id = sampler.sample(some_logits(i));
        ASSERT_TRUE(id) << id.error().message;
        EXPECT_TRUE(allowed->allows(*id));
        ids.push_back(*id);
        ASSERT_EQ(constraint->accepted, ids);
      }
    }
  }
}

// Of those that are allowed the draw is as if the others were banned.
TEST(Constraint, IsABanOfAllOthers) {
  class Fixed final : public TokenConstraint {
   public:
    void allow(std::span<uint32_t> allowed) override {
      allowed[0] = 1u << 3 | 1u << 9 | 1u << 31;
      allowed[1] = 1u << 1 | 1u << 12;
    }
    Status accept(int32_t) override { return {}; }
    void reset() override {}
  };
  for (SamplerParams params : ways()) {
    params.banned_ids = {9};
    SamplerParams bans = params;
    for (int32_t id = 0; id < kIds; ++id) {
      if (id != 3 && id != 31 && id != 33 && id != 44) bans.banned_ids.push_back(id);
    }
    params.constraint = std::make_shared<Fixed>();
    Sampler constrained = make_sampler(params), banned = make_sampler(bans);
    for (uint64_t i = 0; i < 100; ++i) {
      const auto logits = some_logits(i);
      EXPECT_EQ(constrained.sample(logits).value(), banned.sample(logits).value());
    }
  }
}

TEST(Constraint, BeginsAgainWithTheDraws) {
  for (SamplerParams params : ways()) {
    params.constraint = std::make_shared<fake::Constraint>(9, kIds);
    Sampler sampler = make_sampler(params);
    const auto draw = [&] {
      std::vector<int32_t> ids;
      for (uint64_t i = 0; i < 20; ++i) ids.push_back(sampler.sample(some_logits(i)).value());
      return ids;
    };
    const auto first = draw();
    sampler.reset(params.seed);
    EXPECT_EQ(draw(), first);
  }
}

TEST(Constraint, ThatAllowsNothingIsAnErrorAndNoToken) {
  for (SamplerParams params : ways()) {
    const auto constraint = std::make_shared<fake::Constraint>(1, kIds);
    params.constraint = constraint;
    Sampler sampler = make_sampler(params), other = make_sampler(params);
    constraint->allows_none = constraint->allows_beyond = true;
    const auto id = sampler.sample(some_logits(1));
    ASSERT_FALSE(id);
    EXPECT_EQ(id.error().code, Code::kInvalidInput);
    EXPECT_TRUE(constraint->accepted.empty());
    // Nothing was drawn: what comes next is what would have come.
    constraint->allows_none = false;
    const int32_t next = sampler.sample(some_logits(2)).value();
    constraint->reset();
    EXPECT_EQ(next, other.sample(some_logits(2)).value());
  }
  // All that it allows is banned.
  SamplerParams params{.banned_ids = {}};
  const auto constraint = std::make_shared<fake::Constraint>(1, kIds);
  for (int32_t id = 0; id < kIds; ++id) {
    if (constraint->allows(id)) params.banned_ids.push_back(id);
  }
  params.constraint = constraint;
  EXPECT_FALSE(make_sampler(params).sample(some_logits(1)));
}

// Nonsense is not drawn around, wherever it is; the constraint does not hear of it.
TEST(Constraint, DoesNotHideNonsense) {
  const auto constraint = std::make_shared<fake::Constraint>(1, kIds);
  Sampler sampler = make_sampler({.constraint = constraint});
  for (int32_t bad = 0; bad < kIds; ++bad) {
    auto logits = some_logits(1);
    logits[static_cast<size_t>(bad)] = std::numeric_limits<float>::infinity();
    EXPECT_FALSE(sampler.sample(logits));
  }
  EXPECT_TRUE(constraint->accepted.empty());
}

// Where it stands is unknown behind that.
TEST(Constraint, ThatRefusesWhatItAllowedFailsUntilReset) {
  const auto constraint = std::make_shared<fake::Constraint>(1, kIds);
  Sampler sampler = make_sampler({.constraint = constraint});
  const int32_t first = sampler.sample(some_logits(1)).value();
  constraint->refuses_at = 1;
  EXPECT_EQ(sampler.sample(some_logits(2)).error().code, Code::kInternal);
  constraint->refuses_at = SIZE_MAX;
  EXPECT_EQ(sampler.sample(some_logits(2)).error().code, Code::kInternal);
  sampler.reset(0);
  EXPECT_EQ(sampler.sample(some_logits(1)).value(), first);
}

TEST(Constraint, WithoutMemoryIsAnError) {
  class Full final : public TokenConstraint {
   public:
    void allow(std::span<uint32_t>) override { throw std::bad_alloc(); }
    Status accept(int32_t) override { return {}; }
    void reset() override {}
  };
  const auto id = make_sampler({.constraint = std::make_shared<Full>()}).sample(some_logits(1));
  ASSERT_FALSE(id);
  EXPECT_EQ(id.error().code, Code::kOutOfMemory);
}

TEST(LogitBias, IsAddedToTheLogits) {
  for (SamplerParams params : ways()) {
    Sampler plain = make_sampler(params);
    params.logit_bias = {{4, 2.5f}, {40, -1.0f}, {0, 0.25f}};
    Sampler biased = make_sampler(params);
    for (uint64_t i = 0; i < 100; ++i) {
      auto logits = some_logits(i);
      const int32_t id = biased.sample(logits).value();
      for (const auto& [which, bias] : params.logit_bias) logits[static_cast<size_t>(which)] += bias;
      EXPECT_EQ(id, plain.sample(logits).value());
    }
  }
  // Before the penalties, which look at the sign.
  const float logits[] = {1.0f, 3.1f, 0.0f};
  Sampler sampler = make_sampler({.repeat_penalty = 2.0f, .logit_bias = {{0, 5.0f}}}, 3);
  for (const int32_t id : {0, 1, 0}) EXPECT_EQ(sampler.sample(logits).value(), id);
  const float largest[] = {std::numeric_limits<float>::max(), 0.0f};
  EXPECT_EQ(make_sampler({.logit_bias = {{0, 100.0f}}}, 2).sample(largest).value(), 0);
}

TEST(LogitBias, ExcludesAndChooses) {
  for (SamplerParams params : ways()) {
    params.logit_bias = {{7, -100.0f}, {8, -100.0f}};
    Sampler without = make_sampler(params);
    params.logit_bias = {{11, 100.0f}};
    Sampler with = make_sampler(params);
    for (uint64_t i = 0; i < 100; ++i) {
      auto logits = some_logits(i);
      logits[7] = 9.0f;
      const int32_t id = without.sample(logits).value();
      EXPECT_TRUE(id != 7 && id != 8);
      EXPECT_EQ(with.sample(logits).value(), 11);
    }
  }
}

TEST(Logprobs, AreThoseOfADirectComputation) {
  for (const size_t count : {size_t{3}, size_t{45}, size_t{3000}}) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      auto logits = some_logits(seed, count);
      logits[2] = logits[0];  // a tie
      long double total = 0;
      for (const float logit : logits) total += std::exp(static_cast<long double>(logit));
      std::vector<int32_t> order(count);
      for (size_t i = 0; i < count; ++i) order[i] = static_cast<int32_t>(i);
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
        return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
      });
      for (const uint32_t top : {0u, 1u, 5u, 20u}) {
        const auto made = logprobs_of(logits, 1, top);
        ASSERT_TRUE(made);
        const auto expected = [&](int32_t id) {
          return std::log(std::exp(static_cast<long double>(logits[static_cast<size_t>(id)])) / total);
        };
        EXPECT_NEAR(made->logprob, expected(1), 1e-6);
        ASSERT_EQ(made->top.size(), std::min<size_t>(top, count));
        for (size_t i = 0; i < made->top.size(); ++i) {
          EXPECT_EQ(made->top[i].id, order[i]);
          EXPECT_NEAR(made->top[i].logprob, expected(order[i]), 1e-6);
        }
      }
    }
  }
}

TEST(Logprobs, HoldWhereExponentialsDoNot) {
  const float far[] = {3000.0f, -3000.0f, 2999.0f};
  const auto made = logprobs_of(far, 1, 3);
  ASSERT_TRUE(made);
  EXPECT_FLOAT_EQ(made->logprob, -6000.3133f);
  EXPECT_FLOAT_EQ(made->top[0].logprob, -0.31326169f);
  const float one[] = {5.0f};
  EXPECT_EQ(logprobs_of(one, 0, 1)->logprob, 0.0f);
  const float bad[] = {1.0f, std::nanf("")};
  EXPECT_EQ(logprobs_of(bad, 0, 1).error().code, Code::kDevice);
}

// Whatever was done to the draw, they are the model's own.
TEST(Logprobs, AreOfTheLogitsBeforeAllElse) {
  for (SamplerParams params : ways()) {
    params.logit_bias = {{4, 6.0f}, {5, -100.0f}};
    params.banned_ids = {6};
    params.constraint = std::make_shared<fake::Constraint>(5, kIds);
    params.logprobs = 4;
    Sampler sampler = make_sampler(params);
    params.constraint = std::make_shared<fake::Constraint>(5, kIds);
    params.logprobs.reset();
    Sampler silent = make_sampler(params);
    for (uint64_t i = 0; i < 50; ++i) {
      const auto logits = some_logits(i);
      std::optional<Logprobs> logprobs, none;
      const int32_t id = sampler.sample(logits, &logprobs).value();
      EXPECT_EQ(logprobs, logprobs_of(logits, id, 4).value());
      EXPECT_EQ(silent.sample(logits, &none).value(), id) << "asking changes no draw";
      EXPECT_FALSE(none);
    }
  }
}

TEST(Draws, BadParametersAreNamed) {
  const struct {
    SamplerParams params;
    std::string_view words;
  } cases[] = {
      {{.logit_bias = {{4, 1.0f}}}, "id 4 is outside"},
      {{.logit_bias = {{-1, 1.0f}}}, "id -1 is outside"},
      {{.logit_bias = {{2, 100.5f}}}, "the bias of id 2 is 100.5"},
      {{.logit_bias = {{2, -101.0f}}}, "the bias of id 2 is -101"},
      {{.logit_bias = {{2, std::nanf("")}}}, "the bias of id 2 is nan"},
      {{.logit_bias = {{3, 1.0f}, {2, 1.0f}, {3, 1.0f}}}, "id 3 is there twice"},
      {{.logprobs = 21}, "logprobs is 21"},
  };
  for (const auto& c : cases) {
    const auto sampler = Sampler::create(c.params, 4);
    ASSERT_FALSE(sampler.has_value()) << c.words;
    EXPECT_EQ(sampler.error().code, Code::kInvalidInput);
    EXPECT_NE(sampler.error().message.find(c.words), std::string::npos) << sampler.error().message;
  }
  EXPECT_TRUE(Sampler::create({.logit_bias = {{0, -100.0f}, {3, 100.0f}}, .logprobs = 20}, 4));
}

}  // namespace
}  // namespace baton
