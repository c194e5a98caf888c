// The figures of one answer: as JSON fields, and as lines for people.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <iterator>

#include "baton/cli/command.h"

namespace baton::cli {
namespace {

OrderedJson number_or_null(double value, bool known) { return known ? OrderedJson(value) : OrderedJson(nullptr); }

OrderedJson phase_json(const PhaseStats& phase) {
  return {{"asked", phase.asked},
          {"ran", phase.ran.empty() ? OrderedJson(nullptr) : OrderedJson(phase.ran)},
          {"evidence", phase.evidence},
          {"warning", phase.warning.empty() ? OrderedJson(nullptr) : OrderedJson(phase.warning)}};
}

std::string phase_text(const char* name, const PhaseStats& phase, uint64_t tokens, double tps) {
  std::string ran = phase.ran.empty() ? fmt::format("did not run: {}", phase.evidence)
                                      : fmt::format("ran on {} ({})", phase.ran, phase.evidence);
  return fmt::format("{:<12} {} tokens, {:.1f} tok/s, asked for {}, {}\n", name, tokens, tps, phase.asked, ran);
}

}  // namespace

void log_warnings(const Completion& completion) {
  for (const PhaseStats* phase : {&completion.stats.prefill, &completion.stats.decode}) {
    if (!phase->warning.empty()) spdlog::warn("{}", phase->warning);
  }
}

OrderedJson figures_json(const Completion& completion) {
  const RequestStats& stats = completion.stats;
  const bool proven = stats.bridge.checked > 0;
  OrderedJson json;
  json["finish_reason"] = to_string(completion.reason);
  json["prompt_tokens"] = stats.prompt_tokens;
  json["generated_tokens"] = stats.generated_tokens;
  json["queue_ms"] = stats.queue_ms;
  json["ttft_ms"] = number_or_null(stats.ttft_ms, stats.generated_tokens > 0);
  json["prefill_tokens"] = stats.prefill_tokens;
  json["prefill_ms"] = stats.prefill_ms;
  json["prefill_tps"] = stats.prefill_tps;
  json["decode_tps"] = stats.decode_tps;
  json["total_ms"] = stats.total_ms;
  json["prefill"] = phase_json(stats.prefill);
  json["decode"] = phase_json(stats.decode);
  json["bridge"] = {{"kind", stats.bridge.kind},
                    {"bytes", stats.bridge.bytes},
                    {"ms", stats.bridge.ms},
                    {"verified", stats.bridge.verified},
                    {"checked", stats.bridge.checked},
                    {"max_abs_dlogit", number_or_null(stats.bridge.max_abs_dlogit, proven)},
                    {"tolerance", number_or_null(stats.bridge.tolerance, proven)},
                    {"agreement", number_or_null(stats.bridge.agreement(), proven)},
                    {"near_ties", stats.bridge.near_ties}};
  json["fallback"] = stats.fallback.empty() ? OrderedJson(nullptr) : OrderedJson(stats.fallback);
  return json;
}

std::string figures_text(const Completion& completion) {
  const RequestStats& stats = completion.stats;
  const BridgeStats& bridge = stats.bridge;
  std::string text;
  auto out = std::back_inserter(text);
  fmt::format_to(out, "{:<12} {} tokens\n", "prompt", stats.prompt_tokens);
  if (stats.generated_tokens > 0) fmt::format_to(out, "{:<12} {:.1f} ms\n", "first token", stats.ttft_ms);
  text += phase_text("prefill", stats.prefill, stats.prefill_tokens, stats.prefill_tps);
  text += phase_text("decode", stats.decode, stats.generated_tokens, stats.decode_tps);
  if (bridge.kind == "none") {
    fmt::format_to(out, "{:<12} nothing moved\n", "bridge");
  } else {
    fmt::format_to(out, "{:<12} {}, {} bytes in {:.2f} ms, {}\n", "bridge", bridge.kind, bridge.bytes, bridge.ms,
                   bridge.verified ? "seal verified" : "NOT verified");
  }
  if (bridge.checked > 0) {
    fmt::format_to(out, "{:<12} {} of {} rows agree ({} near ties), max |dlogit| {:.5f}, tolerance {:g}\n", "proof",
                   bridge.agreed, bridge.checked, bridge.near_ties, bridge.max_abs_dlogit, bridge.tolerance);
  }
  if (!stats.fallback.empty()) fmt::format_to(out, "{:<12} {}\n", "fallback", stats.fallback);
  return text;
}

}  // namespace baton::cli
