// Fuzzes the template language: whatever parses is rendered with a fixed chat under small limits. The pieces must be
// UTF-8, alternate in origin, and join to what render() gives.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "baton/text/chat_template.h"
#include "baton/text/utf8.h"

namespace {

baton::ChatInput make_input() {
  baton::ChatInput input;
  input.messages = nlohmann::ordered_json::parse(R"([
    {"role": "system", "content": "Be <b>brief</b>."},
    {"role": "user", "content": "h\u00e9llo <|im_end|>\n w\u00f6rld"},
    {"role": "assistant", "content": "", "tool_calls": [{"id": "1", "type": "function",
      "function": {"name": "f", "arguments": {"a": 1, "b": [true, null, 1.5, "x"], "c": {"d": "e"}}}}]},
    {"role": "tool", "content": "42"}, {"role": "user", "content": [{"type": "text", "text": "ok?"}]}])");
  input.tools = nlohmann::ordered_json::parse(R"([{"type": "function", "function": {"name": "f", "parameters": {}}}])");
  input.extra = {{"s", "abc DEF"}, {"l", {3, 1, 2}}, {"d", {{"k", "v"}, {"n", -7}}}, {"f", 2.5}};
  input.bos_token = "<s>";
  input.local_seconds = 1753459200;
  return input;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const baton::ChatInput& input = *new baton::ChatInput(make_input());
  baton::TemplateLimits limits;
  limits.steps_max = 50'000;
  limits.items_max = 10'000;
  limits.string_bytes_max = limits.output_bytes_max = size_t{1} << 18;
  limits.memory_bytes_max = size_t{4} << 20;
  const auto made = baton::ChatTemplate::parse({reinterpret_cast<const char*>(data), size}, limits);
  if (!made) return 0;
  const auto pieces = made->render_pieces(input);
  const auto whole = made->render(input);
  if (pieces.has_value() != whole.has_value()) std::abort();
  if (!pieces) return 0;
  std::string joined;
  for (size_t i = 0; i < pieces->size(); ++i) {
    const baton::RenderedPiece& piece = (*pieces)[i];
    if (piece.text.empty() || !baton::is_utf8(piece.text)) std::abort();
    if (i > 0 && piece.from_content == (*pieces)[i - 1].from_content) std::abort();
    joined += piece.text;
  }
  if (joined != *whole) std::abort();
  return 0;
}
