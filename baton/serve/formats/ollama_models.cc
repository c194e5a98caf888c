// Models as Ollama's interface tells of them.
#include "baton/serve/formats/ollama_models.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/serve/model_facts.h"

namespace baton::serve::formats {
namespace {

constexpr size_t kNameBytesMax = 512;

Json details(const OllamaModel& model) {
  return {{"parent_model", ""},
          {"format", model.format},
          {"family", model.family},
          {"families", Json::array({model.family})},
          {"parameter_size", model.parameter_size},
          {"quantization_level", model.quantization}};
}

bool may_be_a_name(std::string_view name) {
  const bool printable = std::all_of(name.begin(), name.end(), [](char c) { return c > ' ' && c != 0x7F; });
  if (name.empty() || name.size() > kNameBytesMax || !printable) return false;
  if (name.front() == '/' || name.front() == '.' || name.front() == '~') return false;
  const auto has = [&](std::string_view part) { return name.find(part) != std::string_view::npos; };
  return !has("..") && !has("\\") && !has("://") && !has("//");
}

}  // namespace

Json tags_body(const std::vector<OllamaModel>& models) {
  Json list = Json::array();
  for (const OllamaModel& model : models) {
    list.push_back({{"name", model.name},
                    {"model", model.name},
                    {"modified_at", utc_time(model.changed)},
                    {"size", model.bytes},
                    {"digest", model.digest},
                    {"details", details(model)}});
    say_emulated(list.back(), model.emulated_units);
  }
  return {{"models", std::move(list)}};
}

Json ps_body(const std::vector<OllamaModel>& models) {
  constexpr int64_t kNever = 32503680000;  // the year 3000
  Json list = Json::array();
  for (const OllamaModel& model : models) {
    if (!model.loaded) continue;
    list.push_back({{"name", model.name},
                    {"model", model.name},
                    {"size", model.loaded_bytes},
                    {"digest", model.digest},
                    {"details", details(model)},
                    {"expires_at", utc_time(model.expires == 0 ? kNever : model.expires)},
                    {"size_vram", model.device_bytes},
                    {"context_length", model.context_tokens}});
    say_emulated(list.back(), model.emulated_units);
  }
  return {{"models", std::move(list)}};
}

Json show_body(const OllamaModel& model) {
  Json info = model.model_info;
  info["general.architecture"] = model.family;
  if (model.context_tokens > 0) info[model.family + ".context_length"] = model.context_tokens;
  if (model.embedding_length > 0) info[model.family + ".embedding_length"] = model.embedding_length;
  Json made = {{"license", model.license},
               {"modelfile", fmt::format("FROM {}\n", model.name)},  // no paths of this machine
               {"parameters", model.parameters},
               {"template", model.chat_template},
               {"details", details(model)},
               {"model_info", std::move(info)},
               {"capabilities", model.capabilities},
               {"modified_at", utc_time(model.changed)}};
  say_emulated(made, model.emulated_units);
  return made;
}

Json version_body(std::string_view version) { return {{"version", version}}; }

std::string without_latest(std::string_view name) {
  constexpr std::string_view kLatest = ":latest";
  if (name.ends_with(kLatest)) name.remove_suffix(kLatest.size());
  return std::string(name);
}

bool same_model(std::string_view asked, std::string_view here) { return without_latest(asked) == without_latest(here); }

tl::expected<std::string, ApiError> model_name(Body& body) {
  const auto model = body.text("model"), older = body.text("name");
  const std::string name = model ? *model : older.value_or("");
  if (!may_be_a_name(name)) {
    body.put("model", fmt::format("is {}: it takes the name of a model, as /api/tags shows them",
                                  name.empty() ? "missing" : shown_value(Json(name))));
  }
  return name;
}

ApiError no_model(std::string_view name) {
  return {.status = 404,
          .message = fmt::format("model {} not found", shown_value(Json(name))),
          .param = "model",
          .code = "model_not_found"};
}

tl::expected<std::string, ApiError> read_show(const Json& json) {
  Body body(json);
  body.ignore({"verbose"});
  body.never({"system", "template", "options"}, "the model is shown as it is, leave it out");
  auto name = model_name(body);
  if (auto end = body.end(); !end) return tl::unexpected(std::move(end).error());
  return name;
}

tl::expected<PullRequest, ApiError> read_pull(const Json& json) {
  Body body(json);
  body.ignore({"insecure"});
  body.never({"username", "password"}, "a token is the server's own (HF_TOKEN), leave it out");
  PullRequest made;
  made.stream = body.flag("stream").value_or(true);
  auto name = model_name(body);
  if (auto end = body.end(); !end) return tl::unexpected(std::move(end).error());
  made.model = *std::move(name);
  return made;
}

std::string pull_type(const PullRequest& request) {
  return request.stream ? "application/x-ndjson" : "application/json";
}

std::string pull_answer(const PullRequest& request) {
  const std::string done = json_line({{"status", "success"}});
  if (!request.stream) return done;
  return json_line({{"status", "pulling manifest"}}) + "\n" + done + "\n";
}

ApiError pull_refusal(const PullRequest& request) {
  return {.status = 404,
          .message =
              fmt::format("model {} is not here, and this server fetches none: start it with -m, or with --allow-pull",
                          shown_value(Json(request.model))),
          .param = "model",
          .code = "model_not_found"};
}

}  // namespace baton::serve::formats
