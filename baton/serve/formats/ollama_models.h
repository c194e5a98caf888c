// What Ollama's interface says of models: /api/tags, /api/ps, /api/show, /api/version, /api/pull. Names go through
// `model_name`, and are compared with those of models that are here; nothing is opened by them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "baton/serve/formats/body.h"

namespace baton::serve::formats {

struct OllamaModel {
  std::string name;
  std::string digest;   // of its file, in hex; "" where it was not summed
  uint64_t bytes = 0;   // of its weights
  int64_t changed = 0;  // of its file, seconds since 1970
  std::string format = "gguf";
  std::string family;          // "qwen3"
  std::string parameter_size;  // "135M"
  std::string quantization;    // "Q8_0"
  uint64_t context_tokens = 0, embedding_length = 0;
  std::string chat_template, license;
  std::string parameters;                 // a line each: name and value of what requests default to
  std::vector<std::string> capabilities;  // of completion, tools, thinking, embedding
  Json model_info = Json::object();       // keys of the model's file
  bool loaded = false;
  uint64_t loaded_bytes = 0;  // where it is loaded: of host and devices together
  uint64_t device_bytes = 0;  // of these, held in memory of devices
  std::vector<std::string> emulated_units = {};
  int64_t expires = 0;  // when it is let go of unused, seconds since 1970; 0: never
};

Json tags_body(const std::vector<OllamaModel>& models);  // all
Json ps_body(const std::vector<OllamaModel>& models);    // those that are loaded
Json show_body(const OllamaModel& model);
Json version_body(std::string_view version);

// "name:latest" is "name".
std::string without_latest(std::string_view name);
bool same_model(std::string_view asked, std::string_view here);
// The field `model`, or `name`, its older name: 1 to 512 printable bytes, and no path out of where models are (no "..",
// no '\\', not absolute, no scheme).
tl::expected<std::string, ApiError> model_name(Body& body);
// 404, as Ollama says it.
ApiError no_model(std::string_view name);

// /api/show: the name. `verbose` is ignored: long lists (tokens, merges) are never shown.
tl::expected<std::string, ApiError> read_show(const Json& body);

struct PullRequest {
  std::string model;
  bool stream = true;
};
// `insecure` is ignored: the server alone says where it fetches from.
tl::expected<PullRequest, ApiError> read_pull(const Json& body);
std::string pull_type(const PullRequest& request);    // of the content
std::string pull_answer(const PullRequest& request);  // of a model that is here
ApiError pull_refusal(const PullRequest& request);    // of one that is not

}  // namespace baton::serve::formats
