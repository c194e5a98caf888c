// Draws of an executor on an emulated card: they are what its host would draw, of whatever the card decides.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "baton/base/clock.h"
#include "baton/base/random.h"
#include "baton/sample/draw_weight.h"
#include "baton/sample/sampler.h"
#include "baton/unit/cuda/driver_emulated.h"
#include "baton/unit/cuda/executor.h"
#include "baton/unit/cuda/reference.h"
#include "baton/unit/cuda/values.h"
#include "tests/support/attending_model.h"

namespace baton::cuda {
namespace {

struct Answer {
  std::vector<int32_t> ids;
  uint64_t position = 0;
  Status status;
};

class CudaDraws : public testing::Test {
 protected:
  void SetUp() override { emulated_reset(); }
  void TearDown() override {
    executor_.reset();
    EXPECT_EQ(emulated_use(), EmulatedUse());
    EXPECT_EQ(emulated_misuse(), "");
    emulated_reset();
  }
  void load(int32_t vocab, float steepness) {
    vocab_ = vocab;
    auto card = Card::open(emulated_driver(), 0);
    ASSERT_TRUE(card);
    auto executor = CudaExecutor::load(*card, fake::attending_model(vocab, steepness), {});
    ASSERT_TRUE(executor) << executor.error().message;
    executor_ = std::move(*executor);
  }
  // Sequences of different prompts, by the card's way or the host's.
  Status draw(const std::vector<SamplerParams>& params, const StepLimits& limits, bool own,
              std::vector<Answer>& answers, std::vector<int32_t> stops = {}) {
    std::vector<std::unique_ptr<SequenceState>> states;
    std::vector<Sampler> samplers;
    std::vector<Draws> draws(params.size());
    std::vector<Seat> seats;
    for (size_t i = 0; i < params.size(); ++i) {
      states.push_back(std::move(*executor_->new_state(140)));
      const std::vector<int32_t> prompt(3 + i, static_cast<int32_t>(i) + 2);
      EXPECT_TRUE(executor_->prefill(*states.back(), prompt, {}));
      samplers.push_back(std::move(*Sampler::create(params[i], vocab_)));
    }
    const int32_t fed = 1;
    for (size_t i = 0; i < params.size(); ++i) {
      draws[i].sampler = &samplers[i];
      draws[i].stop_ids = stops;
      seats.push_back({states[i].get(), {&fed, 1}, 0, true, false, &draws[i]});
    }
    before_();
    Status status =
        own ? executor_->step_on(seats, {}, limits, {}) : executor_->Executor::step_on(seats, {}, limits, {});
    answers.clear();
    for (size_t i = 0; i < params.size(); ++i) {
      Answer& answer = answers.emplace_back();
      for (const DrawnId& each : draws[i].ids) answer.ids.push_back(each.id);
      answer.position = states[i]->position();
      answer.status = draws[i].status;
    }
    return status;
  }
  void expect_hosts(const std::vector<SamplerParams>& params, uint32_t steps, std::vector<int32_t> stops = {}) {
    std::vector<Answer> own, host;
    ASSERT_TRUE(draw(params, {.steps_max = steps}, true, own, stops));
    ASSERT_TRUE(draw(params, {.steps_max = steps}, false, host, stops));
    for (size_t i = 0; i < params.size(); ++i) {
      EXPECT_EQ(own[i].ids, host[i].ids) << "seat " << i;
      EXPECT_EQ(own[i].position, host[i].position) << "seat " << i;
      EXPECT_TRUE(own[i].status);
    }
  }

  int32_t vocab_ = 0;
  std::function<void()> before_ = [] {};
  std::unique_ptr<Executor> executor_;
};

SamplerParams usual(uint64_t seed) {
  return {.temperature = 0.9f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .seed = seed};
}

TEST_F(CudaDraws, ComeFromTheCardWhateverTheirRules) {
  load(3000, 0.1f);
  SamplerParams banned = usual(4), greedy, presence = usual(6);
  presence.presence_penalty = 1;
  const SamplerParams half{.temperature = 2, .top_k = 100, .top_p = 0.5f, .seed = 7};
  for (int32_t id = 0; id < 3000; id += 3) banned.banned_ids.push_back(id), greedy.banned_ids.push_back(id + 1);
  const std::vector<SamplerParams> params = {
      usual(3), {}, banned, half, {.temperature = 2, .top_k = 256, .seed = 5}, greedy, presence};
  expect_hosts(params, 130);
  std::vector<Answer> free;
  ASSERT_TRUE(draw(params, {.steps_max = 50}, true, free));
  for (const size_t seat : {0, 2, 3, 4}) expect_hosts(params, 50, {-1, free[seat].ids[20]});
  // Copies of the pass, its rules, windows and numbers are for 64 steps, not for each.
  before_ = [] { emulated_fail({.function = "copy_in", .nth = 20, .code = kInvalidValue}); };
  EXPECT_TRUE(draw(params, {.steps_max = 60}, true, free));
  EXPECT_EQ(free[0].ids.size(), 60u);
}

// What needs more ids than the card looks at, in some steps or in each.
TEST_F(CudaDraws, AreLeftToTheHostWhereTheyAreUndecided) {
  for (const float steepness : {0.01f, 0.2f, 0.35f}) {
    load(3000, steepness);
    expect_hosts(
        {{.temperature = 1, .top_p = 0.9f, .seed = 3}, usual(8), {.temperature = 1.5f, .min_p = 0.02f, .seed = 9}}, 70);
    expect_hosts({{.temperature = 0.6f, .top_p = 0.98f, .min_p = 1e-6f, .seed = 3}}, 100);
    executor_.reset();
  }
}

// The window lies on the card, and goes on behind a step that the host drew and in the next 64.
TEST_F(CudaDraws, OfPenaltiesKeepTheirWindow) {
  for (const auto& [vocab, steepness] : {std::pair(8, 0.3f), {3000, 0.01f}, {3000, 0.1f}, {3000, 0.35f}}) {
    load(vocab, steepness);  // of eight ids most come again
    SamplerParams repeat{.repeat_penalty = 1.3f, .frequency_penalty = 1.5f},
        presence = usual(3), frequency{.temperature = 1, .top_p = 0.9f, .seed = 3};
    presence.presence_penalty = 1.5f, presence.repeat_last_n = 7;
    frequency.frequency_penalty = -0.5f, frequency.repeat_penalty = 1.01f, frequency.repeat_last_n = kWindowMax;
    expect_hosts({repeat}, 130);
    expect_hosts({repeat, usual(5), presence}, 130);
    expect_hosts({presence, frequency}, 70);
    SamplerParams longer = presence, whole = presence, none = presence;
    longer.repeat_last_n = kWindowMax + 1, whole.repeat_last_n = -1, none.repeat_last_n = 0;
    for (const SamplerParams& params : {longer, whole, none}) expect_hosts({params}, 20);
    executor_.reset();
  }
}

// A step that the host drew is no reason to go on behind the limit.
TEST_F(CudaDraws, EndByTheClockWhoeverDraws) {
  class TickingClock final : public Clock {
   public:
    int64_t now_ns() const override { return ++ticks_; }

   private:
    mutable int64_t ticks_ = 0;
  };
  load(3000, 0.01f);
  for (const bool undecided : {false, true}) {
    const TickingClock clock;
    const SamplerParams params = undecided ? SamplerParams{.temperature = 1, .top_p = 0.9f} : usual(1);
    std::vector<Answer> answers;
    ASSERT_TRUE(draw({params}, {.steps_max = 50, .until_ns = 11, .clock = &clock}, true, answers));
    EXPECT_GE(answers[0].ids.size(), 5u);
    EXPECT_LE(answers[0].ids.size(), 7u);
    EXPECT_EQ(answers[0].position, 3 + answers[0].ids.size());
  }
}

// Which ids are banned the card knows from the last call, unless it failed.
TEST_F(CudaDraws, BansAreThoseOfTheCall) {
  load(400, 0.3f);
  std::vector<SamplerParams> params = {usual(1), {}, usual(2)};
  for (const int round : {0, 1, 2, 3, 4, 0, 1, 0}) {
    for (size_t seat = 0; seat < params.size(); ++seat) {
      if ((static_cast<int>(seat) + round) % 3 == 2) continue;  // as before
      params[seat].banned_ids.clear();
      for (int32_t id = round; id < 400 && seat + 1 != static_cast<size_t>(round); id += 2 + static_cast<int32_t>(seat))
        params[seat].banned_ids.push_back(id);
    }
    expect_hosts(params, 12);
  }
  for (int32_t id = 0; id < 200; ++id) params[1].banned_ids.push_back(id);
  std::vector<Answer> host, own;
  ASSERT_TRUE(draw(params, {.steps_max = 12}, false, host));
  for (const char* function : {"copy_in", "launch_together", "copy_out"}) {
    for (const bool later : {false, true}) {
      for (uint64_t nth = 1; nth < 9; ++nth) {
        params[1].banned_ids.pop_back();
        before_ = [&] { emulated_fail({.function = function, .nth = nth, .code = kInvalidValue, .later = later}); };
        static_cast<void>(draw(params, {.steps_max = 12}, true, own));
        emulated_reset();
        before_ = [] {};
        expect_hosts(params, 12);
      }
    }
  }
}

// Whatever a rule finds, the sampler does, be it that it finds less.
TEST(CudaDrawRules, DrawWhatTheSamplerDoes) {
  Random random(4);
  int undecided[2] = {};
  constexpr int kCases = 4000;
  for (int i = 0; i < kCases; ++i) {
    const auto width = static_cast<int32_t>(1 + random.below(i % 11 == 1 ? 6000 : 700));
    std::vector<float> x(static_cast<size_t>(pitch_of(width)));
    const float spread = std::exp(random.uniform(-4.0f, 2.5f));
    for (int32_t id = 0; id < width; ++id) x[static_cast<size_t>(id)] = spread * random.normal();
    if (i % 5 == 0) {
      for (float& value : x) value = std::round(value);
    }
    SamplerParams params{.temperature = std::exp(random.uniform(-3.0f, 3.0f)), .seed = random.next()};
    if (i % 3 != 0) params.top_k = static_cast<int32_t>(1 + random.below(kDrawTopMax));
    if (i % 4 != 0) params.top_p = 1 - random.uniform() * random.uniform();
    if (i % 7 > 2 || i % 12 == 0) params.min_p = random.uniform() * random.uniform();
    DrawRule rule{.scale = draw_scale(params.temperature), .min_weight = least_weight(params.min_p)};
    rule.top_p = params.top_p, rule.top_k = params.top_k;
    Sampler sampler = *Sampler::create(params, width);
    uint64_t number = 0;
    sampler.show_numbers({&number, 1});
    int32_t drawn = 0;
    Pass pass;
    pass.rows_out = 1;
    pass.drawn = reinterpret_cast<Address>(&drawn), pass.rules = reinterpret_cast<Address>(&rule);
    pass.numbers = reinterpret_cast<Address>(&number);
    Instruction draw;
    draw.x = reinterpret_cast<Address>(x.data()), draw.x_width = width;
    reference_argmax(draw, pass);
    reference_draw(draw, pass);
    if (drawn == kUndecided) ++undecided[params.top_p < 1];
    if (drawn != kUndecided) {
      ASSERT_EQ(drawn, *sampler.sample({x.data(), static_cast<size_t>(width)})) << i;
    }
  }
  EXPECT_GT(undecided[0], 9) << "of min_p";
  EXPECT_GT(undecided[1], 9) << "of top_p";
  EXPECT_LT(undecided[0] + undecided[1], kCases / 10);
}

}  // namespace
}  // namespace baton::cuda
