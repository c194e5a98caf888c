// Speed of one executor: prefill of N tokens, decode of N tokens, at a depth, repeated. Times whole calls of the
// executor; model load and tokenizer are outside. The tokens are pseudo-random, the same for every engine of one
// vocabulary.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "baton/unit/unit.h"

namespace baton {

// ppN: prefill N tokens. tgN: decode N tokens, one after another, each the greedy choice behind the one before. Both
// after `depth` tokens that are not timed.
struct SpeedTest {
  uint32_t prefill_tokens = 0;  // one of the two is 0
  uint32_t decode_tokens = 0;
  uint32_t depth = 0;
  std::string name() const;  // "pp512", "tg64", "tg64 @ d1024"
};

struct SpeedResult {
  std::vector<double> tokens_per_second;  // one per repetition
  uint64_t tokens_hash = 0;  // of the generated ids (tg) or the id the prompt leads to (pp): equal each time
};

// One untimed warm-up, then `repetitions` timed runs. kInternal when two repetitions generate different tokens.
// `on_run` reports progress; may be empty.
Result<SpeedResult> measure_speed(Executor& executor, const SpeedTest& test, uint32_t repetitions,
                                  const std::function<void(uint32_t done)>& on_run);

}  // namespace baton
