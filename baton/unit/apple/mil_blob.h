// Weight files of MIL programs, "MIL blob storage v2": little-endian, a 64-byte header {u32 count, u32 version = 2},
// then for each tensor a 64-byte record, 64-aligned, {u32 sentinel 0xDEADBEEF, u32 type, u64 bytes, u64 data offset
// from the start of the file, u64 padding bits} and its data. MIL text refers to a tensor by the offset of its record.
// Source of the layout: MILBlob of coremltools (docs/ane.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/model/model.h"
#include "baton/unit/apple/mil.h"
#include "baton/unit/apple/rule.h"

namespace baton::apple {

inline constexpr uint64_t kBlobAlignment = 64;
inline constexpr uint64_t kBlobFirstRecord = 64;

// Type code in a record; 0 for types that a weight file does not hold.
uint32_t blob_type_code(MilType type);

// What a conversion to fp16 met.
struct RangeReport {
  uint64_t values = 0;
  uint64_t overflows = 0;  // |w| > 65504, infinities included
  uint64_t nans = 0;
  uint64_t subnormals = 0;  // 0 < |w| < 2^-14: flushed by the multipliers of the first chips
  float abs_max = 0;        // of the finite ones

  // Worth telling the user: out of range, or more than 1 % subnormal.
  bool noteworthy() const { return overflows > 0 || nans > 0 || subnormals * 100 > values; }
  void add(const RangeReport& other);
};

enum class OutOfRange : uint8_t { kRefuse, kClamp };  // kClamp: to +-65504; NaN is always refused

// A block of a weight matrix.
struct MatrixPart {
  int64_t row_begin = 0, row_count = 0;
  int64_t column_begin = 0, column_count = 0;
};
inline MatrixPart whole(const Weight& weight) { return {0, weight.rows, 0, weight.columns}; }

struct WeightRows {
  const Weight* weight = nullptr;
  MatrixPart part;
};

// Appends tensors; the bytes depend only on what was added.
class BlobWriter {
 public:
  explicit BlobWriter(uint64_t bytes_expected = 0);

  // Returns the offset of the record.
  uint64_t add(MilType type, std::span<const std::byte> data);
  // `part` of the weight as fp16 [row_count, column_count], round to nearest even, from any format. The report is added
  // to. A value out of range is an error under kRefuse: rule `weight-range`, with the weight's name and the counts.
  Result<uint64_t> add_fp16(const Weight& weight, const MatrixPart& part, OutOfRange policy, RangeReport* report);
  // The same of several parts of one width, their rows one after another in one tensor.
  Result<uint64_t> add_fp16(std::span<const WeightRows> stacked, OutOfRange policy, RangeReport* report);
  std::vector<std::byte> finish() &&;

  // Bytes of a file with one fp16 tensor after another of these sizes.
  static uint64_t bytes_for(std::span<const uint64_t> fp16_counts);

 private:
  std::byte* append(MilType type, uint64_t bytes, uint64_t* record);

  std::vector<std::byte> bytes_;
  uint32_t count_ = 0;
};

// Rules of the whole file: length, version, count, trailing bytes. `name` is for messages.
Status check_blob_file(std::span<const std::byte> file, std::string_view name, Diagnostics& diagnostics);
// The data of the tensor whose record is at `offset`, checked against the declared type: borrowed from `file`.
Result<std::span<const std::byte>> read_blob(std::span<const std::byte> file, uint64_t offset,
                                             const MilTensorType& type, std::string_view name,
                                             Diagnostics& diagnostics);

}  // namespace baton::apple
