// The unigram model: of all ways to cut a text into pieces, the one with the highest sum of scores (Viterbi), and of
// equal ones that whose last piece begins first. Immutable; any thread may use it. Time: the text times the longest
// piece at most.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/text/piece_trie.h"
#include "baton/text/token_index.h"
#include "baton/text/token_model.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {

class Unigram : public TokenModel {
 public:
  static Result<std::unique_ptr<Unigram>> create(const TokenizerSpec& spec, const TokenIndex& index,
                                                 std::span<const TokenKind> kinds);
  Status encode(std::string_view piece, std::vector<int32_t>* out) const override;
  bool takes_bytes() const override { return has_bytes_; }
  Status encode_bytes(std::string_view bytes, std::vector<int32_t>* out) const override;

 private:
  struct Best {
    double score = 0;
    uint32_t start = UINT32_MAX;  // of the last piece; UINT32_MAX: nothing ends here
    int32_t id = -1;              // -1: unknown
  };
  explicit Unigram(const PieceRules& rules) : rules_(rules) {}
  Status emit(std::string_view piece, std::span<const Best> best, std::vector<int32_t>* out) const;

  PieceRules rules_;
  PieceTrie trie_;
  std::vector<double> scores_;  // by id
  double unknown_score_ = 0;
  int32_t unk_id_ = -1;
  bool has_bytes_ = false;
  std::array<int32_t, 256> byte_ids_{};
};

}  // namespace baton
