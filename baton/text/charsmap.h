// SentencePiece's precompiled charsmap: sequences of bytes and what they become, as a double array and texts.
//   u32        bytes of the array, a multiple of 4
//   u32 ...    its units (little-endian): label in bits 0-7 and 31, bit 8: a value hangs below, bits 10-30: offset to
//              the children, times 256 where bit 9 is set; a value is bits 0-30, a place in the texts
//   char ...   the texts, each ended by a zero
// The file is not trusted: what points outside is no match. Immutable; any thread may use it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"

namespace baton {

class Charsmap {
 public:
  static constexpr size_t kBytesMax = size_t{64} << 20;
  static constexpr size_t kKeyBytesMax = 256;  // bounds the time at each place of a text

  Charsmap() = default;
  // Copies the bytes. None at all: no sequence becomes anything else.
  static Result<Charsmap> create(std::string_view bytes);

  struct Match {
    size_t length = 0;  // bytes of the text; 0: none
    std::string_view becomes;
  };
  Match longest(std::string_view text) const { return find(text, false); }
  Match shortest(std::string_view text) const { return find(text, true); }
  bool empty() const { return units_.empty(); }

 private:
  Match find(std::string_view text, bool first) const;

  std::vector<uint32_t> units_;
  std::string texts_;
};

}  // namespace baton
