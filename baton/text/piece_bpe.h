// BPE over characters, as SentencePiece has it: by merges in the order of their ranks, or by the scores of what two
// neighbours make together. Characters without a token become bytes or the unknown token. Immutable; any thread may
// use it. Time n log n in the longest stretch that merges can reach across (see Words).
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/text/pair_table.h"
#include "baton/text/token_index.h"
#include "baton/text/token_model.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {

// The ids of <0x00> ... <0xFF>; -1 for those that are not there.
std::array<int32_t, 256> byte_token_ids(const TokenIndex& index, std::span<const TokenKind> kinds);
// What a token <0xNN> stands for, or -1.
int byte_of_token(std::string_view text);
tl::unexpected<Error> no_token_for(std::string_view bytes);

class PieceBpe : public TokenModel {
 public:
  // `index` holds all tokens and outlives this; `kinds` says which of them text becomes. kInvalidInput for merges or
  // scores that do not fit.
  static Result<std::unique_ptr<PieceBpe>> create(const TokenizerSpec& spec, const TokenIndex& index,
                                                  std::span<const TokenKind> kinds);
  Status encode(std::string_view piece, std::vector<int32_t>* out) const override;
  bool takes_bytes() const override { return has_bytes_; }
  Status encode_bytes(std::string_view bytes, std::vector<int32_t>* out) const override;

  // Words up to this many characters are merged by scanning, longer ones with a heap: same result.
  static constexpr size_t kScanCharsMax = 24;

 private:
  static constexpr uint32_t kNoRank = UINT32_MAX;
  struct Symbol {
    uint32_t begin = 0, length = 0;  // of the text; length 0: merged away
    int32_t id = -1;                 // -1: no token
    int32_t left = -1, right = -1;   // of what it was merged, in the history
  };
  struct Merge {
    uint32_t rank = kNoRank;
    int32_t id = -1;
  };
  struct Word;

  PieceBpe(const TokenizerSpec& spec, const TokenIndex& index, std::span<const TokenKind> kinds);
  Status read_merges(const TokenizerSpec& spec);
  Status read_scores(const TokenizerSpec& spec);
  Status find_joints();
  int32_t find_token(std::string_view text) const;  // -1: no token that text becomes
  Merge merge_of(std::string_view text, const Symbol& left, const Symbol& right) const;
  bool is_joint(std::string_view text, size_t at) const;
  Status encode_word(std::string_view word, bool* after_unknown, std::vector<int32_t>* out) const;
  Status fill(std::string_view word, Word* made) const;
  void merge_by_scan(Word* word) const;
  void merge_by_heap(Word* word) const;
  void join(Word* word, Symbol* left, const Symbol& right, int32_t id) const;
  Status emit(const Word& word, const Symbol& symbol, bool* after_unknown, std::vector<int32_t>* out) const;

  PieceRules rules_;
  const TokenIndex* index_;
  std::span<const TokenKind> kinds_;
  PairTable pairs_;
  std::vector<uint32_t> ranks_;  // by id, kScoredBpe
  size_t longest_ = 0;           // bytes of a token
  bool has_unused_ = false, has_bytes_ = false, ignore_merges_ = false;
  int32_t unk_id_ = -1;
  std::array<int32_t, 256> byte_ids_{};
  std::vector<uint32_t> before_mark_;  // characters that some token has before a kSpaceMark; sorted
};

}  // namespace baton
