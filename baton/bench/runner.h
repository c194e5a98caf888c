// Speed of executors: prefill of N tokens, decode of N tokens, or both, at a depth, for one or several sequences,
// repeated. Times whole calls of the executors, choices of tokens by the unit included; model load and tokenizer are
// outside. The tokens are a given text over
// and over, or pseudo-random.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baton/base/clock.h"
#include "baton/bench/energy_meter.h"
#include "baton/unit/unit.h"

namespace baton {

// ppN: prefill N tokens, the logits of the last one included. tgN: decode N tokens, one after another, each the greedy
// choice behind the one before. ppN+tgM: the second after the first, the move between two units included. All of it
// after `depth` tokens that are not timed, and for each of `sequences`, which are prefilled in one call and decode
// together in each step.
struct SpeedTest {
  uint32_t prefill_tokens = 0, decode_tokens = 0;  // not both 0
  uint32_t depth = 0;
  uint32_t sequences = 1;
  // What is fed, as often as it takes; the caller keeps it. Empty: pseudo-random ids.
  std::span<const int32_t> text = {};
  std::string name() const;  // "pp512", "tg64", "pp512+tg64", "tg64 @ d1024", "tg64 x 8 @ d1024"
  // What the speed counts.
  uint64_t tokens() const { return uint64_t{sequences} * (prefill_tokens + decode_tokens); }
};

// `decode` may be `prefill` itself. Both hold the same model.
struct SpeedUnits {
  Executor& prefill;
  Executor& decode;
  uint32_t decode_seats_max = 1;  // of Caps
};

struct SpeedOptions {
  uint32_t repetitions = 5;
  bool warm_up = true;           // one run that does not count
  bool settle = true;            // units finish their preparations first (Executor::settle)
  const Clock* clock = nullptr;  // null: the steady clock
  EnergyMeter* meter = nullptr;  // null: no energy
  std::function<void(uint32_t done)> on_run;
};

inline constexpr double kEnergySteps = 20;

struct SpeedResult {
  std::vector<double> tokens_per_second, seconds;  // one per repetition
  // Of these, calls of the unit that prefills and of the one that decodes; the rest is the move between them.
  std::vector<double> prefill_seconds, decode_seconds;
  uint64_t tokens_hash = 0;  // of `generated`: equal each time
  // By sequence: the choices behind the prompt and each decoded token (tg: decode_tokens ids, pp: 1, pp+tg: both).
  std::vector<std::vector<int32_t>> generated;
  // Over energy_runs runs together, by counter and their sum; empty without a meter. The repetitions, or where a run is
  // short beside a step of a counter (EnergyMeter::step_ms) others behind them, one after the other for kEnergySteps
  // steps, what lies between two of them included.
  std::vector<EnergyReading> energy;
  uint32_t energy_runs = 0;
  std::optional<double> joules_per_token;
};

// Whether these units can run it. kInvalidInput for more sequences than the unit decodes at once, for one that decodes
// none, and for a test that the model's context does not hold.
Status check_test(const SpeedUnits& units, const SpeedTest& test);
// kInternal when two repetitions generate different tokens; kCorrupt when logits are not numbers; errors of check_test.
Result<SpeedResult> measure_speed(const SpeedUnits& units, const SpeedTest& test, const SpeedOptions& options);
// One executor, the defaults.
Result<SpeedResult> measure_speed(Executor& executor, const SpeedTest& test, uint32_t repetitions,
                                  const std::function<void(uint32_t done)>& on_run);

// The ids a test feeds: `depth` ids that all sequences share, then `prefill_tokens` (at least 1) of its own. tg feeds
// the first of these and then its own choices. A prompt at the start of a sequence begins with
// the text's first id (a BOS).
std::vector<int32_t> depth_ids(const SpeedTest& test, int32_t vocab);
std::vector<int32_t> prompt_ids(const SpeedTest& test, uint32_t sequence, int32_t vocab);

// What a run generated, against another unit that is fed the same ids (teacher forcing): at each choice the largest
// logit of `reference` must be that id's, or lead it by no more than `tolerance`: a near tie. The tolerance is measured
// for the units and the model (measure_margins in api/calibration.h).
struct TokenCheck {
  uint64_t checked = 0, near_ties = 0;
};
// kMismatch names the first choice that is neither; kCorrupt, when the reference's logits are not numbers.
Result<TokenCheck> check_generated(Executor& reference, const SpeedTest& test, const SpeedResult& result,
                                   double tolerance);

}  // namespace baton
