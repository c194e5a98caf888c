// Lays out a sealed state and sums it.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "baton/base/bytes.h"
#include "baton/state/seal_bytes.h"
#include "baton/state/seal_stream.h"

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
    end = aligned(end) + dims[0] * dims[1] * row_bytes_of(segment.dtype, dims[2]);
  }
  return end;
}

void store_text(std::byte* to, uint64_t room, std::string_view text) {
  BATON_CHECK(text.size() < room);
  std::memcpy(to, text.data(), text.size());
}

// Into zeros.
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

Status give_block(std::span<const std::byte> block, const SealSink& sink) {
  const uint64_t header = sealed::stated_header_length(block, block.size());
  BATON_OK(sink(0, block.first(header)));
  BATON_OK(sink(header, block.subspan(header)));
  return sink(0, block.first(header));
}

}  // namespace

SealSource SealSource::borrowed(std::span<const std::byte> block) {
  return {block.size(), [block](const SealSink& sink) { return give_block(block, sink); }};
}

SealSource SealSource::owned(std::vector<std::byte> block) {
  const auto kept = std::make_shared<const std::vector<std::byte>>(std::move(block));
  return {kept->size(), [kept](const SealSink& sink) { return give_block(*kept, sink); }};
}

Result<std::vector<std::byte>> SealSource::block() const {
  std::vector<std::byte> block;
  block.reserve(bytes_);
  advise_large_pages(block.data(), bytes_);
  block.resize(bytes_);
  BATON_OK(give([&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
    BATON_CHECK(offset <= block.size() && bytes.size() <= block.size() - offset);
    std::copy(bytes.begin(), bytes.end(), block.begin() + static_cast<ptrdiff_t>(offset));
    return {};
  }));
  return block;
}

uint64_t digest_tokens(std::span<const int32_t> tokens) { return checksum(std::as_bytes(tokens)); }

uint64_t sealed_bytes(const StateShape& shape, uint64_t tokens, const Provenance& provenance) {
  return total_bytes_of(shape, tokens, header_bytes_of(shape, known_or_unknown(provenance, tokens)));
}

SealWriter::SealWriter(const StateIdentity& identity, std::span<const int32_t> tokens, const StateShape& shape,
                       const Provenance& given, SealSink sink)
    : sink_(std::move(sink)) {
  const Provenance provenance = known_or_unknown(given, tokens.size());
  BATON_CHECK(check_provenance(provenance, tokens.size()));
  header_bytes_ = header_bytes_of(shape, provenance);
  const uint64_t tokens_offset = aligned(header_bytes_), total = total_bytes_of(shape, tokens.size(), header_bytes_);
  uint64_t end = tokens_offset + tokens.size_bytes();
  head_.resize(std::min(aligned(end), total));

  std::byte* const header = head_.data();
  std::memcpy(header, sealed::kMagic.data(), sealed::kMagic.size());
  store_as<uint32_t>(header + sealed::kVersionAt, sealed::kVersion);
  store_as<uint32_t>(header + sealed::kHeaderBytesAt, static_cast<uint32_t>(header_bytes_));
  store_as<uint64_t>(header + sealed::kModelAt, identity.model);
  store_as<uint64_t>(header + sealed::kQuantizationAt, identity.quantization);
  store_as<uint64_t>(header + sealed::kTokenizerAt, identity.tokenizer);
  store_as<uint64_t>(header + sealed::kPositionAt, tokens.size());
  store_as<uint32_t>(header + sealed::kSectionsAt, static_cast<uint32_t>(shape.segments.size()));
  store_as<uint32_t>(header + sealed::kProvenanceBytesAt, static_cast<uint32_t>(sealed::provenance_bytes(provenance)));
  store_as<uint64_t>(header + sealed::kTokensOffsetAt, tokens_offset);
  store_as<uint64_t>(header + sealed::kTokensDigestAt, digest_tokens(tokens));
  if (!tokens.empty()) std::memcpy(header + tokens_offset, tokens.data(), tokens.size_bytes());

  std::byte* entry = header + sealed::kEntriesAt;
  for (const Segment& segment : shape.segments) {
    const Dims dims = dims_at(segment, tokens.size());
    Placed placed{aligned(end), 0, 0};
    BATON_CHECK(dense_bytes(dims, segment.dtype, &placed.bytes));
    end = placed.offset + placed.bytes;
    placed.end = std::min(aligned(end), total);
    store_as<uint32_t>(entry + sealed::kEntryKindAt, static_cast<uint32_t>(segment.kind));
    store_as<int32_t>(entry + sealed::kEntryLayerAt, segment.layer);
    store_as<uint32_t>(entry + sealed::kEntryDtypeAt, static_cast<uint32_t>(segment.dtype));
    store_as<Dims>(entry + sealed::kEntryDimsAt, dims);
    store_as<uint64_t>(entry + sealed::kEntryOffsetAt, placed.offset);
    store_as<uint64_t>(entry + sealed::kEntryBytesAt, placed.bytes);
    if (placed.bytes == 0) store_as<uint64_t>(entry + sealed::kEntryChecksumAt, checksum({}));
    sections_.push_back(placed);
    entry += sealed::kEntryBytes;
  }
  store_provenance(entry, provenance);
  BATON_CHECK(end == total);
  sealed::mark(std::span(head_).first(header_bytes_), 0, total);
}

Status SealWriter::begin() {
  BATON_OK(sink_(0, std::span(head_).first(header_bytes_)));
  return sink_(header_bytes_, std::span(head_).subspan(header_bytes_));
}

Status SealWriter::add(size_t section, std::span<const std::byte> values) {
  BATON_CHECK(section < sections_.size());
  Placed& placed = sections_[section];
  BATON_CHECK(values.size() <= placed.bytes - placed.given);
  if (placed.given == 0) {
    const auto whole = [](const Placed& other) { return other.given == 0 || other.given == other.bytes; };
    BATON_CHECK(std::all_of(sections_.begin(), sections_.end(), whole));
    sum_.restart();
  }
  sum_.update(values);
  BATON_OK(sink_(placed.offset + placed.given, values));
  placed.given += values.size();
  if (placed.given < placed.bytes || placed.bytes == 0) return {};
  std::byte* const entry = head_.data() + sealed::kEntriesAt + section * sealed::kEntryBytes;
  store_as<uint64_t>(entry + sealed::kEntryChecksumAt, sum_.value());
  const uint64_t end = placed.offset + placed.bytes;
  constexpr std::array<std::byte, sealed::kAlignment> kZeros{};
  return sink_(end, std::span(kZeros).first(placed.end - end));
}

Status SealWriter::finish() {
  for (const Placed& placed : sections_) BATON_CHECK(placed.given == placed.bytes);
  const auto header = std::span(head_).first(header_bytes_);
  sealed::sum_header(header);
  return sink_(0, header);
}

}  // namespace baton
