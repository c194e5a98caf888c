// Merges of characters, word by word.
#include "baton/text/piece_bpe.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>

#include "baton/text/utf8.h"

namespace baton {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

}  // namespace

int byte_of_token(std::string_view text) {
  if (text.size() != 6 || !text.starts_with("<0x") || text[5] != '>') return -1;
  const int high = hex_digit(text[3]), low = hex_digit(text[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

std::array<int32_t, 256> byte_token_ids(const TokenIndex& index, std::span<const TokenKind> kinds) {
  std::array<int32_t, 256> ids{};
  for (size_t byte = 0; byte < 256; ++byte) {
    const int32_t id = index.find(fmt::format("<0x{:02X}>", byte));
    ids[byte] = id >= 0 && kinds[static_cast<size_t>(id)] != TokenKind::kUnused ? id : -1;
  }
  return ids;
}

tl::unexpected<Error> no_token_for(std::string_view bytes) {
  const Utf8Char c = decode_utf8(bytes, 0);
  return fail(Code::kInvalidInput,
              c.valid ? fmt::format("the character U+{:04X} has no token in this model's vocabulary", c.code)
                      : fmt::format("the byte 0x{:02X} has no token in this model's vocabulary",
                                    static_cast<uint8_t>(bytes[0])));
}

// The symbols of one word, and those that they were made of.
struct PieceBpe::Word {
  std::string_view text;
  std::vector<Symbol> symbols;
  std::vector<Symbol> history;  // kept only where unused tokens are taken apart again
};

PieceBpe::PieceBpe(const TokenizerSpec& spec, const TokenIndex& index, std::span<const TokenKind> kinds)
    : rules_(*spec.pieces),
      index_(&index),
      kinds_(kinds),
      pairs_(rules_.model == PieceRules::Model::kRankedBpe ? spec.merges.size() : 0),
      ignore_merges_(spec.ignore_merges),
      unk_id_(spec.unk_id) {}

int32_t PieceBpe::find_token(std::string_view text) const {
  const int32_t id = text.size() > longest_ ? -1 : index_->find(text);
  if (id < 0) return -1;
  const TokenKind kind = kinds_[static_cast<size_t>(id)];
  const bool unused = kind == TokenKind::kUnused && rules_.model == PieceRules::Model::kScoredBpe;
  return kind == TokenKind::kNormal || kind == TokenKind::kUserDefined || unused ? id : -1;
}

Status PieceBpe::read_merges(const TokenizerSpec& spec) {
  std::string joined;
  for (uint32_t rank = 0; rank < spec.merges.size(); ++rank) {
    const auto& [left, right] = spec.merges[rank];
    joined.assign(left).append(right);
    int32_t ids[3] = {-1, -1, -1};
    const std::string_view texts[3] = {left, right, joined};
    for (int i = 0; i < 3; ++i) {
      ids[i] = find_token(texts[i]);
      if (ids[i] >= 0 || !spec.merges_complete) continue;
      // A merge into a control token makes what no text may become: it is left out.
      if (i == 2 && index_->find(joined) >= 0) continue;
      return fail(Code::kInvalidInput, fmt::format("merge {}: '{}' is not a token of the vocabulary", rank, texts[i]));
    }
    if (ids[0] >= 0 && ids[1] >= 0 && ids[2] >= 0) pairs_.add(ids[0], ids[1], rank, ids[2]);
  }
  return {};
}

Status PieceBpe::read_scores(const TokenizerSpec& spec) {
  const auto count = static_cast<size_t>(index_->size());
  if (spec.scores.empty()) return fail(Code::kInvalidInput, "the vocabulary has no scores");
  std::vector<double> scores(spec.scores);
  scores.resize(count, 0);
  for (size_t id = 0; id < count; ++id) {
    if (std::isnan(scores[id])) return fail(Code::kInvalidInput, fmt::format("the score of token {} is no number", id));
  }
  std::vector<int32_t> order(count);
  std::iota(order.begin(), order.end(), 0);
  const auto score_of = [&](int32_t id) { return scores[static_cast<size_t>(id)]; };
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return score_of(a) > score_of(b); });
  ranks_.resize(count);
  uint32_t rank = 0;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0 && score_of(order[i]) != score_of(order[i - 1])) ++rank;
    ranks_[static_cast<size_t>(order[i])] = rank;
  }
  return {};
}

Status PieceBpe::find_joints() {
  for (int32_t id = 0; id < index_->size(); ++id) {
    const TokenKind kind = kinds_[static_cast<size_t>(id)];
    const std::string_view text = index_->text(id);
    const bool taken = kind == TokenKind::kNormal || kind == TokenKind::kUserDefined || kind == TokenKind::kUnused;
    if (!taken || text.empty()) continue;
    if (text.size() > PieceRules::kPieceBytesMax) {
      return fail(Code::kInvalidInput,
                  fmt::format("token {} has {} bytes: at most {}", id, text.size(), PieceRules::kPieceBytesMax));
    }
    longest_ = std::max(longest_, text.size());
    has_unused_ = has_unused_ || (kind == TokenKind::kUnused && rules_.model == PieceRules::Model::kScoredBpe);
    uint32_t before = 0;
    for (size_t at = 0; at < text.size();) {
      const Utf8Char c = decode_utf8(text, at);
      if (at > 0 && text.substr(at).starts_with(kSpaceMark)) before_mark_.push_back(before);
      before = c.valid ? c.code : UINT32_MAX;
      at += c.length;
    }
  }
  std::sort(before_mark_.begin(), before_mark_.end());
  before_mark_.erase(std::unique(before_mark_.begin(), before_mark_.end()), before_mark_.end());
  return {};
}

Result<std::unique_ptr<PieceBpe>> PieceBpe::create(const TokenizerSpec& spec, const TokenIndex& index,
                                                   std::span<const TokenKind> kinds) {
  std::unique_ptr<PieceBpe> made(new PieceBpe(spec, index, kinds));
  made->byte_ids_ = byte_token_ids(index, kinds);
  if (!spec.pieces->byte_fallback) made->byte_ids_.fill(-1);
  made->has_bytes_ = std::find(made->byte_ids_.begin(), made->byte_ids_.end(), -1) == made->byte_ids_.end();
  BATON_OK(made->find_joints());
  if (spec.pieces->model == PieceRules::Model::kRankedBpe) {
    BATON_OK(made->read_merges(spec));
  } else {
    BATON_OK(made->read_scores(spec));
  }
  return made;
}

PieceBpe::Merge PieceBpe::merge_of(std::string_view text, const Symbol& left, const Symbol& right) const {
  if (rules_.model == PieceRules::Model::kRankedBpe) {
    if (left.id < 0 || right.id < 0) return {};
    const PairTable::Pair* pair = pairs_.find(left.id, right.id);
    return pair == nullptr ? Merge() : Merge{pair->rank, pair->result};
  }
  const int32_t id = find_token(text.substr(left.begin, left.length + right.length));
  return id < 0 ? Merge() : Merge{ranks_[static_cast<size_t>(id)], id};
}

void PieceBpe::join(Word* word, Symbol* left, const Symbol& right, int32_t id) const {
  if (has_unused_) {
    const auto at = static_cast<int32_t>(word->history.size());
    word->history.push_back(*left);
    word->history.push_back(right);
    left->left = at;
    left->right = at + 1;
  }
  left->length += right.length;
  left->id = id;
}

void PieceBpe::merge_by_scan(Word* word) const {
  std::vector<Symbol>& s = word->symbols;
  Merge merges[kScanCharsMax];
  size_t count = s.size();
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = merge_of(word->text, s[i], s[i + 1]);
  while (count > 1) {
    size_t best = 0;
    for (size_t i = 1; i + 1 < count; ++i) {
      if (merges[i].rank < merges[best].rank) best = i;
    }
    if (merges[best].id < 0) break;
    join(word, &s[best], s[best + 1], merges[best].id);
    std::copy(s.begin() + static_cast<ptrdiff_t>(best) + 2, s.begin() + static_cast<ptrdiff_t>(count),
              s.begin() + static_cast<ptrdiff_t>(best) + 1);
    std::copy(merges + best + 1, merges + count - 1, merges + best);
    --count;
    if (best > 0) merges[best - 1] = merge_of(word->text, s[best - 1], s[best]);
    if (best + 1 < count) merges[best] = merge_of(word->text, s[best], s[best + 1]);
  }
  s.resize(count);
}

void PieceBpe::merge_by_heap(Word* word) const {
  struct Candidate {
    uint32_t rank, at, length;  // length: of both
    int32_t id;
    // For a min-heap by rank, then position.
    bool operator<(const Candidate& other) const { return rank != other.rank ? rank > other.rank : at > other.at; }
  };
  std::vector<Symbol>& s = word->symbols;
  std::vector<int32_t> next(s.size()), previous(s.size());
  std::vector<Candidate> heap;
  for (size_t i = 0; i < s.size(); ++i) {
    next[i] = i + 1 < s.size() ? static_cast<int32_t>(i) + 1 : -1;
    previous[i] = static_cast<int32_t>(i) - 1;
  }
  const auto propose = [&](int32_t at) {
    if (at < 0 || next[static_cast<size_t>(at)] < 0) return false;
    const Symbol& left = s[static_cast<size_t>(at)];
    const Symbol& right = s[static_cast<size_t>(next[static_cast<size_t>(at)])];
    const Merge merge = merge_of(word->text, left, right);
    if (merge.id < 0) return false;
    heap.push_back({merge.rank, static_cast<uint32_t>(at), left.length + right.length, merge.id});
    return true;
  };
  const auto push = [&](int32_t at) {
    if (propose(at)) std::push_heap(heap.begin(), heap.end());
  };
  for (size_t i = 0; i + 1 < s.size(); ++i) propose(static_cast<int32_t>(i));
  std::make_heap(heap.begin(), heap.end());
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end());
    const Candidate candidate = heap.back();
    heap.pop_back();
    Symbol& left = s[candidate.at];
    const int32_t at_right = next[candidate.at];
    if (left.length == 0 || at_right < 0) continue;
    Symbol& right = s[static_cast<size_t>(at_right)];
    if (left.length + right.length != candidate.length) continue;
    join(word, &left, right, candidate.id);
    right.length = 0;
    next[candidate.at] = next[static_cast<size_t>(at_right)];
    if (next[candidate.at] >= 0) {
      previous[static_cast<size_t>(next[candidate.at])] = static_cast<int32_t>(candidate.at);
    }
    push(previous[candidate.at]);
    push(static_cast<int32_t>(candidate.at));
  }
  std::erase_if(s, [](const Symbol& symbol) { return symbol.length == 0; });
}

// Characters to symbols. By merges, what has no token is bytes or unknown before anything is merged.
Status PieceBpe::fill(std::string_view word, Word* made) const {
  made->text = word;
  made->symbols.clear();
  made->history.clear();
  const bool ranked = rules_.model == PieceRules::Model::kRankedBpe;
  bool after_unknown = false;
  for (size_t at = 0; at < word.size();) {
    const size_t length = decode_utf8(word, at).length;
    Symbol symbol;
    symbol.begin = static_cast<uint32_t>(at);
    symbol.length = static_cast<uint32_t>(length);
    symbol.id = find_token(word.substr(at, length));
    const bool unknown = symbol.id < 0 && ranked;
    if (!unknown) {
      made->symbols.push_back(symbol);
    } else {
      const std::string_view bytes = word.substr(at, length);
      const auto has_id = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] >= 0; };
      if (std::all_of(bytes.begin(), bytes.end(), has_id)) {
        for (size_t i = 0; i < length; ++i) {
          made->symbols.push_back(
              {static_cast<uint32_t>(at + i), 1, byte_ids_[static_cast<uint8_t>(bytes[i])], -1, -1});
        }
        after_unknown = false;
        at += length;
        continue;
      }
      if (unk_id_ < 0) return no_token_for(bytes);
      if (after_unknown && rules_.fuse_unk) {
        made->symbols.back().length += static_cast<uint32_t>(length);
      } else {
        symbol.id = unk_id_;
        made->symbols.push_back(symbol);
      }
    }
    after_unknown = unknown;
    at += length;
  }
  return {};
}

// A symbol as ids: an unused token is taken apart into what it was merged of.
Status PieceBpe::emit(const Word& word, const Symbol& symbol, bool* after_unknown, std::vector<int32_t>* out) const {
  std::vector<const Symbol*> left{&symbol};
  while (!left.empty()) {
    const Symbol& one = *left.back();
    left.pop_back();
    const bool unused = one.id >= 0 && kinds_[static_cast<size_t>(one.id)] == TokenKind::kUnused;
    if (unused && one.left >= 0) {
      left.push_back(&word.history[static_cast<size_t>(one.right)]);
      left.push_back(&word.history[static_cast<size_t>(one.left)]);
      continue;
    }
    if (one.id >= 0) {
      out->push_back(one.id);
      *after_unknown = false;
      continue;
    }
    const std::string_view bytes = word.text.substr(one.begin, one.length);
    const auto has_id = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] >= 0; };
    if (std::all_of(bytes.begin(), bytes.end(), has_id)) {
      BATON_OK(encode_bytes(bytes, out));
      *after_unknown = false;
      continue;
    }
    if (unk_id_ < 0) return no_token_for(bytes);
    if (!*after_unknown || !rules_.fuse_unk) out->push_back(unk_id_);
    *after_unknown = true;
  }
  return {};
}

Status PieceBpe::encode_word(std::string_view word, bool* after_unknown, std::vector<int32_t>* out) const {
  Word made;
  BATON_OK(fill(word, &made));
  if (made.symbols.size() > 1) {
    if (made.symbols.size() <= kScanCharsMax) {
      merge_by_scan(&made);
    } else {
      merge_by_heap(&made);
    }
  }
  if (!has_unused_ && rules_.model == PieceRules::Model::kRankedBpe) {
    for (const Symbol& symbol : made.symbols) out->push_back(symbol.id);
    return {};
  }
  for (const Symbol& symbol : made.symbols) BATON_OK(emit(made, symbol, after_unknown, out));
  return {};
}

// Whether some token reaches over the beginning of the mark at `at`.
bool PieceBpe::is_joint(std::string_view text, size_t at) const {
  if (before_mark_.empty()) return false;
  size_t begin = at - 1;
  while (begin > 0 && (static_cast<uint8_t>(text[begin]) & 0xc0) == 0x80) --begin;
  return std::binary_search(before_mark_.begin(), before_mark_.end(), decode_utf8(text, begin).code);
}

Status PieceBpe::encode(std::string_view piece, std::vector<int32_t>* out) const {
  if (piece.empty()) return {};
  if (ignore_merges_) {
    if (const int32_t id = find_token(piece); id >= 0) {
      out->push_back(id);
      return {};
    }
  }
  bool after_unknown = false;
  // No merge reaches across the beginning of a word, so that words can be merged alone: most are short.
  size_t begin = 0;
  for (size_t at = piece.find(kSpaceMark, 1); at != std::string_view::npos; at = piece.find(kSpaceMark, at + 1)) {
    if (is_joint(piece, at)) continue;
    BATON_OK(encode_word(piece.substr(begin, at - begin), &after_unknown, out));
    begin = at;
  }
  return encode_word(piece.substr(begin), &after_unknown, out);
}

Status PieceBpe::encode_bytes(std::string_view bytes, std::vector<int32_t>* out) const {
  for (const char c : bytes) out->push_back(byte_ids_[static_cast<uint8_t>(c)]);
  return {};
}

}  // namespace baton
