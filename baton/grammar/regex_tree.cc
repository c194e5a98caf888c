// Characters as bytes: UTF-8 ranges, and escapes of JSON strings.
#include "baton/grammar/regex_tree.h"

#include <algorithm>

namespace baton::grammar {
namespace {

constexpr uint64_t kSizeMax = 1ull << 40;

uint64_t saturated(uint64_t a, uint64_t b) { return a > kSizeMax / std::max<uint64_t>(b, 1) ? kSizeMax : a * b; }

// Bytes of `code` as UTF-8 of `length` bytes; code is in the range of that length.
void spell(uint32_t code, int length, uint8_t* out) {
  constexpr uint8_t kLead[] = {0, 0, 0xC0, 0xE0, 0xF0};
  for (int i = length - 1; i > 0; --i, code >>= 6) out[i] = static_cast<uint8_t>(0x80 | (code & 0x3F));
  out[0] = static_cast<uint8_t>(length == 1 ? code : kLead[length] | code);
}

bool in(std::span<const CodeRange> ranges, uint32_t code) {
  return std::any_of(ranges.begin(), ranges.end(), [&](CodeRange r) { return r.low <= code && code <= r.high; });
}

}  // namespace

std::vector<CodeRange> normalized(std::vector<CodeRange> ranges) {
  std::sort(ranges.begin(), ranges.end(), [](CodeRange a, CodeRange b) { return a.low < b.low; });
  std::vector<CodeRange> out;
  for (const CodeRange range : ranges) {
    if (range.low > range.high) continue;
    if (!out.empty() && range.low <= out.back().high + 1) {
      out.back().high = std::max(out.back().high, range.high);
    } else {
      out.push_back(range);
    }
  }
  return out;
}

std::vector<CodeRange> complement(std::vector<CodeRange> ranges) {
  std::vector<CodeRange> out;
  uint32_t next = 0;
  for (const CodeRange range : normalized(std::move(ranges))) {
    if (range.low > next) out.push_back({next, range.low - 1});
    next = range.high + 1;
  }
  if (next <= kAllCodes.high) out.push_back({next, kAllCodes.high});
  return out;
}

RegexId RegexPool::add(Node node) {
  nodes_.push_back(std::move(node));
  return static_cast<RegexId>(nodes_.size() - 1);
}

RegexId RegexPool::set(const ByteSet& bytes) {
  if (bytes.none()) return alt({});
  return add({.kind = Kind::kSet, .set = bytes});
}

RegexId RegexPool::range(uint8_t low, uint8_t high) {
  ByteSet bytes;
  for (uint32_t b = low; b <= high; ++b) bytes.set(b);
  return set(bytes);
}

RegexId RegexPool::text(std::string_view bytes) {
  std::vector<RegexId> parts;
  for (const char c : bytes) parts.push_back(range(static_cast<uint8_t>(c), static_cast<uint8_t>(c)));
  return cat(std::move(parts));
}

RegexId RegexPool::cat(std::vector<RegexId> parts) {
  if (parts.size() == 1) return parts[0];
  uint64_t size = 1;
  for (const RegexId part : parts) size = std::min(kSizeMax, size + nodes_[part].size);
  return add({.kind = Kind::kCat, .parts = std::move(parts), .size = size});
}

RegexId RegexPool::alt(std::vector<RegexId> parts) {
  if (parts.size() == 1) return parts[0];
  uint64_t size = 1;
  for (const RegexId part : parts) size = std::min(kSizeMax, size + nodes_[part].size);
  return add({.kind = Kind::kAlt, .parts = std::move(parts), .size = size});
}

RegexId RegexPool::repeat(RegexId part, uint32_t min, uint32_t max) {
  if (min == 1 && max == 1) return part;
  if (max == 0) return empty();
  const uint64_t times = max == kUnbounded ? uint64_t{min} + 1 : max;
  const uint64_t size = saturated(nodes_[part].size + 1, times) + 1;
  return add({.kind = Kind::kRepeat, .parts = {part}, .min = min, .max = max, .size = size});
}

RegexId RegexPool::utf8(std::span<const CodeRange> ranges) {
  constexpr uint32_t kEnd[] = {0, 0x80, 0x800, 0x10000, 0x110000};
  ByteSet single;
  std::vector<RegexId> parts;
  // Splits until each byte's range is the same whatever the ones before are.
  const auto split = [&](auto&& self, uint32_t low, uint32_t high, int length) -> void {
    for (int i = 1; i < length; ++i) {
      const uint32_t mask = (1u << (6 * i)) - 1;
      if ((low & ~mask) == (high & ~mask)) continue;
      if ((low & mask) != 0) {
        self(self, low, low | mask, length);
        return self(self, (low | mask) + 1, high, length);
      }
      if ((high & mask) != mask) {
        self(self, low, (high & ~mask) - 1, length);
        return self(self, high & ~mask, high, length);
      }
    }
    uint8_t from[4], to[4];
    spell(low, length, from);
    spell(high, length, to);
    std::vector<RegexId> bytes;
    for (int i = 0; i < length; ++i) bytes.push_back(range(from[i], to[i]));
    parts.push_back(cat(std::move(bytes)));
  };
  for (const CodeRange given : ranges) {
    for (int length = 1; length <= 4; ++length) {
      for (const CodeRange scalars : {CodeRange{0, 0xD7FF}, CodeRange{0xE000, kAllCodes.high}}) {
        const uint32_t low = std::max({given.low, kEnd[length - 1], scalars.low});
        const uint32_t high = std::min({given.high, kEnd[length] - 1, scalars.high});
        if (low > high) continue;
        if (length > 1) split(split, low, high, length);
        for (uint32_t b = low; length == 1 && b <= high; ++b) single.set(b);
      }
    }
  }
  if (single.any()) parts.push_back(set(single));
  return alt(std::move(parts));
}

RegexId RegexPool::hex4(uint32_t low, uint32_t high, int digits) {
  const auto digit = [&](uint32_t from, uint32_t to) {
    ByteSet bytes;
    for (uint32_t d = from; d <= to; ++d) {
      bytes.set(static_cast<uint8_t>("0123456789abcdef"[d]));
      bytes.set(static_cast<uint8_t>("0123456789ABCDEF"[d]));
    }
    return set(bytes);
  };
  if (digits == 1) return digit(low, high);
  const int shift = 4 * (digits - 1);
  const uint32_t mask = (1u << shift) - 1;
  const uint32_t first = low >> shift, last = high >> shift;
  if (first == last) return cat({digit(first, first), hex4(low & mask, high & mask, digits - 1)});
  std::vector<RegexId> parts;
  uint32_t from = first, to = last;
  if ((low & mask) != 0) parts.push_back(cat({digit(first, first), hex4(low & mask, mask, digits - 1)})), ++from;
  if ((high & mask) != mask) parts.push_back(cat({digit(last, last), hex4(0, high & mask, digits - 1)})), --to;
  if (from <= to) parts.push_back(cat({digit(from, to), hex4(0, mask, digits - 1)}));
  return alt(std::move(parts));
}

RegexId RegexPool::json_escapes(std::span<const CodeRange> ranges) {
  std::vector<RegexId> parts;
  ByteSet letters;
  const std::pair<uint32_t, char> escapes[] = {{'"', '"'}, {'\\', '\\'}, {'/', '/'},  {8, 'b'},
                                               {12, 'f'},  {'\n', 'n'},  {'\r', 'r'}, {'\t', 't'}};
  for (const auto& [code, letter] : escapes) {
    if (in(ranges, code)) letters.set(static_cast<uint8_t>(letter));
  }
  if (letters.any()) parts.push_back(set(letters));
  const RegexId u = text("u");
  for (const CodeRange given : ranges) {
    for (const CodeRange scalars : {CodeRange{0, 0xD7FF}, CodeRange{0xE000, 0xFFFF}}) {
      const uint32_t low = std::max(given.low, scalars.low), high = std::min(given.high, scalars.high);
      if (low <= high) parts.push_back(cat({u, hex4(low, high)}));
    }
    // Above: two of them, the high surrogate and the low one.
    const uint32_t low = std::max(given.low, 0x10000u), high = given.high;
    if (low > high) continue;
    const uint32_t first = (low - 0x10000) >> 10, last = (high - 0x10000) >> 10;
    const auto pairs = [&](uint32_t from, uint32_t to, uint32_t behind, uint32_t end) {
      parts.push_back(cat({u, hex4(0xD800 + from, 0xD800 + to), text("\\u"), hex4(0xDC00 + behind, 0xDC00 + end)}));
    };
    const uint32_t behind = low & 0x3FF, end = high & 0x3FF;
    if (first == last) {
      pairs(first, last, behind, end);
      continue;
    }
    pairs(first, first, behind, 0x3FF);
    if (first + 1 < last) pairs(first + 1, last - 1, 0, 0x3FF);
    pairs(last, last, 0, end);
  }
  return cat({text("\\"), alt(std::move(parts))});
}

RegexId RegexPool::characters(std::vector<CodeRange> ranges, Spelling spelling) {
  ranges = normalized(std::move(ranges));
  if (spelling == Spelling::kText) return utf8(ranges);
  std::vector<CodeRange> plain;
  for (const CodeRange allowed :
       {CodeRange{0x20, '"' - 1}, CodeRange{'"' + 1, '\\' - 1}, CodeRange{'\\' + 1, kAllCodes.high}}) {
    for (const CodeRange range : ranges) {
      const CodeRange both{std::max(range.low, allowed.low), std::min(range.high, allowed.high)};
      if (both.low <= both.high) plain.push_back(both);
    }
  }
  return alt({utf8(plain), json_escapes(ranges)});
}

}  // namespace baton::grammar
