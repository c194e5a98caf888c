// Numbers of the engine, as JSON.
#include "baton/serve/answer_figures.h"

#include <string>
#include <string_view>

namespace baton::serve {
namespace {

using Json = nlohmann::ordered_json;

Json text_or_null(const std::string& text) { return text.empty() ? Json(nullptr) : Json(text); }
Json positive_or_null(double number) { return number > 0 ? Json(number) : Json(nullptr); }

Json phase_json(const PhaseStats& phase, uint64_t tokens, double ms, double tps) {
  return {{"unit_asked", text_or_null(without_paths(phase.asked))},
          {"unit_ran", text_or_null(phase.ran)},
          {"emulated", phase.emulated},
          {"tokens", tokens},
          {"ms", ms},
          {"tokens_per_second", positive_or_null(tps)},
          {"warning", text_or_null(phase.warning)}};
}

double sum_of(const std::vector<float>& values) {
  double sum = 0;
  for (const float value : values) sum += value;
  return sum;
}

}  // namespace

Json bridge_json(const BridgeStats& bridge) {
  return {{"kind", to_string(bridge.kind)},
          {"bytes", bridge.bytes},
          {"peer_bytes", bridge.peer_bytes},
          {"ms", bridge.ms},
          {"hidden_ms", bridge.hidden_ms},
          {"level", to_string(bridge.level)},
          {"verified", bridge.unproven.empty() ? Json(bridge.verified) : Json(nullptr)},
          {"unproven", text_or_null(bridge.unproven)}};
}

Json extension_json(const RequestStats& stats, double queue_ms) {
  Json made = {{"queue_ms", queue_ms + stats.queue_ms},
               {"ttft_ms", stats.generated_tokens > 0 ? Json(queue_ms + stats.ttft_ms) : Json(nullptr)},
               {"total_ms", queue_ms + stats.total_ms},
               {"prefill", phase_json(stats.prefill, stats.prefill_tokens, stats.prefill_ms, stats.prefill_tps)}};
  if (!stats.via.asked.empty()) made["via"] = phase_json(stats.via, stats.via_tokens, 0, stats.via_tps);
  made["decode"] = phase_json(stats.decode, stats.generated_tokens - stats.via_tokens,
                              sum_of(stats.token_ms) + stats.first_token.first_decode_ms, stats.decode_tps);
  made["bridge"] = bridge_json(stats.bridge);
  made["cached_tokens"] = stats.cached_tokens;
  made["emulated"] = stats.emulated();
  made["fallback"] = text_or_null(stats.fallback);
  made["joules"] = "unknown";
  return made;
}

Json phases_json(const RequestStats& stats, double arrived_ms, double submitted_ms) {
  Json phases = Json::array();
  double at = arrived_ms;
  const auto add = [&](const char* name, double ms, const std::string& unit) {
    if (ms > 0) phases.push_back({{"name", name}, {"start_ms", at}, {"end_ms", at + ms}, {"unit", text_or_null(unit)}});
    at += ms;
  };
  const FirstTokenTimes& first = stats.first_token;
  add("queue", submitted_ms - arrived_ms + first.queue_ms, "");
  add("wait", first.waiting_ms, "");
  add("prefill", first.prefill_ms, stats.prefill.ran);
  add("move", first.move_ms,
      stats.prefill.ran.empty() ? stats.decode.ran : stats.prefill.ran + " -> " + stats.decode.ran);
  add("keep", first.keep_ms, stats.prefill.ran);
  add("verify", first.proof_ms, stats.decode.ran);
  add("decode", first.first_decode_ms + sum_of(stats.token_ms), stats.decode.ran);
  return phases;
}

std::string without_paths(std::string_view message) {
  std::string made;
  const auto ends = [](char c) { return c == ' ' || c == '\'' || c == '"' || c == ':' || c == ',' || c == ')'; };
  for (size_t at = 0; at < message.size();) {
    // Behind '=': the value of an option of a unit.
    const bool begins =
        message[at] == '/' && (at == 0 || std::string_view(" '\"(=").find(message[at - 1]) != std::string_view::npos);
    if (!begins) {
      made += message[at++];
      continue;
    }
    size_t end = at;
    while (end < message.size() && !ends(message[end])) ++end;
    const std::string_view path = message.substr(at, end - at);
    made += path.substr(path.rfind('/') + 1);
    at = end;
  }
  return made;
}

}  // namespace baton::serve
