// `baton bench` with no model and no test: one request of the bundled model as a user would make it, and three numbers.
#include <fmt/format.h>

#include "baton/api/runtime.h"
#include "baton/base/random.h"
#include "baton/bench/energy_meter.h"
#include "baton/bench/stats.h"
#include "baton/cli/bench_flags.h"
#include "baton/cli/model_flags.h"

namespace baton::cli {
namespace {

// The canonical workload; docs/bench.md describes it. A change makes older figures useless.
constexpr uint32_t kPromptTokens = 128, kAnswerTokens = 64;
constexpr uint64_t kSeed = 17;

struct Samples {
  std::vector<double> ttft_ms, tokens_per_second;
  double joules = 0;
  bool metered = false;
  PhaseStats prefill, decode;
};

Result<Samples> run_requests(Runtime& runtime, const BenchFlags& flags, EnergyMeter& meter) {
  Random random(kSeed);
  std::vector<int32_t> prompt(kPromptTokens);
  for (int32_t& id : prompt)
    id = static_cast<int32_t>(random.below(static_cast<uint64_t>(runtime.model().program.vocab)));
  Samples samples;
  samples.metered = meter.available();
  std::vector<int32_t> answer;
  for (uint32_t i = 0; i <= flags.repetitions; ++i) {
    progress(fmt::format("request {}/{}", i, flags.repetitions));
    CompletionRequest request{runtime.make_request(prompt), {}};
    request.request.max_new_tokens = kAnswerTokens;
    request.request.ignore_eos = true;
    request.request.sampler.temperature = 0;
    request.request.prefill_unit = flags.prefill_on();
    request.request.decode_unit = flags.decode_on();
    meter.start();
    BATON_TRY(const Completion done, runtime.complete(
                                         std::move(request), [](std::string_view) {}, [] { return false; }));
    const auto joules = meter.joules();
    if (i == 0) {
      answer = done.ids;
      continue;  // the warm-up
    }
    if (done.ids != answer) return fail(Code::kInternal, "a repeated request was answered otherwise");
    samples.ttft_ms.push_back(done.stats.ttft_ms);
    samples.tokens_per_second.push_back(done.stats.decode_tps);
    samples.metered = samples.metered && joules.has_value();
    samples.joules += joules.value_or(0);
    samples.prefill = done.stats.prefill;
    samples.decode = done.stats.decode;
  }
  progress("");
  return samples;
}

void print_numbers(const Samples& samples, const BenchFlags& flags, const std::string& reason) {
  const Summary ttft = summarize(samples.ttft_ms), speed = summarize(samples.tokens_per_second);
  const double joules = samples.joules / (static_cast<double>(flags.repetitions) * kAnswerTokens);
  const bool emulated = samples.prefill.emulated || samples.decode.emulated;
  if (flags.output == "md") {
    const std::string note = emulated ? "  emulated" : "";
    print(fmt::format("time to first token  {:>10.2f} ms  ({:.2f} to {:.2f}){}\n", ttft.median, ttft.low, ttft.high,
                      note));
    print(fmt::format("tokens/s             {:>10.2f}     ({:.2f} to {:.2f}){}\n", speed.median, speed.low, speed.high,
                      note));
    print(samples.metered ? fmt::format("joules per token     {:>10.4g}\n", joules)
                          : "joules per token        unknown\n");
    return;
  }
  if (flags.output == "csv") {
    print("ttft_ms,tokens_per_second,joules_per_token,quality,prefill_on,decode_on\n");
    print(fmt::format("{},{},{},{},\"{}\",\"{}\"\n", ttft.median, speed.median,
                      samples.metered ? std::to_string(joules) : "", emulated ? "emulated" : "measured",
                      samples.prefill.ran, samples.decode.ran));
    return;
  }
  OrderedJson json;
  json["workload"] = fmt::format("{} tokens in, {} out", kPromptTokens, kAnswerTokens);
  json["model_filename"] = flags.model;
  json["repetitions"] = flags.repetitions;
  json["ttft_ms"] = summary_json(ttft);
  json["tokens_per_second"] = summary_json(speed);
  json["joules_per_token"] = samples.metered ? OrderedJson(joules) : OrderedJson(nullptr);
  json["energy_reason"] = samples.metered ? OrderedJson(nullptr) : OrderedJson(reason);
  json["quality"] = emulated ? "emulated" : "measured";
  json["prefill"] = {{"ran", samples.prefill.ran}, {"evidence", samples.prefill.evidence}};
  json["decode"] = {{"ran", samples.decode.ran}, {"evidence", samples.decode.evidence}};
  json["samples_ttft_ms"] = samples.ttft_ms;
  json["samples_ts"] = samples.tokens_per_second;
  print_json(json);
}

}  // namespace

OrderedJson summary_json(const Summary& summary) {
  return {{"median", summary.median}, {"low", summary.low}, {"high", summary.high}};
}

int bench_canonical(const BenchFlags& given) {
  BenchFlags flags = given;
  const auto bundled = bundled_model();
  if (!bundled) return report(bundled.error());
  flags.model = bundled->string();
  ModelFlags model;
  model.model = flags.model;
  model.prefill_unit = flags.prefill_on();
  model.decode_unit = flags.decode_on();
  model.threads = flags.threads;
  if (const auto settled = model.settle(); !settled) return report(settled.error()), kUsage;
  flags.prefill_unit = model.prefill_unit;
  flags.decode_unit = model.decode_unit;
  auto runtime = model.open();
  if (!runtime) return report(runtime.error());
  EnergyMeter meter;
  auto samples = run_requests(**runtime, flags, meter);
  if (!samples) {
    progress("");
    return report(samples.error());
  }
  std::string reason = meter.reason();
  if (samples->prefill.emulated || samples->decode.emulated) {
    samples->metered = false;  // the host's energy says nothing of the device
    reason = "the unit is emulated";
  }
  if (!samples->metered) fmt::print(stderr, "baton: joules per token unknown: {}\n", reason);
  print_numbers(*samples, flags, reason);
  return kOk;
}

}  // namespace baton::cli
