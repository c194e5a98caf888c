// Sampler: greedy, each filter, the distribution of draws, determinism, bad parameters and bad logits.
#include "baton/sample/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>

#include "baton/sample/draw_weight.h"

namespace baton {
namespace {

Sampler make(SamplerParams params, int32_t vocab_size) {
  Result<Sampler> sampler = Sampler::create(std::move(params), vocab_size);
  EXPECT_TRUE(sampler.has_value()) << (sampler ? "" : sampler.error().message);
  return *std::move(sampler);
}

// The ids that come out of many draws.
std::set<int32_t> drawn(Sampler sampler, std::span<const float> logits, int draws) {
  std::set<int32_t> ids;
  for (int i = 0; i < draws; ++i) ids.insert(sampler.sample(logits).value());
  return ids;
}

TEST(Sampler, GreedyTakesTheLargestAndTheLowerIdOnTies) {
  const float logits[] = {1.0f, 3.0f, -2.0f, 3.0f};
  EXPECT_EQ(make({}, 4).sample(logits).value(), 1);
  EXPECT_EQ(make({.banned_ids = {1}}, 4).sample(logits).value(), 3);
  EXPECT_EQ(make({.banned_ids = {1, 3}}, 4).sample(logits).value(), 0);
}

TEST(Sampler, DrawsFollowTheSoftmaxOverTemperature) {
  const float logits[] = {0.0f, 1.0f, 2.0f, -1.0f, 0.5f};
  for (const float temperature : {0.5f, 1.0f, 2.0f}) {
    double expected[5], total = 0.0;
    for (int i = 0; i < 5; ++i) total += expected[i] = std::exp(static_cast<double>(logits[i]) / temperature);
    Sampler sampler = make({.temperature = temperature, .seed = 7}, 5);
    constexpr int kDraws = 100'000;
    int counts[5] = {};
    for (int i = 0; i < kDraws; ++i) ++counts[sampler.sample(logits).value()];
    double chi2 = 0.0;
    for (int i = 0; i < 5; ++i) {
      const double mean = expected[i] / total * kDraws;
      chi2 += (counts[i] - mean) * (counts[i] - mean) / mean;
    }
    EXPECT_LT(chi2, 18.47) << temperature;  // 4 degrees of freedom, p = 0.001; the seed is fixed
  }
}

TEST(Sampler, TopKKeepsTheLikeliestAndTheLowerIdsOnTies) {
  const float logits[] = {1.0f, 1.0f, 5.0f, 1.0f};
  EXPECT_EQ(drawn(make({.temperature = 100.0f, .top_k = 2}, 4), logits, 500), (std::set<int32_t>{0, 2}));
  EXPECT_EQ(drawn(make({.temperature = 100.0f, .top_k = 1}, 4), logits, 100), (std::set<int32_t>{2}));
  EXPECT_EQ(drawn(make({.temperature = 100.0f, .top_k = 9}, 4), logits, 500).size(), 4u);
}

TEST(Sampler, TopPKeepsTheFewestThatReachIt) {
  // Probabilities 0.5, 0.3, 0.15, 0.05; the filter sees them before temperature.
  const float logits[] = {std::log(0.15f), std::log(0.5f), std::log(0.05f), std::log(0.3f)};
  EXPECT_EQ(drawn(make({.temperature = 50.0f, .top_p = 0.4f}, 4), logits, 300), (std::set<int32_t>{1}));
  EXPECT_EQ(drawn(make({.temperature = 50.0f, .top_p = 0.7f}, 4), logits, 300), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(drawn(make({.temperature = 50.0f, .top_p = 0.9f}, 4), logits, 300), (std::set<int32_t>{0, 1, 3}));
  EXPECT_EQ(drawn(make({.temperature = 50.0f, .top_p = 1.0f}, 4), logits, 300).size(), 4u);
  // top_k first: among the two that are left 0.5 is 62 %.
  EXPECT_EQ(drawn(make({.temperature = 50.0f, .top_k = 2, .top_p = 0.6f}, 4), logits, 300), (std::set<int32_t>{1}));
}

TEST(Sampler, TopPOverManyCandidatesKeepsTheSameAsAFullSort) {
  // 1,500 nearly equal logits: the kept front is found in several rounds.
  std::vector<float> logits(1500);
  Random random(5);
  for (float& logit : logits) logit = random.uniform(0.0f, 0.1f);
  std::vector<int32_t> order(logits.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(),
            [&](int32_t a, int32_t b) { return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)]; });
  double total = 0.0, sum = 0.0;
  for (const float logit : logits) total += std::exp(static_cast<double>(logit));
  std::set<int32_t> kept;
  for (const int32_t id : order) {
    kept.insert(id);
    sum += std::exp(static_cast<double>(logits[static_cast<size_t>(id)]));
    if (sum >= 0.5 * total) break;
  }
  EXPECT_EQ(drawn(make({.temperature = 100.0f, .top_p = 0.5f}, 1500), logits, 12'000), kept);
}

TEST(Sampler, MinPIsRelativeToTheLikeliest) {
  const float logits[] = {std::log(0.15f), std::log(0.5f), std::log(0.05f), std::log(0.3f)};
  EXPECT_EQ(drawn(make({.temperature = 50.0f, .min_p = 0.5f}, 4), logits, 300), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(drawn(make({.temperature = 50.0f, .min_p = 0.2f}, 4), logits, 300), (std::set<int32_t>{0, 1, 3}));
  EXPECT_EQ(drawn(make({.temperature = 50.0f, .min_p = 1.0f}, 4), logits, 300), (std::set<int32_t>{1}));
}

TEST(Sampler, TheSameSeedGivesTheSameTokensAndTheseOnes) {
  std::vector<float> logits(100);
  Random random(3);
  for (float& logit : logits) logit = random.uniform(-1.0f, 1.0f);
  const SamplerParams params{.temperature = 1.0f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .seed = 42};
  Sampler a = make(params, 100), b = make(params, 100);
  std::vector<int32_t> ids;
  for (int i = 0; i < 200; ++i) {
    ids.push_back(a.sample(logits).value());
    EXPECT_EQ(b.sample(logits).value(), ids.back());
  }
  EXPECT_EQ(std::vector(ids.begin(), ids.begin() + 10), (std::vector<int32_t>{14, 87, 98, 9, 90, 30, 46, 1, 9, 15}));
  a.reset(42);
  for (const int32_t id : ids) EXPECT_EQ(a.sample(logits).value(), id);
  Sampler other = make({.temperature = 1.0f, .seed = 43}, 100);
  int same = 0;
  for (const int32_t id : ids) same += other.sample(logits).value() == id;
  EXPECT_LT(same, 50);
}

TEST(Sampler, BannedIdsNeverComeOut) {
  std::vector<float> logits(20, 0.0f);
  logits[4] = 50.0f;
  const std::set<int32_t> ids = drawn(make({.temperature = 1.0f, .banned_ids = {4, 0, 19, 4}}, 20), logits, 2000);
  EXPECT_EQ(ids.size(), 17u);
  EXPECT_FALSE(ids.contains(4));
}

TEST(Sampler, ExtremeLogitsStayFinite) {
  const float logits[] = {3e38f, -3e38f, 3e38f};
  EXPECT_EQ(drawn(make({.temperature = 1e-4f}, 3), logits, 200), (std::set<int32_t>{0, 2}));
}

TEST(Sampler, TheFirstAndTheLastThatArePossibleAreDrawn) {
  std::vector<float> logits(22, -24.0f);  // 20 candidates of few units
  logits[5] = 0.0f;
  logits[0] = logits[21] = -300.0f;  // their weight is 0
  // Seeds whose first number is 0, or all ones.
  EXPECT_EQ(make({.temperature = 1.0f, .seed = 0x61c8864680b583ebull}, 22).sample(logits).value(), 1);
  EXPECT_EQ(make({.temperature = 1.0f, .seed = 0x31628af67b2131abull}, 22).sample(logits).value(), 20);
}

TEST(Sampler, WeightsAreExponentials) {
  EXPECT_EQ(draw_weight(0, draw_scale(0.3f)), kDrawWeightOne);
  EXPECT_EQ(draw_weight(std::numeric_limits<float>::infinity(), draw_scale(100.0f)), 0u);
  EXPECT_EQ(draw_weight(0, draw_scale(std::numeric_limits<float>::denorm_min())), kDrawWeightOne);
  EXPECT_EQ(draw_weight(1e-30f, draw_scale(std::numeric_limits<float>::denorm_min())), 0u);
  // As every machine has them.
  EXPECT_EQ(draw_weight(1.0f, draw_scale(1.0f)), 404487723264u);
  EXPECT_EQ(draw_weight(7.25f, draw_scale(0.8f)), 127469459u);
  Random random(2);
  for (int i = 0; i < 100'000; ++i) {
    const float temperature = random.uniform(0.01f, 3.0f), gap = random.uniform() * random.uniform(0.0f, 40.0f);
    const double exact = 0x1p40 * std::exp(-static_cast<double>(gap) / static_cast<double>(temperature));
    EXPECT_NEAR(static_cast<double>(draw_weight(gap, draw_scale(temperature))), exact, exact * 0x1p-28 + 1);
  }
  for (uint32_t half = 1; half < 40; ++half) {
    // Both sides of a power of two.
    const float gap = static_cast<float>(half) * 0.69314718f;
    EXPECT_GE(draw_weight(std::nextafter(gap, 0.0f), draw_scale(1.0f)), draw_weight(gap, draw_scale(1.0f)));
    EXPECT_LE(draw_weight(std::nextafter(gap, 99.0f), draw_scale(1.0f)), draw_weight(gap, draw_scale(1.0f)));
  }
}

// Who draws by itself from the numbers that are shown leaves the sampler where its own draws would.
TEST(Sampler, IsWhereItWouldBeWhenAnotherDrew) {
  std::vector<float> logits(50);
  Random random(3);
  for (float& logit : logits) logit = random.uniform(-1.0f, 1.0f);
  for (const float temperature : {0.0f, 1.0f}) {
    for (const float penalty : {0.0f, 0.7f}) {
      const SamplerParams params{
          .temperature = temperature, .top_k = 9, .seed = 5, .presence_penalty = penalty, .repeat_last_n = 11};
      Sampler own = make(params, 50), other = make(params, 50);
      std::vector<int32_t> drawn;
      for (int i = 0; i < 40; ++i) {
        uint64_t now = 0, later[2] = {}, next = 0;
        other.show_numbers({&now, 1});
        other.show_numbers(later);
        EXPECT_EQ(later[0], now);
        const int32_t id = own.sample(logits).value();
        drawn.push_back(id);
        i % 3 == 0 ? static_cast<void>(other.sample(logits)) : other.drew(id);
        other.show_numbers({&next, 1});
        EXPECT_EQ(next, temperature > 0 ? later[1] : now);
        const auto kept = static_cast<ptrdiff_t>(penalty == 0 ? 0 : std::min<size_t>(drawn.size(), 11));
        EXPECT_EQ(other.window(), std::vector<int32_t>(drawn.end() - kept, drawn.end()));
      }
      EXPECT_EQ(other.sample(logits).value(), own.sample(logits).value());
    }
  }
}

TEST(Penalties, FollowTheFormula) {
  // Drawn twice: 6 / 2 - 2 * 0.5 - 0.25 = 1.75; a negative logit is multiplied: -1 * 2 - 0.5 - 0.25 = -2.75.
  const SamplerParams params{.repeat_penalty = 2.0f, .presence_penalty = 0.25f, .frequency_penalty = 0.5f};
  Sampler sampler = make(params, 4);
  EXPECT_EQ(sampler.sample(std::vector{6.0f, 0.0f, 0.0f, 0.0f}).value(), 0);
  EXPECT_EQ(sampler.sample(std::vector{6.0f, 2.24f, 0.0f, 0.0f}).value(), 0);  // 6 / 2 - 0.75 = 2.25
  EXPECT_EQ(sampler.sample(std::vector{6.0f, 1.76f, 0.0f, 0.0f}).value(), 1);  // 1.75
  EXPECT_EQ(sampler.sample(std::vector{-9.0f, -1.0f, -2.74f, -9.0f}).value(), 2);
  EXPECT_EQ(sampler.sample(std::vector{-9.0f, -1.0f, -9.0f, -2.76f}).value(), 1);
}

TEST(Penalties, EachWorksAlone) {
  const float logits[] = {3.0f, 2.0f, 1.0f};
  const auto sequence = [&](SamplerParams params) {
    Sampler sampler = make(std::move(params), 3);
    std::vector<int32_t> ids;
    for (int i = 0; i < 6; ++i) ids.push_back(sampler.sample(logits).value());
    return ids;
  };
  EXPECT_EQ(sequence({}), (std::vector<int32_t>{0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(sequence({.repeat_penalty = 2.0f}), (std::vector<int32_t>{0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(sequence({.presence_penalty = 1.5f}), (std::vector<int32_t>{0, 1, 0, 0, 0, 0}));
  EXPECT_EQ(sequence({.frequency_penalty = 0.6f}), (std::vector<int32_t>{0, 0, 1, 0, 1, 0}));
  EXPECT_EQ(sequence({.presence_penalty = 9.0f, .repeat_last_n = 0}), (std::vector<int32_t>{0, 0, 0, 0, 0, 0}));
}

TEST(Penalties, LookAtTheLastTokensOnly) {
  const float logits[] = {4.0f, 3.0f, 2.0f, 1.0f};
  const auto sequence = [&](int32_t last_n) {
    Sampler sampler = make({.presence_penalty = 50.0f, .repeat_last_n = last_n}, 4);
    std::vector<int32_t> ids;
    for (int i = 0; i < 6; ++i) ids.push_back(sampler.sample(logits).value());
    return ids;
  };
  EXPECT_EQ(sequence(1), (std::vector<int32_t>{0, 1, 0, 1, 0, 1}));
  EXPECT_EQ(sequence(2), (std::vector<int32_t>{0, 1, 2, 0, 1, 2}));
  EXPECT_EQ(sequence(3), (std::vector<int32_t>{0, 1, 2, 3, 0, 1}));
  EXPECT_EQ(sequence(-1), (std::vector<int32_t>{0, 1, 2, 3, 0, 0}));  // all drawn: 4 - 50 is the largest again
}

TEST(Penalties, ComeBeforeFiltersAndBeginAgainWithTheDraws) {
  const float logits[] = {5.0f, 4.9f, 0.0f};
  Sampler sampler = make({.temperature = 1.0f, .top_k = 1, .presence_penalty = 1.0f, .repeat_last_n = 1}, 3);
  for (const int32_t id : {0, 1, 0, 1}) EXPECT_EQ(sampler.sample(logits).value(), id);
  sampler.reset(0);
  for (const int32_t id : {0, 1, 0}) EXPECT_EQ(sampler.sample(logits).value(), id);
  Sampler banned = make({.presence_penalty = 9.0f, .banned_ids = {1}}, 3);
  for (const int32_t id : {0, 2, 0}) EXPECT_EQ(banned.sample(logits).value(), id);
}

TEST(Penalties, ExtremesStayFinite) {
  const float logits[] = {std::numeric_limits<float>::max(),
                          std::numeric_limits<float>::max()};  // rewarded past the largest float, both
  Sampler sampler = make({.temperature = 1.0f, .repeat_penalty = 0.01f, .presence_penalty = -100.0f}, 2);
  std::set<int32_t> late;
  for (int i = 0; i < 100; ++i) {
    const int32_t id = sampler.sample(logits).value();
    if (i >= 50) late.insert(id);
  }
  EXPECT_EQ(late, (std::set<int32_t>{0, 1}));
}

TEST(Sampler, NonsenseLogitsAreAnError) {
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                          -std::numeric_limits<float>::infinity()}) {
    std::vector<float> logits(33, 1.0f);
    logits[17] = bad;
    for (const float temperature : {0.0f, 1.0f}) {
      Sampler sampler = make({.temperature = temperature, .banned_ids = {17}}, 33);
      const auto id = sampler.sample(logits);
      ASSERT_FALSE(id.has_value());
      EXPECT_EQ(id.error().code, Code::kDevice);
      EXPECT_NE(id.error().message.find("token 17"), std::string::npos) << id.error().message;
    }
    EXPECT_FALSE(top2_gap(logits).has_value());
  }
}

TEST(Sampler, BadParametersAreNamed) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const struct {
    SamplerParams params;
    int32_t vocab_size;
    std::string_view word;
  } cases[] = {
      {{.temperature = -1.0f}, 4, "temperature"},
      {{.temperature = 1e38f}, 4, "temperature"},
      {{.temperature = nan}, 4, "temperature"},
      {{.top_k = -5}, 4, "top_k"},
      {{.top_p = 0.0f}, 4, "top_p"},
      {{.top_p = 2.0f}, 4, "top_p"},
      {{.top_p = nan}, 4, "top_p"},
      {{.min_p = -0.1f}, 4, "min_p"},
      {{.min_p = 1.1f}, 4, "min_p"},
      {{.repeat_penalty = 0.0f}, 4, "repeat_penalty"},
      {{.repeat_penalty = nan}, 4, "repeat_penalty"},
      {{.repeat_penalty = 101.0f}, 4, "repeat_penalty"},
      {{.presence_penalty = 101.0f}, 4, "presence_penalty"},
      {{.presence_penalty = nan}, 4, "presence_penalty"},
      {{.frequency_penalty = -101.0f}, 4, "frequency_penalty"},
      {{.repeat_last_n = -2}, 4, "repeat_last_n"},
      {{.repeat_last_n = (1 << 20) + 1}, 4, "repeat_last_n"},
      {{.banned_ids = {4}}, 4, "banned"},
      {{.banned_ids = {-1}}, 4, "banned"},
      {{.banned_ids = {0, 1}}, 2, "every token"},
      {{}, 0, "vocabulary"},
  };
  for (const auto& c : cases) {
    const auto sampler = Sampler::create(c.params, c.vocab_size);
    ASSERT_FALSE(sampler.has_value()) << c.word;
    EXPECT_EQ(sampler.error().code, Code::kInvalidInput);
    EXPECT_NE(sampler.error().message.find(c.word), std::string::npos) << sampler.error().message;
  }
  Sampler sampler = make({}, 4);
  const float logits[] = {1.0f, 2.0f};
  EXPECT_FALSE(sampler.sample(logits).has_value());
}

TEST(Top2, GivesTheLeadAndTheLowerIdsOnTies) {
  const float logits[] = {1.0f, 4.0f, 3.5f, 4.0f};
  const Top2 tied = top2_gap(logits).value();
  EXPECT_EQ(tied.id, 1);
  EXPECT_EQ(tied.second_id, 3);
  EXPECT_EQ(tied.gap, 0.0f);
  const Top2 first = top2_gap(std::span(logits).first(3)).value();
  EXPECT_EQ(first.id, 1);
  EXPECT_EQ(first.second_id, 2);
  EXPECT_EQ(first.gap, 0.5f);
  EXPECT_EQ(top2_gap(std::span(logits).first(1)).value().second_id, -1);
  EXPECT_FALSE(top2_gap({}).has_value());
}

}  // namespace
}  // namespace baton
