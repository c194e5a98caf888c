// Reading a sealed state piece by piece: every byte is covered by a check, and nothing is believed before its check has
// passed.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "baton/base/bytes.h"
#include "baton/state/seal_bytes.h"
#include "baton/state/seal_stream.h"
#include "baton/state/values.h"

namespace baton {
namespace {

using sealed::corrupt;
using sealed::mismatch;

template <class T>
T at(std::span<const std::byte> block, uint64_t offset) {
  return load_as<T>(block.data() + offset);
}

std::string differing(std::string_view what, uint64_t stored, uint64_t computed) {
  return fmt::format("{}: stored {:016x}, computed {:016x} (damaged)", what, stored, computed);
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

// Moves `*end` past the zeros and `bytes` more.
bool place(uint64_t bytes, uint64_t* offset, uint64_t* end) {
  return checked_align(*end, sealed::kAlignment, offset) && checked_add(*offset, bytes, end);
}

size_t first_difference(std::span<const std::byte> a, std::span<const std::byte> b) {
  return static_cast<size_t>(std::mismatch(a.begin(), a.end(), b.begin()).first - a.begin());
}

}  // namespace

Result<SealedSection> SealReader::read_entry(size_t index, uint64_t* end) {
  const Segment& segment = expected_.shape->segments[index];
  const auto entry = std::span(header_).subspan(sealed::kEntriesAt + index * sealed::kEntryBytes, sealed::kEntryBytes);
  const auto kind = at<uint32_t>(entry, sealed::kEntryKindAt);
  const auto layer = at<int32_t>(entry, sealed::kEntryLayerAt);
  const auto dims = at<Dims>(entry, sealed::kEntryDimsAt);
  const Dims wanted = dims_at(segment, view_.position);
  if (kind != static_cast<uint32_t>(segment.kind) || layer != segment.layer || dims != wanted) {
    return mismatch(fmt::format("layout: section {} is {}, expected {}", index, describe(kind, layer, dims),
                                describe(static_cast<uint32_t>(segment.kind), segment.layer, wanted)));
  }
  const auto dtype = at<uint32_t>(entry, sealed::kEntryDtypeAt);
  if (!sealed::fits_kind(dtype, segment.kind)) {
    return corrupt(fmt::format("section {} ({}): type number {}", index, segment_name(segment.kind, layer), dtype));
  }
  const SealedSection section{segment.kind, layer, static_cast<DType>(dtype), dims, {}};
  BATON_OK(sealed::check_one_type(view_.sections, index, section));
  uint64_t bytes = 0, offset = 0;
  const bool fits = dense_bytes(dims, section.dtype, &bytes) && place(bytes, &offset, end);
  if (!fits || at<uint64_t>(entry, sealed::kEntryOffsetAt) != offset ||
      at<uint64_t>(entry, sealed::kEntryBytesAt) != bytes || at<uint32_t>(entry, sealed::kEntryZeroAt) != 0) {
    return corrupt(
        fmt::format("{}: offset, length or zero field is not what its dims give", section_name(index, section)));
  }
  parts_.back().end = offset;
  parts_.push_back({offset, *end, *end});
  return section;
}

// The header against what the receiver expects. All sizes come from the receiver's shape.
Status SealReader::read_table() {
  BATON_TRY(sealed::Header header, sealed::read_header(header_));
  if (header.mac != 0) return mismatch("it was sealed with a key: nothing in it is used without that key");
  BATON_OK(check_identity(header.identity, expected_.identity));
  BATON_OK(check_shape(*expected_.shape));
  if (header.position > expected_.position_max) {
    return mismatch(fmt::format("position: {} tokens, the receiver has room for {}: give it a larger context",
                                header.position, expected_.position_max));
  }
  if (const Status made = check_provenance(header.provenance, header.position); !made)
    return fail(Error(made.error()).in("sealed state"));
  const size_t sections = expected_.shape->segments.size();
  if (header.sections != sections)
    return mismatch(fmt::format("layout: {} sections, expected {}", header.sections, sections));
  uint64_t end = header_bytes_, tokens_bytes = 0, tokens_offset = 0;
  if (!checked_mul(header.position, sealed::kTokenBytes, &tokens_bytes) || !place(tokens_bytes, &tokens_offset, &end) ||
      header.tokens_offset != tokens_offset || end > header.total_bytes) {
    return corrupt(fmt::format("tokens: {} ids do not fit where the header puts them", header.position));
  }
  parts_ = {{header_bytes_, header_bytes_, tokens_offset}, {tokens_offset, end, end}};
  view_ = {header.identity, header.position, {}, std::move(header.provenance), {}};
  for (size_t i = 0; i < sections; ++i) {
    BATON_TRY(view_.sections.emplace_back(), read_entry(i, &end));
  }
  if (end != header.total_bytes) {
    return corrupt(fmt::format("total length: sections end at {}, the header says {} bytes", end, header.total_bytes));
  }
  view_.tokens.resize(header.position);
  sums_.resize(sections, checksum({}));
  return {};
}

Status SealReader::check_tokens() const {
  const auto stored = at<uint64_t>(header_, sealed::kTokensDigestAt);
  const auto& tokens = view_.tokens;
  if (const uint64_t computed = digest_tokens(tokens); stored != computed)
    return corrupt(differing("tokens digest", stored, computed));
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] >= 0 && (expected_.vocab <= 0 || tokens[i] < expected_.vocab)) continue;
    const std::string limit = expected_.vocab > 0 ? fmt::format("below {}", expected_.vocab) : "at least 0";
    return corrupt(fmt::format("tokens: token {} is {}, ids are {}", i, tokens[i], limit));
  }
  if (expected_.tokens == nullptr) return {};
  const auto& prompt = *expected_.tokens;
  if (tokens.size() > prompt.size()) {
    return mismatch(
        fmt::format("state of another prompt: it holds {} tokens, the prompt has {}", tokens.size(), prompt.size()));
  }
  const auto [ours, theirs] = std::mismatch(tokens.begin(), tokens.end(), prompt.begin());
  if (ours != tokens.end()) {
    return mismatch(fmt::format("state of another prompt: token {} of {} is {}, the prompt has {}",
                                ours - tokens.begin(), tokens.size(), *ours, *theirs));
  }
  return {};
}

Status SealReader::take(uint64_t offset, std::span<const std::byte> bytes) {
  while (status_ && !bytes.empty()) {
    uint64_t taken = 0;
    status_ = take_some(offset, bytes, &taken);
    offset += taken;
    bytes = bytes.subspan(taken);
  }
  return status_;
}

Status SealReader::take_some(uint64_t offset, std::span<const std::byte> bytes, uint64_t* taken) {
  const bool begun = parts_.empty() ? !header_.empty() : part_ || !again_.empty();
  if (begun && offset != at_) {
    if (parts_.empty()) return check_complete();
    return corrupt(fmt::format("pieces: bytes from {} on where those from {} on are due", offset, at_));
  }
  if (!begun) {
    BATON_OK(choose_part(offset));
    at_ = offset;
  }
  const Status took = part_ ? take_part(bytes, taken) : take_header(bytes, taken);
  at_ += *taken;
  BATON_OK(took);
  if (part_ && at_ == parts_[*part_].end) end_part();
  return {};
}

// What begins at `offset`: a header, or a part whose turn it may be.
Status SealReader::choose_part(uint64_t offset) {
  const auto due = [](const Part& part) { return !part.done && part.begin < part.end; };
  const auto first = std::find_if(parts_.begin(), parts_.end(), due);
  if (first == parts_.end()) {
    if (offset == 0) return {};
  } else {
    const bool sections = first - parts_.begin() >= 2;
    const auto found =
        !sections && first->begin != offset
            ? parts_.end()
            : std::find_if(first, parts_.end(), [&](const Part& part) { return part.begin == offset && due(part); });
    if (found != parts_.end()) {
      part_ = static_cast<size_t>(found - parts_.begin());
      row_ = 0;
      sum_.restart();
      return {};
    }
  }
  return corrupt(fmt::format("pieces: bytes from {} on, where nothing begins that is due", offset));
}

Status SealReader::take_header(std::span<const std::byte> bytes, uint64_t* taken) {
  std::vector<std::byte>& header = parts_.empty() ? header_ : again_;
  if (again_.size() == header_bytes_ && !again_.empty()) return corrupt("pieces: bytes behind the second header");
  const uint64_t wanted = header_bytes_ != 0 ? header_bytes_ : sealed::kHeaderBytesMin;
  *taken = std::min<uint64_t>(wanted - header.size(), bytes.size());
  header.insert(header.end(), bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(*taken));
  if (header_bytes_ == 0 && header.size() == wanted) {
    BATON_TRY(header_bytes_, sealed::header_length(header, bytes_));
  }
  if (!parts_.empty() || header.size() != header_bytes_) return {};
  BATON_OK(read_table());
  return view_.tokens.empty() ? end_tokens() : Status();
}

Status SealReader::take_part(std::span<const std::byte> bytes, uint64_t* taken) {
  const Part& part = parts_[*part_];
  if (at_ >= part.data) {
    *taken = std::min<uint64_t>(part.end - at_, bytes.size());
    for (uint64_t i = 0; i < *taken; ++i) {
      if (bytes[i] != std::byte{0}) return corrupt(fmt::format("padding: byte {} is not zero (damaged)", at_ + i));
    }
    return {};
  }
  bytes = bytes.first(std::min<uint64_t>(part.data - at_, bytes.size()));
  if (*part_ == 1) {
    std::memcpy(reinterpret_cast<std::byte*>(view_.tokens.data()) + (at_ - part.begin), bytes.data(), bytes.size());
    *taken = bytes.size();
  } else {
    take_values(bytes, taken);
  }
  return at_ + *taken == part.data && *part_ == 1 ? end_tokens() : Status();
}

// A piece that stays in cache: whole rows as they lie, or what is missing of one that was cut.
void SealReader::take_values(std::span<const std::byte> bytes, uint64_t* taken) {
  const SealedSection& section = view_.sections[*part_ - 2];
  const uint64_t row_bytes = row_bytes_of(section.dtype, section.dims[2]);
  const uint64_t most = std::max<uint64_t>(1, sealed::kPieceBytes / row_bytes) * row_bytes;
  const bool cuts = !cut_.empty() || bytes.size() < row_bytes;
  *taken = cuts ? std::min<uint64_t>(row_bytes - cut_.size(), bytes.size())
                : std::min<uint64_t>(bytes.size() / row_bytes * row_bytes, most);
  std::span<const std::byte> values = bytes.first(*taken);
  sum_.update(values);
  if (cuts) {
    cut_.insert(cut_.end(), values.begin(), values.end());
    if (cut_.size() < row_bytes) return;
    values = cut_;
  }
  if (!bad_) {
    if (Status passed = pass_on(values); !passed) bad_ = std::move(passed).error();
  }
  row_ += values.size() / row_bytes;
  cut_.clear();
}

Status SealReader::pass_on(std::span<const std::byte> values) {
  const size_t index = *part_ - 2;
  const SealedSection& section = view_.sections[index];
  const auto bad = [&](uint64_t found, std::string_view why) {
    const uint64_t at = row_ * section.dims[2] + index_in_rows(section.dtype, section.dims[2], found);
    return corrupt(fmt::format("{}: value {} is {}: {}", section_name(index, section), at,
                               value_at(values, section.dtype, found), why));
  };
  if (const auto found = first_not_finite(values, section.dtype))
    return bad(*found, "the unit that made this state failed, make it again");
  if (const auto found = first_filled(values, section.dtype, section.dims[2]))
    return bad(*found, "what fills a row up is zero, make the state again");
  if (view_.position == 0) {
    if (const auto found = first_not_zero(values, section.dtype))
      return bad(*found, "a sequence of no tokens holds zeros, make the state again");
  }
  return values_ == nullptr ? Status() : values_->rows(index, row_, values);
}

Status SealReader::end_tokens() {
  BATON_OK(check_tokens());
  return values_ == nullptr ? Status() : values_->begin(view_);
}

void SealReader::end_part() {
  if (*part_ >= 2) sums_[*part_ - 2] = sum_.value();
  parts_[*part_].done = true;
  part_.reset();
}

Status SealReader::check_complete() const {
  if (parts_.empty()) {
    if (header_bytes_ != 0)
      return corrupt(fmt::format("truncated: {} bytes of a header of {}", header_.size(), header_bytes_));
    return fail(sealed::header_length(header_, bytes_).error());
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].done || parts_[i].begin == parts_[i].end) continue;
    return corrupt(fmt::format("truncated: {}: bytes from {} on are missing",
                               i < 2 ? "tokens" : section_name(i - 2, view_.sections[i - 2]),
                               part_ == i ? at_ : parts_[i].begin));
  }
  if (again_.size() < header_bytes_) return corrupt("truncated: the header did not come again behind the sections");
  return {};
}

// Unlike the draft in nothing but the checksums, and these hold.
Status SealReader::check_header_again() const {
  const uint64_t sum_place = header_bytes_ - sealed::kChecksumBytes;
  const auto stored = at<uint64_t>(again_, sum_place);
  if (const uint64_t computed = checksum(std::span(again_).first(sum_place)); stored != computed)
    return corrupt(differing("header checksum", stored, computed));
  std::vector<std::byte> draft = header_;
  for (size_t i = 0; i < sums_.size(); ++i) {
    const uint64_t place_of_sum = sealed::kEntriesAt + i * sealed::kEntryBytes + sealed::kEntryChecksumAt;
    const auto sum = at<uint64_t>(again_, place_of_sum);
    if (sum != sums_[i]) return corrupt(differing(section_name(i, view_.sections[i]) + " checksum", sum, sums_[i]));
    store_as<uint64_t>(draft.data() + place_of_sum, sum);
  }
  sealed::sum_header(draft);
  if (const size_t byte = first_difference(again_, draft); byte != draft.size())
    return corrupt(fmt::format("header: behind the sections it is another than before them, from byte {} on", byte));
  return {};
}

Result<SealedView> SealReader::finish() {
  if (status_) status_ = check_complete();
  if (status_) status_ = check_header_again();
  if (status_ && bad_) status_ = fail(*bad_);
  BATON_OK(status_);
  return std::move(view_);
}

Result<SealedView> verify_seal(const SealSource& source, const SealExpectation& expected) {
  SealReader reader(expected, nullptr, source.size());
  BATON_OK(source.give([&](uint64_t offset, auto bytes) { return reader.take(offset, bytes); }));
  return reader.finish();
}

Result<SealedView> open_seal(std::span<const std::byte> block, const SealExpectation& expected) {
  BATON_TRY(SealedView view, verify_seal(SealSource::borrowed(block), expected));
  for (size_t i = 0; i < view.sections.size(); ++i) {
    const auto entry = block.subspan(sealed::kEntriesAt + i * sealed::kEntryBytes, sealed::kEntryBytes);
    view.sections[i].bytes =
        block.subspan(at<uint64_t>(entry, sealed::kEntryOffsetAt), at<uint64_t>(entry, sealed::kEntryBytesAt));
  }
  return view;
}

}  // namespace baton
