// Rows in each type of states: what they keep, how they are filled up, rotated and refused.
#include "baton/state/rows.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

#include "baton/base/random.h"

namespace baton {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0};

std::vector<float> random_row(Random& random, uint64_t columns) {
  std::vector<float> row(columns);
  for (float& value : row) value = random.normal();
  return row;
}

std::vector<std::byte> encoded(DType dtype, const std::vector<float>& row, RowFit wanted = RowFit::kFine) {
  std::vector<std::byte> bytes(row_bytes_of(dtype, row.size()), std::byte{0xff});
  EXPECT_EQ(encode_row(dtype, row.data(), row.size(), bytes.data()), wanted) << to_string(dtype);
  return bytes;
}

std::vector<float> decoded(DType dtype, const std::vector<std::byte>& bytes, uint64_t columns) {
  std::vector<float> row(columns, std::nanf(""));
  decode_row(dtype, bytes.data(), columns, row.data());
  return row;
}

double error_of(const std::vector<float>& row, const std::vector<float>& back) {
  double error = 0, energy = 0;
  for (size_t i = 0; i < row.size(); ++i) {
    error += (double{row[i]} - back[i]) * (double{row[i]} - back[i]);
    energy += double{row[i]} * row[i];
  }
  return error / energy;
}

TEST(Rows, BytesAreThoseOfWholeBlocks) {
  EXPECT_EQ(row_bytes_of(DType::kF32, 40), 160u);
  EXPECT_EQ(row_bytes_of(DType::kBF16, 40), 80u);
  EXPECT_EQ(row_bytes_of(DType::kQ8_0, 64), 68u);
  EXPECT_EQ(row_bytes_of(DType::kQ8_0, 40), 68u);
  EXPECT_EQ(row_bytes_of(DType::kQ8_0, 1), 34u);
  EXPECT_EQ(row_bytes_of(DType::kQ4_0, 128), 72u);
  EXPECT_EQ(row_bytes_of(DType::kQ4_0, 97), 72u);
  EXPECT_EQ(row_bytes_of(DType::kQ4_1, 64), 0u);
  EXPECT_EQ(row_bytes_of(DType::kQ8_0, uint64_t{1} << 60), 0u);
  EXPECT_EQ(row_bytes_of(DType::kF32, UINT64_MAX), 0u);
}

// Against the matrix, entry by entry.
TEST(Rows, TheRotationIsHadamardsMatrix) {
  Random random(1);
  for (const uint64_t count : {32, 64, 96, 128, 160, 256, 512}) {
    const std::vector<float> row = random_row(random, count);
    std::vector<float> turned = row;
    rotate(turned.data(), count);
    const uint64_t run = std::min<uint64_t>(count & (~count + 1), kRotationMax);
    for (uint64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (uint64_t j = 0; j < run; ++j)
        sum += (std::popcount(i % run & j) % 2 == 0 ? 1 : -1) * double{row[i / run * run + j]};
      ASSERT_NEAR(turned[i], sum / std::sqrt(static_cast<double>(run)), 1e-5) << count << " at " << i;
    }
    rotate(turned.data(), count);
    for (uint64_t i = 0; i < count; ++i) ASSERT_NEAR(turned[i], row[i], 1e-5);
  }
}

TEST(Rows, KeepWhatTheirTypeCan) {
  Random random(2);
  constexpr double kErrors[] = {0, 1e-6, 1e-5, 1e-4, 2e-2};
  for (size_t i = 0; i < std::size(kTypes); ++i) {
    for (const uint64_t columns : {1, 5, 31, 32, 33, 40, 64, 80, 96, 128, 200, 256, 320}) {
      const std::vector<float> row = random_row(random, columns);
      const auto bytes = encoded(kTypes[i], row);
      const auto back = decoded(kTypes[i], bytes, columns);
      EXPECT_LE(error_of(row, back), kErrors[i]) << to_string(kTypes[i]) << " of " << columns;
      // What was read is written as the same bytes: a state that goes there and back through f32 has not changed.
      if (kTypes[i] == DType::kQ4_0) continue;
      EXPECT_EQ(encoded(kTypes[i], back), bytes) << to_string(kTypes[i]);
    }
  }
}

// Blocks of 32 have the bytes of the format's own quantiser.
TEST(Rows, AreTheBlocksOfTheFormat) {
  Random random(3);
  const std::vector<float> row = random_row(random, 96);
  std::vector<std::byte> wanted(row_bytes_of(DType::kQ8_0, 96));
  format_of(DType::kQ8_0).encode(row.data(), wanted.data(), 96);
  EXPECT_EQ(encoded(DType::kQ8_0, row), wanted);
  std::vector<float> turned = row;
  rotate(turned.data(), 96);
  wanted.resize(row_bytes_of(DType::kQ4_0, 96));
  format_of(DType::kQ4_0).encode(turned.data(), wanted.data(), 96);
  EXPECT_EQ(encoded(DType::kQ4_0, row), wanted);
}

// What the rotation is for: one large value takes the codes of all its block, but not of a run.
TEST(Rows, RotatedOnesBearOutliers) {
  Random random(4);
  double plain = 0, rotated = 0;
  for (int round = 0; round < 50; ++round) {
    std::vector<float> row = random_row(random, 128);
    for (const size_t at : {3, 40, 70, 101}) row[at] = 25;
    std::vector<float> rest = row, back(128);
    std::vector<std::byte> bytes(row_bytes_of(DType::kQ4_0, 128));
    format_of(DType::kQ4_0).encode(row.data(), bytes.data(), 128);
    format_of(DType::kQ4_0).decode(bytes.data(), back.data(), 128);
    plain += error_of(row, back);
    rotated += error_of(row, decoded(DType::kQ4_0, encoded(DType::kQ4_0, row), 128));
  }
  EXPECT_LT(rotated, plain / 2);
}

TEST(Rows, WhatIsNoNumberShows) {
  Random random(5);
  for (const DType dtype : kTypes) {
    for (const float bad : {std::nanf(""), std::numeric_limits<float>::infinity()}) {
      std::vector<float> row = random_row(random, 70);
      row[65] = bad;
      EXPECT_FALSE(std::isfinite(decoded(dtype, encoded(dtype, row, RowFit::kNoNumbers), 70)[65])) << to_string(dtype);
    }
  }
  for (const auto& [dtype, large] : {std::pair{DType::kF16, 7e4f}, {DType::kQ8_0, 9e6f}, {DType::kQ4_0, 2e7f}}) {
    std::vector<float> row(33, 1.0f);
    row[32] = large;
    EXPECT_FALSE(std::isfinite(decoded(dtype, encoded(dtype, row, RowFit::kNoNumbers), 33)[32])) << to_string(dtype);
  }
}

TEST(Rows, WhatIsLostIsSaid) {
  const std::vector<float> tiny(40, 1e-9f), zeros(40);
  for (const DType dtype : {DType::kF16, DType::kQ8_0, DType::kQ4_0}) encoded(dtype, tiny, RowFit::kLost);
  for (const DType dtype : {DType::kF32, DType::kBF16}) encoded(dtype, tiny);
  for (const DType dtype : kTypes) EXPECT_EQ(decoded(dtype, encoded(dtype, zeros), 40), zeros);
}

TEST(Rows, SpoiledOnesAreNoNumbers) {
  for (const DType dtype : kTypes) {
    std::vector<std::byte> bytes(row_bytes_of(dtype, 70));
    spoil_row(dtype, 70, bytes.data());
    for (const float value : decoded(dtype, bytes, 70)) EXPECT_TRUE(std::isnan(value)) << to_string(dtype);
  }
}

TEST(Rows, TypesHaveWords) {
  EXPECT_EQ(kv_type_words(), "f16|bf16|q8_0|q4_0");
  for (const KvType& type : kKvTypes) {
    EXPECT_EQ(kv_type(type.word).value(), type.dtype);
    EXPECT_EQ(kv_word(type.dtype), type.word);
  }
  const auto refused = kv_type("q5_1");
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("f16|bf16|q8_0|q4_0"), std::string::npos);
}

}  // namespace
}  // namespace baton
