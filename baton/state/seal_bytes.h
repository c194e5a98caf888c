// Where things are in a sealed state: offsets and numbers of docs/state_format.md, and its header, shared by all that
// write and read it.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "baton/state/seal.h"

namespace baton::sealed {

// Fixed header, then one entry per section, then the provenance, then the checksum of all before it:
//   magic[8] | version u32 | header_bytes u32 | total_bytes u64 | model u64 | quantization u64 | tokenizer u64
//   | position u64 | sections u32 | provenance_bytes u32 | tokens_offset u64 | tokens_digest u64 | mac u32 | zero u32
//   | entry[sections] | provenance | checksum u64
inline constexpr std::string_view kMagic = "BATONSEQ";
inline constexpr uint32_t kVersion = 2;
inline constexpr uint64_t kVersionAt = 8, kHeaderBytesAt = 12, kTotalBytesAt = 16;
inline constexpr uint64_t kModelAt = 24, kQuantizationAt = 32, kTokenizerAt = 40, kPositionAt = 48;
inline constexpr uint64_t kSectionsAt = 56, kProvenanceBytesAt = 60, kTokensOffsetAt = 64, kTokensDigestAt = 72;
inline constexpr uint64_t kMacAt = 80, kZeroAt = 84;
inline constexpr uint32_t kMacKeyed = 1;  // 32 bytes of keyed BLAKE2b-256 of all before them end it (state_key.h)
inline constexpr uint64_t kEntriesAt = 88;

// kind u32 | layer i32 | dtype u32 | zero u32 | dims u64[3] | offset u64 | bytes u64 | checksum u64
inline constexpr uint64_t kEntryBytes = 64;
inline constexpr uint64_t kEntryKindAt = 0, kEntryLayerAt = 4, kEntryDtypeAt = 8, kEntryZeroAt = 12, kEntryDimsAt = 16;
inline constexpr uint64_t kEntryOffsetAt = 40, kEntryBytesAt = 48, kEntryChecksumAt = 56;

// makers u32 | steps u32 | maker[makers] | step[steps]
//   maker: unit[32] | arithmetic[96], both zero-padded
//   step: maker u32 | kind u16 | shared u16 | tokens u32 | count u32
inline constexpr uint64_t kProvenanceFixed = 8, kMakerBytes = 128, kMakerUnitBytes = 32, kStepBytes = 16;
inline constexpr uint64_t kStepKindAt = 4, kStepSharedAt = 6, kStepTokensAt = 8, kStepCountAt = 12;
static_assert(kMakerUnitMax < kMakerUnitBytes && kMakerArithmeticMax < kMakerBytes - kMakerUnitBytes);

inline constexpr uint64_t kChecksumBytes = 8;
inline constexpr uint64_t kHeaderBytesMin = kEntriesAt + kProvenanceFixed + kChecksumBytes;
inline constexpr uint64_t kHeaderBytesMax = 1 << 20;  // 16,000 sections

// Tokens and sections begin at multiples of this; the bytes between are zero.
inline constexpr uint64_t kAlignment = 64;
inline constexpr uint64_t kTokenBytes = 4;

inline uint64_t provenance_bytes(const Provenance& provenance) {
  return kProvenanceFixed + kMakerBytes * provenance.makers.size() + kStepBytes * provenance.steps.size();
}
// At most as long as its bounds allow; every byte accounted for. kCorrupt otherwise. The meaning: check_provenance.
Result<Provenance> read_provenance(std::span<const std::byte> bytes);

// The header without its entries.
struct Header {
  StateIdentity identity;
  uint32_t mac = 0;
  uint64_t total_bytes = 0, header_bytes = 0, position = 0, sections = 0, tokens_offset = 0, tokens_digest = 0;
  Provenance provenance;
};
// How long it is, from its first kHeaderBytesMin bytes (fewer: refused). `bytes`: of the whole state, 0 where that is
// not known. kCorrupt: not a sealed state, truncated, lengths that do not fit; kMismatch: another version.
Result<uint64_t> header_length(std::span<const std::byte> start, uint64_t bytes);
// What `start` says of it, unchecked; at most kHeaderBytesMax, and no more than there are.
uint64_t stated_header_length(std::span<const std::byte> start, uint64_t bytes);
// From all its bytes. kCorrupt: its checksum; fields that have no meaning.
Result<Header> read_header(std::span<const std::byte> bytes);
// What it says of a MAC and the whole length, under a right checksum. `bytes`: the whole header.
void mark(std::span<std::byte> bytes, uint32_t mac, uint64_t total);
// The checksum at its end.
void sum_header(std::span<std::byte> bytes);

inline tl::unexpected<Error> corrupt(std::string what) {
  return fail(Code::kCorrupt, "sealed state: " + std::move(what));
}
inline tl::unexpected<Error> mismatch(std::string what) {
  return fail(Code::kMismatch, "sealed state: " + std::move(what));
}

// Bytes read, summed and searched at a time: stays in the first or second level of cache.
inline constexpr uint64_t kPieceBytes = 32 * 1024;

// The numbers of kinds and types are part of the format.
static_assert(static_cast<uint32_t>(SlotKind::kKeys) == 0 && static_cast<uint32_t>(SlotKind::kValues) == 1 &&
              static_cast<uint32_t>(SlotKind::kConv) == 2 && static_cast<uint32_t>(SlotKind::kRecurrent) == 3);
static_assert(static_cast<uint32_t>(DType::kF32) == 0 && static_cast<uint32_t>(DType::kF16) == 1 &&
              static_cast<uint32_t>(DType::kBF16) == 2 && static_cast<uint32_t>(DType::kQ8_0) == 3 &&
              static_cast<uint32_t>(DType::kQ4_0) == 4);
// Whether a type's number is that of one that a segment of this kind can have.
inline bool fits_kind(uint32_t type, SlotKind kind) {
  if (type > UINT8_MAX || !is_state_type(static_cast<DType>(type))) return false;
  return has_tokens_dim(kind) || !in_blocks(static_cast<DType>(type));
}

// Keys and values of a state are of one type: `section` is to come behind `others`.
inline Status check_one_type(std::span<const SealedSection> others, size_t index, const SealedSection& section) {
  const auto first = std::find_if(others.begin(), others.end(), [](const auto& s) { return has_tokens_dim(s.kind); });
  if (first == others.end() || !has_tokens_dim(section.kind) || first->dtype == section.dtype) return {};
  return corrupt(
      fmt::format("section {} ({}): type {}, and {} is of type {}: keys and values of a state are of one type", index,
                  segment_name(section.kind, section.layer), to_string(section.dtype),
                  segment_name(first->kind, first->layer), to_string(first->dtype)));
}

}  // namespace baton::sealed
