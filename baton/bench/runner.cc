// Timed runs of executors.
#include "baton/bench/runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/base/highest.h"
#include "baton/base/random.h"
#include "baton/bench/stats.h"
#include "baton/bridge/bridge.h"
#include "baton/sample/sampler.h"
#include "baton/state/values.h"

namespace baton {
namespace {

constexpr uint64_t kDepthSeed = 17;

std::vector<int32_t> random_tokens(uint64_t seed, uint32_t count, int32_t vocab) {
  Random random(seed);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab)));
  return ids;
}

// `text` again and again, from its id `from` on.
std::vector<int32_t> repeated(std::span<const int32_t> text, uint64_t from, uint32_t count) {
  std::vector<int32_t> ids(count);
  for (uint32_t i = 0; i < count; ++i) ids[i] = text[(from + i) % text.size()];
  return ids;
}

int32_t likeliest(std::span<const float> logits) { return static_cast<int32_t>(index_of_highest(logits)); }

Status not_numbers(const std::string& whose) {
  return fail(Code::kCorrupt, whose +
                                  " holds values that are not numbers: the model's weights or the unit are broken, "
                                  "and the speed of nonsense means nothing");
}
Status check_numbers(std::span<const float> logits, const std::string& whose) {
  return first_not_finite(std::as_bytes(logits), DType::kF32) ? not_numbers(whose) : Status();
}

using State = std::unique_ptr<SequenceState>;

// Everything of a test that is made once.
class Runs {
 public:
  Runs(const SpeedUnits& units, const SpeedTest& test) : units_(units), test_(test) {
    const Model& model = units.prefill.model();
    const int32_t vocab = model.program.vocab;
    depth_ids_ = depth_ids(test, vocab);
    for (uint32_t i = 0; i < test.sequences; ++i) prompts_.push_back(prompt_ids(test, i, vocab));
    width_ = static_cast<size_t>(model.program.output_width);
    logits_.resize(test.sequences * width_);
  }

  Status prepare(bool settle) {
    if (settle) {
      BATON_OK(units_.prefill.settle());
      BATON_OK(units_.decode.settle());
    }
    if (test_.depth == 0) return {};
    BATON_TRY(base_, units_.prefill.new_state(tokens_max()));
    return units_.prefill.prefill(*base_, depth_ids_, {});
  }

  // Seconds; `generated` is overwritten.
  Result<double> run(const Clock& clock, EnergyMeter* meter, std::vector<std::vector<int32_t>>& generated) {
    generated.assign(test_.sequences, {});
    BATON_TRY(std::vector<State> states, start_states());
    const bool carried = &units_.prefill != &units_.decode && test_.decode_tokens > 0;
    if (carried && test_.prefill_tokens == 0) BATON_OK(carry(states));
    if (meter != nullptr) meter->start();
    clock_ = &clock;
    in_calls_ns_ = prefill_ns_ = 0;
    if (test_.prefill_tokens > 0) {
      std::vector<Seat> seats;
      for (uint32_t i = 0; i < test_.sequences; ++i) seats.push_back({states[i].get(), prompts_[i], 1});
      BATON_OK(timed([&] { return units_.prefill.step(seats, logits_, {}); }));
      prefill_ns_ = in_calls_ns_;
      for (uint32_t i = 0; i < test_.sequences; ++i) generated[i].push_back(likeliest(logits(i)));
      if (carried) BATON_OK(timed([&] { return carry(states); }));
    }
    const int64_t before = in_calls_ns_;
    BATON_OK(decode(states, generated));
    decode_ns_ = in_calls_ns_ - before;
    const double seconds = ms_between(0, in_calls_ns_) / 1e3;
    if (test_.prefill_tokens > 0) BATON_OK(check_numbers(logits_, test_.name() + ": a row of logits"));
    return seconds;
  }
  double prefill_seconds() const { return ms_between(0, prefill_ns_) / 1e3; }
  double decode_seconds() const { return ms_between(0, decode_ns_) / 1e3; }

 private:
  template <class Call>
  Status timed(Call&& call) {
    const int64_t start = clock_->now_ns();
    Status status = call();
    in_calls_ns_ += clock_->now_ns() - start;
    return status;
  }
  uint64_t tokens_max() const { return uint64_t{test_.depth} + test_.prefill_tokens + test_.decode_tokens + 1; }
  std::span<float> logits(uint32_t sequence) { return std::span(logits_).subspan(sequence * width_, width_); }

  Result<std::vector<State>> start_states() {
    std::vector<State> states;
    for (uint32_t i = 0; i < test_.sequences; ++i) {
      BATON_TRY(State state,
                base_ ? units_.prefill.fork(*base_, base_->position()) : units_.prefill.new_state(tokens_max()));
      states.push_back(std::move(state));
    }
    return states;
  }

  Status carry(std::vector<State>& states) {
    for (uint32_t i = 0; i < test_.sequences; ++i) {
      BATON_TRY(State to, units_.decode.new_state(tokens_max()));
      if (states[i]->position() > 0) BATON_OK(move_state(*states[i], *to));
      states[i] = std::move(to);
    }
    return {};
  }

  // As an engine does: the unit goes on by itself, and its choices are in the time.
  Status decode(std::vector<State>& states, std::vector<std::vector<int32_t>>& generated) {
    if (test_.decode_tokens == 0) return {};
    std::vector<int32_t> tokens(test_.sequences);
    std::vector<Sampler> samplers;
    std::vector<Draws> draws(test_.sequences);
    std::vector<Seat> seats;
    SamplerParams greedy;
    greedy.temperature = 0;
    for (uint32_t i = 0; i < test_.sequences; ++i) {
      BATON_TRY(Sampler sampler, Sampler::create(greedy, static_cast<int32_t>(width_)));
      samplers.push_back(std::move(sampler));
      draws[i].ids.reserve(test_.decode_tokens);
    }
    for (uint32_t i = 0; i < test_.sequences; ++i) {
      tokens[i] = test_.prefill_tokens > 0 ? generated[i][0] : prompts_[i][0];
      draws[i].sampler = &samplers[i];
      seats.push_back({.state = states[i].get(), .tokens = {&tokens[i], 1}, .decodes = true, .draws = &draws[i]});
    }
    BATON_OK(timed([&] { return units_.decode.step_on(seats, {}, {.steps_max = test_.decode_tokens}, {}); }));
    for (uint32_t i = 0; i < test_.sequences; ++i) {
      if (!draws[i].status) return not_numbers(test_.name() + ": a row of logits");
      for (const DrawnId& drawn : draws[i].ids) generated[i].push_back(drawn.id);
    }
    return {};
  }

  const SpeedUnits& units_;
  const SpeedTest& test_;
  size_t width_ = 0;  // of a row of logits
  std::vector<int32_t> depth_ids_;
  std::vector<std::vector<int32_t>> prompts_;
  std::vector<float> logits_;  // [sequences, width]
  State base_;                 // after `depth` tokens; null: depth 0
  const Clock* clock_ = nullptr;
  int64_t in_calls_ns_ = 0, prefill_ns_ = 0, decode_ns_ = 0;  // of the last run
};

uint64_t hash_of(const std::vector<std::vector<int32_t>>& generated) {
  uint64_t hash = 0xcbf29ce484222325ull;
  for (const auto& ids : generated) {
    for (const int32_t id : ids) hash = (hash ^ static_cast<uint32_t>(id)) * 0x100000001b3ull;
  }
  return hash;
}

// Adds the readings of one run.
void add_energy(std::vector<EnergyReading>& sums, const std::vector<EnergyReading>& readings) {
  if (sums.empty()) {
    sums = readings;
    return;
  }
  for (size_t i = 0; i < sums.size(); ++i) sums[i].joules += readings[i].joules;
}

// Runs that are not timed, for so long: short ones lie between two steps of a counter.
Status meter_longer(Runs& runs, const Clock& clock, double ms, EnergyMeter& meter, SpeedResult& result) {
  const int64_t start = clock.now_ns();
  result.energy_runs = 0;
  meter.start();
  while (ms_between(start, clock.now_ns()) < ms) {
    std::vector<std::vector<int32_t>> generated;
    BATON_TRY(const double seconds, runs.run(clock, nullptr, generated));
    static_cast<void>(seconds);
    ++result.energy_runs;
  }
  result.energy = meter.readings();
  return {};
}

}  // namespace

Status check_test(const SpeedUnits& units, const SpeedTest& test) {
  if (test.sequences == 0 || test.tokens() == 0) return fail(Code::kInvalidInput, "a test of no tokens");
  const auto context = static_cast<uint64_t>(units.prefill.model().spec.context_max);
  const uint64_t tokens = uint64_t{test.depth} + test.prefill_tokens + test.decode_tokens;
  if (tokens > context) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: {} tokens, but the model's context is {}", test.name(), tokens, context));
  }
  if (test.decode_tokens > 0 && units.decode_seats_max == 0)
    return fail(Code::kInvalidInput, fmt::format("{}: the unit only prefills: decode on another one", test.name()));
  if (test.decode_tokens > 0 && test.sequences > units.decode_seats_max) {
    return fail(Code::kInvalidInput, fmt::format("{}: the unit decodes at most {} sequence{} in one step", test.name(),
                                                 units.decode_seats_max, units.decode_seats_max == 1 ? "" : "s"));
  }
  return {};
}

std::string SpeedTest::name() const {
  std::string name;
  if (prefill_tokens > 0) name = fmt::format("pp{}", prefill_tokens);
  if (decode_tokens > 0) name += fmt::format("{}tg{}", name.empty() ? "" : "+", decode_tokens);
  if (sequences != 1) name += fmt::format(" x {}", sequences);
  if (depth > 0) name += fmt::format(" @ d{}", depth);
  return name;
}

std::vector<int32_t> depth_ids(const SpeedTest& test, int32_t vocab) {
  return test.text.empty() ? random_tokens(kDepthSeed, test.depth, vocab) : repeated(test.text, 0, test.depth);
}

std::vector<int32_t> prompt_ids(const SpeedTest& test, uint32_t sequence, int32_t vocab) {
  const uint32_t count = std::max(test.prefill_tokens, 1u);
  if (test.text.empty()) return random_tokens(kDepthSeed + 1 + sequence, count, vocab);
  constexpr uint64_t kApart = 29;  // a sequence and the next
  std::vector<int32_t> ids = repeated(test.text, test.depth + kApart * sequence, count);
  if (test.depth == 0 && count > 1) ids[0] = test.text[0];
  return ids;
}

Result<SpeedResult> measure_speed(const SpeedUnits& units, const SpeedTest& test, const SpeedOptions& options) {
  BATON_OK(check_test(units, test));
  Runs runs(units, test);
  BATON_OK(runs.prepare(options.settle));
  const SteadyClock steady;
  const Clock& clock = options.clock != nullptr ? *options.clock : steady;
  SpeedResult result;
  double joules = 0;
  bool metered = options.meter != nullptr && options.meter->available();
  for (uint32_t i = options.warm_up ? 0 : 1; i <= options.repetitions; ++i) {
    std::vector<std::vector<int32_t>> generated;
    BATON_TRY(const double seconds, runs.run(clock, metered ? options.meter : nullptr, generated));
    if (i > 0) {
      result.seconds.push_back(seconds);
      result.prefill_seconds.push_back(runs.prefill_seconds());
      result.decode_seconds.push_back(runs.decode_seconds());
      result.tokens_per_second.push_back(static_cast<double>(test.tokens()) / seconds);
    }
    if (i > 0 && metered) {
      const std::vector<EnergyReading> readings = options.meter->readings();
      metered = !readings.empty();  // a counter that failed once gives no figure
      if (metered) add_energy(result.energy, readings);
    }
    if (result.generated.empty()) {
      result.generated = std::move(generated);
    } else if (generated != result.generated) {
      return fail(Code::kInternal,
                  fmt::format("{}: repetition {} generated other tokens than the first; the speed of a wrong "
                              "answer means nothing",
                              test.name(), i));
    }
    if (options.on_run) options.on_run(i);
  }
  result.tokens_hash = hash_of(result.generated);
  result.energy_runs = options.repetitions;
  const double metered_ms = metered ? kEnergySteps * options.meter->step_ms() : 0;
  if (metered && result.seconds.size() == options.repetitions && summarize(result.seconds).median * 1e3 < metered_ms)
    BATON_OK(meter_longer(runs, clock, metered_ms, *options.meter, result));
  metered = metered && !result.energy.empty();
  if (!metered) result.energy.clear();
  for (const EnergyReading& reading : result.energy) joules += reading.joules;
  if (metered) result.joules_per_token = joules / static_cast<double>(test.tokens() * result.energy_runs);
  return result;
}

Result<SpeedResult> measure_speed(Executor& executor, const SpeedTest& test, uint32_t repetitions,
                                  const std::function<void(uint32_t done)>& on_run) {
  SpeedOptions options;
  options.repetitions = repetitions;
  options.on_run = on_run;
  return measure_speed({executor, executor, test.sequences}, test, options);
}

Result<TokenCheck> check_generated(Executor& reference, const SpeedTest& test, const SpeedResult& result,
                                   double tolerance) {
  const int32_t vocab = reference.model().program.vocab;
  const auto width = static_cast<size_t>(reference.model().program.output_width);
  TokenCheck check;
  for (uint32_t sequence = 0; sequence < result.generated.size(); ++sequence) {
    const std::vector<int32_t>& chosen = result.generated[sequence];
    std::vector<int32_t> ids = depth_ids(test, vocab);
    const auto prompt = prompt_ids(test, sequence, vocab);
    ids.insert(ids.end(), prompt.begin(), prompt.end());
    ids.insert(ids.end(), chosen.begin(), chosen.end() - 1);
    BATON_TRY(const State state, reference.new_state(ids.size()));
    std::vector<float> logits(chosen.size() * width);
    BATON_OK(reference.prefill(*state, ids, logits));
    for (size_t i = 0; i < chosen.size(); ++i, ++check.checked) {
      const auto row = std::span(logits).subspan(i * width, width);
      BATON_OK(check_numbers(row, fmt::format("{}: row {} of the reference's logits", test.name(), i)));
      const int32_t best = likeliest(row);
      if (best == chosen[i]) continue;
      const double lead = row[static_cast<size_t>(best)] - row[static_cast<size_t>(chosen[i])];
      if (!(lead <= tolerance)) {
        return fail(Code::kMismatch,
                    fmt::format("{}: token {} of sequence {} is {}, but the reference has {}, whose logit is {:.4f} "
                                "higher: more than a near tie ({:.4f}); the speed of a wrong answer means nothing",
                                test.name(), i, sequence, chosen[i], best, lead, tolerance));
      }
      ++check.near_ties;
    }
  }
  return check;
}

}  // namespace baton
