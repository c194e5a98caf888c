// Chat templates: renders the Jinja templates that come with models, byte for byte as Python's jinja2 does with
// trim_blocks, lstrip_blocks, loop controls and `tojson` = json.dumps(ensure_ascii=False). The language is a subset
// (no imports, inheritance, autoescape); what is missing is an error that names it. Known to differ: upper() keeps
// letters whose capitals are several (ligatures, but not sharp s) as they are.
// A ChatTemplate is immutable: any thread may render it.
#pragma once

#include <cstdint>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/text/piece.h"

namespace baton {

// Each is an error when exceeded, with the template line where it can be known.
struct TemplateLimits {
  size_t source_bytes_max = size_t{1} << 20;
  size_t nesting_max = 100;         // parentheses, blocks, operators in a template
  size_t call_depth_max = 400;      // nested evaluations while rendering, macros included
  uint64_t steps_max = 20'000'000;  // nodes evaluated, loop iterations, and one per 64 bytes of text made
  size_t items_max = 1'000'000;     // in one list or range
  size_t string_bytes_max = size_t{16} << 20;
  size_t output_bytes_max = size_t{16} << 20;
  size_t memory_bytes_max =
      size_t{96} << 20;  // of all values made during one rendering, plus 8 x the size of the input
};

struct ChatInput {
  // Array of objects: role, content (string, list of parts or null), tool_calls, reasoning_content, ... as the
  // template's model expects them. Strings must be UTF-8.
  nlohmann::ordered_json messages = nlohmann::ordered_json::array();
  nlohmann::ordered_json tools;  // null: the template sees none
  bool add_generation_prompt = true;
  nlohmann::ordered_json extra = nlohmann::ordered_json::object();  // more variables, e.g. {"enable_thinking": false}
  std::string bos_token, eos_token, pad_token;                      // empty: undefined in the template
  // What strftime_now formats: seconds since 1970 on the local wall clock (UTC offset already added). Not given:
  // strftime_now is undefined, and templates that test for it fall back to their fixed date.
  std::optional<int64_t> local_seconds;
};

class ChatTemplate {
 public:
  // kInvalidInput with the line for syntax errors; kUnsupported for parts of Jinja that are not implemented.
  static Result<ChatTemplate> parse(std::string_view source, const TemplateLimits& limits = {});
  ChatTemplate(ChatTemplate&&) noexcept;
  ChatTemplate& operator=(ChatTemplate&&) noexcept;
  ~ChatTemplate();

  Result<std::string> render(const ChatInput& input) const;
  // The same text in pieces by origin: feed these to Tokenizer::encode_pieces, so that nothing a user wrote becomes a
  // control token. Origin is tracked through every operation (slices, replace, join, tojson, macros ...).
  Result<std::vector<RenderedPiece>> render_pieces(const ChatInput& input) const;
  // Any variables instead of a chat; no globals are set but the built-in functions.
  Result<std::string> render_variables(const nlohmann::ordered_json& variables) const;

  const std::string& source() const;

 private:
  struct Parts;
  explicit ChatTemplate(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

// `chat_template` of a tokenizer_config.json: a string, or a list of named templates of which `name` is taken.
// Empty when there is none. A chat_template.jinja beside it takes precedence (the caller's business).
Result<std::optional<std::string>> chat_template_from_config(std::string_view tokenizer_config_json,
                                                             std::string_view name = "default");

}  // namespace baton
