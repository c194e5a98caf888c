// One JSON object a line, with bounded depth.
#include "baton/api/batch_line.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace baton::openai {
namespace {

constexpr int kDepthMax = 64;
constexpr std::string_view kBegin = R"({"id":"batch_req_)", kIdBegin = "batch_req_";

tl::expected<Json, LineError> parse_line(std::string_view line) {
  bool deep = false;
  // What lies too deep is not kept: copies and destructors go as deep as the value.
  const auto keep = [&deep](int depth, Json::parse_event_t, const Json&) {
    deep |= depth > kDepthMax;
    return depth <= kDepthMax;
  };
  try {
    Json json = Json::parse(line.begin(), line.end(), keep);
    if (deep) return tl::unexpected(LineError{"invalid_json_line", fmt::format("nested deeper than {}", kDepthMax)});
    return json;
  } catch (const Json::parse_error& error) {
    const uint64_t byte = error.byte == 0 ? 0 : error.byte - 1;
    return tl::unexpected(LineError{"invalid_json_line", "not valid JSON", {}, std::min<uint64_t>(byte, line.size())});
  } catch (const Json::exception&) {  // a number out of range
    return tl::unexpected(LineError{"invalid_json_line", "not valid JSON: a number is out of range"});
  }
}

const std::string* text_at(const Json& json, const char* name) {
  if (!json.is_object()) return nullptr;
  const auto found = json.find(name);
  return found == json.end() ? nullptr : found->get_ptr<const std::string*>();
}

std::string one_line(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"; }

std::string line_id(uint64_t number) { return fmt::format("{}{:09}", kIdBegin, number); }

}  // namespace

tl::expected<BatchRequest, LineError> read_request_line(std::string_view line) {
  auto json = parse_line(line);
  if (!json) return tl::unexpected(std::move(json).error());
  const auto refuse = [&](const char* code, std::string message) {
    LineError error{code, std::move(message)};
    if (const std::string* id = text_at(*json, "custom_id")) error.custom_id = *id;
    return tl::unexpected(std::move(error));
  };
  if (!json->is_object()) return refuse("invalid_json_line", "not a JSON object");
  const std::string* id = text_at(*json, "custom_id");
  if (id == nullptr || id->empty()) return refuse("missing_required_parameter", "custom_id is missing, or no text");
  const std::string *method = text_at(*json, "method"), *url = text_at(*json, "url");
  if (method == nullptr || *method != "POST") return refuse("invalid_method", "method is not \"POST\"");
  const auto endpoint = endpoint_of(url == nullptr ? "" : *url);
  if (!endpoint) return refuse("invalid_url", "url is neither /v1/chat/completions nor /v1/completions");
  const auto body = json->find("body");
  if (body == json->end() || !body->is_object())
    return refuse("missing_required_parameter", "body is missing, or no object");
  return BatchRequest{*id, *endpoint, std::move(*body)};
}

std::optional<std::string> custom_id_of(std::string_view line) {
  const auto json = parse_line(line);
  const std::string* id = json ? text_at(*json, "custom_id") : nullptr;
  return id == nullptr ? std::nullopt : std::optional(*id);
}

std::string answer_line(uint64_t number, const std::string& custom_id, int status, const Json& body) {
  return one_line(
      {{"id", line_id(number)},
       {"custom_id", custom_id},
       {"response", {{"status_code", status}, {"request_id", fmt::format("req_{:09}", number)}, {"body", body}}},
       {"error", nullptr}});
}

std::string error_line(uint64_t number, const LineError& error) {
  return one_line({{"id", line_id(number)},
                   {"custom_id", error.custom_id ? Json(*error.custom_id) : Json(nullptr)},
                   {"response", nullptr},
                   {"error", {{"code", error.code}, {"message", error.message}}}});
}

std::string answer_id(Endpoint endpoint, uint64_t number) {
  return fmt::format("{}-{:09}", endpoint == Endpoint::kChat ? "chatcmpl" : "cmpl", number);
}

std::optional<AnsweredLine> read_answered_line(std::string_view line) {
  const auto json = parse_line(line);
  const std::string* id = json ? text_at(*json, "id") : nullptr;
  if (id == nullptr || !id->starts_with(kIdBegin)) return std::nullopt;
  AnsweredLine read;
  const char* end = id->data() + id->size();
  const auto [at, error] = std::from_chars(id->data() + kIdBegin.size(), end, read.number);
  if (error != std::errc() || at != end) return std::nullopt;
  if (const std::string* custom = text_at(*json, "custom_id")) read.custom_id = *custom;
  const auto response = json->find("response");
  if (response == json->end()) return std::nullopt;
  read.responded = response->is_object();
  if (!read.responded) return response->is_null() ? std::optional(std::move(read)) : std::nullopt;
  if (!read.custom_id) return std::nullopt;
  const auto status = response->find("status_code"), body = response->find("body");
  if (status == response->end() || body == response->end()) return std::nullopt;
  read.answered = *status == 200;
  if (const std::string* model = text_at(*body, "model")) read.model = *model;
  if (const std::string* print = text_at(*body, "system_fingerprint")) read.fingerprint = *print;
  return read;
}

bool begins_answer(std::string_view torn) {
  const size_t shared = std::min(torn.size(), kBegin.size());
  return torn.substr(0, shared) == kBegin.substr(0, shared);
}

}  // namespace baton::openai
