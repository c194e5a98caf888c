// Walks the double array of a charsmap.
#include "baton/text/charsmap.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton {
namespace {

constexpr uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & (1u << 9)) >> 6); }
constexpr uint32_t label_of(uint32_t unit) { return unit & ((1u << 31) | 0xffu); }
constexpr bool has_value(uint32_t unit) { return ((unit >> 8) & 1u) != 0; }
constexpr uint32_t value_of(uint32_t unit) { return unit & 0x7fffffffu; }

uint32_t unit_at(std::string_view bytes, size_t at) {
  uint32_t unit = 0;
  for (int i = 3; i >= 0; --i) unit = unit << 8 | static_cast<uint8_t>(bytes[at + static_cast<size_t>(i)]);
  return unit;
}

tl::unexpected<Error> bad_charsmap(const std::string& what) {
  return fail(Code::kInvalidInput, fmt::format("precompiled_charsmap: {}", what));
}

}  // namespace

Result<Charsmap> Charsmap::create(std::string_view bytes) {
  Charsmap made;
  if (bytes.empty()) return made;
  if (bytes.size() > kBytesMax) return bad_charsmap(fmt::format("{} bytes: at most {}", bytes.size(), kBytesMax));
  if (bytes.size() < 4) return bad_charsmap(fmt::format("{} bytes: too few for the size of its array", bytes.size()));
  const size_t size = unit_at(bytes, 0);
  if (size == 0 || size % 4 != 0 || size >= bytes.size() - 4) {
    return bad_charsmap(fmt::format("an array of {} bytes in {} bytes", size, bytes.size()));
  }
  made.units_.reserve(size / 4);
  for (size_t at = 4; at < 4 + size; at += 4) made.units_.push_back(unit_at(bytes, at));
  made.texts_ = bytes.substr(4 + size);
  if (made.texts_.back() != '\0') return bad_charsmap("its last text does not end with a zero");
  return made;
}

Charsmap::Match Charsmap::find(std::string_view text, bool first) const {
  Match match;
  if (units_.empty()) return match;
  size_t node = offset_of(units_[0]);
  const size_t end = std::min(text.size(), kKeyBytesMax);
  for (size_t i = 0; i < end; ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    node ^= byte;
    if (node >= units_.size() || label_of(units_[node]) != byte) break;
    const uint32_t unit = units_[node];
    node ^= offset_of(unit);
    if (!has_value(unit)) continue;
    if (node >= units_.size()) break;
    const uint32_t place = value_of(units_[node]);
    if (place >= texts_.size()) break;
    match.length = i + 1;
    match.becomes = texts_.c_str() + place;
    if (first) break;
  }
  return match;
}

}  // namespace baton
