// The table of contents of a sealed state.
#include "baton/state/seal_list.h"

#include <fmt/format.h>

#include "baton/base/bytes.h"
#include "baton/state/seal_bytes.h"

namespace baton {
namespace {

bool inside(std::span<const std::byte> block, uint64_t offset, uint64_t bytes) {
  return offset <= block.size() && bytes <= block.size() - offset;
}

Result<SealedSection> list_entry(std::span<const std::byte> block, uint64_t index) {
  const std::byte* entry = block.data() + sealed::kEntriesAt + index * sealed::kEntryBytes;
  const auto kind = load_as<uint32_t>(entry + sealed::kEntryKindAt);
  const auto type = load_as<uint32_t>(entry + sealed::kEntryDtypeAt);
  const auto offset = load_as<uint64_t>(entry + sealed::kEntryOffsetAt);
  const auto bytes = load_as<uint64_t>(entry + sealed::kEntryBytesAt);
  SealedSection section{};
  section.layer = load_as<int32_t>(entry + sealed::kEntryLayerAt);
  section.dims = load_as<Dims>(entry + sealed::kEntryDimsAt);
  uint64_t expected = 0;
  section.kind = static_cast<SlotKind>(kind);
  const bool known = kind <= static_cast<uint32_t>(SlotKind::kRecurrent) && sealed::fits_kind(type, section.kind);
  section.dtype = static_cast<DType>(type);
  if (!known || !dense_bytes(section.dims, section.dtype, &expected) || expected != bytes ||
      !inside(block, offset, bytes)) {
    return sealed::corrupt(
        fmt::format("section {}: kind {}, type {}, {} bytes at {} do not fit", index, kind, type, bytes, offset));
  }
  section.bytes = block.subspan(offset, bytes);
  return section;
}

}  // namespace

Result<SealListing> list_seal(std::span<const std::byte> block) {
  BATON_TRY(const uint64_t header_bytes, sealed::header_length(block, block.size()));
  if (header_bytes > block.size()) return sealed::corrupt("truncated: the header is longer than the file");
  BATON_TRY(sealed::Header header, sealed::read_header(block.first(header_bytes)));
  SealListing listing{header.identity, header.mac != 0, header.position, {}, std::move(header.provenance), {}};
  if (const Status made = check_provenance(listing.provenance, listing.position); !made)
    return fail(Error(made.error()).in("sealed state"));
  if (listing.position > block.size() || !inside(block, header.tokens_offset, listing.position * sealed::kTokenBytes)) {
    return sealed::corrupt(fmt::format("{} tokens at {} do not fit", listing.position, header.tokens_offset));
  }
  listing.tokens.resize(listing.position);
  std::memcpy(listing.tokens.data(), block.data() + header.tokens_offset, listing.position * sealed::kTokenBytes);
  for (uint64_t i = 0; i < header.sections; ++i) {
    BATON_TRY(const SealedSection section, list_entry(block, i));
    BATON_OK(sealed::check_one_type(listing.sections, i, section));
    listing.sections.push_back(section);
  }
  return listing;
}

}  // namespace baton
