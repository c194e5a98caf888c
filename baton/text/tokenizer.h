// Text to token ids and back, from a TokenizerSpec: byte-level BPE, BPE over characters, unigram, WordPiece
// (docs/tokenizers.md). Immutable after creation; any thread may use it.
//
// Encoding: added tokens are cut out (leftmost, then longest), the rest is normalised as the model asks for it, split
// by the pre-tokenizer, and each pre-token becomes ids by merges (lowest rank first, leftmost on ties), scores or
// longest pieces. Time O(n log n) in the longest pre-token. Text need not be UTF-8: where the vocabulary has all bytes,
// every maximal run of bytes that is not UTF-8 is a pre-token of its own, is encoded byte by byte, and comes back
// unchanged from decode(); the text around it is split as if it ended there. Elsewhere it counts as U+FFFD. WordPiece
// loses case, accents and white space: decode() gives words with a space between them.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/text/piece.h"
#include "baton/text/tokenizer_spec.h"

namespace baton {

class Tokenizer {
 public:
  // kInvalidInput when the parts do not fit together (ids, merges, a regex that does not compile).
  static Result<Tokenizer> create(const TokenizerSpec& spec);
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // Neither BOS nor EOS is added: see with_bos. With parse_special false no control token comes out, whatever the
  // text says; user-defined tokens are found either way (as llama.cpp does). Errors: a byte that has no token (and no
  // unk_id), a regex from the file that needs too many steps, text above 64 MiB. `begins`: the text is the beginning of
  // one, where some models put a space in front; not so where it continues another.
  Result<std::vector<int32_t>> encode(std::string_view text, bool parse_special, bool begins = true) const;
  // The concatenated pieces, tokenised as one text; control tokens are found only where every byte is template-made.
  Result<std::vector<int32_t>> encode_pieces(std::span<const RenderedPiece> pieces, bool begins = true) const;
  // Puts bos first where the model asks for it and it is not there already: once, where a sequence begins.
  std::vector<int32_t> with_bos(std::vector<int32_t> ids) const;
  // Both ends where the model asks for them, whatever is there already: a whole text, as encoders see it.
  std::vector<int32_t> with_ends(std::vector<int32_t> ids) const;

  // The bytes of the tokens, as a text of its own: without the space that encoding put in front. Not necessarily UTF-8
  // (see detokenizer.h). `skip_special` leaves control tokens out.
  // kInvalidInput for an id outside the vocabulary.
  Result<std::string> decode(std::span<const int32_t> ids, bool skip_special) const;
  // As written in the vocabulary (byte-level alphabet for normal tokens); empty for unknown ids.
  std::string token_text(int32_t id) const;
  // The bytes it stands for; empty for unknown ids. Valid as long as the tokenizer.
  std::string_view token_bytes(int32_t id) const;
  TokenKind kind(int32_t id) const;  // kUnused for unknown ids
  bool is_special(int32_t id) const { return kind(id) == TokenKind::kControl; }
  // The id of a token as written in the vocabulary, or -1.
  int32_t find(std::string_view token_text) const;

  int32_t vocab_size() const;  // highest id + 1; the model's embedding may have more rows
  int32_t bos_id() const;      // -1: none
  int32_t eos_id() const;
  int32_t pad_id() const;
  bool add_bos() const;
  bool add_eos() const;
  // Ends of generation: eos, eot, eom and control tokens with a known end-of-turn text. Sorted.
  std::span<const int32_t> stop_ids() const;
  // Ids that must never be sampled: unused rows. Sorted.
  std::span<const int32_t> unused_ids() const;
  // Spaces in front of a text that decode() drops, at most; SIZE_MAX: all.
  size_t leading_spaces() const;
  // Over everything that changes what encode() gives; the same file gives the same value on every platform.
  uint64_t fingerprint() const;

 private:
  struct Parts;
  explicit Tokenizer(std::unique_ptr<const Parts> parts);
  std::unique_ptr<const Parts> parts_;
};

}  // namespace baton
