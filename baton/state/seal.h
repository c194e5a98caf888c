// The seal: a sequence state as verified bytes. A versioned envelope with the fingerprints of model, quantization and
// tokenizer, the position, the token ids with their digest, who made it in which steps, and a checksum per section. A
// seal that fails any check is refused with a reason and never decoded from. Checksums guard against damage and
// mix-ups, not against somebody who recomputes them. It is made and read piece by piece (seal_stream.h), or opened
// where it lies in memory as a whole. Bytes, and promises: docs/state_format.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/state/checksum.h"
#include "baton/state/provenance.h"
#include "baton/state/shape.h"

namespace baton {

// What a state belongs to. All three must agree before a state is used.
struct StateIdentity {
  uint64_t model = 0;         // Fingerprints::model
  uint64_t quantization = 0;  // Fingerprints::quantization
  uint64_t tokenizer = 0;     // Tokenizer::fingerprint(), 0 when no text is involved

  friend bool operator==(const StateIdentity&, const StateIdentity&) = default;
};

// One part of the sealed state, canonical order and dense: dims_at(position) values of `dtype`.
struct SealedSection {
  SlotKind kind;
  int32_t layer;
  DType dtype;
  Dims dims;                         // outermost first, tokens dim = position
  std::span<const std::byte> bytes;  // into the block; empty where the state came as a stream
};

// A sealed state that passed verification; of a block, borrows its bytes.
struct SealedView {
  StateIdentity identity;
  uint64_t position = 0;
  std::vector<int32_t> tokens;  // the `position` tokens the state was made from
  Provenance provenance;        // who processed them, and how
  std::vector<SealedSection> sections;
};

// What the receiver demands. `tokens`: its own ids of the prompt, of which the state must hold exactly a prefix of
// length `position`; null: any (a state read from a file to go on from).
struct SealExpectation {
  StateIdentity identity;
  const StateShape* shape = nullptr;  // kinds, layers and dims (types may differ: the bridge converts)
  const std::vector<int32_t>* tokens = nullptr;
  uint64_t position_max = 0;
  int32_t vocab = 0;  // token ids must be below it; 0: not known, only negative ids are refused
};

// Verifies everything, in this order: magic, version, lengths, header checksum; model, quantization and tokenizer;
// position, provenance and shape; tokens; each section's checksum; then that values are finite, and zero at position 0;
// zeros between the parts, where they come. kCorrupt for damage and such values, kMismatch for a state of another
// version, model, quantization, tokenizer, shape, prompt, or with more tokens than `position_max`; the message names
// the check and both values. Sizes come from `expected`; the block's own are only compared with them. Allocates the
// header, the tokens and one entry per section. One pass over the sections, bound by memory bandwidth.
Result<SealedView> open_seal(std::span<const std::byte> block, const SealExpectation& expected);

// Bytes of a whole sealed state, header and padding included. The shape is one that check_shape accepts; an empty
// provenance counts as kMakerUnknown.
uint64_t sealed_bytes(const StateShape& shape, uint64_t tokens, const Provenance& provenance = {});

// Digest of token ids (XXH3-64 of their little-endian i32 bytes).
uint64_t digest_tokens(std::span<const int32_t> tokens);

}  // namespace baton
