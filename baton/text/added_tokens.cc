// Added-token search over a sorted list: each further byte narrows the range of tokens that still fit.
#include "baton/text/added_tokens.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/text/char_classes.h"
#include "baton/text/utf8.h"

namespace baton {
namespace {

// The character that ends at `end`, not looking before `begin`; 0 bytes long when there is none.
Utf8Char char_before(std::string_view text, size_t begin, size_t end) {
  for (size_t length = 1; length <= 4 && begin + length <= end; ++length) {
    const Utf8Char c = decode_utf8(text.substr(0, end), end - length);
    if (c.valid && c.length == length) return c;
  }
  return {0, 0, false, false};
}

}  // namespace

Result<AddedTokenFinder> AddedTokenFinder::create(std::vector<AddedToken> tokens) {
  AddedTokenFinder finder;
  std::erase_if(tokens, [](const AddedToken& token) { return token.text.empty(); });
  std::sort(tokens.begin(), tokens.end(), [](const AddedToken& a, const AddedToken& b) { return a.text < b.text; });
  for (const AddedToken& token : tokens) {
    if (token.text.size() > kBytesMax) {
      return fail(Code::kInvalidInput,
                  fmt::format("added token {} has {} bytes: at most {}", token.id, token.text.size(), kBytesMax));
    }
    if (!finder.tokens_.empty() && finder.tokens_.back().text == token.text) {
      if (finder.tokens_.back().id == token.id) continue;
      return fail(Code::kInvalidInput, fmt::format("added token '{}' has two ids, {} and {}", token.text,
                                                   finder.tokens_.back().id, token.id));
    }
    finder.tokens_.push_back(token);
    finder.first_bytes_.set(static_cast<uint8_t>(token.text[0]));
  }
  return finder;
}

const AddedToken* AddedTokenFinder::longest_at(std::string_view text, size_t at, const Allowed& allowed) const {
  const auto fits = [&](const AddedToken& token) {
    const size_t end = at + token.text.size();
    if (token.single_word) {
      const Utf8Char before = char_before(text, 0, at);
      if (before.valid && is_word_char(before.code)) return false;
      if (end < text.size()) {
        const Utf8Char after = decode_utf8(text, end);
        if (after.valid && is_word_char(after.code)) return false;
      }
    }
    return allowed(token, at, end);
  };
  const AddedToken* longest = nullptr;
  auto begin = tokens_.begin(), end = tokens_.end();
  for (size_t length = 0; begin != end; ++length) {
    // All of [begin, end) begin with text[at, at + length); the one that ends there sorts first.
    if (begin->text.size() == length) {
      if (fits(*begin)) longest = &*begin;
      ++begin;
    }
    if (at + length >= text.size()) break;
    const auto byte = static_cast<uint8_t>(text[at + length]);
    const auto byte_at = [length](const AddedToken& token) { return static_cast<uint8_t>(token.text[length]); };
    begin = std::partition_point(begin, end, [&](const AddedToken& token) { return byte_at(token) < byte; });
    end = std::partition_point(begin, end, [&](const AddedToken& token) { return byte_at(token) == byte; });
  }
  return longest;
}

AddedTokenFinder::Match AddedTokenFinder::find(std::string_view text, size_t from, const Allowed& allowed) const {
  if (tokens_.empty()) return {};
  for (size_t at = from; at < text.size(); ++at) {
    if (!first_bytes_[static_cast<uint8_t>(text[at])]) continue;
    const AddedToken* token = longest_at(text, at, allowed);
    if (token == nullptr) continue;
    Match match{token, at, at + token->text.size()};
    while (token->lstrip && match.start > from) {
      const Utf8Char c = char_before(text, from, match.start);
      if (!c.valid || !is_white_space(c.code)) break;
      match.start -= c.length;
    }
    while (token->rstrip && match.end < text.size()) {
      const Utf8Char c = decode_utf8(text, match.end);
      if (!c.valid || !is_white_space(c.code)) break;
      match.end += c.length;
    }
    return match;
  }
  return {};
}

}  // namespace baton
