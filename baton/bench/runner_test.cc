// A synthetic unit of known speed on a clock that it moves itself: the bench must report that speed within the error it
// prints. Wrong, unsteady and impossible runs must be refused. Counts of bytes and operations, by hand.
#include "baton/bench/runner.h"
#include "tests/support/state_values.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "baton/base/random.h"
#include "baton/bench/roofline.h"
#include "baton/bench/stats.h"

namespace baton {
namespace {

constexpr int32_t kVocab = 50, kWidth = 56;  // ids, and logits of a row: the last are nobody's

struct Speeds {
  double prefill_token_ms = 0.5, decode_step_ms = 4, seat_ms = 1;  // a step takes decode_step_ms + seats * seat_ms
  double noise = 0;                                                // of a call: relative, normal
  double prefill_call_ms = 0;                                      // of a prefill, whatever its sequences and tokens
};

class SyntheticState final : public test::EmptyState {
 public:
  using EmptyState::EmptyState;
  uint64_t hash = 1;
};

// Its next token is a hash of all tokens before. Its time is the clock's.
class SyntheticUnit final : public Executor {
 public:
  SyntheticUnit(const Speeds& speeds, FakeClock& clock) : speeds_(speeds), clock_(clock) {
    model_.program.vocab = kVocab;
    model_.program.output_width = kWidth;
    model_.spec.context_max = 4096;
  }
  const Model& model() const override { return model_; }
  const StateShape& shape() const override { return shape_; }
  Result<std::unique_ptr<SequenceState>> new_state(uint64_t tokens_max) override {
    return std::make_unique<SyntheticState>(tokens_max, live_);
  }
  Result<std::unique_ptr<SequenceState>> fork(const SequenceState& state, uint64_t) override {
    const auto& from = static_cast<const SyntheticState&>(state);
    auto to = std::make_unique<SyntheticState>(from.tokens_max(), live_);
    to->hash = from.hash;
    to->advance(from.position());
    return to;
  }
  Status step(std::span<const Seat> seats, std::span<float> out, const StepContext&) override {
    size_t tokens = 0;
    for (const Seat& seat : seats) tokens += seat.tokens.size();
    const bool decodes = seats.front().decodes;
    pass(decodes ? speeds_.decode_step_ms + static_cast<double>(seats.size()) * speeds_.seat_ms
                 : speeds_.prefill_call_ms + static_cast<double>(tokens) * speeds_.prefill_token_ms);
    for (const Seat& seat : seats) {
      for (size_t i = 0; i < seat.tokens.size(); ++i) {
        const bool wanted = i + seat.rows_out >= seat.tokens.size();
        feed(*seat.state, seat.tokens[i], wanted ? out.first(kWidth) : std::span<float>());
        if (wanted) out = out.subspan(kWidth);
      }
    }
    steps += decodes ? 1 : 0;
    return {};
  }
  Placement placement() const override { return {"synthetic", "simulated clock"}; }
  std::string arithmetic() const override { return "synthetic"; }

  uint64_t steps = 0;
  uint64_t wrong_from_step = ~uint64_t{0};  // from this step on its answers are others
  bool prefers_odd = false;                 // its choice is 0.01 ahead instead of 1
  bool numbers = true;                      // false: one logit of each row is none

 private:
  void pass(double ms) {
    const double factor = std::max(0.01, 1 + speeds_.noise * random_.normal());
    clock_.advance_ns(static_cast<int64_t>(ms * factor * 1e6));
  }
  void feed(SequenceState& state, int32_t token, std::span<float> logits) {
    auto& synthetic = static_cast<SyntheticState&>(state);
    synthetic.hash = synthetic.hash * 0x9e3779b97f4a7c15ull + static_cast<uint64_t>(token) + 1;
    synthetic.advance(1);
    if (logits.empty()) return;
    std::fill(logits.begin(), logits.end(), 0.0f);
    const uint64_t choice = (synthetic.hash >> 33) % kVocab;
    logits[choice] = 1;
    if (prefers_odd) logits[(choice + 1) % kVocab] = 1.01f;
    if (steps >= wrong_from_step) logits[(choice + 2) % kVocab] = 5;
    if (!numbers) logits[(choice + 3) % kVocab] = NAN;
  }

  const Speeds speeds_;
  FakeClock& clock_;
  Model model_;
  const StateShape shape_;
  Random random_{11};
};

SpeedResult measured(SyntheticUnit& unit, const SpeedTest& test, uint32_t repetitions, const Clock& clock) {
  SpeedOptions options;
  options.repetitions = repetitions;
  options.clock = &clock;
  auto result = measure_speed({unit, unit, 8}, test, options);
  EXPECT_TRUE(result) << (result ? "" : result.error().message);
  return result ? *std::move(result) : SpeedResult{};
}

TEST(SyntheticUnit, KnownSpeedIsReportedExactlyWithoutNoise) {
  FakeClock clock;
  SyntheticUnit unit({}, clock);
  const auto speed = [&](const SpeedTest& test) { return summarize(measured(unit, test, 3, clock).tokens_per_second); };
  EXPECT_NEAR(speed({.prefill_tokens = 128}).median, 2000, 1e-6);
  EXPECT_NEAR(speed({.decode_tokens = 16}).median, 200, 1e-6);
  EXPECT_NEAR(speed({.decode_tokens = 16, .depth = 300}).median, 200, 1e-6);
  EXPECT_NEAR(speed({.decode_tokens = 16, .sequences = 4}).median, 4 * 1000.0 / 8, 1e-6);
  EXPECT_NEAR(speed({.prefill_tokens = 100, .decode_tokens = 10}).median, 110 / 0.1, 1e-6);
  EXPECT_NEAR(speed({.prefill_tokens = 128, .decode_tokens = 0, .depth = 9, .sequences = 3}).median, 2000, 1e-6);
  EXPECT_EQ(speed({.decode_tokens = 16}).deviation, 0);
}

TEST(SyntheticUnit, PromptsOfSeveralSequencesArePrefilledInOneCall) {
  FakeClock clock;
  SyntheticUnit unit({.prefill_call_ms = 10}, clock);
  const SpeedResult result = measured(unit, {.prefill_tokens = 20, .sequences = 4}, 2, clock);
  for (const double speed : result.tokens_per_second) EXPECT_NEAR(speed, 80 / 0.050, 1e-6);
  ASSERT_EQ(result.generated.size(), 4u);
  EXPECT_NE(result.generated[0], result.generated[1]);
}

// With calls that take 10 % more or less at random, the reported median lies within the printed deviation of the truth.
TEST(SyntheticUnit, NoisySpeedIsReportedWithinThePrintedError) {
  FakeClock clock;
  SyntheticUnit unit({.noise = 0.1}, clock);
  for (const SpeedTest& test : {SpeedTest{.prefill_tokens = 128}, SpeedTest{.decode_tokens = 4},
                                SpeedTest{.prefill_tokens = 16, .decode_tokens = 4}}) {
    const double seconds = (0.5 * test.prefill_tokens + 5.0 * test.decode_tokens) / 1e3;
    const double truth = static_cast<double>(test.tokens()) / seconds;
    const Summary speed = summarize(measured(unit, test, 15, clock).tokens_per_second);
    EXPECT_GT(speed.deviation, 0) << test.name();
    EXPECT_LT(speed.deviation, 0.2 * truth) << test.name();
    EXPECT_NEAR(speed.median, truth, speed.deviation) << test.name();
    EXPECT_GE(speed.high, truth) << test.name();
    EXPECT_LE(speed.low, truth) << test.name();
  }
}

TEST(SyntheticUnit, WarmUpDoesNotCountAndCanBeLeftOut) {
  FakeClock clock;
  SyntheticUnit unit({}, clock);
  SpeedOptions options;
  options.repetitions = 2;
  options.clock = &clock;
  const SpeedTest test{.decode_tokens = 10};
  ASSERT_EQ(measure_speed({unit, unit, 1}, test, options)->seconds.size(), 2u);
  EXPECT_EQ(unit.steps, 30u);
  options.warm_up = false;
  ASSERT_EQ(measure_speed({unit, unit, 1}, test, options)->seconds.size(), 2u);
  EXPECT_EQ(unit.steps, 50u);
}

TEST(SyntheticUnit, OtherTokensInALaterRunAreAnError) {
  FakeClock clock;
  SyntheticUnit unit({}, clock);
  unit.wrong_from_step = 15;
  const auto result = measure_speed(unit, {.decode_tokens = 10}, 3, {});
  ASSERT_FALSE(result);
  EXPECT_EQ(result.error().code, Code::kInternal);
  EXPECT_NE(result.error().message.find("tg10: repetition 1"), std::string::npos) << result.error().message;
}

TEST(SpeedTest, FeedsItsTextOverAndOver) {
  const std::vector<int32_t> text = {7, 1, 2, 3, 4};
  using Ids = std::vector<int32_t>;
  const SpeedTest deep{.prefill_tokens = 3, .depth = 6, .sequences = 2, .text = text};
  EXPECT_EQ(depth_ids(deep, kVocab), (Ids{7, 1, 2, 3, 4, 7}));
  EXPECT_EQ(prompt_ids(deep, 0, kVocab), (Ids{1, 2, 3}));
  EXPECT_EQ(prompt_ids(deep, 1, kVocab), (Ids{7, 1, 2}));  // 29 ids on
  EXPECT_EQ(prompt_ids({.prefill_tokens = 3, .sequences = 2, .text = text}, 1, kVocab), (Ids{7, 7, 1}))
      << "a BOS first";
  EXPECT_EQ(prompt_ids({.decode_tokens = 3, .sequences = 2, .text = text}, 1, kVocab), (Ids{4})) << "not all the same";
  const SpeedTest random{.prefill_tokens = 30};
  EXPECT_NE(prompt_ids(random, 0, kVocab), prompt_ids(random, 1, kVocab));
}

TEST(SyntheticUnit, ImpossibleTestsAreRefused) {
  FakeClock clock;
  SyntheticUnit unit({}, clock);
  const auto code = [&](const SpeedTest& test) { return measure_speed({unit, unit, 2}, test, {}).error().code; };
  EXPECT_EQ(code({}), Code::kInvalidInput);
  EXPECT_EQ(code({.decode_tokens = 1, .sequences = 3}), Code::kInvalidInput);
  EXPECT_EQ(code({.prefill_tokens = 4000, .depth = 97}), Code::kInvalidInput);
}

TEST(SyntheticUnit, TokensAreCheckedAgainstAReference) {
  FakeClock clock;
  SyntheticUnit unit({}, clock), same({}, clock), near({}, clock), wrong({}, clock);
  near.prefers_odd = true;
  wrong.wrong_from_step = 0;
  for (const SpeedTest& test : {SpeedTest{.prefill_tokens = 20}, SpeedTest{.decode_tokens = 7, .depth = 5},
                                SpeedTest{.prefill_tokens = 20, .decode_tokens = 7, .sequences = 2}}) {
    const SpeedResult result = measured(unit, test, 1, clock);
    const uint64_t choices = test.sequences * (test.decode_tokens + (test.prefill_tokens > 0 ? 1 : 0));
    const auto agreed = check_generated(same, test, result, 0.05);
    ASSERT_TRUE(agreed) << agreed.error().message;
    EXPECT_EQ(agreed->checked, choices);
    EXPECT_EQ(agreed->near_ties, 0u);
    const auto ties = check_generated(near, test, result, 0.05);
    ASSERT_TRUE(ties);
    EXPECT_EQ(ties->near_ties, choices);
    EXPECT_EQ(check_generated(near, test, result, 0.001).error().code, Code::kMismatch);
    EXPECT_EQ(check_generated(near, test, result, 0.006).error().code, Code::kMismatch) << "0.01 is more";
    EXPECT_TRUE(check_generated(near, test, result, 0.0101));
    EXPECT_EQ(check_generated(wrong, test, result, 0.05).error().code, Code::kMismatch);
  }
}

TEST(SyntheticUnit, NonsenseHasNoSpeedAndChecksNothing) {
  FakeClock clock;
  SyntheticUnit unit({}, clock), broken({}, clock);
  broken.numbers = false;
  for (const SpeedTest& test : {SpeedTest{.prefill_tokens = 20}, SpeedTest{.decode_tokens = 3}}) {
    SpeedOptions options;
    options.clock = &clock;
    const auto refused = measure_speed({broken, broken, 8}, test, options);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kCorrupt);
    EXPECT_NE(refused.error().message.find("not numbers"), std::string::npos);
    const SpeedResult result = measured(unit, test, 1, clock);
    EXPECT_EQ(check_generated(broken, test, result, 100).error().code, Code::kCorrupt);
  }
}

// A counter that rises with the clock: 10 W.
class ClockCounter final : public EnergyCounter {
 public:
  explicit ClockCounter(const Clock& clock, double step_ms = 0) : clock_(clock), step_ms_(step_ms) {}
  double step_ms() const override { return step_ms_; }
  const std::string& source() const override { return source_; }
  Result<double> joules() override { return static_cast<double>(clock_.now_ns()) * 1e-9 * 10; }

 private:
  const std::string source_ = "clock";
  const Clock& clock_;
  const double step_ms_;
};

// 50 ms a run, beside steps of 100 ms: other runs, for 2 s.
TEST(SyntheticUnit, EnergyOfShortRunsIsOfMoreOfThem) {
  FakeClock clock;
  SyntheticUnit unit({}, clock);
  std::vector<std::unique_ptr<EnergyCounter>> counters;
  counters.push_back(std::make_unique<ClockCounter>(clock, 100));
  EnergyMeter meter(std::move(counters));
  SpeedOptions options;
  options.repetitions = 3;
  options.clock = &clock;
  options.meter = &meter;
  const auto result = measure_speed({unit, unit, 1}, {.decode_tokens = 10}, options);
  ASSERT_TRUE(result);
  EXPECT_EQ(result->tokens_per_second.size(), 3u);
  EXPECT_EQ(result->energy_runs, 40u);
  EXPECT_NEAR(result->energy.at(0).joules, 20, 1e-9);
  EXPECT_NEAR(result->joules_per_token.value(), 0.05, 1e-9);
  const auto longer = measure_speed({unit, unit, 1}, {.decode_tokens = 400}, options);
  EXPECT_EQ(longer->energy_runs, 3u);
}

TEST(SyntheticUnit, EnergyIsOfTheTimedPartsOnly) {
  FakeClock clock;
  SyntheticUnit unit({}, clock);
  std::vector<std::unique_ptr<EnergyCounter>> counters;
  counters.push_back(std::make_unique<ClockCounter>(clock));
  EnergyMeter meter(std::move(counters));
  SpeedOptions options;
  options.repetitions = 3;
  options.clock = &clock;
  options.meter = &meter;
  const auto result = measure_speed({unit, unit, 1}, {.decode_tokens = 10, .depth = 500}, options);
  ASSERT_TRUE(result);
  EXPECT_NEAR(result->joules_per_token.value(), 0.05, 1e-9);  // 5 ms at 10 W
  ASSERT_EQ(result->energy.size(), 1u);
  EXPECT_NEAR(result->energy[0].joules, 1.5, 1e-9);
  options.meter = nullptr;
  EXPECT_FALSE(measure_speed({unit, unit, 1}, {.decode_tokens = 10}, options)->joules_per_token);
}

TEST(SpeedTest, Names) {
  EXPECT_EQ((SpeedTest{.prefill_tokens = 512}).name(), "pp512");
  EXPECT_EQ((SpeedTest{.decode_tokens = 64, .depth = 1024}).name(), "tg64 @ d1024");
  EXPECT_EQ((SpeedTest{.prefill_tokens = 512, .decode_tokens = 64}).name(), "pp512+tg64");
  EXPECT_EQ((SpeedTest{.decode_tokens = 64, .depth = 9, .sequences = 8}).name(), "tg64 x 8 @ d9");
}

// One layer: a 64 x 32 product in Q8_0, attention of 4 heads of 16 on 2, a delta rule of 3 heads of 8 x 8, and a head
// of 100 x 32 in F16.
Model small_model() {
  Model model;
  model.weights.resize(2);
  const auto set = [&](size_t id, DType dtype, int64_t rows, size_t bytes) {
    model.weights[id].dtype = dtype;
    model.weights[id].rows = rows;
    model.weights[id].columns = 32;
    model.weights[id].bytes = bytes;
  };
  set(0, DType::kQ8_0, 64, 64 * 34);
  set(1, DType::kF16, 100, 100 * 64);
  model.program.ops = {
      {.kind = OpKind::kEmbed, .weights = {1}},
      {.kind = OpKind::kLinear, .weights = {0}},
      {.kind = OpKind::kAttend, .width = 16, .heads = 4, .kv_heads = 2},
      {.kind = OpKind::kDeltaRule, .heads = 3, .key_dim = 8, .value_dim = 8},
      {.kind = OpKind::kHead, .weights = {1}},
  };
  return model;
}

TEST(Roofline, NothingIsAShareOfALimitThatWasNotMeasured) {
  EXPECT_EQ(share_of(3e9, 2, {"read", 6e9, 6e9, 6e9}), 25.0);
  EXPECT_EQ(share_of(1e6, 1, {"read", 1e6, 1e6, 1e6}), 100.0);
  for (const double nothing : {0.0, 9e5, -1.0, std::numeric_limits<double>::quiet_NaN()})
    EXPECT_FALSE(share_of(3e9, 2, {"read", nothing, 0, 0})) << nothing;
}

TEST(Roofline, BytesOfAStep) {
  const Model model = small_model();
  const StepBytes bytes = decode_step_bytes(model, 3, 10);
  EXPECT_EQ(bytes.weights, 64u * 34 + 100 * 64);
  EXPECT_EQ(bytes.state, 3u * (10 * 2 * 2 * 16 * 2 + 3 * 8 * 8 * 4));
}

TEST(Roofline, OperationsOfATest) {
  const Model model = small_model();
  const auto prefill = test_operations(model, {.prefill_tokens = 4, .depth = 10});
  EXPECT_EQ(prefill.at(host::Packing::kQ8_0), 2.0 * 64 * 32 * 4);
  EXPECT_EQ(prefill.at(host::Packing::kF16), 2.0 * 100 * 32);
  const double seen = 11 + 12 + 13 + 14;
  EXPECT_EQ(prefill.at(host::Packing::kF32), 4.0 * 4 * 16 * seen + 7.0 * 3 * 8 * 8 * 4);
  const auto decode = test_operations(model, {.decode_tokens = 5, .sequences = 2});
  EXPECT_EQ(decode.at(host::Packing::kF16), 2 * 2.0 * 100 * 32 * 5);
}

// A device that reads 1 GB/s, and multiplies by its type.
class DeviceUnit final : public Unit {
 public:
  DeviceUnit() {
    caps_.native_formats = {DType::kF16};
    caps_.kv_type = DType::kF32;
    caps_.product_type = DType::kBF16;
  }
  std::string_view name() const override { return "device"; }
  const Caps& caps() const override { return caps_; }
  Result<Rate> limit(DeviceLimit which) override {
    asked.push_back(which);
    if (!measures) return Unit::limit(which);
    if (which == DeviceLimit::kRead) return Rate{"read", 1e9, 1e9, 1e9};
    if (which == DeviceLimit::kBF16Products) return Rate{"bf16", 1e12, 1e12, 1e12};
    return Rate{"f32", 1e10, 1e10, 1e10};
  }
  Caps caps_;
  bool measures = true;
  std::vector<DeviceLimit> asked;

 private:
  Result<std::unique_ptr<Executor>> make_executor(std::shared_ptr<const Model>, uint32_t) override {
    return fail(Code::kUnsupported, "none");
  }
};

TEST(Roofline, SharesOfADeviceAreOfItsOwnLimits) {
  const Model model = small_model();
  DeviceUnit unit;
  const SpeedTest decode = {.decode_tokens = 9, .depth = 5};
  const auto shares = device_shares(model, decode, 1e-3, unit);
  ASSERT_TRUE(shares);
  // Q8_0 is f32 there, and so are keys and values; 10 tokens on average.
  const double bytes = 64 * 32 * 4 + 100 * 64 + 10 * 2 * 2 * 16 * 4 + 3 * 8 * 8 * 4;
  EXPECT_NEAR(shares->bandwidth.value(), 100 * bytes * 9 / 1e9 / 1e-3, 1e-9);
  double operations = 0;
  for (const auto& [packing, count] : test_operations(model, decode)) operations += count;
  EXPECT_NEAR(shares->peak.value(), 100 * operations / 1e12 / 1e-3, 1e-9);
  ASSERT_EQ(shares->arithmetic.size(), 1u);
  EXPECT_EQ(shares->arithmetic[0].what, "bf16");
  const auto prefill = device_shares(model, {.prefill_tokens = 4}, 1e-3, unit);
  ASSERT_TRUE(prefill);
  EXPECT_FALSE(prefill->bandwidth);
  unit.caps_.product_type = DType::kF32;
  EXPECT_EQ(device_shares(model, {.prefill_tokens = 4}, 1e-3, unit)->arithmetic.at(0).what, "f32");
  unit.measures = false;
  const auto none = device_shares(model, decode, 1e-3, unit);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().code, Code::kUnsupported);
}

// Each phase by itself: shares of two units are of their own times.
TEST(SyntheticUnit, PhasesAreTimedApart) {
  FakeClock clock;
  SyntheticUnit unit({.prefill_token_ms = 0, .decode_step_ms = 3, .seat_ms = 0, .prefill_call_ms = 7}, clock);
  SpeedOptions options;
  options.repetitions = 2;
  options.clock = &clock;
  const auto result = measure_speed({unit, unit, 1}, {.prefill_tokens = 10, .decode_tokens = 4}, options);
  ASSERT_TRUE(result);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_NEAR(result->prefill_seconds[i], 7e-3, 1e-9);
    EXPECT_NEAR(result->decode_seconds[i], 12e-3, 1e-9);
    EXPECT_NEAR(result->seconds[i], 19e-3, 1e-9);
  }
  const auto prefill = measure_speed({unit, unit, 1}, {.prefill_tokens = 10}, options);
  EXPECT_EQ(prefill->decode_seconds[0], 0);
  const auto decode = measure_speed({unit, unit, 1}, {.decode_tokens = 4}, options);
  EXPECT_EQ(decode->prefill_seconds[0], 0);
}

}  // namespace
}  // namespace baton
