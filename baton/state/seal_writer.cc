// Lays out a sealed state and sums it. The table of contents is written first, the checksums last.
#include <algorithm>
#include <cstring>

#include "baton/base/bytes.h"
#include "baton/state/seal.h"
#include "baton/state/seal_bytes.h"

#if defined(__linux__)
#include <sys/mman.h>
#endif

namespace baton {
namespace {

uint64_t aligned(uint64_t offset) {
  return (offset + sealed::kAlignment - 1) / sealed::kAlignment * sealed::kAlignment;
}

uint64_t header_bytes_of(const StateShape& shape, const Provenance& provenance) {
  return sealed::kEntriesAt + sealed::kEntryBytes * shape.segments.size() + sealed::provenance_bytes(provenance) +
         sealed::kChecksumBytes;
}

Provenance known_or_unknown(const Provenance& given, uint64_t tokens) {
  return given.steps.empty() ? Provenance::unknown(tokens) : given;
}

uint64_t total_bytes_of(const StateShape& shape, uint64_t tokens, uint64_t header_bytes) {
  uint64_t end = aligned(header_bytes) + tokens * sealed::kTokenBytes;
  for (const Segment& segment : shape.segments) {
    const Dims dims = dims_at(segment, tokens);
    end = aligned(end) + dims[0] * dims[1] * dims[2] * value_bytes(segment.dtype);
  }
  return end;
}

void store_text(std::byte* to, uint64_t room, std::string_view text) {
  BATON_CHECK(text.size() < room);
  std::fill(to, to + room, std::byte{0});
  std::memcpy(to, text.data(), text.size());
}

void store_provenance(std::byte* to, const Provenance& provenance) {
  store_as<uint32_t>(to, static_cast<uint32_t>(provenance.makers.size()));
  store_as<uint32_t>(to + 4, static_cast<uint32_t>(provenance.steps.size()));
  to += sealed::kProvenanceFixed;
  for (const StateMaker& maker : provenance.makers) {
    store_text(to, sealed::kMakerUnitBytes, maker.unit);
    store_text(to + sealed::kMakerUnitBytes, sealed::kMakerBytes - sealed::kMakerUnitBytes, maker.arithmetic);
    to += sealed::kMakerBytes;
  }
  for (const StateStep& step : provenance.steps) {
    store_as<uint32_t>(to, step.maker);
    store_as<uint16_t>(to + sealed::kStepKindAt, static_cast<uint16_t>(step.kind));
    store_as<uint16_t>(to + sealed::kStepSharedAt, step.shared ? 1 : 0);
    store_as<uint32_t>(to + sealed::kStepTokensAt, step.tokens);
    store_as<uint32_t>(to + sealed::kStepCountAt, step.count);
    to += sealed::kStepBytes;
  }
}

// Large pages for a large fresh block: first touches then cost a fraction. Advice only; failing is fine.
void advise_large_pages([[maybe_unused]] std::byte* data, [[maybe_unused]] size_t bytes) {
#if defined(__linux__) && defined(MADV_HUGEPAGE)
  constexpr uintptr_t kLargePage = 2u << 20;
  const auto start = (reinterpret_cast<uintptr_t>(data) + kLargePage - 1) / kLargePage * kLargePage;
  const auto end = (reinterpret_cast<uintptr_t>(data) + bytes) / kLargePage * kLargePage;
  if (start < end) ::madvise(reinterpret_cast<void*>(start), end - start, MADV_HUGEPAGE);
#endif
}

}  // namespace

uint64_t digest_tokens(std::span<const int32_t> tokens) { return checksum(std::as_bytes(tokens)); }

uint64_t sealed_bytes(const StateShape& shape, uint64_t tokens, const Provenance& provenance) {
  return total_bytes_of(shape, tokens, header_bytes_of(shape, known_or_unknown(provenance, tokens)));
}

SealWriter::SealWriter(const StateIdentity& identity, std::span<const int32_t> tokens, const StateShape& shape,
                       const Provenance& given) {
  const Provenance provenance = known_or_unknown(given, tokens.size());
  BATON_CHECK(check_provenance(provenance, tokens.size()));
  header_bytes_ = header_bytes_of(shape, provenance);
  const uint64_t total = total_bytes_of(shape, tokens.size(), header_bytes_);
  block_.reserve(total);
  advise_large_pages(block_.data(), total);
  block_.resize(total);
  sections_.reserve(shape.segments.size());

  std::byte* const header = block_.data();
  std::memcpy(header, sealed::kMagic.data(), sealed::kMagic.size());
  store_as<uint32_t>(header + sealed::kVersionAt, sealed::kVersion);
  store_as<uint32_t>(header + sealed::kHeaderBytesAt, static_cast<uint32_t>(header_bytes_));
  store_as<uint64_t>(header + sealed::kTotalBytesAt, total);
  store_as<uint64_t>(header + sealed::kModelAt, identity.model);
  store_as<uint64_t>(header + sealed::kQuantizationAt, identity.quantization);
  store_as<uint64_t>(header + sealed::kTokenizerAt, identity.tokenizer);
  store_as<uint64_t>(header + sealed::kPositionAt, tokens.size());
  store_as<uint32_t>(header + sealed::kSectionsAt, static_cast<uint32_t>(shape.segments.size()));
  store_as<uint32_t>(header + sealed::kProvenanceBytesAt, static_cast<uint32_t>(sealed::provenance_bytes(provenance)));
  store_as<uint32_t>(header + sealed::kMacAt, 0);
  store_as<uint32_t>(header + sealed::kZeroAt, 0);
  const uint64_t tokens_offset = aligned(header_bytes_);
  store_as<uint64_t>(header + sealed::kTokensOffsetAt, tokens_offset);
  store_as<uint64_t>(header + sealed::kTokensDigestAt, digest_tokens(tokens));

  const auto zero_until = [&](uint64_t from, uint64_t to) { std::fill(header + from, header + to, std::byte{0}); };
  zero_until(header_bytes_, tokens_offset);
  uint64_t end = tokens_offset + tokens.size_bytes();
  if (!tokens.empty()) std::memcpy(header + tokens_offset, tokens.data(), tokens.size_bytes());

  std::byte* entry = header + sealed::kEntriesAt;
  for (const Segment& segment : shape.segments) {
    const Dims dims = dims_at(segment, tokens.size());
    Placed placed{aligned(end), 0};
    BATON_CHECK(dense_bytes(dims, segment.dtype, &placed.bytes));
    zero_until(end, placed.offset);
    end = placed.offset + placed.bytes;
    store_as<uint32_t>(entry + sealed::kEntryKindAt, static_cast<uint32_t>(segment.kind));
    store_as<int32_t>(entry + sealed::kEntryLayerAt, segment.layer);
    store_as<uint32_t>(entry + sealed::kEntryDtypeAt, static_cast<uint32_t>(segment.dtype));
    store_as<uint32_t>(entry + sealed::kEntryZeroAt, 0);
    store_as<Dims>(entry + sealed::kEntryDimsAt, dims);
    store_as<uint64_t>(entry + sealed::kEntryOffsetAt, placed.offset);
    store_as<uint64_t>(entry + sealed::kEntryBytesAt, placed.bytes);
    sections_.push_back(placed);
    entry += sealed::kEntryBytes;
  }
  store_provenance(entry, provenance);
  BATON_CHECK(end == total);
}

std::span<std::byte> SealWriter::section_data(size_t section) {
  BATON_CHECK(section < sections_.size());
  return {block_.data() + sections_[section].offset, sections_[section].bytes};
}

void SealWriter::advance(size_t section, uint64_t bytes) {
  BATON_CHECK(section < sections_.size());
  Placed& placed = sections_[section];
  BATON_CHECK(placed.summed <= bytes && bytes <= placed.bytes);
  if (placed.summed == 0) checksum_.restart();
  checksum_.update({block_.data() + placed.offset + placed.summed, bytes - placed.summed});
  placed.summed = bytes;
  if (bytes == placed.bytes) placed.checksum = checksum_.value();
}

std::vector<std::byte> SealWriter::finish() && {
  std::byte* entry = block_.data() + sealed::kEntriesAt;
  for (Placed& placed : sections_) {
    if (placed.summed == 0) placed.checksum = checksum({block_.data() + placed.offset, placed.bytes});
    BATON_CHECK(placed.summed == 0 || placed.summed == placed.bytes);
    store_as<uint64_t>(entry + sealed::kEntryChecksumAt, placed.checksum);
    entry += sealed::kEntryBytes;
  }
  const uint64_t summed = header_bytes_ - sealed::kChecksumBytes;
  store_as<uint64_t>(block_.data() + summed, checksum({block_.data(), summed}));
  return std::move(block_);
}

}  // namespace baton
