// Fuzzes the parser of answers: the first byte chooses the form, the second how the rest is cut. However it is cut, the
// parts are the same, UTF-8, and of calls that are whole the arguments are one JSON object.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "baton/api/answer_parts.h"
#include "baton/text/utf8.h"

namespace {

using baton::AnswerPart;

struct Read {
  std::vector<AnswerPart> parts;
  bool whole = false;
};

void add(std::vector<AnswerPart> from, std::vector<AnswerPart>* to) {
  for (AnswerPart& part : from) {
    const bool call = part.kind == AnswerPart::Kind::kToolCall;
    if (!baton::is_utf8(part.text) || (part.text.empty() && !call)) std::abort();
    if (!call && !to->empty() && to->back().kind == part.kind && to->back().call == part.call) {
      to->back().text += part.text;
    } else {
      to->push_back(std::move(part));
    }
  }
}

Read read(const baton::AnswerParserOptions& options, std::string_view text, size_t seed) {
  baton::AnswerParser parser(options);
  Read read;
  while (seed != 0 && !text.empty()) {
    seed = (seed * 1103515245 + 12345) % 2147483648u;
    const size_t piece = std::min<size_t>(text.size(), 1 + seed / 65536 % 7);
    add(parser.push(text.substr(0, piece)), &read.parts);
    text.remove_prefix(piece);
    if (seed == 0) seed = 1;
  }
  add(parser.push(text), &read.parts);
  add(parser.finish(), &read.parts);
  read.whole = parser.calls_whole();
  return read;
}

void check_calls(const Read& read, bool streamed) {
  if (!read.whole && !streamed) std::abort();
  for (size_t i = 0; i < read.parts.size(); ++i) {
    const AnswerPart& part = read.parts[i];
    const bool call = part.kind == AnswerPart::Kind::kToolCall;
    if (call && read.whole) {
      const bool follows = i + 1 < read.parts.size() && read.parts[i + 1].kind == AnswerPart::Kind::kToolArguments;
      if (!follows || read.parts[i + 1].call != part.call || part.name.empty()) std::abort();
    }
    if (part.kind != AnswerPart::Kind::kToolArguments || !read.whole) continue;
    if (!nlohmann::ordered_json::parse(part.text, nullptr, false).is_object()) std::abort();
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const nlohmann::ordered_json& tools = *new nlohmann::ordered_json(nlohmann::ordered_json::parse(R"([
    {"type": "function", "function": {"name": "f", "parameters": {"properties": {"s": {"type": "string"},
      "n": {"type": "number"}, "u": {"type": ["string", "null", "object"]}, "a": {"type": "array"}}}}},
    {"type": "function", "function": {"name": "now"}}])"));
  if (size < 2) return 0;
  baton::AnswerParserOptions options;
  options.style = static_cast<baton::ToolStyle>(data[0] % 4);
  if ((data[0] & 4) != 0) options.tools = tools;
  options.split_reasoning = (data[0] & 8) == 0;
  options.begins_in_reasoning = (data[0] & 16) != 0;
  options.stream_arguments = (data[0] & 32) == 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  const Read whole = read(options, text, 0), cut = read(options, text, data[1] + size_t{1});
  if (whole.parts.size() != cut.parts.size() || whole.whole != cut.whole) std::abort();
  for (size_t i = 0; i < whole.parts.size(); ++i) {
    const AnswerPart &a = whole.parts[i], &b = cut.parts[i];
    if (a.kind != b.kind || a.text != b.text || a.call != b.call || a.name != b.name) std::abort();
  }
  check_calls(whole, options.stream_arguments);
  return 0;
}
