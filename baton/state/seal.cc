// Opening a sealed state: every byte is covered by a check, and nothing is believed before its check has passed.
#include "baton/state/seal.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "baton/base/bytes.h"
#include "baton/state/seal_bytes.h"
#include "baton/state/values.h"

namespace baton {
namespace {

struct Header {
  StateIdentity identity;
  uint64_t position = 0;
  uint64_t sections = 0;
  uint64_t provenance_bytes = 0;
  uint64_t header_bytes = 0;
  Provenance provenance;
};

struct Entry {
  SealedSection section;
  uint64_t checksum = 0;
};

tl::unexpected<Error> corrupt(std::string what) { return fail(Code::kCorrupt, "sealed state: " + std::move(what)); }
tl::unexpected<Error> mismatch(std::string what) { return fail(Code::kMismatch, "sealed state: " + std::move(what)); }

template <class T>
T at(std::span<const std::byte> block, uint64_t offset) {
  return load_as<T>(block.data() + offset);
}

std::string differing(std::string_view what, uint64_t stored, uint64_t computed) {
  return fmt::format("{}: stored {:016x}, computed {:016x} (damaged)", what, stored, computed);
}

// Magic, version, lengths, checksum. The block is longer than every offset read here.
Result<Header> read_header(std::span<const std::byte> block) {
  const auto magic = as_text(block.first(std::min(block.size(), sealed::kMagic.size())));
  if (magic != sealed::kMagic.substr(0, magic.size())) return corrupt("magic: these bytes are not a sealed state");
  if (block.size() < sealed::kHeaderBytesMin) {
    return corrupt(
        fmt::format("truncated: {} bytes, a header takes at least {}", block.size(), sealed::kHeaderBytesMin));
  }
  const auto version = at<uint32_t>(block, sealed::kVersionAt);
  if (version != sealed::kVersion)
    return mismatch(fmt::format("version: {}, this build reads version {}: make the state again from its prompt",
                                version, sealed::kVersion));

  Header header;
  header.header_bytes = at<uint32_t>(block, sealed::kHeaderBytesAt);
  header.sections = at<uint32_t>(block, sealed::kSectionsAt);
  header.provenance_bytes = at<uint32_t>(block, sealed::kProvenanceBytesAt);
  const uint64_t header_bytes =
      sealed::kEntriesAt + sealed::kEntryBytes * header.sections + header.provenance_bytes + sealed::kChecksumBytes;
  if (header.header_bytes != header_bytes || header.provenance_bytes < sealed::kProvenanceFixed) {
    return corrupt(fmt::format("header length: {} bytes, {} sections and {} bytes of provenance need {}",
                               header.header_bytes, header.sections, header.provenance_bytes, header_bytes));
  }
  const auto total = at<uint64_t>(block, sealed::kTotalBytesAt);
  if (total != block.size()) {
    return corrupt(fmt::format("total length: the header says {} bytes, there are {} ({})", total, block.size(),
                               total > block.size() ? "truncated" : "something was appended"));
  }
  if (header_bytes > block.size())
    return corrupt(fmt::format("header length: {} bytes of {}", header_bytes, block.size()));
  const uint64_t summed = header_bytes - sealed::kChecksumBytes;
  const auto stored = at<uint64_t>(block, summed);
  const uint64_t computed = checksum(block.first(summed));
  if (stored != computed) return corrupt(differing("header checksum", stored, computed));
  const auto mac = at<uint32_t>(block, sealed::kMacAt);
  if (mac == sealed::kMacKeyed)
    return mismatch("it was sealed with a key: give the key (--state-key FILE), nothing in it is used without");
  if (mac != 0) return corrupt(fmt::format("header: MAC of kind {}", mac));
  if (at<uint32_t>(block, sealed::kZeroAt) != 0)
    return corrupt(fmt::format("header: bytes at {} are not zero", sealed::kZeroAt));

  header.identity.model = at<uint64_t>(block, sealed::kModelAt);
  header.identity.quantization = at<uint64_t>(block, sealed::kQuantizationAt);
  header.identity.tokenizer = at<uint64_t>(block, sealed::kTokenizerAt);
  header.position = at<uint64_t>(block, sealed::kPositionAt);
  auto provenance = sealed::read_provenance(
      block.subspan(sealed::kEntriesAt + sealed::kEntryBytes * header.sections, header.provenance_bytes));
  if (!provenance) return fail(std::move(provenance).error().in("sealed state"));
  header.provenance = *std::move(provenance);
  return header;
}

Status check_identity(const StateIdentity& found, const StateIdentity& expected) {
  const auto check = [](std::string_view what, uint64_t state, uint64_t receiver) -> Status {
    if (state == receiver) return {};
    return mismatch(fmt::format("{} fingerprint: the state has {:016x}, the receiver {:016x} (a state of another {})",
                                what, state, receiver, what));
  };
  BATON_OK(check("model", found.model, expected.model));
  BATON_OK(check("quantization", found.quantization, expected.quantization));
  return check("tokenizer", found.tokenizer, expected.tokenizer);
}

std::string describe(uint32_t kind, int32_t layer, const Dims& dims) {
  const std::string name = kind <= static_cast<uint32_t>(SlotKind::kRecurrent)
                               ? segment_name(static_cast<SlotKind>(kind), layer)
                               : fmt::format("layer {} of kind {}", layer, kind);
  return fmt::format("{} [{}, {}, {}]", name, dims[0], dims[1], dims[2]);
}

std::string section_name(size_t index, const SealedSection& section) {
  return fmt::format("section {} ({})", index, segment_name(section.kind, section.layer));
}

// Moves `*end` past the padding and `bytes` more, inside the block; the padding is checked later.
bool place(uint64_t bytes, uint64_t block_bytes, uint64_t* offset, uint64_t* end) {
  return checked_align(*end, sealed::kAlignment, offset) && checked_add(*offset, bytes, end) && *end <= block_bytes;
}

Result<Entry> read_entry(std::span<const std::byte> block, size_t index, const Segment& segment, uint64_t position,
                         uint64_t* end) {
  const auto entry = block.subspan(sealed::kEntriesAt + index * sealed::kEntryBytes, sealed::kEntryBytes);
  const auto kind = at<uint32_t>(entry, sealed::kEntryKindAt);
  const auto layer = at<int32_t>(entry, sealed::kEntryLayerAt);
  const auto dims = at<Dims>(entry, sealed::kEntryDimsAt);
  const Dims wanted = dims_at(segment, position);
  if (kind != static_cast<uint32_t>(segment.kind) || layer != segment.layer || dims != wanted) {
    return mismatch(fmt::format("layout: section {} is {}, expected {}", index, describe(kind, layer, dims),
                                describe(static_cast<uint32_t>(segment.kind), segment.layer, wanted)));
  }
  const auto dtype = at<uint32_t>(entry, sealed::kEntryDtypeAt);
  if (dtype > static_cast<uint32_t>(DType::kBF16)) {
    return corrupt(fmt::format("section {} ({}): type number {}", index, segment_name(segment.kind, layer), dtype));
  }
  Entry read{{segment.kind, layer, static_cast<DType>(dtype), dims, {}}, at<uint64_t>(entry, sealed::kEntryChecksumAt)};
  uint64_t bytes = 0, offset = 0;
  const bool fits = dense_bytes(dims, read.section.dtype, &bytes) && place(bytes, block.size(), &offset, end);
  if (!fits || at<uint64_t>(entry, sealed::kEntryOffsetAt) != offset ||
      at<uint64_t>(entry, sealed::kEntryBytesAt) != bytes || at<uint32_t>(entry, sealed::kEntryZeroAt) != 0) {
    return corrupt(
        fmt::format("{}: offset, length or zero field is not what its dims give", section_name(index, read.section)));
  }
  read.section.bytes = block.subspan(offset, bytes);
  return read;
}

// Position, tokens' place and the table of sections against what the receiver expects.
Result<std::vector<Entry>> read_table(std::span<const std::byte> block, const Header& header,
                                      const SealExpectation& expected) {
  if (header.position > expected.position_max) {
    return mismatch(fmt::format("position: {} tokens, the receiver has room for {}: give it a larger context",
                                header.position, expected.position_max));
  }
  if (const Status made = check_provenance(header.provenance, header.position); !made)
    return fail(Error(made.error()).in("sealed state"));
  const auto& segments = expected.shape->segments;
  if (header.sections != segments.size()) {
    return mismatch(fmt::format("layout: {} sections, expected {}", header.sections, segments.size()));
  }
  uint64_t end = header.header_bytes, tokens_bytes = 0, tokens_offset = 0;
  if (!checked_mul(header.position, sealed::kTokenBytes, &tokens_bytes) ||
      !place(tokens_bytes, block.size(), &tokens_offset, &end) ||
      at<uint64_t>(block, sealed::kTokensOffsetAt) != tokens_offset) {
    return corrupt(fmt::format("tokens: {} ids do not fit where the header puts them", header.position));
  }
  std::vector<Entry> entries;
  entries.reserve(segments.size());
  for (size_t i = 0; i < segments.size(); ++i) {
    BATON_TRY(const Entry entry, read_entry(block, i, segments[i], header.position, &end));
    entries.push_back(entry);
  }
  if (end != block.size())
    return corrupt(fmt::format("total length: sections end at {}, the block at {}", end, block.size()));
  return entries;
}

// Everything between the header, the tokens and the sections is zero.
Status check_padding(std::span<const std::byte> block, const Header& header, const std::vector<Entry>& entries) {
  const auto check = [&](uint64_t from, uint64_t to) -> Status {
    for (uint64_t i = from; i < to; ++i) {
      if (block[i] != std::byte{0}) return corrupt(fmt::format("padding: byte {} is not zero (damaged)", i));
    }
    return {};
  };
  const auto tokens_offset = at<uint64_t>(block, sealed::kTokensOffsetAt);
  BATON_OK(check(header.header_bytes, tokens_offset));
  uint64_t end = tokens_offset + header.position * sealed::kTokenBytes;
  for (const Entry& entry : entries) {
    const auto offset = static_cast<uint64_t>(entry.section.bytes.data() - block.data());
    BATON_OK(check(end, offset));
    end = offset + entry.section.bytes.size();
  }
  return {};
}

Result<std::vector<int32_t>> read_tokens(std::span<const std::byte> block, const Header& header,
                                         const SealExpectation& expected) {
  const auto bytes = block.subspan(at<uint64_t>(block, sealed::kTokensOffsetAt), header.position * sealed::kTokenBytes);
  const auto stored = at<uint64_t>(block, sealed::kTokensDigestAt);
  const uint64_t computed = checksum(bytes);
  if (stored != computed) return corrupt(differing("tokens digest", stored, computed));
  std::vector<int32_t> tokens(header.position);
  if (!tokens.empty()) std::memcpy(tokens.data(), bytes.data(), bytes.size());
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && (expected.vocab <= 0 || tokens[i] < expected.vocab)) continue;
    const std::string limit = expected.vocab > 0 ? fmt::format("below {}", expected.vocab) : "at least 0";
    return corrupt(fmt::format("tokens: token {} is {}, ids are {}", i, tokens[i], limit));
  }
  if (expected.tokens == nullptr) return tokens;
  const auto& prompt = *expected.tokens;
  if (tokens.size() > prompt.size()) {
    return mismatch(
        fmt::format("state of another prompt: it holds {} tokens, the prompt has {}", tokens.size(), prompt.size()));
  }
  const auto [ours, theirs] = std::mismatch(tokens.begin(), tokens.end(), prompt.begin());
  if (ours != tokens.end()) {
    return mismatch(fmt::format("state of another prompt: token {} of {} is {}, the prompt has {}",
                                ours - tokens.begin(), tokens.size(), *ours, *theirs));
  }
  return tokens;
}

// Checksum and values of one section, a piece at a time while it is in cache. Damage is reported before bad values.
Status check_section(size_t index, const Entry& entry, uint64_t position, Checksum& sum) {
  const SealedSection& section = entry.section;
  std::optional<uint64_t> bad;
  sum.restart();
  for (uint64_t done = 0; done < section.bytes.size(); done += sealed::kPieceBytes) {
    const auto piece = section.bytes.subspan(done, std::min(sealed::kPieceBytes, section.bytes.size() - done));
    sum.update(piece);
    if (bad) continue;
    if (const auto found = first_not_finite(piece, section.dtype)) bad = done / value_bytes(section.dtype) + *found;
  }
  if (const uint64_t computed = sum.value(); entry.checksum != computed) {
    return corrupt(differing(section_name(index, section) + " checksum", entry.checksum, computed));
  }
  if (bad) {
    return corrupt(fmt::format("{}: value {} is {}: the unit that made this state failed, make it again",
                               section_name(index, section), *bad, value_at(section.bytes, section.dtype, *bad)));
  }
  if (position != 0) return {};
  if (const auto found = first_not_zero(section.bytes, section.dtype)) {
    return corrupt(fmt::format("{}: value {} is {}: a sequence of no tokens holds zeros, make the state again",
                               section_name(index, section), *found, value_at(section.bytes, section.dtype, *found)));
  }
  return {};
}

}  // namespace

Status check_seal_header(std::span<const std::byte> block, const SealExpectation& expected) {
  BATON_TRY(const Header header, read_header(block));
  BATON_OK(check_identity(header.identity, expected.identity));
  if (auto table = read_table(block, header, expected); !table) return fail(std::move(table).error());
  return {};
}

Result<SealedView> open_seal(std::span<const std::byte> block, const SealExpectation& expected) {
  BATON_TRY(const Header header, read_header(block));
  BATON_OK(check_identity(header.identity, expected.identity));
  BATON_TRY(const std::vector<Entry> entries, read_table(block, header, expected));
  BATON_OK(check_padding(block, header, entries));
  SealedView view{header.identity, header.position, {}, header.provenance, {}};
  BATON_TRY(view.tokens, read_tokens(block, header, expected));
  view.sections.reserve(entries.size());
  Checksum sum;
  for (size_t i = 0; i < entries.size(); ++i) {
    BATON_OK(check_section(i, entries[i], header.position, sum));
    view.sections.push_back(entries[i].section);
  }
  return view;
}

}  // namespace baton
