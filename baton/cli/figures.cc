// The figures of one answer: as JSON fields, and as lines for people.
#include "baton/cli/figures.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <iterator>

namespace baton::cli {
namespace {

OrderedJson number_or_null(double value, bool known) { return known ? OrderedJson(value) : OrderedJson(nullptr); }

// Never more than the context holds: the token drawn when nothing more fits takes no place.
uint64_t context_used(const Completion& completion) {
  return std::min(completion.context_used(), completion.context_tokens);
}

OrderedJson phase_json(const PhaseStats& phase) {
  return {{"asked", phase.asked},
          {"ran", phase.ran.empty() ? OrderedJson(nullptr) : OrderedJson(phase.ran)},
          {"emulated", phase.emulated},
          {"evidence", phase.evidence},
          {"warning", phase.warning.empty() ? OrderedJson(nullptr) : OrderedJson(phase.warning)}};
}

OrderedJson first_token_json(const FirstTokenTimes& times) {
  return {{"queue_ms", times.queue_ms},
          {"waiting_ms", times.waiting_ms},
          {"prefill_ms", times.prefill_ms},
          {"move_ms", times.move_ms},
          {"keep_ms", times.keep_ms},
          {"proof_ms", times.proof_ms},
          {"first_decode_ms", times.first_decode_ms}};
}

// "307.1 ms: prefill 84.2, first decode 222.1": the parts that show at one decimal.
std::string first_token_text(const RequestStats& stats) {
  const FirstTokenTimes& times = stats.first_token;
  const std::pair<const char*, double> parts[] = {
      {"queue", times.queue_ms},    {"prefill", times.prefill_ms},  {"proof's prefill", times.proof_ms},
      {"hand-over", times.move_ms}, {"checkpoints", times.keep_ms}, {"first decode", times.first_decode_ms},
      {"waiting", times.waiting_ms}};
  std::string text = fmt::format("{:.1f} ms", stats.ttft_ms);
  const char* before = ": ";
  for (const auto& [name, ms] : parts) {
    if (ms < 0.05) continue;
    text += fmt::format("{}{} {:.1f}", before, name, ms);
    before = ", ";
  }
  return text;
}

std::string who_text(const PhaseStats& phase) {
  if (phase.ran.empty()) return fmt::format("did not run: {}", phase.evidence);
  if (phase.ran_as_asked()) return fmt::format("ran on {} as asked ({})", phase.asked, phase.evidence);
  return fmt::format("asked for {}, ran on {} ({})", phase.asked, phase.ran, phase.evidence);
}

std::string tokens_text(uint64_t count) { return fmt::format("{} token{}", count, count == 1 ? "" : "s"); }

std::string speed_text(double tps, bool emulated) {
  return tps > 0 ? fmt::format(", {:.1f} tok/s{}", tps, emulated ? " emulated" : "") : "";
}

std::string ended_text(const Completion& completion) {
  switch (completion.ended) {
    case Ended::kEndToken:
      return "ended by the model";
    case Ended::kStopString:
      return "ended by a --stop text";
    case Ended::kTokenLimit:
      return "ended by the limit of -n";
    case Ended::kContextFull:
      return fmt::format("ended because the context of {} tokens is full (-c)", completion.context_tokens);
    case Ended::kCancelled:
      return output_lost() ? "ended because nobody took what was printed" : "ended by an interrupt";
  }
  return "";
}

// Of what the proof compared; null when it compared nothing.
OrderedJson proof_json(const BridgeStats& bridge) {
  if (bridge.states == 0) return nullptr;
  OrderedJson logits = nullptr;
  if (bridge.checked > 0) {
    logits = {{"rms", bridge.max_rms_dlogit},
              {"rms_bound", bridge.logits.rms},
              {"largest", bridge.max_abs_dlogit},
              {"largest_bound", bridge.logits.largest},
              {"kl", bridge.max_kl},
              {"kl_bound", bridge.logits.kl}};
  }
  return {{"result", bridge.proof_failed ? "failed" : "passed"},
          {"between", bridge.between},
          {"factor", kBoundFactor},
          {"states", bridge.states},
          {"worst", {{"at", bridge.worst_at}, {"value", bridge.worst.value}, {"bound", bridge.worst.bound}}},
          {"logits", logits}};
}

OrderedJson bridge_json(const BridgeStats& bridge, bool emulated) {
  const bool rows = bridge.checked > 0;
  return {{"kind", to_string(bridge.kind)},
          {"bytes", bridge.bytes},
          {"peer_bytes", bridge.peer_bytes},
          {"ms", bridge.ms},
          {"emulated", emulated},
          {"hidden_ms", bridge.hidden_ms},
          {"hidden_share", number_or_null(bridge.hidden_share(), bridge.ms > 0)},
          {"level", to_string(bridge.level)},
          {"verified", bridge.unproven.empty() ? OrderedJson(bridge.verified) : OrderedJson(nullptr)},
          {"unproven", text_or_null(bridge.unproven)},
          {"checked", bridge.checked},
          {"max_abs_dlogit", number_or_null(bridge.max_abs_dlogit, rows)},
          {"tolerance", number_or_null(bridge.logits.largest, rows)},
          {"agreement", number_or_null(bridge.agreement(), rows)},
          {"near_ties", bridge.near_ties},
          {"proof", proof_json(bridge)}};
}

std::string level_text(const BridgeStats& bridge) {
  switch (bridge.level) {
    case BridgeLevel::kNone:
      break;
    case BridgeLevel::kSealed:
      if (bridge.kind == BridgeKind::kMove) return "sealed: every piece arrived as it was read";
      if (bridge.kind == BridgeKind::kAdopt) return "sealed: its memory changed hands, every value was searched";
      return "sealed: checksums and fingerprints hold";
    case BridgeLevel::kProven:
      return "proven";
  }
  return bridge.kind == BridgeKind::kAlias && !bridge.proof_failed ? "the state itself, nothing to seal"
                                                                   : "NOT verified, not used";
}

std::string proof_text(const BridgeStats& bridge) {
  std::string text;
  auto out = std::back_inserter(text);
  if (!bridge.unproven.empty()) fmt::format_to(out, "{:<12} NOT MADE: {}\n", "proof", bridge.unproven);
  if (bridge.states == 0) return text;
  fmt::format_to(out, "{:<12} {}: {}", "proof", bridge.proof_failed ? "FAILED" : "passed", bridge.between);
  if (bridge.logits != LogitsBounds())
    fmt::format_to(out, " (bounds: {:g} x the largest honest difference measured on this model)", kBoundFactor);
  text += "\n";
  fmt::format_to(out, "{:<12} {} compared; nearest its bound: {}\n", "  states", bridge.states, bridge.worst_at);
  if (bridge.checked == 0) return text;
  fmt::format_to(
      out,
      "{:<12} {} of {} rows agree ({} near ties); rms {:.3g} of {:.3g}, largest {:.3g} of {:.3g}, KL {:.3g} of "
      "{:.3g} allowed\n",
      "  logits", bridge.agreed, bridge.checked, bridge.near_ties, bridge.max_rms_dlogit, bridge.logits.rms,
      bridge.max_abs_dlogit, bridge.logits.largest, bridge.max_kl, bridge.logits.kl);
  return text;
}

}  // namespace

ProofEvents proof_events(const InterruptScope& interrupts, std::optional<Progress>& meter) {
  ProofEvents events;
  events.on_progress = [&interrupts, &meter](const ProofProgress& now) {
    if (now.share <= 0) {
      if (now.kept)
        fmt::print(stderr, "baton: measuring what honest states differ by, {}, once for this model: it is kept\n",
                   now.between);
      const char* const of = now.kept ? "" : ", this prompt";
      meter.emplace(fmt::format("measuring {}{}", now.between, of), Progress::Elsewhere::kLines);
    }
    if (now.share < 1 && !interrupts.interrupted()) {
      meter->show_share(now.share);
    } else {
      meter->clear();
    }
    return !interrupts.interrupted();
  };
  events.on_note = [](const std::string& text) { spdlog::warn("{}", text); };
  return events;
}

void log_warnings(const Completion& completion) {
  const BridgeStats& bridge = completion.stats.bridge;
  if (!completion.stats.reuse_failed.empty()) spdlog::warn("{}", completion.stats.reuse_failed);
  if (!bridge.unproven.empty()) spdlog::warn("--verify-bridge: nothing was proven: {}", bridge.unproven);
  if (bridge.proof_failed) spdlog::error("{}", completion.stats.fallback);
  for (const PhaseStats* phase : {&completion.stats.prefill, &completion.stats.via, &completion.stats.decode}) {
    if (!phase->warning.empty()) spdlog::warn("{}", phase->warning);
  }
}

OrderedJson rounding_json(const std::optional<RoundingError>& rounding) {
  if (!rounding) return nullptr;
  return {{"type", "bf16"},
          {"max_abs", number_or_null(rounding->max_abs, rounding->measured)},
          {"max_rel", number_or_null(rounding->max_rel, rounding->measured)}};
}

OrderedJson figures_json(const Completion& completion) {
  const RequestStats& stats = completion.stats;
  const bool answered = stats.generated_tokens > 0;
  OrderedJson json;
  json["finish_reason"] = to_string(completion.reason);
  json["ended"] = to_string(completion.ended);
  json["prompt_tokens"] = stats.prompt_tokens;
  json["reused_tokens"] = stats.reused_tokens;
  json["cached_tokens"] = stats.cached_tokens;
  json["cached_rounding"] = rounding_json(stats.cached_rounding);
  json["kept_rounding"] = rounding_json(stats.kept_rounding);
  json["replayed_tokens"] = stats.prompt_tokens - std::min(stats.prompt_tokens, stats.reused_tokens);
  json["generated_tokens"] = stats.generated_tokens;
  json["context_used"] = context_used(completion);
  json["context_tokens"] = completion.context_tokens;
  json["load_ms"] = completion.load_ms;
  json["queue_ms"] = stats.queue_ms;
  json["ttft_ms"] = number_or_null(stats.ttft_ms, answered);
  json["first_token"] = answered ? first_token_json(stats.first_token) : OrderedJson(nullptr);
  json["prefill_tokens"] = stats.prefill_tokens;
  json["prefill_ms"] = stats.prefill_ms;
  json["prefill_tps"] = number_or_null(stats.prefill_tps, stats.prefill_tps > 0);
  json["decode_tps"] = number_or_null(stats.decode_tps, stats.decode_tps > 0);
  json["total_ms"] = stats.total_ms;
  json["emulated"] = stats.emulated();
  json["prefill"] = phase_json(stats.prefill);
  if (!stats.via.asked.empty()) {
    json["via"] = phase_json(stats.via);
    json["via"]["tokens"] = stats.via_tokens;
    json["via"]["tps"] = number_or_null(stats.via_tps, stats.via_tps > 0);
  }
  json["decode"] = phase_json(stats.decode);
  json["bridge"] = bridge_json(stats.bridge, stats.emulated());
  json["fallback"] = stats.fallback.empty() ? OrderedJson(nullptr) : OrderedJson(stats.fallback);
  return json;
}

std::string figures_text(const Completion& completion, std::string_view model) {
  const RequestStats& stats = completion.stats;
  const BridgeStats& bridge = stats.bridge;
  std::string text;
  const auto line = [&](const char* name, const std::string& what) { text += fmt::format("{:<12} {}\n", name, what); };
  line("model", std::string(model));
  line("prompt",
       tokens_text(stats.prompt_tokens) +
           (stats.reused_tokens > 0
                ? fmt::format(", {} of them from a {} state, {} replayed", stats.reused_tokens,
                              stats.cached_tokens > 0 ? "cached" : "saved", stats.prompt_tokens - stats.reused_tokens)
                : ""));
  if (const auto& rounding = stats.cached_rounding)
    line("checkpoint", rounding->measured ? fmt::format("bf16, off by {:.2g} at most, {:.2g} relative",
                                                        rounding->max_abs, rounding->max_rel)
                                          : "bf16, by how much off its file does not say");
  line("answer", tokens_text(stats.generated_tokens) + ", " + ended_text(completion));
  const std::string emulated = stats.emulated() ? ", emulated" : "";
  if (stats.generated_tokens > 0) line("first token", first_token_text(stats) + emulated);
  // The ordinary case is said once.
  const bool alike = !stats.prefill.ran.empty() && stats.via.asked.empty() &&
                     stats.prefill.asked == stats.decode.asked && stats.prefill.ran == stats.decode.ran &&
                     stats.prefill.evidence == stats.decode.evidence;
  const auto phase_line = [&](const char* name, const PhaseStats& phase, uint64_t tokens, double tps) {
    std::string what = alike || tokens > 0 ? tokens_text(tokens) + speed_text(tps, phase.emulated) : "";
    if (!alike) what += (what.empty() ? "" : ", ") + who_text(phase);
    line(name, what);
  };
  phase_line("prefill", stats.prefill, stats.prefill_tokens, stats.prefill_tps);
  if (!stats.via.asked.empty()) phase_line("via", stats.via, stats.via_tokens, stats.via_tps);
  phase_line("decode", stats.decode, stats.generated_tokens - stats.via_tokens, stats.decode_tps);
  if (alike) line("unit", who_text(stats.decode));
  if (bridge.kind == BridgeKind::kNone) {
    line("bridge", "nothing moved");
  } else {
    const std::string hidden =
        bridge.hidden_ms > 0 ? fmt::format(" ({:.0f} % of it hidden by the prefill)", 100 * bridge.hidden_share()) : "";
    const char* const way = bridge.peer_bytes > 0 ? " from card to card" : "";
    line("bridge", fmt::format("{}, {} bytes{} in {:.2f} ms{}, {}{}", to_string(bridge.kind), bridge.bytes, way,
                               bridge.ms, hidden, level_text(bridge), emulated));
  }
  text += proof_text(bridge);
  if (!stats.fallback.empty()) line("fallback", stats.fallback);
  line("context", fmt::format("{} of {} tokens used", context_used(completion), completion.context_tokens));
  line("time", fmt::format("{:.0f} ms to load, {:.0f} ms to answer{}", completion.load_ms, stats.total_ms, emulated));
  return text;
}

}  // namespace baton::cli
