// Chat messages to a prompt: sets the template's variables and runs it.
#include "baton/text/chat_template.h"

#include <fmt/format.h>

#include <utility>

#include "baton/text/jinja/parser.h"
#include "baton/text/jinja/runtime.h"
#include "baton/text/utf8.h"

namespace baton {
namespace {

using nlohmann::ordered_json;

// Bytes of all strings, roughly: what memory a rendering may need grows with it.
size_t text_bytes(const ordered_json& json) {
  if (json.is_string()) return json.get_ref<const std::string&>().size() + 16;
  size_t bytes = 16;
  if (json.is_structured()) {
    // Depth is bounded where the values are made; here a stack of our own.
    std::vector<const ordered_json*> left{&json};
    while (!left.empty()) {
      const ordered_json& one = *left.back();
      left.pop_back();
      for (const ordered_json& child : one) {
        bytes += 16;
        if (child.is_string()) bytes += child.get_ref<const std::string&>().size();
        if (child.is_structured()) left.push_back(&child);
      }
    }
  }
  return bytes;
}

Status set_json(jinja::Runtime* runtime, std::string_view name, const ordered_json& json) {
  Result<jinja::Value> value = jinja::from_json(runtime->heap(), json, true);
  if (!value) return fail(std::move(value).error().in(name));
  runtime->set_variable(name, *value);
  return {};
}

}  // namespace

struct ChatTemplate::Parts {
  std::string source;
  TemplateLimits limits;
  jinja::Tree tree;
};

ChatTemplate::ChatTemplate(std::unique_ptr<const Parts> parts) : parts_(std::move(parts)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<ChatTemplate> ChatTemplate::parse(std::string_view source, const TemplateLimits& limits) {
  if (source.size() > limits.source_bytes_max) {
    return fail(Code::kInvalidInput,
                fmt::format("chat template of {} bytes: at most {}", source.size(), limits.source_bytes_max));
  }
  if (const size_t valid = utf8_prefix(source); valid < source.size()) {
    return fail(Code::kInvalidInput, fmt::format("chat template: byte {} is not UTF-8", valid));
  }
  auto parts = std::make_unique<Parts>();
  parts->source = source;
  parts->limits = limits;
  Result<jinja::Tree> tree = jinja::parse(source, limits.nesting_max);
  if (!tree) return fail(std::move(tree).error().in("chat template"));
  parts->tree = *std::move(tree);
  return ChatTemplate(std::move(parts));
}

const std::string& ChatTemplate::source() const { return parts_->source; }

Result<std::vector<RenderedPiece>> ChatTemplate::render_pieces(const ChatInput& input) const {
  if (!input.messages.is_array()) return fail(Code::kInvalidInput, "chat template: messages must be an array");
  if (!input.extra.is_object()) return fail(Code::kInvalidInput, "chat template: extra variables must be an object");
  const size_t bytes = text_bytes(input.messages) + text_bytes(input.tools) + text_bytes(input.extra);
  jinja::Runtime runtime(parts_->tree, parts_->limits, bytes);
  const auto in_template = [](Error error) { return std::move(error).in("chat template"); };

  for (const auto& [name, value] : input.extra.items()) {
    if (Status set = set_json(&runtime, name, value); !set) return fail(in_template(std::move(set).error()));
  }
  if (Status set = set_json(&runtime, "messages", input.messages); !set)
    return fail(in_template(std::move(set).error()));
  if (Status set = set_json(&runtime, "tools", input.tools); !set) return fail(in_template(std::move(set).error()));
  runtime.set_variable("documents", jinja::Value::none());
  runtime.set_variable("add_generation_prompt", jinja::Value::of_bool(input.add_generation_prompt));
  const std::pair<std::string_view, const std::string&> tokens[] = {
      {"bos_token", input.bos_token}, {"eos_token", input.eos_token}, {"pad_token", input.pad_token}};
  for (const auto& [name, text] : tokens) {
    if (!is_utf8(text)) return fail(Code::kInvalidInput, fmt::format("chat template: {} is not UTF-8", name));
    if (!text.empty()) runtime.set_variable(name, runtime.new_text(text));
  }
  runtime.local_seconds = input.local_seconds;

  Result<jinja::TextBuilder> output = runtime.run();
  if (!output) return fail(in_template(std::move(output).error()));
  std::vector<RenderedPiece> pieces;
  size_t begin = 0;
  for (const jinja::Text::Run& run : output->runs()) {
    pieces.push_back({output->bytes().substr(begin, run.end - begin), run.content});
    begin = run.end;
  }
  return pieces;
}

Result<std::string> ChatTemplate::render(const ChatInput& input) const {
  BATON_TRY(const std::vector<RenderedPiece> pieces, render_pieces(input));
  std::string text;
  for (const RenderedPiece& piece : pieces) text += piece.text;
  return text;
}

Result<std::string> ChatTemplate::render_variables(const ordered_json& variables) const {
  if (!variables.is_object()) return fail(Code::kInvalidInput, "chat template: variables must be an object");
  jinja::Runtime runtime(parts_->tree, parts_->limits, text_bytes(variables));
  for (const auto& [name, value] : variables.items()) {
    if (Status set = set_json(&runtime, name, value); !set) return fail(std::move(set).error().in("chat template"));
  }
  Result<jinja::TextBuilder> output = runtime.run();
  if (!output) return fail(std::move(output).error().in("chat template"));
  return output->bytes();
}

Result<std::optional<std::string>> chat_template_from_config(std::string_view tokenizer_config_json,
                                                             std::string_view name) {
  const auto bad = [](std::string_view what) {
    return fail(Code::kInvalidInput, fmt::format("tokenizer_config.json: {}", what));
  };
  const ordered_json config = ordered_json::parse(tokenizer_config_json, nullptr, false);
  if (config.is_discarded() || !config.is_object()) return bad("not a JSON object");
  const auto found = config.find("chat_template");
  if (found == config.end() || found->is_null()) return std::optional<std::string>();
  if (found->is_string()) return std::optional(found->get<std::string>());
  if (!found->is_array()) return bad("chat_template must be a string or a list");
  for (const ordered_json& item : *found) {
    const bool whole = item.is_object() && item.contains("name") && item["name"].is_string() &&
                       item.contains("template") && item["template"].is_string();
    if (!whole) return bad("an item of chat_template must have 'name' and 'template'");
    if (item["name"].get_ref<const std::string&>() == name) {
      return std::optional(item["template"].get<std::string>());
    }
  }
  return bad(fmt::format("chat_template has no template named '{}'", name));
}

}  // namespace baton
