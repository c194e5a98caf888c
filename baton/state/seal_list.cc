// The table of contents of a sealed state.
#include "baton/state/seal_list.h"

#include <fmt/format.h>

#include <algorithm>

#include "baton/base/bytes.h"
#include "baton/state/seal_bytes.h"

namespace baton {
namespace {

tl::unexpected<Error> corrupt_list(std::string what) {
  return fail(Code::kCorrupt, "sealed state: " + std::move(what));
}

bool inside(std::span<const std::byte> block, uint64_t offset, uint64_t bytes) {
  return offset <= block.size() && bytes <= block.size() - offset;
}

Result<SealedSection> read_entry(std::span<const std::byte> block, uint64_t index) {
  const std::byte* entry = block.data() + sealed::kEntriesAt + index * sealed::kEntryBytes;
  const auto kind = load_as<uint32_t>(entry + sealed::kEntryKindAt);
  const auto type = load_as<uint32_t>(entry + sealed::kEntryDtypeAt);
  const auto offset = load_as<uint64_t>(entry + sealed::kEntryOffsetAt);
  const auto bytes = load_as<uint64_t>(entry + sealed::kEntryBytesAt);
  SealedSection section{};
  section.layer = load_as<int32_t>(entry + sealed::kEntryLayerAt);
  section.dims = load_as<Dims>(entry + sealed::kEntryDimsAt);
  uint64_t expected = 0;
  const bool known = kind <= static_cast<uint32_t>(SlotKind::kRecurrent) && type <= static_cast<uint32_t>(DType::kBF16);
  section.kind = static_cast<SlotKind>(kind);
  section.dtype = static_cast<DType>(type);
  if (!known || !dense_bytes(section.dims, section.dtype, &expected) || expected != bytes ||
      !inside(block, offset, bytes))
    return corrupt_list(
        fmt::format("section {}: kind {}, type {}, {} bytes at {} do not fit", index, kind, type, bytes, offset));
  section.bytes = block.subspan(offset, bytes);
  return section;
}

}  // namespace

bool is_seal(std::span<const std::byte> block) { return as_text(block).starts_with(sealed::kMagic); }

Result<SealListing> list_seal(std::span<const std::byte> block) {
  if (!is_seal(block) || block.size() < sealed::kHeaderBytesMin)
    return corrupt_list("these bytes are not a sealed state");
  const auto at32 = [&](uint64_t offset) { return load_as<uint32_t>(block.data() + offset); };
  const auto at64 = [&](uint64_t offset) { return load_as<uint64_t>(block.data() + offset); };
  if (at32(sealed::kVersionAt) != sealed::kVersion) {
    return fail(Code::kMismatch, fmt::format("sealed state: version {}, this build reads version {}",
                                             at32(sealed::kVersionAt), sealed::kVersion));
  }
  const uint64_t sections = at32(sealed::kSectionsAt);
  const uint64_t provenance_at = sealed::kEntriesAt + sealed::kEntryBytes * sections;
  const uint64_t provenance_bytes = at32(sealed::kProvenanceBytesAt);
  const uint64_t header_bytes = provenance_at + provenance_bytes + sealed::kChecksumBytes;
  if (header_bytes != at32(sealed::kHeaderBytesAt) || header_bytes > block.size()) return corrupt_list("header length");
  if (at64(sealed::kTotalBytesAt) != block.size()) {
    return corrupt_list(
        fmt::format("total length: {} bytes, the header says {}", block.size(), at64(sealed::kTotalBytesAt)));
  }
  const uint64_t summed = header_bytes - sealed::kChecksumBytes;
  if (checksum(block.first(summed)) != at64(summed)) return corrupt_list("header checksum (damaged)");
  SealListing listing;
  listing.identity = {at64(sealed::kModelAt), at64(sealed::kQuantizationAt), at64(sealed::kTokenizerAt)};
  listing.keyed = at32(sealed::kMacAt) == sealed::kMacKeyed;
  listing.position = at64(sealed::kPositionAt);
  auto provenance = sealed::read_provenance(block.subspan(provenance_at, provenance_bytes));
  if (!provenance) return corrupt_list(std::move(provenance).error().message);
  if (Status made = check_provenance(*provenance, listing.position); !made) return corrupt_list(made.error().message);
  listing.provenance = *std::move(provenance);
  const uint64_t tokens_at = at64(sealed::kTokensOffsetAt);
  if (listing.position > block.size() || !inside(block, tokens_at, listing.position * sealed::kTokenBytes))
    return corrupt_list(fmt::format("{} tokens at {} do not fit", listing.position, tokens_at));
  for (uint64_t i = 0; i < listing.position; ++i)
    listing.tokens.push_back(load_as<int32_t>(block.data() + tokens_at + i * sealed::kTokenBytes));
  for (uint64_t i = 0; i < sections; ++i) {
    BATON_TRY(listing.sections.emplace_back(), read_entry(block, i));
  }
  return listing;
}

}  // namespace baton
