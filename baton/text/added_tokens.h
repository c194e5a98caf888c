// Finds added tokens in text: leftmost, then longest, among those that are allowed where they stand.
#pragma once

#include <bitset>
#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {

class AddedTokenFinder {
 public:
  static constexpr size_t kBytesMax = 1024;  // of one token: bounds the time per position

  // kInvalidInput for a token longer than kBytesMax, or one text with two ids. Empty texts are left out.
  static Result<AddedTokenFinder> create(std::vector<AddedToken> tokens);

  struct Match {
    const AddedToken* token = nullptr;  // null: none
    size_t start = 0, end = 0;          // with the white space that lstrip and rstrip take
  };
  // The first match that begins at or after `from`; white space before `from` is not taken.
  // `allowed` is asked with the token and its own bytes.
  using Allowed = std::function<bool(const AddedToken&, size_t start, size_t end)>;
  Match find(std::string_view text, size_t from, const Allowed& allowed) const;
  bool empty() const { return tokens_.empty(); }

 private:
  AddedTokenFinder() = default;
  const AddedToken* longest_at(std::string_view text, size_t at, const Allowed& allowed) const;
  std::vector<AddedToken> tokens_;  // sorted by text
  std::bitset<256> first_bytes_;
};

}  // namespace baton
