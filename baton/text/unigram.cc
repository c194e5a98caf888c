// Viterbi over the characters of a text.
#include "baton/text/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "baton/text/piece_bpe.h"
#include "baton/text/utf8.h"

namespace baton {
namespace {

constexpr double kUnknownPenalty = 10.0;  // below the worst piece

}  // namespace

Result<std::unique_ptr<Unigram>> Unigram::create(const TokenizerSpec& spec, const TokenIndex& index,
                                                 std::span<const TokenKind> kinds) {
  std::unique_ptr<Unigram> made(new Unigram(*spec.pieces));
  const auto count = static_cast<size_t>(index.size());
  if (spec.scores.empty()) return fail(Code::kInvalidInput, "the vocabulary has no scores");
  made->scores_ = spec.scores;
  made->scores_.resize(count, 0);
  made->unk_id_ = spec.unk_id;
  double worst = std::numeric_limits<double>::max();
  std::vector<std::pair<std::string_view, int32_t>> texts;
  for (size_t id = 0; id < count; ++id) {
    const std::string_view text = index.text(static_cast<int32_t>(id));
    if (text.empty()) continue;
    if (kinds[id] != TokenKind::kNormal) continue;
    if (static_cast<int32_t>(id) == spec.unk_id) continue;
    if (text.size() > PieceRules::kPieceBytesMax) {
      return fail(Code::kInvalidInput,
                  fmt::format("token {} has {} bytes: at most {}", id, text.size(), PieceRules::kPieceBytesMax));
    }
    if (!std::isfinite(made->scores_[id])) {
      return fail(Code::kInvalidInput, fmt::format("the score of token {} is no number", id));
    }
    texts.emplace_back(text, static_cast<int32_t>(id));
    worst = std::min(worst, made->scores_[id]);
  }
  if (texts.empty()) return fail(Code::kInvalidInput, "the vocabulary has no pieces");
  made->unknown_score_ = worst - kUnknownPenalty;
  made->trie_ = PieceTrie(std::move(texts));
  made->byte_ids_ = byte_token_ids(index, kinds);
  if (!spec.pieces->byte_fallback) made->byte_ids_.fill(-1);
  made->has_bytes_ = std::find(made->byte_ids_.begin(), made->byte_ids_.end(), -1) == made->byte_ids_.end();
  return made;
}

Status Unigram::encode(std::string_view piece, std::vector<int32_t>* out) const {
  if (piece.empty()) return {};
  std::vector<Best> best(piece.size() + 1);
  best[0].start = 0;
  const auto offer = [&](size_t start, size_t end, double score, int32_t id) {
    Best& held = best[end];
    double sum = score + best[start].score;
    if (rules_.float_sums) sum = static_cast<double>(static_cast<float>(sum));  // as SentencePiece holds its sums
    if (held.start != UINT32_MAX && sum <= held.score) return;
    held = {sum, static_cast<uint32_t>(start), id};
  };
  for (size_t at = 0; at < piece.size();) {
    const size_t length = decode_utf8(piece, at).length;
    bool has_single = false;
    trie_.each_prefix(piece.substr(at), [&](size_t size, int32_t id) {
      offer(at, at + size, scores_[static_cast<size_t>(id)], id);
      has_single = has_single || size == length;
    });
    if (!has_single) offer(at, at + length, unknown_score_, -1);
    at += length;
  }
  return emit(piece, best, out);
}

// The best way from its end; neighbouring unknown characters are one.
Status Unigram::emit(std::string_view piece, std::span<const Best> best, std::vector<int32_t>* out) const {
  const size_t before = out->size();
  for (size_t end = piece.size(); end > 0;) {
    const Best& last = best[end];
    size_t start = last.start;
    if (last.id >= 0) {
      out->push_back(last.id);
      end = start;
      continue;
    }
    while (rules_.fuse_unk && start > 0 && best[start].id < 0) start = best[start].start;
    const std::string_view bytes = piece.substr(start, end - start);
    const auto has_id = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] >= 0; };
    if (std::all_of(bytes.begin(), bytes.end(), has_id)) {
      for (size_t i = bytes.size(); i > 0; --i) out->push_back(byte_ids_[static_cast<uint8_t>(bytes[i - 1])]);
    } else {
      if (unk_id_ < 0) return no_token_for(bytes);
      out->push_back(unk_id_);
    }
    end = start;
  }
  std::reverse(out->begin() + static_cast<ptrdiff_t>(before), out->end());
  return {};
}

Status Unigram::encode_bytes(std::string_view bytes, std::vector<int32_t>* out) const {
  for (const char c : bytes) out->push_back(byte_ids_[static_cast<uint8_t>(c)]);
  return {};
}

}  // namespace baton
