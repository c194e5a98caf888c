// The merge engine of byte-level BPE: a vocabulary by text, and merges by pair. Immutable after creation.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {

// Token texts to ids. The texts lie end to end in storage that must outlive it: text `id` is
// [offsets[id], offsets[id + 1]).
class TokenIndex {
 public:
  TokenIndex() = default;
  // Of two equal texts the lower id is found; empty texts are not.
  TokenIndex(const char* texts, std::span<const uint32_t> offsets);
  int32_t find(std::string_view text) const;  // -1: not there
  std::string_view text(int32_t id) const {
    return {texts_ + offsets_[static_cast<size_t>(id)],
            offsets_[static_cast<size_t>(id) + 1] - offsets_[static_cast<size_t>(id)]};
  }
  int32_t size() const { return static_cast<int32_t>(offsets_.size()) - 1; }

 private:
  struct Slot {
    uint32_t hash = 0;
    int32_t id = -1;
  };
  const char* texts_ = nullptr;
  std::span<const uint32_t> offsets_;
  uint64_t seed_ = 0;
  std::vector<Slot> slots_;
};

class Bpe {
 public:
  // `index` holds all tokens; `kinds` says which of them are none of merging's business (control, unused).
  static Result<Bpe> create(const TokenizerSpec& spec, const TokenIndex& index, std::span<const TokenKind> kinds);

  // Appends the ids of one pre-token (raw bytes). kInvalidInput for a byte without token when there is no unk_id.
  Status encode(std::string_view bytes, std::vector<int32_t>* out) const;

  // Pre-tokens up to this many bytes are merged by scanning, longer ones with a heap: same result. Exposed for tests.
  static constexpr size_t kScanBytesMax = 32;

 private:
  struct Pair {
    uint64_t key;  // left << 32 | right; kNoKey: empty
    uint32_t rank;
    int32_t result;
  };
  int32_t find_token(std::string_view text) const;  // -1: no token that merging may make
  // A symbol is a token id, or vocab_size_ + n for the n-th merge result that is no token.
  const Pair* find_pair(int32_t left, int32_t right) const;
  void add_pair(int32_t left, int32_t right, uint32_t rank, int32_t result);
  void merge_by_scan(std::vector<int32_t>* symbols) const;
  void merge_by_heap(std::vector<int32_t>* symbols) const;

  const TokenIndex* index_ = nullptr;
  std::span<const TokenKind> kinds_;
  std::array<int32_t, 256> byte_ids_{};
  std::vector<Pair> pairs_;
  uint64_t seed_ = 0;
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
