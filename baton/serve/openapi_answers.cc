// What is answered with 200, by top-level fields, and what queries take.
#include <algorithm>
#include <string>
#include <utility>

#include "baton/serve/openapi_schemas.h"

namespace baton::serve::openapi {
namespace {

constexpr std::string_view kJson = "application/json", kEvents = "text/event-stream", kLines = "application/x-ndjson";

// `fields`: words NAME:TYPE, TYPE|TYPE or "any"; NAME? may be missing. "[": a list of such objects; "": any text.
struct Answer {
  std::string_view method, path, type, fields;
};

constexpr std::string_view kOllamaLine =
    "model:string created_at:string done:boolean done_reason?:string total_duration?:integer load_duration?:integer "
    "prompt_eval_count?:integer prompt_eval_duration?:integer eval_count?:integer eval_duration?:integer "
    "logprobs?:array baton?:object ";
constexpr std::string_view kChatLine = "message:object", kGenerateLine = "response:string thinking?:string";

constexpr Answer kAnswers[] = {
    {"POST", "/v1/chat/completions", kJson,
     "id:string object:string created:integer model:string system_fingerprint:string|null choices:array usage:object "
     "baton?:object"},
    {"POST", "/v1/chat/completions", kEvents, ""},
    {"POST", "/v1/completions", kJson,
     "id:string object:string created:integer model:string system_fingerprint:string|null choices:array usage:object "
     "baton?:object"},
    {"POST", "/v1/completions", kEvents, ""},
    {"POST", "/v1/embeddings", kJson, "object:string data:array model:string usage:object"},
    {"POST", "/v1/rerank", kJson, "id:string object:string model:string results:array usage:object"},
    {"POST", "/api/embed", kJson,
     "model:string embeddings:array total_duration:integer load_duration:integer prompt_eval_count:integer"},
    {"POST", "/api/embeddings", kJson, "embedding:array"},
    {"POST", "/v1/responses", kJson,
     "id:string object:string created_at:integer status:string background:boolean error:object|null "
     "incomplete_details:object|null model:string output:array usage:object|null instructions:string|null "
     "max_output_tokens:integer|null metadata:object parallel_tool_calls:boolean reasoning:object store:boolean "
     "temperature:number|null text:object tool_choice:string|object tools:array top_p:number|null truncation:string "
     "baton?:object"},
    {"POST", "/v1/responses", kEvents, ""},
    {"POST", "/v1/messages", kJson,
     "id:string type:string role:string model:string content:array stop_reason:string|null stop_sequence:string|null "
     "usage:object baton?:object"},
    {"POST", "/v1/messages", kEvents, ""},
    {"POST", "/v1/messages/count_tokens", kJson, "input_tokens:integer"},
    {"POST", "/api/chat", kJson, kChatLine},
    {"POST", "/api/chat", kLines, ""},
    {"POST", "/api/generate", kJson, kGenerateLine},
    {"POST", "/api/generate", kLines, ""},
    {"GET", "/api/tags", kJson, "models:array"},
    {"GET", "/api/ps", kJson, "models:array"},
    {"POST", "/api/show", kJson,
     "license:string modelfile:string parameters:string template:string details:object model_info:object "
     "capabilities:array modified_at:string emulated_units?:array"},
    {"POST", "/api/pull", kJson, "status:string"},
    {"POST", "/api/pull", kLines, ""},
    {"GET", "/api/version", kJson, "version:string"},
    {"GET", "/v1/models", kJson, "object:string data:array"},
    {"GET", "/v1/models/*", kJson,
     "id:string object:string created:integer owned_by:string max_model_len:integer loaded:boolean "
     "embedding_length?:integer aliases?:array emulated_units?:array"},
    {"GET", "/v1/routes", kJson,
     "object:string model:string prompt_tokens:integer cached_tokens:integer answer_tokens:integer facts:object "
     "units:array bridges:array routes:array dispatch:boolean asked?:object"},
    {"POST", "/tokenize", kJson, "tokens:array count:integer max_model_len:integer token_strs?:array|null"},
    {"POST", "/detokenize", kJson, "content:string prompt:string"},
    {"POST", "/apply-template", kJson, "prompt:string"},
    {"GET", "/health", kJson, "status:string"},
    {"GET", "/ready", kJson, "ready:boolean lost_units?:array"},
    {"GET", "/metrics", "text/plain", ""},
    {"GET", "/slots", kJson, "[id:integer n_ctx:integer is_processing:boolean"},
    {"GET", "/props", kJson,
     "build_info:string total_slots:integer queue_max:integer models:array embedding_models:array memory:object "
     "usage:object machine:any"},
    {"GET", "/version", kJson, "name:string version:string"},
    {"GET", "/openapi.json", kJson, "openapi:string info:object paths:object components:object"},
    {"GET", "/", "text/html", ""},
    {"GET", "/index.html", "text/html", ""},
    {"GET", "/page/*", "*/*", ""},
    {"GET", "/v1/timeline", kEvents, ""},
    {"GET", "/v1/timeline", kJson, "now_ms:number started:integer usage:object models:array events:array"},
};

// Cuts the part in front of `mark` off, and the mark.
std::string cut(std::string_view& text, char mark) {
  const size_t size = std::min(text.find(mark), text.size());
  std::string part(text.substr(0, size));
  text.remove_prefix(std::min(size + 1, text.size()));
  return part;
}

Schema object_of(std::string_view fields) {
  Schema made = {{"type", "object"}, {"required", Schema::array()}, {"properties", Schema::object()}};
  while (!fields.empty()) {
    std::string word = cut(fields, ' ');
    std::string_view types = word;
    std::string name = cut(types, ':');
    const bool optional = name.ends_with('?');
    if (optional) name.pop_back();
    Schema list = Schema::array();
    while (!types.empty()) list.push_back(cut(types, '|'));
    Schema schema = Schema::object();
    if (list[0] != "any") schema["type"] = list.size() == 1 ? list[0] : list;
    made["properties"][name] = std::move(schema);
    if (!optional) made["required"].push_back(name);
  }
  return made;
}

Schema schema_of(const Answer& answer) {
  std::string_view fields = answer.fields;
  if (fields.empty()) return {{"type", "string"}};
  if (fields.starts_with('[')) return {{"type", "array"}, {"items", object_of(fields.substr(1))}};
  std::string all(fields);
  if (fields == kChatLine || fields == kGenerateLine) all = std::string(kOllamaLine) + all;
  return object_of(all);
}

Schema parameter(const char* name, const char* about, Schema schema) {
  return {{"name", name}, {"in", "query"}, {"description", about}, {"schema", std::move(schema)}};
}

Schema count_schema(uint64_t otherwise) {
  return {{"type", "integer"}, {"minimum", 0}, {"maximum", 1'000'000'000}, {"default", otherwise}};
}

}  // namespace

Schema answer_content(std::string_view method, std::string_view path) {
  Schema made;
  for (const Answer& answer : kAnswers) {
    if (answer.method == method && answer.path == path)
      made[std::string(answer.type)] = {{"schema", schema_of(answer)}};
  }
  return made;
}

Schema query_parameters(std::string_view path) {
  if (path == "/v1/routes") {
    return Schema::array({parameter("model", "the first one, unless it is given", {{"type", "string"}}),
                          parameter("prompt_tokens", "of the request's prompt", count_schema(1024)),
                          parameter("cached_tokens", "of these, in a checkpoint", count_schema(0)),
                          parameter("answer_tokens", "that are expected", count_schema(256))});
  }
  if (path == "/v1/timeline") {
    return Schema::array({parameter("once", "other than 0: one JSON object, the stream's first event",
                                    {{"type", "string"}, {"default", "0"}})});
  }
  return Schema::array();
}

}  // namespace baton::serve::openapi
