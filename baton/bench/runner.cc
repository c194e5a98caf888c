// Timed runs of an executor.
#include "baton/bench/runner.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/base/clock.h"
#include "baton/base/random.h"

namespace baton {
namespace {

std::vector<int32_t> random_tokens(uint32_t count, int32_t vocab) {
  Random random(17);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab)));
  return ids;
}

int32_t likeliest(std::span<const float> logits) {
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

struct TimedRun {
  double seconds = 0;
  uint64_t hash = 0;
};

Result<TimedRun> run_once(Executor& executor, const SpeedTest& test, std::span<const int32_t> depth_ids,
                          std::span<const int32_t> prompt_ids, std::vector<float>& logits) {
  BATON_TRY(const auto state, executor.new_state(test.depth + test.prefill_tokens + test.decode_tokens + 1));
  if (!depth_ids.empty()) BATON_OK(executor.prefill(*state, depth_ids, {}));
  const SteadyClock clock;
  TimedRun run;
  const auto mix = [&](int32_t id) { run.hash = (run.hash ^ static_cast<uint32_t>(id)) * 0x100000001b3ull; };
  if (test.decode_tokens == 0) {
    const int64_t start = clock.now_ns();
    BATON_OK(executor.prefill(*state, prompt_ids, {}));
    run.seconds = ms_between(start, clock.now_ns()) / 1e3;
    const DecodeSlot slot{state.get(), 0, logits};  // proves that the state is the same each time; not timed
    BATON_OK(executor.decode({&slot, 1}));
    mix(likeliest(logits));
    return run;
  }
  int32_t token = prompt_ids[0];
  const int64_t start = clock.now_ns();
  for (uint32_t i = 0; i < test.decode_tokens; ++i) {
    const DecodeSlot slot{state.get(), token, logits};
    BATON_OK(executor.decode({&slot, 1}));
    token = likeliest(logits);
    mix(token);
  }
  run.seconds = ms_between(start, clock.now_ns()) / 1e3;
  return run;
}

}  // namespace

std::string SpeedTest::name() const {
  std::string name = decode_tokens == 0 ? fmt::format("pp{}", prefill_tokens) : fmt::format("tg{}", decode_tokens);
  if (depth > 0) name += fmt::format(" @ d{}", depth);
  return name;
}

Result<SpeedResult> measure_speed(Executor& executor, const SpeedTest& test, uint32_t repetitions,
                                  const std::function<void(uint32_t done)>& on_run) {
  const int32_t vocab = executor.model().program.vocab;
  const auto depth_ids = random_tokens(test.depth, vocab);
  const auto prompt_ids = random_tokens(std::max(test.prefill_tokens, 1u), vocab);
  std::vector<float> logits(static_cast<size_t>(vocab));
  SpeedResult result;
  for (uint32_t i = 0; i <= repetitions; ++i) {
    BATON_TRY(const TimedRun run, run_once(executor, test, depth_ids, prompt_ids, logits));
    if (i == 0) {
      result.tokens_hash = run.hash;
    } else {
      const uint32_t tokens = test.decode_tokens == 0 ? test.prefill_tokens : test.decode_tokens;
      result.tokens_per_second.push_back(tokens / run.seconds);
    }
    if (run.hash != result.tokens_hash) {
      return fail(Code::kInternal,
                  fmt::format("{}: repetition {} generated other tokens than the first; the speed of a wrong "
                              "answer means nothing",
                              test.name(), i));
    }
    if (on_run) on_run(i);
  }
  return result;
}

}  // namespace baton
