// What is packed for a card has the values of what is stored, bit by bit, and zeros behind each row.
#include "baton/unit/cuda/pack.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

#include "baton/quant/samples_test.h"
#include "baton/unit/cuda/codes.h"
#include "baton/unit/cuda/packings.h"

namespace baton::cuda {
namespace {

// A matrix of random blocks, stored and packed in memory that was not clean.
struct Packed {
  Packed(const Format& format, int64_t rows, int64_t columns, Random& random, bool floats = false)
      : shape(shape_of(format.dtype, rows, columns, floats)) {
    const auto blocks = static_cast<size_t>(rows * columns) / format.block_elements;
    stored.resize(1);  // unaligned, as a file's bytes may be
    const std::vector<std::byte> bytes = random_blocks(format, blocks, random);
    stored.insert(stored.end(), bytes.begin(), bytes.end());
    values.resize(static_cast<size_t>(rows * columns));
    format.decode(bytes.data(), values.data(), values.size());
    memory.assign(shape.bytes() + kWeightAlignment, 0xa5);
    auto address = reinterpret_cast<uintptr_t>(memory.data());
    address = (address + kWeightAlignment - 1) / kWeightAlignment * kWeightAlignment;
    matrix = shape.at(address);
    const int64_t cut = rows / 2;  // threads share matrices
    for (const bool second : {true, false}) {
      const int64_t begin = second ? cut : 0;
      auto* const to = reinterpret_cast<unsigned char*>(address + shape.row_bytes() * static_cast<uint64_t>(begin));
      pack_rows(shape, format.dtype, stored.data() + 1, begin, second ? rows : cut, to);
    }
  }

  Shape shape;
  std::vector<std::byte> stored;
  std::vector<float> values;
  std::vector<unsigned char> memory;
  Matrix matrix;
};

uint32_t bits_of(float value) { return std::bit_cast<uint32_t>(value); }

void expect_values(const Packed& packed, const std::string& what) {
  const Matrix& m = packed.matrix;
  std::vector<float> group(kGroup);
  std::vector<uint32_t> pairs(kGroup / 2);
  for (int64_t row = 0; row < m.rows; ++row) {
    for (int32_t g = 0; g < m.pitch / kGroup; ++g) {
      decode32_any(m, row, g, group.data());
      for (int32_t i = 0; i < kGroup; ++i) {
        const int32_t column = kGroup * g + i;
        const bool inside = column < m.columns;
        const float stored = inside ? packed.values[static_cast<size_t>(row * m.columns + column)] : 0.0f;
        const float found = value_at(m, row, column), of_group = group[static_cast<size_t>(i)];
        if (inside) {
          ASSERT_EQ(bits_of(found), bits_of(stored)) << what << " row " << row << " column " << column;
          ASSERT_EQ(bits_of(of_group), bits_of(stored)) << what << " row " << row << " column " << column;
        } else {
          ASSERT_EQ(found, 0.0f) << what << " row " << row << " column " << column;
          ASSERT_EQ(of_group, 0.0f) << what << " row " << row << " column " << column;
        }
      }
    }
  }
}

// No byte but those of whole rows was written, and all of those were.
void expect_no_strays(const Format& format, int64_t rows, int64_t columns, Random& random) {
  const Shape shape = shape_of(format.dtype, rows, columns);
  const std::vector<std::byte> stored =
      random_blocks(format, static_cast<size_t>(rows * columns) / format.block_elements, random);
  std::vector<unsigned char> first, second;
  for (const bool again : {false, true}) {
    auto& packed = again ? second : first;
    packed.assign(shape.row_bytes() * static_cast<uint64_t>(rows) + 64, again ? 0xff : 0x00);
    pack_rows(shape, format.dtype, stored.data(), 0, rows, packed.data());
  }
  for (size_t at = 0; at < first.size(); ++at) {
    const bool inside = at < first.size() - 64;
    ASSERT_EQ(first[at] == second[at], inside) << format.name << " of " << columns << " byte " << at;
  }
}

std::vector<int64_t> widths_of(const Format& format) {
  std::vector<int64_t> widths;
  for (const int64_t columns : {32, 96, 288, 64, 192, 128, 256, 768, 1024, 1088, 2304}) {
    if (columns % format.block_elements == 0) widths.push_back(columns);
  }
  if (format.block_elements == 1) widths.insert(widths.end(), {1, 5, 63, 65});
  return widths;
}

TEST(CudaPack, EveryTypeKeepsItsBits) {
  Random random(7);
  for (const Format& format : formats()) {
    for (const int64_t columns : widths_of(format)) {
      for (const int64_t rows : {1, 7}) {
        const Packed packed(format, rows, columns, random);
        expect_values(packed, std::string(format.name) + " of " + std::to_string(columns));
        if (testing::Test::HasFatalFailure()) return;
      }
    }
  }
}

TEST(CudaPack, EveryTypeAsFloats) {
  Random random(8);
  for (const Format& format : formats()) {
    const int64_t columns = format.block_elements == 1 ? 45 : 3 * format.block_elements;
    const Packed packed(format, 3, columns, random, true);
    EXPECT_EQ(packed.matrix.form, Form::kF32);
    expect_values(packed, std::string(format.name) + " as floats");
  }
}

TEST(CudaPack, OnlyRowsAreWritten) {
  Random random(9);
  for (const Format& format : formats()) {
    for (const int64_t columns : widths_of(format)) expect_no_strays(format, 3, columns, random);
  }
}

// Scales that are no numbers, and the smallest and largest there are.
TEST(CudaPack, OddScalesStay) {
  const Format& mxfp4 = format_of(DType::kMXFP4);
  for (const int e : {0, 1, 2, 127, 254, 255}) {
    std::vector<std::byte> block(mxfp4.block_bytes, std::byte{0x2a});
    block[0] = static_cast<std::byte>(e);
    std::vector<float> values(32);
    mxfp4.decode(block.data(), values.data(), 32);
    alignas(16) unsigned char to[512] = {};
    const Shape shape = shape_of(DType::kMXFP4, 1, 32);
    pack_rows(shape, DType::kMXFP4, block.data(), 0, 1, to);
    const Matrix matrix = shape.at(reinterpret_cast<Address>(to));
    for (int i = 0; i < 32; ++i) {
      EXPECT_EQ(bits_of(value_at(matrix, 0, i)), bits_of(values[static_cast<size_t>(i)])) << e;
    }
  }
  for (const uint16_t d : {0x7c00, 0xfc00, 0x7e00, 0x0001, 0x8001, 0x7bff}) {
    std::vector<std::byte> block(format_of(DType::kQ4_1).block_bytes, std::byte{0x31});
    std::memcpy(block.data(), &d, 2);
    std::memcpy(block.data() + 2, &d, 2);
    std::vector<float> values(32);
    format_of(DType::kQ4_1).decode(block.data(), values.data(), 32);
    alignas(16) unsigned char to[1024] = {};
    const Shape shape = shape_of(DType::kQ4_1, 1, 32);
    pack_rows(shape, DType::kQ4_1, block.data(), 0, 1, to);
    const Matrix matrix = shape.at(reinterpret_cast<Address>(to));
    for (int i = 0; i < 32; ++i) {
      const float found = value_at(matrix, 0, i), stored = values[static_cast<size_t>(i)];
      EXPECT_TRUE(bits_of(found) == bits_of(stored) || (found != found && stored != stored)) << d;
    }
  }
}

// Pairs of bf16: values rounded once, and integers exactly.
TEST(CudaPack, ValuesAsPairs) {
  Random random(10);
  for (const DType dtype : {DType::kQ4_K, DType::kIQ4_XS, DType::kNVFP4}) {
    const Packed packed(format_of(dtype), 2, 256, random);
    for (int32_t g = 0; g < 8; ++g) {
      uint32_t pairs[16], integers[16];
      const Lookup table = lookup_of(packed.matrix);
      decode32_bf16<4>(packed.matrix, table, 1, g, pairs);
      const Group<4> group = group_of<4>(packed.matrix, table, 1, g);
      integers_bf16(group, integers);
      for (int32_t i = 0; i < 32; ++i) {
        const float value = packed.values[static_cast<size_t>(256 + 32 * g + i)];
        EXPECT_EQ(pairs[i / 2] >> (16 * (i % 2)) & 0xffff, f32_to_bf16(value));
        const int32_t code = code_at(packed.matrix, 1, 32 * g + i);
        const int32_t q = packed.matrix.has_table ? packed.matrix.table[code] : code;
        EXPECT_EQ(integers[i / 2] >> (16 * (i % 2)) & 0xffff, f32_to_bf16(static_cast<float>(q)));
      }
    }
  }
  const Packed dense(format_of(DType::kBF16), 2, 96, random);
  uint32_t pairs[16];
  decode32_bf16<0>(dense.matrix, Lookup{}, 1, 2, pairs);
  EXPECT_EQ(std::memcmp(pairs, dense.stored.data() + 1 + 2 * (96 + 64), sizeof(pairs)), 0);
}

TEST(CudaPack, ShapesOfTypes) {
  EXPECT_TRUE(is_native(DType::kF16));
  EXPECT_TRUE(is_native(DType::kIQ1_M));
  EXPECT_FALSE(is_native(DType::kF8_G32));
  const Matrix q8 = shape_of(DType::kQ8_0, 3, 64).matrix, mlx = shape_of(DType::kMLX8_G64, 3, 64).matrix;
  EXPECT_EQ(q8.zero, 0);
  EXPECT_EQ(mlx.zero, -128);
  const Shape q4_k = shape_of(DType::kQ4_K, 10, 512), q5_k = shape_of(DType::kQ5_K, 10, 512);
  EXPECT_EQ(q4_k.row_bytes(), 256u + 4 + 4 + 32 + 8) << "codes, d, m, pairs, up to a multiple of 16";
  EXPECT_EQ(q4_k.bytes(), 3072u) << "of 3040";
  EXPECT_TRUE(q4_k.like(shape_of(DType::kQ4_K, 7, 512)));
  EXPECT_FALSE(q4_k.like(q5_k));
  EXPECT_FALSE(shape_of(DType::kIQ4_NL, 1, 64).like(shape_of(DType::kMXFP4, 1, 64)));
  EXPECT_FALSE(shape_of(DType::kQ4_0, 1, 64).like(shape_of(DType::kIQ4_NL, 1, 64)));
  EXPECT_EQ(shape_of(DType::kQ5_0, 1, 32).matrix.row_bytes, 48 + 16)
      << "32 of the first plane, 8 of the second, padding; two scales, padding";
  EXPECT_EQ(shape_of(DType::kQ4_K, 1, 1024).matrix.row_bytes, 512 + 8 + 8 + 64) << "a whole strip";
  EXPECT_EQ(shape_of(DType::kQ4_K, 1, 2304).matrix.row_bytes, 2 * 592 + 128 + 2 * 4 + 16 + 8) << "and a fourth of one";
  EXPECT_EQ(shape_of(DType::kF16, 4, 5).row_bytes(), 128u);
}

// Kernels know what is packed so, and take all else by what a matrix says of itself.
TEST(CudaPack, PackingsAreThoseOfTheirTypes) {
  constexpr std::pair<DType, Packing> kKnown[] = {{DType::kQ8_0, Packing::kQ8_0},
                                                  {DType::kQ4_K, Packing::kQ4_K},
                                                  {DType::kQ5_K, Packing::kQ5_K},
                                                  {DType::kQ6_K, Packing::kQ6_K}};
  static_assert(std::size(kKnown) == std::size(kPackings));
  for (const auto& [dtype, packing] : kKnown) {
    Instruction in;
    in.matrices = 2;
    in.matrix[0] = shape_of(dtype, 8, 1024).matrix;
    in.matrix[1] = shape_of(dtype, 3, 1024).matrix;
    EXPECT_EQ(packing_of(in), packing);
    for (size_t i = 0; i < std::size(kFormatLines); ++i) {
      const auto other = static_cast<DType>(i);
      if (other == dtype || !is_native(other)) continue;
      in.matrix[1] = shape_of(other, 3, 1024).matrix;
      const bool known =
          std::any_of(std::begin(kKnown), std::end(kKnown), [&](const auto& one) { return one.first == other; });
      EXPECT_EQ(packing_of(in), known ? Packing::kMixed : Packing::kOther) << i;
    }
    in.matrix[1] = shape_of(dtype, 3, 1024, true).matrix;
    EXPECT_EQ(packing_of(in), Packing::kOther) << "unpacked, to f32";
  }
}

}  // namespace
}  // namespace baton::cuda
