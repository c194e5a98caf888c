// States in the files of other projects, to and from our sealed form: ANELMS (the prefill process of ANE-LM forks),
// ANELM_CACHE (a bridge between processes) and the prompt caches of mlx-lm (safetensors). Bytes and sources:
// docs/state_format.md, "Files of other projects".
//
// None of them has a checksum or says which tokens it was made from: what is read is bounded and must have the shape of
// the receiver's model, no more. Values are those of whoever computed them, with their rounding and their faults.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/base/status.h"
#include "baton/model/model.h"
#include "baton/state/seal_stream.h"
#include "baton/state/shape.h"

namespace baton {

enum class ForeignFormat : uint8_t { kAnelms, kAnelmCache, kMlx };
std::string_view to_string(ForeignFormat format);  // "anelms", "anelm-cache", "mlx"
std::optional<ForeignFormat> parse_foreign_format(std::string_view text);
// By the first bytes; empty: none of them.
std::optional<ForeignFormat> detect_foreign(std::span<const std::byte> bytes);

// One array where it lies in the file, addressed by canonical dims (shape.h). Element [a, b, c] is at
// a * strides[0] + ((ring_start + b) mod ring_rows) * strides[1] + c * strides[2].
struct ForeignSection {
  SlotKind kind = SlotKind::kKeys;
  int32_t layer = 0;
  DType dtype = DType::kF32;
  Dims dims{};
  Dims strides{};
  uint64_t ring_start = 0, ring_rows = 1;  // ring_rows >= dims[1]
  std::span<const std::byte> bytes;        // perhaps unaligned
};

// A file, parsed and bounded by itself alone; borrows its bytes. Every element of every section lies inside it.
struct ForeignState {
  ForeignFormat format = ForeignFormat::kAnelms;
  uint64_t position = 0;  // tokens processed
  uint64_t layers = 0;
  std::vector<std::pair<std::string, uint64_t>> facts;  // the header's figures, under its names
  std::vector<ForeignSection> sections;                 // by layer
  std::span<const std::byte> logits;                    // f32, after the last token; empty: the file has none
  std::vector<int32_t> tokens;                          // `position` ids where the file has them (written by us)

  std::optional<uint64_t> fact(std::string_view name) const;
};

// kCorrupt for damage (with the offset or tensor), kUnsupported for a cache of another kind. Allocates for the header
// only.
Result<ForeignState> parse_foreign(std::span<const std::byte> bytes);

// A state outside any unit or file: dense values in canonical order and in the order of heads of one model.
struct PlainState {
  uint64_t position = 0;
  StateShape shape;                              // dims at `position`; convolution and recurrent f32
  std::vector<std::vector<std::byte>> sections;  // one per slot
  std::vector<int32_t> tokens;                   // `position` ids, or empty where they are not known
  std::vector<float> logits;                     // after the last token, or empty
  Provenance provenance;                         // kMakerForeign with the format's name when it was read from one
};

// The state as `model` keeps it: shapes compared with the model's slots, value heads and rotated pairs put in the
// order of the model's container (foreign files have the Hugging Face order). kMismatch for a state of another model,
// kCorrupt for NaN or infinite values, kUnsupported for keys that a ring has already overwritten.
Result<PlainState> from_foreign(const ForeignState& state, const Model& model);
// Errors as of a SealReader.
Result<PlainState> from_seal(const SealSource& source, const SealExpectation& expected);

// Borrows the state. kInvalidInput when the tokens are not known or not `position` of them.
Result<SealSource> to_seal(const PlainState& state, const StateIdentity& identity);

struct ForeignOptions {
  uint64_t kv_capacity = 2048;  // kAnelms: rows of keys and values in the file
  // kMlx: of keys, values and convolution; the recurrent state stays f32. Empty: keys and values as they are, the
  // convolution f32. mlx-lm goes on in the widest type it finds, so the model's own type is what decodes fastest.
  std::optional<DType> type;
};

// kUnsupported when the format cannot hold the state (no gated DeltaNet layer in the two ANE-LM formats, more tokens
// than kv_capacity), kInvalidInput when logits that it needs (kAnelms) are not known, kCorrupt when a value does not
// fit into options.type.
Result<std::vector<std::byte>> to_foreign(const PlainState& state, const Model& model, ForeignFormat format,
                                          const ForeignOptions& options);

}  // namespace baton
