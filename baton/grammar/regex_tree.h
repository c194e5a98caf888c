// Regular expressions over bytes, as trees in a pool: what the compilers make and determinise() reads.
#pragma once

#include <bitset>
#include <cstdint>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

namespace baton::grammar {

using ByteSet = std::bitset<256>;
using RegexId = uint32_t;
inline constexpr uint32_t kUnbounded = UINT32_MAX;

// How a character is written: as its UTF-8, or as it stands between the quotes of a JSON string.
enum class Spelling : uint8_t { kText, kJsonString };

// Code points, inclusive.
struct CodeRange {
  uint32_t low = 0, high = 0;
};
inline constexpr CodeRange kAllCodes{0, 0x10FFFF};
// Sorted, without overlaps.
std::vector<CodeRange> normalized(std::vector<CodeRange> ranges);
// All scalar values that are in none of these.
std::vector<CodeRange> complement(std::vector<CodeRange> ranges);

// One thread. Ids stay valid as long as the pool.
class RegexPool {
 public:
  enum class Kind : uint8_t { kSet, kCat, kAlt, kRepeat };
  struct Node {
    Kind kind = Kind::kCat;
    ByteSet set = {};                 // of kSet
    std::vector<RegexId> parts = {};  // of kCat (none: the empty text), kAlt (none: nothing at all), kRepeat (one)
    uint32_t min = 0, max = 0;        // of kRepeat; kUnbounded
    uint64_t size = 1;                // nodes when repeats are written out, saturated
  };

  RegexId set(const ByteSet& bytes);
  RegexId range(uint8_t low, uint8_t high);
  RegexId text(std::string_view bytes);
  RegexId cat(std::vector<RegexId> parts);
  RegexId alt(std::vector<RegexId> parts);
  RegexId repeat(RegexId part, uint32_t min, uint32_t max);
  RegexId optional(RegexId part) { return repeat(part, 0, 1); }
  RegexId empty() { return cat({}); }
  // One character out of these (surrogates are none). As a JSON string: in its plain form where it has one and by each
  // of its escapes, those of letters and \uXXXX with digits of either case.
  RegexId characters(std::vector<CodeRange> ranges, Spelling spelling);
  const Node& at(RegexId id) const { return nodes_[id]; }
  size_t count() const { return nodes_.size(); }

 private:
  RegexId add(Node node);
  RegexId utf8(std::span<const CodeRange> ranges);
  RegexId json_escapes(std::span<const CodeRange> ranges);
  // \uXXXX for each of low .. high, below 0x10000.
  RegexId hex4(uint32_t low, uint32_t high, int digits = 4);
  std::vector<Node> nodes_;
};

}  // namespace baton::grammar
