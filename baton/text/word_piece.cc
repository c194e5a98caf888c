// Normalisation, words and pieces of BERT's tokenizer.
#include "baton/text/word_piece.h"

#include <fmt/format.h>
#include <utf8proc.h>

#include <algorithm>
#include <array>

#include "baton/text/char_classes.h"
#include "baton/text/utf8.h"

namespace baton {
namespace {

constexpr uint32_t kReplacement = 0xfffd;

utf8proc_category_t category_of(uint32_t code) { return utf8proc_category(static_cast<utf8proc_int32_t>(code)); }

bool is_dropped(uint32_t c) {
  if (c == '\t' || c == '\n' || c == '\r') return false;
  if (c == 0 || c == kReplacement) return true;
  const utf8proc_category_t category = category_of(c);
  return category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF || category == UTF8PROC_CATEGORY_CO;
}

// CJK ideographs, each a word; the sixth range begins where the reference implementations begin it.
bool is_ideograph(uint32_t c) {
  constexpr std::pair<uint32_t, uint32_t> kRanges[] = {{0x4e00, 0x9fff},   {0x3400, 0x4dbf},   {0x20000, 0x2a6df},
                                                       {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf},
                                                       {0xf900, 0xfaff},   {0x2f800, 0x2fa1f}};
  return std::any_of(std::begin(kRanges), std::end(kRanges),
                     [c](const auto& range) { return c >= range.first && c <= range.second; });
}

int combining_class(uint32_t code) {
  return utf8proc_get_property(static_cast<utf8proc_int32_t>(code))->combining_class;
}

// Canonical decomposition in canonical order, without nonspacing marks.
void strip_accents(std::vector<uint32_t>* codes) {
  std::vector<uint32_t> out;
  out.reserve(codes->size());
  for (const uint32_t code : *codes) {
    std::array<utf8proc_int32_t, 32> parts;  // Unicode has 4
    int boundary = 0;
    const utf8proc_ssize_t count =
        utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts.data(), parts.size(),
                                static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_DECOMPOSE), &boundary);
    if (count < 0 || count > static_cast<utf8proc_ssize_t>(parts.size())) {
      out.push_back(code);
      continue;
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i) out.push_back(static_cast<uint32_t>(parts[static_cast<size_t>(i)]));
  }
  for (auto at = out.begin(); at != out.end();) {
    const auto first = std::find_if(at, out.end(), [](uint32_t code) { return combining_class(code) != 0; });
    at = std::find_if(first, out.end(), [](uint32_t code) { return combining_class(code) == 0; });
    std::stable_sort(first, at, [](uint32_t a, uint32_t b) { return combining_class(a) < combining_class(b); });
  }
  std::erase_if(out, [](uint32_t code) { return category_of(code) == UTF8PROC_CATEGORY_MN; });
  *codes = std::move(out);
}

}  // namespace

void append_lower(uint32_t code, std::string* out) {
  if (code == 0x130) {  // the one letter whose small form has two code points
    out->append("i\xcc\x87");
    return;
  }
  append_utf8(static_cast<uint32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code))), out);
}

Result<WordPiece> WordPiece::create(const WordPieceRules& rules, const TokenIndex& index,
                                    std::span<const TokenKind> kinds, int32_t unk_id) {
  if (unk_id < 0) return fail(Code::kInvalidInput, "a WordPiece vocabulary must have an unknown token ([UNK])");
  if (rules.word_chars_max == 0 || rules.word_chars_max > WordPieceRules::kWordCharsMax) {
    return fail(Code::kInvalidInput, fmt::format("max_input_chars_per_word is {}: must be from 1 to {}",
                                                 rules.word_chars_max, WordPieceRules::kWordCharsMax));
  }
  if (rules.prefix.size() > WordPieceRules::kPrefixBytesMax) {
    return fail(Code::kInvalidInput, fmt::format("continuing_subword_prefix has {} bytes: at most {}",
                                                 rules.prefix.size(), WordPieceRules::kPrefixBytesMax));
  }
  WordPiece pieces;
  pieces.rules_ = rules;
  pieces.index_ = &index;
  pieces.kinds_ = kinds;
  pieces.unk_id_ = unk_id;
  for (int32_t id = 0; id < index.size(); ++id) pieces.longest_ = std::max(pieces.longest_, index.text(id).size());
  return pieces;
}

std::string WordPiece::normalize(const BertRules& rules, std::string_view text) {
  std::vector<uint32_t> codes;
  codes.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    at += c.length;
    const uint32_t code = c.valid ? c.code : kReplacement;
    if (rules.clean && is_dropped(code)) continue;
    const bool alone = rules.split_ideographs && is_ideograph(code);
    if (alone) codes.push_back(' ');
    codes.push_back(rules.clean && is_white_space(code) ? ' ' : code);
    if (alone) codes.push_back(' ');
  }
  if (rules.strip_accents) strip_accents(&codes);
  std::string out;
  out.reserve(text.size());
  for (const uint32_t code : codes) {
    if (rules.lower_case) {
      append_lower(code, &out);
    } else {
      append_utf8(code, &out);
    }
  }
  return out;
}

void WordPiece::split(std::string_view text, std::vector<std::string_view>* out) {
  size_t start = 0;  // of the word so far
  const auto end_word = [&](size_t end) {
    if (end > start) out->push_back(text.substr(start, end - start));
  };
  for (size_t at = 0; at < text.size();) {
    const Utf8Char c = decode_utf8(text, at);
    const size_t next = at + c.length;
    const bool space = c.valid && is_white_space(c.code), mark = c.valid && is_punctuation(c.code);
    if (space || mark) {
      end_word(at);
      if (mark) out->push_back(text.substr(at, c.length));
      start = next;
    }
    at = next;
  }
  end_word(text.size());
}

int32_t WordPiece::find(std::string_view piece) const {
  const int32_t id = index_->find(piece);
  if (id < 0) return -1;
  const TokenKind kind = kinds_[static_cast<size_t>(id)];
  return kind == TokenKind::kControl || kind == TokenKind::kUnused ? -1 : id;
}

Status WordPiece::encode(std::string_view word, std::vector<int32_t>* out) const {
  std::vector<size_t> ends;  // of the word's characters, in bytes
  for (size_t at = 0; at < word.size();) {
    at += decode_utf8(word, at).length;
    ends.push_back(at);
    if (ends.size() > rules_.word_chars_max) {
      out->push_back(unk_id_);
      return {};
    }
  }
  const size_t before = out->size();
  std::string piece;
  size_t first = 0;  // characters done
  while (first < ends.size()) {
    const size_t start = first == 0 ? 0 : ends[first - 1];
    piece.assign(first == 0 ? std::string_view() : std::string_view(rules_.prefix));
    const size_t prefix = piece.size();
    // Nothing longer than the longest token is looked up: a word of n characters takes n times that at most.
    size_t last = ends.size();
    while (last > first && ends[last - 1] - start + prefix > longest_) --last;
    int32_t id = -1;
    for (; last > first && id < 0; --last) {
      piece.resize(prefix);
      piece.append(word.substr(start, ends[last - 1] - start));
      id = find(piece);
      if (id >= 0) break;
    }
    if (id < 0) {
      out->resize(before);
      out->push_back(unk_id_);
      return {};
    }
    out->push_back(id);
    first = last;
  }
  return {};
}

}  // namespace baton
