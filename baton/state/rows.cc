// Rows by blocks, and their rotation.
#include "baton/state/rows.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "baton/base/bytes.h"
#include "baton/base/float.h"

namespace baton {
namespace {

constexpr uint64_t kColumnsMax = uint64_t{1} << 60;

// Values of a run that is rotated together.
uint64_t run_of(uint64_t count) {
  const uint64_t even = uint64_t{1} << std::countr_zero(count);
  return std::min(even, kRotationMax);
}

// Calls part(first, count, padded) for the runs of a row: where each begins, its values that are the row's, and all.
template <class Part>
void for_row_runs(DType dtype, uint64_t columns, Part part) {
  const uint64_t padded = padded_columns(dtype, columns);
  const uint64_t run = is_rotated(dtype) ? run_of(padded) : kRowBlock;
  for (uint64_t first = 0; first < padded; first += run)
    part(first, std::min(run, columns - std::min(first, columns)), run);
}

// Bits of magnitudes, so that what is no number is large.
constexpr uint32_t kInfinite = 0x7f800000;
uint32_t largest_of(const float* x, uint64_t count) {
  uint32_t largest = 0;
  for (uint64_t i = 0; i < count; ++i) largest = std::max(largest, std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu);
  return largest;
}

// A block's scale, a half, is its largest magnitude over 127 or over 8.
RowFit fit_of(DType dtype, uint32_t largest) {
  const auto bits = [](float value) { return std::bit_cast<uint32_t>(value); };
  uint32_t over = kInfinite, least = 1;
  if (dtype == DType::kBF16) over = 0x7f7f8000;
  if (dtype == DType::kF16 || in_blocks(dtype)) {
    const float codes = dtype == DType::kQ8_0 ? 127.0f : dtype == DType::kQ4_0 ? 8.0f : 1.0f;
    over = bits(65520.0f * codes), least = bits(0x1p-24f * codes);
  }
  if (largest >= over) return RowFit::kNoNumbers;
  return largest != 0 && largest < least ? RowFit::kLost : RowFit::kFine;
}

template <class Bits>
void store_each(const float* x, uint64_t count, std::byte* out, Bits (*narrow)(float)) {
  for (uint64_t i = 0; i < count; ++i) store_as<Bits>(out + i * sizeof(Bits), narrow(x[i]));
}

}  // namespace

std::string kv_type_words() {
  std::string words;
  for (const KvType& type : kKvTypes) words += fmt::format("{}{}", words.empty() ? "" : "|", type.word);
  return words;
}

Result<DType> kv_type(std::string_view word) {
  for (const KvType& type : kKvTypes) {
    if (type.word == word) return type.dtype;
  }
  return fail(Code::kInvalidInput,
              fmt::format("'{}' is no type of keys and values; there are: {}", word, kv_type_words()));
}

std::string_view kv_word(DType dtype) {
  for (const KvType& type : kKvTypes) {
    if (type.dtype == dtype) return type.word;
  }
  return "f32";
}

bool is_state_type(DType dtype) {
  return dtype == DType::kF32 || dtype == DType::kF16 || dtype == DType::kBF16 || in_blocks(dtype);
}

uint64_t row_bytes_of(DType dtype, uint64_t columns) {
  if (!is_state_type(dtype) || columns >= kColumnsMax) return 0;
  const Format& format = format_of(dtype);
  uint64_t bytes = 0;
  const uint64_t blocks = padded_columns(dtype, columns) / format.block_elements;
  return checked_mul(blocks, uint64_t{format.block_bytes}, &bytes) ? bytes : 0;
}

// Butterflies of pairs that lie `half` apart; the inner loops are vectors where that is four or more.
void rotate(float* x, uint64_t count) {
  const uint64_t run = run_of(count);
  const float scale = 1.0f / std::sqrt(static_cast<float>(run));
  for (float* at = x; at < x + count; at += run) {
    for (uint64_t i = 0; i < run; i += 4) {
      const float a = at[i] + at[i + 1], b = at[i] - at[i + 1], c = at[i + 2] + at[i + 3], d = at[i + 2] - at[i + 3];
      at[i] = (a + c) * scale, at[i + 1] = (b + d) * scale, at[i + 2] = (a - c) * scale, at[i + 3] = (b - d) * scale;
    }
    for (uint64_t half = 4; half < run; half *= 2) {
      for (uint64_t i = 0; i < run; i += 2 * half) {
        float* __restrict low = at + i;
        float* __restrict high = low + half;
        for (uint64_t j = 0; j < half; ++j) {
          const float a = low[j], b = high[j];
          low[j] = a + b;
          high[j] = a - b;
        }
      }
    }
  }
}

RowFit encode_row(DType dtype, const float* x, uint64_t columns, std::byte* out) {
  switch (dtype) {
    case DType::kF32:
      std::memcpy(out, x, columns * sizeof(float));
      return row_fit(dtype, x, columns);
    case DType::kF16:
      store_each<uint16_t>(x, columns, out, f32_to_f16);
      return row_fit(dtype, x, columns);
    case DType::kBF16:
      store_each<uint16_t>(x, columns, out, f32_to_bf16);
      return row_fit(dtype, x, columns);
    default:
      break;
  }
  const Format& format = format_of(dtype);
  uint32_t largest = 0;
  for_row_runs(dtype, columns, [&](uint64_t first, uint64_t count, uint64_t run) {
    float values[kRotationMax];
    std::copy_n(x + first, count, values);
    std::fill(values + count, values + run, 0.0f);
    if (is_rotated(dtype)) rotate(values, run);
    std::byte* to = out + first / kRowBlock * format.block_bytes;
    format.encode(values, to, run);
    const uint32_t magnitude = largest_of(values, run);
    largest = std::max(largest, magnitude);
    if (magnitude >= kInfinite) spoil_row(dtype, run, to);  // the search for the largest does not see what is no number
  });
  return fit_of(dtype, largest);
}

void decode_row(DType dtype, const std::byte* row, uint64_t columns, float* out) {
  const Format& format = format_of(dtype);
  if (!in_blocks(dtype)) return format.decode(row, out, columns);
  for_row_runs(dtype, columns, [&](uint64_t first, uint64_t count, uint64_t run) {
    float values[kRotationMax];
    format.decode(row + first / kRowBlock * format.block_bytes, values, run);
    if (is_rotated(dtype)) rotate(values, run);
    std::copy_n(values, count, out + first);
  });
}

void encode_rows(DType dtype, const float* x, uint64_t columns, uint64_t count, std::byte* out) {
  const uint64_t bytes = row_bytes_of(dtype, columns);
  for (uint64_t i = 0; i < count; ++i) encode_row(dtype, x + i * columns, columns, out + i * bytes);
}

void decode_rows(DType dtype, const std::byte* rows, uint64_t columns, uint64_t count, float* out) {
  const uint64_t bytes = row_bytes_of(dtype, columns);
  for (uint64_t i = 0; i < count; ++i) decode_row(dtype, rows + i * bytes, columns, out + i * columns);
}

RowFit row_fit(DType dtype, const float* x, uint64_t columns) { return fit_of(dtype, largest_of(x, columns)); }

void spoil_row(DType dtype, uint64_t columns, std::byte* row) {
  const uint64_t bytes = row_bytes_of(dtype, columns);
  if (!in_blocks(dtype)) {
    std::memset(row, 0xff, bytes);
    return;
  }
  const uint64_t block = format_of(dtype).block_bytes;
  for (uint64_t at = 0; at < bytes; at += block) store_as<uint16_t>(row + at, 0x7e00);
}

}  // namespace baton
