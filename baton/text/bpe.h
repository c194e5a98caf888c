// The merge engine of byte-level BPE: a vocabulary by text, and merges by pair. Immutable after creation.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/text/pair_table.h"
#include "baton/text/token_index.h"
#include "baton/text/token_model.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {

class Bpe : public TokenModel {
 public:
  // `index` holds all tokens; `kinds` says which of them are none of merging's business (control, unused).
  static Result<Bpe> create(const TokenizerSpec& spec, const TokenIndex& index, std::span<const TokenKind> kinds);

  // Appends the ids of one pre-token (raw bytes). kInvalidInput for a byte without token when there is no unk_id.
  Status encode(std::string_view bytes, std::vector<int32_t>* out) const override;
  bool takes_bytes() const override { return true; }

  // Pre-tokens up to this many bytes are merged by scanning, longer ones with a heap: same result. Exposed for tests.
  static constexpr size_t kScanBytesMax = 32;

 private:
  int32_t find_token(std::string_view text) const;  // -1: no token that merging may make
  void merge_by_scan(std::vector<int32_t>* symbols) const;
  void merge_by_heap(std::vector<int32_t>* symbols) const;

  const TokenIndex* index_ = nullptr;
  std::span<const TokenKind> kinds_;
  std::array<int32_t, 256> byte_ids_{};
  PairTable pairs_;  // a symbol is a token id, or vocab_size_ + n for the n-th merge result that is no token
  // For symbols that are no tokens: their bytes' ids, [offset, offset + length) of loose_ids_.
  struct Loose {
    uint32_t offset, length;
  };
  std::vector<Loose> loose_;
  std::vector<int32_t> loose_ids_;
  int32_t vocab_size_ = 0;
  int32_t unk_id_ = -1;
  bool ignore_merges_ = false;
};

}  // namespace baton
