// See container_text.h.
#include "baton/model/container_text.h"

#include <fmt/format.h>

#include "baton/base/file.h"

namespace baton {
namespace {

// Bytes of the UTF-8 sequence at `text`, 0 when it is not valid (RFC 3629: shortest form, no surrogates, at most
// 10FFFF).
size_t utf8_length(std::string_view text) {
  const auto at = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const auto continues = [&](size_t i) { return (at(i) & 0xc0u) == 0x80u; };
  const unsigned lead = at(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead < 0xe0) return continues(1) ? 2 : 0;
  if (lead >= 0xe0 && lead < 0xf0) {
    if (!continues(1) || !continues(2)) return 0;
    if ((lead == 0xe0 && at(1) < 0xa0) || (lead == 0xed && at(1) >= 0xa0)) return 0;
    return 3;
  }
  if (lead >= 0xf0 && lead < 0xf5) {
    if (!continues(1) || !continues(2) || !continues(3)) return 0;
    if ((lead == 0xf0 && at(1) < 0x90) || (lead == 0xf4 && at(1) >= 0x90)) return 0;
    return 4;
  }
  return 0;
}

// False when deeper than `depth_max`; strings are skipped. A wrong text is left to the parser.
bool depth_is_at_most(std::string_view text, int depth_max) {
  int depth = 0;
  bool in_string = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') ++i;
      if (c == '"') in_string = false;
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[' || c == '{') {
      if (++depth > depth_max) return false;
    } else if (c == ']' || c == '}') {
      --depth;
    }
  }
  return true;
}

}  // namespace

bool is_name(std::string_view text) {
  if (text.empty()) return false;
  while (!text.empty()) {
    const auto first = static_cast<unsigned char>(text[0]);
    if (first < 0x20 || first == 0x7f) return false;
    const size_t length = utf8_length(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

std::string shown(std::string_view text) {
  std::string safe(text.substr(0, 80));
  for (char& c : safe) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  if (text.size() > 80) safe += "...";
  return safe;
}

Result<Json> parse_json(std::string_view text, std::string_view name, int depth_max) {
  if (!depth_is_at_most(text, depth_max)) {
    return fail(Code::kInvalidInput, fmt::format("{}: JSON nested deeper than {}", name, depth_max));
  }
  try {
    return Json::parse(text.begin(), text.end());
  } catch (const Json::exception& error) {
    return fail(Code::kInvalidInput, fmt::format("{}: not valid JSON: {}", name, shown(error.what())));
  }
}

Result<bool> is_there(const std::filesystem::path& path) {
  std::error_code error;
  const auto status = std::filesystem::status(path, error);
  if (status.type() == std::filesystem::file_type::not_found) return false;
  if (error) return fail(Code::kInvalidInput, fmt::format("{}: {}", path.string(), error.message()));
  return true;
}

Result<Json> read_json_object(const std::filesystem::path& path, size_t bytes_max) {
  BATON_TRY(const std::string text, read_file(path, bytes_max));
  BATON_TRY(Json json, parse_json(text, path.string(), 64));
  if (!json.is_object()) return fail(Code::kInvalidInput, fmt::format("{}: must be a JSON object", path.string()));
  return json;
}

}  // namespace baton
