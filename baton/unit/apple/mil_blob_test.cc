// Weight files byte by byte, and the conversion to fp16 with its counts.
#include "baton/unit/apple/mil_blob.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "baton/base/float.h"
#include "baton/quant/format.h"
#include "baton/unit/apple/fixtures_test.h"
#include "baton/unit/apple/fp16.h"

namespace baton::apple {
namespace {

TEST(Fp16, AgreesWithBaseOnEveryHalf) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float expected = f16_to_f32(static_cast<uint16_t>(bits)), got = from_fp16(static_cast<uint16_t>(bits));
    ASSERT_EQ(std::bit_cast<uint32_t>(expected), std::bit_cast<uint32_t>(got)) << bits;
    ASSERT_TRUE(expected != expected || to_fp16(expected) == bits) << bits;
  }
}

TEST(Fp16, RoundsAsBaseDoes) {
  Random random(7);
  for (int i = 0; i < 400000; ++i) {
    // Every exponent, and the ties and their neighbours.
    uint32_t bits = static_cast<uint32_t>(random.next());
    if (i % 4 == 0) bits = (bits & 0xffffe000u) | 0x1000u;
    if (i % 4 == 1) bits = ((bits & 0xffffe000u) | 0x1000u) + static_cast<uint32_t>(random.below(3)) - 1;
    const float value = std::bit_cast<float>(bits);
    ASSERT_EQ(to_fp16(value), f32_to_f16(value)) << bits;
    const float rounded = f16_to_f32(f32_to_f16(value));
    const bool same = std::bit_cast<uint32_t>(round_to_fp16(value)) == std::bit_cast<uint32_t>(rounded);
    ASSERT_TRUE(value != value || same) << bits;
  }
}

TEST(Blob, LayoutByteForByte) {
  BlobWriter writer;
  const std::vector<uint16_t> halves = {0x3c00, 0x4000, 0xc000};
  const std::vector<float> floats = {1.5f};
  EXPECT_EQ(writer.add(MilType::kFp16, std::as_bytes(std::span<const uint16_t>(halves))), 64u);
  EXPECT_EQ(writer.add(MilType::kFp32, std::as_bytes(std::span<const float>(floats))), 192u);
  const std::vector<std::byte> bytes = std::move(writer).finish();
  ASSERT_EQ(bytes.size(), 192u + 64 + 4);
  const auto u32 = [&](size_t at) { return load_as<uint32_t>(&bytes[at]); };
  const auto u64 = [&](size_t at) { return load_as<uint64_t>(&bytes[at]); };
  EXPECT_EQ(u32(0), 2u);
  EXPECT_EQ(u32(4), 2u);
  EXPECT_EQ(u32(64), 0xdeadbeefu);
  EXPECT_EQ(u32(68), 1u);
  EXPECT_EQ(u64(72), 6u);
  EXPECT_EQ(u64(80), 128u);
  EXPECT_EQ(u32(128), 0x40003c00u);
  EXPECT_EQ(u32(192), 0xdeadbeefu);
  EXPECT_EQ(u32(196), 2u);
  EXPECT_EQ(u64(200), 4u);
  EXPECT_EQ(u64(208), 256u);
  // Everything else is zero.
  for (const size_t at : {8u, 63u, 88u, 127u, 134u, 191u, 216u, 255u}) EXPECT_EQ(bytes[at], std::byte{0}) << at;

  Diagnostics diagnostics(Mode::kStrict);
  EXPECT_TRUE(check_blob_file(bytes, "w.bin", diagnostics));
  const auto second = read_blob(bytes, 192, {MilType::kFp32, {1}}, "w.bin", diagnostics);
  ASSERT_TRUE(second);
  EXPECT_EQ(load_as<float>(second->data()), 1.5f);
  EXPECT_TRUE(diagnostics.warnings().empty());
}

TEST(Blob, ConvertsABlockOfAnyFormat) {
  const fixtures::OwnedWeight source("w", 6, 256, 3);
  for (const Format& format : formats()) {
    if (format.encode == nullptr) continue;
    const uint64_t stride = *row_bytes(format.dtype, 256);
    std::vector<std::byte> stored(stride * 6);
    std::vector<float> decoded(6 * 256);
    for (size_t r = 0; r < 6; ++r) {
      format.encode(source.values.data() + r * 256, stored.data() + r * stride, 256);
      format.decode(stored.data() + r * stride, decoded.data() + r * 256, 256);
    }
    const Weight weight = {"w", format.dtype, 6, 256, stored.data(), stored.size(), ""};
    BlobWriter writer;
    RangeReport report;
    const auto record = writer.add_fp16(weight, {2, 3, 16, 100}, OutOfRange::kRefuse, &report);
    ASSERT_TRUE(record) << format.name;
    const std::vector<std::byte> bytes = std::move(writer).finish();
    ASSERT_EQ(bytes.size(), 128u + 2 * 300);
    for (size_t i = 0; i < 300; ++i) {
      const float expected = decoded[(2 + i / 100) * 256 + 16 + i % 100];
      ASSERT_EQ(load_as<uint16_t>(&bytes[128 + 2 * i]), f32_to_f16(expected)) << format.name << " " << i;
    }
    EXPECT_EQ(report.values, 300u);
  }
}

TEST(Blob, ReportsValuesOutOfRange) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {65504.0f, 65505.0f, -1e9f, infinity, 0x1p-15f, 0, 0x1p-30f, 1};
  const Weight weight = {
      "layers.1.ffn.down", DType::kF32, 2, 4, reinterpret_cast<const std::byte*>(values.data()), 32, ""};
  BlobWriter writer;
  RangeReport report;
  EXPECT_TRUE(writer.add_fp16(weight, whole(weight), OutOfRange::kClamp, &report));
  EXPECT_EQ(report.values, 8u);
  EXPECT_EQ(report.overflows, 3u);
  EXPECT_EQ(report.subnormals, 2u);
  EXPECT_EQ(report.nans, 0u);
  EXPECT_EQ(report.abs_max, 1e9f);
  EXPECT_TRUE(report.noteworthy());
  const std::vector<std::byte> bytes = std::move(writer).finish();
  const auto at = [&](size_t i) { return load_as<uint16_t>(&bytes[128 + 2 * i]); };
  EXPECT_EQ(at(0), 0x7bff);
  EXPECT_EQ(at(1), 0x7bff);
  EXPECT_EQ(at(2), 0xfbff);
  EXPECT_EQ(at(3), 0x7bff);

  BlobWriter strict;
  RangeReport again;
  const auto refused = strict.add_fp16(weight, whole(weight), OutOfRange::kRefuse, &again);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("layers.1.ffn.down"), std::string::npos);
  EXPECT_NE(refused.error().message.find("3 of 8"), std::string::npos) << refused.error().message;

  const std::vector<float> nan = {std::nanf(""), 1};
  const Weight bad = {"w", DType::kF32, 1, 2, reinterpret_cast<const std::byte*>(nan.data()), 8, ""};
  EXPECT_FALSE(strict.add_fp16(bad, whole(bad), OutOfRange::kClamp, &again));
}

// Files changed at random are refused or read, never past their end (asan watches).
TEST(Blob, CorruptedFilesDoNotCrash) {
  BlobWriter writer;
  const std::vector<uint16_t> halves(40, 0x3c00);
  writer.add(MilType::kFp16, std::as_bytes(std::span<const uint16_t>(halves)));
  writer.add(MilType::kFp16, std::as_bytes(std::span<const uint16_t>(halves)));
  const std::vector<std::byte> good = std::move(writer).finish();
  Random random(11);
  int refused = 0;
  uint64_t touched = 0;
  for (int i = 0; i < 4000; ++i) {
    std::vector<std::byte> bytes(
        good.begin(), good.begin() + static_cast<ptrdiff_t>(i % 4 == 0 ? random.below(good.size() + 1) : good.size()));
    for (uint64_t n = random.below(4); n > 0 && !bytes.empty(); --n) {
      // Mostly the header and the records.
      const uint64_t limit = random.below(2) == 0 ? std::min<uint64_t>(128, bytes.size()) : bytes.size();
      bytes[random.below(limit)] = static_cast<std::byte>(random.next());
    }
    bytes.shrink_to_fit();
    Diagnostics diagnostics(Mode::kLenient);
    const bool whole_file = check_blob_file(bytes, "w.bin", diagnostics).has_value();
    const auto read = read_blob(bytes, random.below(2) == 0 ? 64 : 64 * random.below(6), {MilType::kFp16, {40}},
                                "w.bin", diagnostics);
    if (read) {
      for (const std::byte byte : *read) touched += std::to_integer<uint64_t>(byte);
      ASSERT_EQ(read->size(), 80u);
    }
    refused += !whole_file || !read;
  }
  EXPECT_GT(refused, 1000);
  EXPECT_GT(touched, 0u);
}

}  // namespace
}  // namespace baton::apple
