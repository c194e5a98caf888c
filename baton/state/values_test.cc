// Finding bad values, at every bit pattern of the narrow types and around every limit of F32.
#include "baton/state/values.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/base/random.h"
#include "baton/state/rows.h"

namespace baton {
namespace {

template <class T>
std::span<const std::byte> bytes_of(const std::vector<T>& values) {
  return std::as_bytes(std::span(values));
}

TEST(Values, EveryHalfAndBfloat) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const std::vector<uint16_t> one{static_cast<uint16_t>(bits)};
    EXPECT_EQ(first_not_finite(bytes_of(one), DType::kF16).has_value(), !std::isfinite(f16_to_f32(one[0]))) << bits;
    EXPECT_EQ(first_not_finite(bytes_of(one), DType::kBF16).has_value(), !std::isfinite(bf16_to_f32(one[0]))) << bits;
    EXPECT_EQ(first_not_zero(bytes_of(one), DType::kF16).has_value(), f16_to_f32(one[0]) != 0) << bits;
    EXPECT_EQ(first_not_zero(bytes_of(one), DType::kBF16).has_value(), bf16_to_f32(one[0]) != 0) << bits;
    const float value = bf16_to_f32(one[0]);
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(first_overflow(bytes_of(one), DType::kBF16, DType::kF16).has_value(),
              !std::isfinite(f16_to_f32(f32_to_f16(value))))
        << bits;
  }
}

TEST(Values, LimitsOfF32) {
  const auto over = [](float value, DType to) {
    const std::vector<float> one{value};
    return first_overflow(bytes_of(one), DType::kF32, to).has_value();
  };
  for (const float sign : {1.0f, -1.0f}) {
    EXPECT_FALSE(over(sign * std::nextafter(65520.0f, 0.0f), DType::kF16));
    EXPECT_TRUE(over(sign * 65520.0f, DType::kF16));
    EXPECT_FALSE(over(sign * std::bit_cast<float>(0x7f7f7fffu), DType::kBF16));
    EXPECT_TRUE(over(sign * std::bit_cast<float>(0x7f7f8000u), DType::kBF16));
    EXPECT_FALSE(over(sign * std::numeric_limits<float>::max(), DType::kF32));
  }
  const std::vector<float> finite{0.0f, -0.0f, std::numeric_limits<float>::denorm_min(),
                                  std::numeric_limits<float>::max()};
  EXPECT_FALSE(first_not_finite(bytes_of(finite), DType::kF32).has_value());
}

TEST(Values, FindsTheFirstWhereverItIs) {
  constexpr size_t kCount = 5000;  // more than two blocks, the last not whole
  Random random(1);
  for (int round = 0; round < 300; ++round) {
    std::vector<float> values(kCount, 1.0f);
    const size_t first = random.below(kCount);
    values[first] = round % 2 == 0 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity();
    values[kCount - 1] = std::numeric_limits<float>::infinity();
    EXPECT_EQ(first_not_finite(bytes_of(values), DType::kF32), first);
    EXPECT_EQ(first_not_finite(bytes_of(values).first(first * 4), DType::kF32), std::nullopt);
  }
}

TEST(Values, NeedsNoAlignment) {
  std::vector<std::byte> bytes(1 + 4 * 9, std::byte{0});
  store_as<float>(bytes.data() + 1 + 4 * 7, std::numeric_limits<float>::infinity());
  EXPECT_EQ(first_not_finite(std::span(bytes).subspan(1), DType::kF32), 7u);
  EXPECT_EQ(value_at(std::span<const std::byte>(bytes).subspan(1), DType::kF32, 7),
            std::numeric_limits<float>::infinity());
}

TEST(Values, WhatFillsRowsUp) {
  constexpr uint64_t kColumns = 44, kPadded = 64, kRows = 3;
  const std::vector<float> x(kColumns * kRows, 0.7f);
  std::vector<std::byte> rows(row_bytes_of(DType::kQ8_0, kColumns) * kRows);
  encode_rows(DType::kQ8_0, x.data(), kColumns, kRows, rows.data());
  EXPECT_EQ(first_filled(rows, DType::kQ8_0, kColumns), std::nullopt);
  const uint64_t row_bytes = rows.size() / kRows;
  for (uint64_t row = 0; row < kRows; ++row) {
    for (uint64_t i = kColumns; i < kPadded; ++i) {
      std::vector<std::byte> other = rows;
      other[(row + 1) * row_bytes - (kPadded - i)] = std::byte{0x80};
      EXPECT_EQ(first_filled(other, DType::kQ8_0, kColumns), row * kPadded + i);
    }
  }
  EXPECT_EQ(first_filled(rows, DType::kQ8_0, kColumns - 12), std::nullopt) << "whole blocks";
}

}  // namespace
}  // namespace baton
