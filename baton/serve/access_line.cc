// One list of fields for both forms.
#include "baton/serve/access_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <ctime>
#include <nlohmann/json.hpp>

namespace baton::serve {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kLeft = 499;  // of who left before there was an answer; nginx's number

// What can be nothing but itself stays bare.
bool is_bare(std::string_view text) {
  constexpr std::string_view kMarks = "-_./:+,;@%~";
  return !text.empty() && std::all_of(text.begin(), text.end(), [&](char c) {
    return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           kMarks.find(c) != std::string_view::npos;
  });
}

// In ASCII: escapes for the rest, among them what turns the direction of text or ends a line.
std::string quoted(const Json& text) { return text.dump(-1, ' ', true, Json::error_handler_t::replace); }

double rounded(double ms) { return std::isfinite(ms) ? std::round(ms * 1000) / 1000 : 0; }

Json json_of(const AccessLine& line) {
  Json json = {{"time", time_text(line.time_ms)}, {"request_id", line.request_id}};
  const auto text = [&](const char* name, const std::string& value) {
    if (!value.empty()) json[name] = value;
  };
  const auto number = [&](const char* name, const std::optional<uint64_t>& value) {
    if (value) json[name] = *value;
  };
  const auto ms = [&](const char* name, const std::optional<double>& value) {
    if (value) json[name] = rounded(*value);
  };
  if (line.trace) {
    json["trace_id"] = line.trace->trace_id;
    json["parent_id"] = line.trace->parent_id;
    json["span_id"] = line.trace->span_id;
    text("tracestate", line.trace->state);
  }
  text("client", line.client);
  text("method", line.method);
  text("path", line.path);
  json["status"] = line.ended.status != 0 ? line.ended.status : kLeft;
  json["bytes"] = line.ended.bytes;
  json["ms"] = rounded(line.ended.total_ms);
  json["whole"] = line.ended.whole;
  text("key", line.key);
  text("model", line.model);
  text("answer_id", line.answer_id);
  number("prompt_tokens", line.prompt_tokens);
  number("cached_tokens", line.cached_tokens);
  number("answer_tokens", line.answer_tokens);
  text("finish", line.finish);
  ms("queue_ms", line.queue_ms);
  ms("ttft_ms", line.ttft_ms);
  text("prefill_unit", line.prefill_unit);
  text("decode_unit", line.decode_unit);
  if (line.emulated) json["emulated"] = *line.emulated;
  if (line.prompt) json["prompt"] = *line.prompt;
  return json;
}

}  // namespace

std::string AccessLine::text(AccessFormat format) const {
  const Json json = json_of(*this);
  if (format == AccessFormat::kJson) return quoted(json) + "\n";
  std::string made;
  for (const auto& [name, value] : json.items()) {
    if (!made.empty()) made += ' ';
    made += name + "=";
    const auto* bare = value.get_ptr<const std::string*>();
    made += bare != nullptr && is_bare(*bare) ? *bare : quoted(value);
  }
  return made + "\n";
}

std::string cut(std::string_view text, size_t bytes_max) {
  if (text.size() <= bytes_max) return std::string(text);
  size_t end = bytes_max;
  while (end > 0 && (static_cast<uint8_t>(text[end]) & 0xc0) == 0x80) --end;
  return std::string(text.substr(0, end)) + "...";
}

std::string time_text(int64_t ms) {
  const auto seconds = static_cast<std::time_t>(ms / 1000);
  std::tm parts{};
  if (!gmtime_r(&seconds, &parts)) return {};
  return fmt::format("{:04}-{:02}-{:02}T{:02}:{:02}:{:02}.{:03}Z", parts.tm_year + 1900, parts.tm_mon + 1,
                     parts.tm_mday, parts.tm_hour, parts.tm_min, parts.tm_sec, ms % 1000);
}

}  // namespace baton::serve
