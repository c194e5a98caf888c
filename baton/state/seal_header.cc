// The header of a sealed state, from its bytes: nothing is believed before the checksum has held.
#include <fmt/format.h>

#include <algorithm>

#include "baton/base/bytes.h"
#include "baton/state/seal_bytes.h"
#include "baton/state/seal_list.h"

namespace baton {

bool is_seal(std::span<const std::byte> block) { return as_text(block).starts_with(sealed::kMagic); }

namespace sealed {
namespace {

tl::unexpected<Error> corrupt_provenance(std::string what) {
  return fail(Code::kCorrupt, "provenance: " + std::move(what));
}

// Text, then zeros to the end of the field.
bool take_text(std::span<const std::byte> field, std::string* out) {
  const auto end = std::find(field.begin(), field.end(), std::byte{0});
  out->assign(reinterpret_cast<const char*>(field.data()), static_cast<size_t>(end - field.begin()));
  return end != field.end() && std::all_of(end, field.end(), [](std::byte b) { return b == std::byte{0}; });
}

}  // namespace

Result<Provenance> read_provenance(std::span<const std::byte> bytes) {
  if (bytes.size() < kProvenanceFixed) return corrupt_provenance(fmt::format("{} bytes", bytes.size()));
  const uint64_t makers = load_as<uint32_t>(bytes.data()), steps = load_as<uint32_t>(bytes.data() + 4);
  if (makers > kMakersMax || steps > kStepsMax ||
      bytes.size() != kProvenanceFixed + makers * kMakerBytes + steps * kStepBytes) {
    return corrupt_provenance(fmt::format("{} makers and {} steps in {} bytes; there are at most {} and {}", makers,
                                          steps, bytes.size(), kMakersMax, kStepsMax));
  }
  Provenance provenance;
  for (uint64_t i = 0; i < makers; ++i) {
    const auto field = bytes.subspan(kProvenanceFixed + i * kMakerBytes, kMakerBytes);
    StateMaker& maker = provenance.makers.emplace_back();
    if (!take_text(field.first(kMakerUnitBytes), &maker.unit) ||
        !take_text(field.subspan(kMakerUnitBytes), &maker.arithmetic))
      return corrupt_provenance(fmt::format("maker {}: a name without its end, or with something behind it", i));
  }
  for (uint64_t i = 0; i < steps; ++i) {
    const std::byte* at = bytes.data() + kProvenanceFixed + makers * kMakerBytes + i * kStepBytes;
    const auto kind = load_as<uint16_t>(at + kStepKindAt), shared = load_as<uint16_t>(at + kStepSharedAt);
    if (kind > static_cast<uint16_t>(StepKind::kMixed) || shared > 1)
      return corrupt_provenance(fmt::format("step {}: kind {}, shared {}", i, kind, shared));
    provenance.steps.push_back({load_as<uint32_t>(at), static_cast<StepKind>(kind), shared == 1,
                                load_as<uint32_t>(at + kStepTokensAt), load_as<uint32_t>(at + kStepCountAt)});
  }
  return provenance;
}

Result<uint64_t> header_length(std::span<const std::byte> start, uint64_t bytes) {
  const auto magic = as_text(start.first(std::min(start.size(), kMagic.size())));
  if (magic != kMagic.substr(0, magic.size())) return corrupt("magic: these bytes are not a sealed state");
  if (start.size() < kHeaderBytesMin)
    return corrupt(fmt::format("truncated: {} bytes, a header takes at least {}", start.size(), kHeaderBytesMin));
  const auto at32 = [&](uint64_t offset) { return load_as<uint32_t>(start.data() + offset); };
  if (at32(kVersionAt) != kVersion) {
    return mismatch(fmt::format("version: {}, this build reads version {}: make the state again from its prompt",
                                at32(kVersionAt), kVersion));
  }
  const uint64_t length = at32(kHeaderBytesAt), sections = at32(kSectionsAt), provenance = at32(kProvenanceBytesAt);
  const uint64_t needed = kEntriesAt + kEntryBytes * sections + provenance + kChecksumBytes;
  if (length != needed || provenance < kProvenanceFixed || length > kHeaderBytesMax) {
    return corrupt(fmt::format("header length: {} bytes, {} sections and {} bytes of provenance need {}, at most {}",
                               length, sections, provenance, needed, kHeaderBytesMax));
  }
  const auto total = load_as<uint64_t>(start.data() + kTotalBytesAt);
  if (bytes != 0 && total != bytes) {
    return corrupt(fmt::format("total length: the header says {} bytes, there are {} ({})", total, bytes,
                               total > bytes ? "truncated" : "something was appended"));
  }
  return length;
}

uint64_t stated_header_length(std::span<const std::byte> start, uint64_t bytes) {
  if (start.size() < kHeaderBytesMin) return start.size();
  return std::min<uint64_t>({load_as<uint32_t>(start.data() + kHeaderBytesAt), kHeaderBytesMax, bytes});
}

Result<Header> read_header(std::span<const std::byte> bytes) {
  const auto at32 = [&](uint64_t offset) { return load_as<uint32_t>(bytes.data() + offset); };
  const auto at64 = [&](uint64_t offset) { return load_as<uint64_t>(bytes.data() + offset); };
  const uint64_t summed = bytes.size() - kChecksumBytes;
  if (const uint64_t computed = checksum(bytes.first(summed)); at64(summed) != computed) {
    return corrupt(fmt::format("header checksum: stored {:016x}, computed {:016x} (damaged)", at64(summed), computed));
  }
  Header header;
  header.identity = {at64(kModelAt), at64(kQuantizationAt), at64(kTokenizerAt)};
  header.mac = at32(kMacAt);
  if (header.mac != 0 && header.mac != kMacKeyed) return corrupt(fmt::format("header: MAC of kind {}", header.mac));
  if (at32(kZeroAt) != 0) return corrupt(fmt::format("header: bytes at {} are not zero", kZeroAt));
  header.total_bytes = at64(kTotalBytesAt);
  header.header_bytes = bytes.size();
  header.position = at64(kPositionAt);
  header.sections = at32(kSectionsAt);
  header.tokens_offset = at64(kTokensOffsetAt);
  header.tokens_digest = at64(kTokensDigestAt);
  const uint64_t provenance_at = kEntriesAt + kEntryBytes * header.sections;
  auto provenance = read_provenance(bytes.subspan(provenance_at, summed - provenance_at));
  if (!provenance) return fail(std::move(provenance).error().in("sealed state"));
  header.provenance = *std::move(provenance);
  return header;
}

void sum_header(std::span<std::byte> bytes) {
  const uint64_t summed = bytes.size() - kChecksumBytes;
  store_as<uint64_t>(bytes.data() + summed, checksum(bytes.first(summed)));
}

void mark(std::span<std::byte> bytes, uint32_t mac, uint64_t total) {
  store_as<uint32_t>(bytes.data() + kMacAt, mac);
  store_as<uint64_t>(bytes.data() + kTotalBytesAt, total);
  sum_header(bytes);
}

}  // namespace sealed
}  // namespace baton
