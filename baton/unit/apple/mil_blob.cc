// Writing and checking of weight files. All offsets in the file are absolute.
#include "baton/unit/apple/mil_blob.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/base/bytes.h"
#include "baton/unit/apple/fp16.h"

namespace baton::apple {
namespace {

constexpr uint32_t kVersion = 2;
constexpr uint32_t kSentinel = 0xdeadbeef;
constexpr uint64_t kFileBytesMin = 128;

// Layout of a record.
constexpr uint64_t kTypeAt = 4, kBytesAt = 8, kDataAt = 16;

uint64_t align(uint64_t value) { return (value + kBlobAlignment - 1) & ~(kBlobAlignment - 1); }

// One row to fp16. The counts are integers of the magnitude's bits, so that the loop has no branches.
void convert_row(const float* from, std::byte* to, size_t count, RangeReport* report) {
  uint32_t overflows = 0, nans = 0, subnormals = 0, largest = 0;
  for (size_t i = 0; i < count; ++i) {
    const uint32_t magnitude = std::bit_cast<uint32_t>(from[i]) & 0x7fffffffu;
    const uint32_t nan = mask_if(magnitude > 0x7f800000u);
    const uint32_t over = mask_if(magnitude > std::bit_cast<uint32_t>(kFp16Max)) & ~nan;
    nans -= nan;
    overflows -= over;
    subnormals -= mask_if(magnitude - 1 < std::bit_cast<uint32_t>(kFp16NormalMin) - 1);  // not 0
    largest = std::max(largest, magnitude & mask_if(magnitude < 0x7f800000u));
    const uint16_t clamped = static_cast<uint16_t>(0x7bffu | (std::bit_cast<uint32_t>(from[i]) >> 16 & 0x8000u));
    store_as<uint16_t>(to + 2 * i, static_cast<uint16_t>(choose(over, clamped, to_fp16(from[i]))));
  }
  report->values += count;
  report->overflows += overflows;
  report->nans += nans;
  report->subnormals += subnormals;
  report->abs_max = std::max(report->abs_max, std::bit_cast<float>(largest));
}

struct Record {
  uint32_t sentinel, type;
  uint64_t bytes, data;
};

Record record_at(std::span<const std::byte> file, uint64_t offset) {
  const std::byte* at = file.data() + offset;
  return {load_as<uint32_t>(at), load_as<uint32_t>(at + kTypeAt), load_as<uint64_t>(at + kBytesAt),
          load_as<uint64_t>(at + kDataAt)};
}

}  // namespace

uint32_t blob_type_code(MilType type) {
  switch (type) {
    case MilType::kFp16:
      return 1;
    case MilType::kFp32:
      return 2;
    case MilType::kUint8:
      return 3;
    case MilType::kInt8:
      return 4;
    case MilType::kInt32:
      return 14;
    case MilType::kUint64:
    case MilType::kBool:
    case MilType::kString:
      return 0;
  }
  return 0;
}

void RangeReport::add(const RangeReport& other) {
  values += other.values;
  overflows += other.overflows;
  nans += other.nans;
  subnormals += other.subnormals;
  abs_max = std::max(abs_max, other.abs_max);
}

BlobWriter::BlobWriter(uint64_t bytes_expected) {
  bytes_.reserve(std::max<uint64_t>(bytes_expected, kBlobFirstRecord));
  bytes_.resize(kBlobFirstRecord);
  store_as<uint32_t>(bytes_.data() + 4, kVersion);
}

uint64_t BlobWriter::bytes_for(std::span<const uint64_t> fp16_counts) {
  uint64_t bytes = kBlobFirstRecord;
  for (const uint64_t count : fp16_counts) bytes = align(bytes) + kBlobAlignment + 2 * count;
  return bytes;
}

std::byte* BlobWriter::append(MilType type, uint64_t bytes, uint64_t* record) {
  *record = align(bytes_.size());
  bytes_.resize(*record + kBlobAlignment + bytes);
  std::byte* at = bytes_.data() + *record;
  store_as<uint32_t>(at, kSentinel);
  store_as<uint32_t>(at + kTypeAt, blob_type_code(type));
  store_as<uint64_t>(at + kBytesAt, bytes);
  store_as<uint64_t>(at + kDataAt, *record + kBlobAlignment);
  ++count_;
  return at + kBlobAlignment;
}

uint64_t BlobWriter::add(MilType type, std::span<const std::byte> data) {
  uint64_t record = 0;
  std::byte* to = append(type, data.size(), &record);
  std::copy(data.begin(), data.end(), to);
  return record;
}

Result<uint64_t> BlobWriter::add_fp16(const Weight& weight, const MatrixPart& part, OutOfRange policy,
                                      RangeReport* report) {
  const WeightRows rows = {&weight, part};
  return add_fp16(std::span(&rows, 1), policy, report);
}

Result<uint64_t> BlobWriter::add_fp16(std::span<const WeightRows> stacked, OutOfRange policy, RangeReport* report) {
  BATON_CHECK(!stacked.empty());
  const int64_t width = stacked[0].part.column_count;
  uint64_t rows = 0, record = 0;
  for (const auto& [weight, part] : stacked) {
    const bool inside = part.row_begin >= 0 && part.row_count > 0 && part.column_begin >= 0 && width > 0 &&
                        part.column_count == width && part.row_begin <= weight->rows - part.row_count &&
                        part.column_begin <= weight->columns - width;
    BATON_CHECK(inside);
    rows += static_cast<uint64_t>(part.row_count);
  }
  const uint64_t columns = static_cast<uint64_t>(width);
  std::byte* to = append(MilType::kFp16, rows * columns * 2, &record);
  for (const auto& [weight, part] : stacked) {
    const Format& format = format_of(weight->dtype);
    BATON_TRY(const uint64_t stride, row_bytes(weight->dtype, static_cast<uint64_t>(weight->columns)));
    std::vector<float> row(static_cast<size_t>(weight->columns));
    RangeReport found;
    for (int64_t r = 0; r < part.row_count; ++r, to += columns * 2) {
      format.decode(weight->data + static_cast<uint64_t>(part.row_begin + r) * stride, row.data(), row.size());
      convert_row(row.data() + part.column_begin, to, columns, &found);
    }
    report->add(found);
    if (found.nans > 0 || (found.overflows > 0 && policy == OutOfRange::kRefuse)) {
      return fail(rule_error(Rule::kWeightRange,
                             fmt::format("'{}': {} of {} values are beyond fp16 (|w| > 65504) and {} are NaN; run this "
                                         "model on another unit",
                                         weight->name, found.overflows, found.values, found.nans)));
    }
  }
  return record;
}

std::vector<std::byte> BlobWriter::finish() && {
  store_as<uint32_t>(bytes_.data(), count_);
  return std::move(bytes_);
}

Status check_blob_file(std::span<const std::byte> file, std::string_view name, Diagnostics& diagnostics) {
  if (file.size() < kFileBytesMin) {
    return fail(rule_error(Rule::kBlobShort, fmt::format("{}: {} bytes; a header and one record take {}", name,
                                                         file.size(), kFileBytesMin)));
  }
  const uint32_t count = load_as<uint32_t>(file.data()), version = load_as<uint32_t>(file.data() + 4);
  if (version != kVersion) {
    return fail(rule_error(Rule::kBlobVersion, fmt::format("{}: version {} at offset 4; expected 2", name, version)));
  }
  // The walk stops at the first thing that is not a record; what it saw is compared with the header.
  uint64_t at = kBlobFirstRecord, records = 0, end = at;
  while (at <= file.size() - kBlobAlignment) {
    const Record record = record_at(file, at);
    if (record.sentinel != kSentinel || record.data > file.size() || record.bytes > file.size() - record.data) break;
    if (record.data < at + kBlobAlignment) break;
    ++records;
    end = record.data + record.bytes;
    if (!checked_align(end, kBlobAlignment, &at)) break;
    if (at > file.size()) break;
  }
  if (records != count) {
    diagnostics.warn(Rule::kBlobCount,
                     fmt::format("{}: the header counts {} tensors, {} are there", name, count, records));
  } else if (end < file.size()) {
    diagnostics.warn(Rule::kBlobTrailing, fmt::format("{}: {} bytes after the last tensor", name, file.size() - end));
  }
  return {};
}

Result<std::span<const std::byte>> read_blob(std::span<const std::byte> file, uint64_t offset,
                                             const MilTensorType& type, std::string_view name,
                                             Diagnostics& diagnostics) {
  const std::string where = fmt::format("{}: record at offset {}", name, offset);
  if (offset % kBlobAlignment != 0 || offset < kBlobFirstRecord) {
    return fail(rule_error(Rule::kBlobRecord, where + ": records are at multiples of 64, from 64"));
  }
  if (offset > file.size() || file.size() - offset < kBlobAlignment) {
    return fail(rule_error(Rule::kBlobRange, fmt::format("{}: the file has {} bytes", where, file.size())));
  }
  const Record record = record_at(file, offset);
  if (record.sentinel != kSentinel) {
    return fail(
        rule_error(Rule::kBlobSentinel, fmt::format("{}: sentinel {:#010x}, expected {:#010x}; the offset in the "
                                                    "text is that of the record, not of the data",
                                                    where, record.sentinel, kSentinel)));
  }
  const uint32_t code = blob_type_code(type.type);
  if (code == 0 || record.type != code) {
    return fail(rule_error(Rule::kBlobType, fmt::format("{}: type code {}, the text declares {} ({})", where,
                                                        record.type, to_string(type.type), code)));
  }
  const auto count = element_count(type.dims);
  uint64_t bytes = 0;
  if (!count || !checked_mul(*count, element_bytes(type.type), &bytes) || record.bytes != bytes) {
    return fail(rule_error(Rule::kBlobSize,
                           fmt::format("{}: {} bytes, {} takes {}", where, record.bytes, to_string(type), bytes)));
  }
  if (record.data > file.size() || bytes > file.size() - record.data) {
    return fail(
        rule_error(Rule::kBlobRange, fmt::format("{}: data at {} with {} bytes passes the end of the file at {}", where,
                                                 record.data, bytes, file.size())));
  }
  if (record.data != offset + kBlobAlignment) {
    BATON_OK(diagnostics.report(Rule::kBlobOffset, fmt::format("{}: data at {}, expected right after the record at {}",
                                                               where, record.data, offset + kBlobAlignment)));
  }
  return file.subspan(record.data, bytes);
}

}  // namespace baton::apple
