// One pass over the UTF-8 text.
#include "baton/base/terminal.h"

#include <fmt/format.h>

#include <cstdint>

namespace baton {
namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 0;  // 0: not UTF-8
};

Character first_of(std::string_view text) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1};
  const size_t bytes = lead >= 0xf0 && lead < 0xf8 ? 4 : lead >= 0xe0 ? 3 : lead >= 0xc0 ? 2 : 0;
  if (bytes == 0 || lead >= 0xf8 || text.size() < bytes) return {};
  uint32_t code = lead & (0xffu >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xc0) != 0x80) return {};
    code = code << 6 | (byte(i) & 0x3fu);
  }
  constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
  if (code < kLeast[bytes] || code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) return {};
  return {code, bytes};
}

bool commands_a_terminal(uint32_t code) {
  const bool control = (code < 0x20 && code != '\n' && code != '\t') || (code >= 0x7f && code < 0xa0);
  const bool direction = code == 0x200e || code == 0x200f || (code >= 0x202a && code <= 0x202e) ||
                         (code >= 0x2066 && code <= 0x2069) || code == 0x2028 || code == 0x2029;
  return control || direction;
}

}  // namespace

std::string terminal_safe(std::string_view text, size_t bytes_max) {
  std::string safe;
  while (!text.empty()) {
    const Character character = first_of(text);
    std::string next;
    if (character.bytes == 0) {
      next = fmt::format("\\x{:02x}", static_cast<uint8_t>(text[0]));
    } else if (!commands_a_terminal(character.code)) {
      next = text.substr(0, character.bytes);
    } else {
      next =
          character.code < 0x80 ? fmt::format("\\x{:02x}", character.code) : fmt::format("\\u{{{:x}}}", character.code);
    }
    if (safe.size() + next.size() > bytes_max) return safe + "...";
    safe += next;
    text.remove_prefix(character.bytes == 0 ? 1 : character.bytes);
  }
  return safe;
}

}  // namespace baton
