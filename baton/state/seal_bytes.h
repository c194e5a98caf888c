// Where things are in a sealed state: offsets and numbers of docs/state_format.md, shared by its writer and its reader.
#pragma once

#include <cstdint>
#include <string_view>

#include "baton/state/provenance.h"
#include "baton/state/shape.h"

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
inline constexpr uint32_t kMacKeyed =
    1;  // 32 bytes of keyed BLAKE2b-256 of all before them end the block (state_key.h)
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

// Tokens and sections begin at multiples of this; the bytes between are zero.
inline constexpr uint64_t kAlignment = 64;
inline constexpr uint64_t kTokenBytes = 4;

inline uint64_t provenance_bytes(const Provenance& provenance) {
  return kProvenanceFixed + kMakerBytes * provenance.makers.size() + kStepBytes * provenance.steps.size();
}
// At most as long as its bounds allow; every byte accounted for. kCorrupt otherwise. The meaning: check_provenance.
Result<Provenance> read_provenance(std::span<const std::byte> bytes);

// Bytes summed and searched at a time: stays in the first or second level of cache.
inline constexpr uint64_t kPieceBytes = 32 * 1024;

// The numbers of kinds and types are part of the format.
static_assert(static_cast<uint32_t>(SlotKind::kKeys) == 0 && static_cast<uint32_t>(SlotKind::kValues) == 1 &&
              static_cast<uint32_t>(SlotKind::kConv) == 2 && static_cast<uint32_t>(SlotKind::kRecurrent) == 3);
static_assert(static_cast<uint32_t>(DType::kF32) == 0 && static_cast<uint32_t>(DType::kF16) == 1 &&
              static_cast<uint32_t>(DType::kBF16) == 2);

}  // namespace baton::sealed
