// Each format against a second decoder written per element from the layout tables, against bytes and values made with
// ggml's reference quantisers (d99724f2, compiled without contraction), and against its own error bound.
#include "baton/quant/format.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <string>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/quant/iq_grids.h"
#include "baton/quant/samples_test.h"

namespace baton {
namespace {

using Block = const uint8_t*;

double half_at(Block block, int at) { return f16_to_f32(static_cast<uint16_t>(block[at] | block[at + 1] << 8)); }
int bit_at(Block bytes, int bit) { return bytes[bit / 8] >> (bit % 8) & 1; }
int nibble(uint8_t byte, bool high) { return high ? byte >> 4 : byte & 15; }

// 6-bit scale (which = 0) and min (which = 1) of sub-block j of Q4_K and Q5_K, as the table of the format states them.
int pair_at(Block s, int j, int which) {
  if (j < 4) return s[j + 4 * which] & 63;
  return nibble(s[j + 4], which == 1) + 16 * (s[which == 0 ? j - 4 : j] >> 6);
}

int iq4(int code) {
  static constexpr int kTable[] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
  return kTable[code];
}

// MLX's affine formats: bits and group from the name.
double affine(std::string_view name, Block b, int e) {
  const int bits = name[3] - '0';
  int code = 0;
  for (int i = 0; i < bits; ++i) code |= bit_at(b + 8, e * bits + i) << i;
  return static_cast<double>(load_as<float>(b) * static_cast<float>(code) + load_as<float>(b + 4));
}

double e2m1(int code) { return std::vector<double>{0, 0.5, 1, 1.5, 2, 3, 4, 6}.at(static_cast<size_t>(code)); }

double read_only(DType dtype, Block b, int e);

// One element, straight from the table of block layouts.
double element(DType dtype, Block b, int e) {
  if (const std::string_view name = to_string(dtype); name.starts_with("MLX")) return affine(name, b, e);
  switch (dtype) {
    case DType::kF32:
      return load_as<float>(b);
    case DType::kF16:
      return half_at(b, 0);
    case DType::kBF16:
      return std::bit_cast<float>(static_cast<uint32_t>(b[0] | b[1] << 8) << 16);
    case DType::kQ8_0:
      return half_at(b, 0) * static_cast<int8_t>(b[2 + e]);
    case DType::kQ4_0:
      return half_at(b, 0) * (nibble(b[2 + e % 16], e >= 16) - 8);
    case DType::kQ4_1:
      return half_at(b, 0) * nibble(b[4 + e % 16], e >= 16) + half_at(b, 2);
    case DType::kQ5_0:
      return half_at(b, 0) * (nibble(b[6 + e % 16], e >= 16) + 16 * bit_at(b + 2, e) - 16);
    case DType::kQ5_1:
      return half_at(b, 0) * (nibble(b[8 + e % 16], e >= 16) + 16 * bit_at(b + 4, e)) + half_at(b, 2);
    case DType::kQ4_K: {
      const int q = nibble(b[16 + e / 64 * 32 + e % 32], e % 64 >= 32);
      return half_at(b, 0) * pair_at(b + 4, e / 32, 0) * q - half_at(b, 2) * pair_at(b + 4, e / 32, 1);
    }
    case DType::kQ5_K: {
      const int q = nibble(b[48 + e / 64 * 32 + e % 32], e % 64 >= 32) + 16 * (b[16 + e % 32] >> (e / 32) & 1);
      return half_at(b, 0) * pair_at(b + 4, e / 32, 0) * q - half_at(b, 2) * pair_at(b + 4, e / 32, 1);
    }
    case DType::kQ6_K: {
      const int half = e / 128, l = e % 128;
      const int q = nibble(b[64 * half + l % 64], l >= 64) + 16 * (b[128 + 32 * half + l % 32] >> (l / 32 * 2) & 3);
      return half_at(b, 208) * static_cast<int8_t>(b[192 + e / 16]) * (q - 32);
    }
    case DType::kQ2_K: {
      const int q = b[16 + e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
      return half_at(b, 80) * (b[e / 16] & 15) * q - half_at(b, 82) * (b[e / 16] >> 4);
    }
    case DType::kQ3_K: {
      const int j = e / 16, q = b[32 + e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3;
      const int scale = nibble(b[96 + j % 8], j >= 8) + 16 * (b[96 + 8 + j % 4] >> (j / 4 * 2) & 3) - 32;
      return half_at(b, 108) * scale * (q - (b[e % 32] >> (e / 32) & 1 ? 0 : 4));
    }
    case DType::kIQ4_NL:
      return half_at(b, 0) * iq4(nibble(b[2 + e % 16], e >= 16));
    case DType::kIQ4_XS: {
      const int i = e / 32, high = b[2] | b[3] << 8;
      const int scale = nibble(b[4 + i / 2], i % 2 == 1) + 16 * (high >> (2 * i) & 3) - 32;
      return half_at(b, 0) * scale * iq4(nibble(b[8 + 16 * i + e % 16], e % 32 >= 16));
    }
    case DType::kMXFP4: {
      const int code = nibble(b[1 + e % 16], e >= 16), exponent = code >> 1 & 3, fraction = code & 1;
      const double magnitude = exponent == 0 ? fraction * 0.5 : std::ldexp(1 + fraction * 0.5, exponent - 1);
      return std::ldexp(code >= 8 ? -magnitude : magnitude, b[0] - 127);
    }
    case DType::kTQ2_0:
      return half_at(b, 64) * ((b[e / 128 * 32 + e % 32] >> (e % 128 / 32 * 2) & 3) - 1);
    case DType::kTQ1_0: {
      const int byte = e < 160 ? e % 32 : e < 240 ? 32 + e % 16 : 48 + e % 4;
      const int digit = e < 160 ? e / 32 : e < 240 ? (e - 160) / 16 : (e - 240) / 4;
      // Byte / 256 is the number as a fraction: its digits behind the point.
      const double shifted = b[byte] / 256.0 * std::pow(3, digit);
      return half_at(b, 52) * (static_cast<int>((shifted - std::floor(shifted)) * 3) - 1);
    }
    default:
      return read_only(dtype, b, e);
  }
}

// Bits [from, from + count) of a block.
int bits_at(Block bytes, int from, int count) {
  int value = 0;
  for (int i = 0; i < count; ++i) value |= bit_at(bytes, from + i) << i;
  return value;
}

// Bit e % 8 of 7 bits and their parity.
bool negative(int seven, int e) {
  return e % 8 < 7 ? seven >> (e % 8) & 1 : std::popcount(static_cast<unsigned>(seven)) % 2;
}

double iq2(uint16_t grid, int e) { return std::vector<double>{8, 25, 43}.at(grid >> (2 * (e % 8)) & 3); }
double iq3(uint16_t grid, int e) {
  return std::vector<double>{4, 12, 20, 28, 36, 44, 52, 62}.at(grid >> (4 * (e % 4)) & 7);
}
double iq1(uint16_t grid, int e) { return (grid >> (2 * (e % 8)) & 3) - 1; }

double nvfp4_scale(int bits) {
  const int exponent = bits >> 3 & 15;
  if (bits == 0x7f) return 0;
  return exponent == 0 ? std::ldexp(bits & 7, -9) : std::ldexp(1 + (bits & 7) / 8.0, exponent - 7);
}

double codebook(DType dtype, Block b, int e) {
  const int i = e / 8;  // of groups of eight
  switch (dtype) {
    case DType::kIQ2_XXS: {
      const Block part = b + 2 + e / 32 * 8;
      const double d = half_at(b, 0) * (0.5 + bits_at(part, 60, 4)) / 4;
      return d * iq2(kIq2XxsGrid[part[i % 4]], e) * (negative(bits_at(part, 32 + i % 4 * 7, 7), e) ? -1 : 1);
    }
    case DType::kIQ2_XS: {
      const double d = half_at(b, 0) * (0.5 + bits_at(b + 66, e / 16 * 4, 4)) / 4;
      return d * iq2(kIq2XsGrid[bits_at(b + 2, 16 * i, 9)], e) * (negative(bits_at(b + 2, 16 * i + 9, 7), e) ? -1 : 1);
    }
    case DType::kIQ2_S: {
      const double d = half_at(b, 0) * (0.5 + bits_at(b + 74, e / 16 * 4, 4)) / 4;
      return d * iq2(kIq2SGrid[b[2 + i] + 256 * bits_at(b + 66, 2 * i, 2)], e) * (bit_at(b + 34, e) != 0 ? -1 : 1);
    }
    case DType::kIQ3_XXS: {
      const Block rest = b + 66 + e / 32 * 4;
      const double d = half_at(b, 0) * (0.5 + bits_at(rest, 28, 4)) / 2;
      return d * iq3(kIq3XxsGrid[b[2 + e / 4]], e) * (negative(bits_at(rest, i % 4 * 7, 7), e) ? -1 : 1);
    }
    case DType::kIQ3_S: {
      const int place = kIq3SGrid[b[2 + e / 4] + 256 * bit_at(b + 66, e / 4)] >> (4 * (e % 4)) & 15;
      const double d = half_at(b, 0) * (1 + 2 * bits_at(b + 106, e / 32 * 4, 4));
      return d * (2 * place + 1) * (bit_at(b + 74, e) != 0 ? -1 : 1);
    }
    case DType::kIQ1_S: {
      const int high = b[34 + e / 32 * 2] | b[35 + e / 32 * 2] << 8;
      const double grid = iq1(kIq1Grid[b[2 + i] + 256 * (high >> (i % 4 * 3) & 7)], e);
      return half_at(b, 0) * (2 * (high >> 12 & 7) + 1) * (grid + (high >> 15 != 0 ? -0.125 : 0.125));
    }
    case DType::kIQ1_M: {
      const uint16_t bits = static_cast<uint16_t>(bits_at(b + 48, 12, 4) | bits_at(b + 48, 28, 4) << 4 |
                                                  bits_at(b + 48, 44, 4) << 8 | bits_at(b + 48, 60, 4) << 12);
      const int s = bits_at(b + 48, e / 64 * 16 + e / 16 % 4 * 3, 3), high = bits_at(b + 32, 4 * i, 4);
      const double grid = iq1(kIq1Grid[b[i] + 256 * (high & 7)], e);
      return f16_to_f32(bits) * (2.0 * s + 1) * (grid + (high >= 8 ? -0.125 : 0.125));
    }
    default:
      break;
  }
  ADD_FAILURE() << "a format without a case here";
  return 0;
}

double read_only(DType dtype, Block b, int e) {
  switch (dtype) {
    case DType::kQ1_0:
      return half_at(b, 0) * (2 * bit_at(b + 2, e) - 1);
    case DType::kQ2_0:
      return half_at(b, 0) * (bit_at(b + 2, 2 * e) + 2 * bit_at(b + 2, 2 * e + 1) - 1);
    case DType::kNVFP4_F32: {
      const float scale = load_as<float>(b) * static_cast<float>(nvfp4_scale(b[4 + e / 16]) / 2);
      const int code = nibble(b[8 + e / 16 * 8 + e % 8], e % 16 >= 8);
      return scale * static_cast<float>(2 * (code >= 8 ? -e2m1(code & 7) : e2m1(code)));
    }
    case DType::kF8_G32: {
      const int bits = b[4 + e] & 0x7f, exponent = bits >> 3;
      if (bits == 0x7f) return std::nan("");
      const double q = exponent == 0 ? std::ldexp(bits, -9) : std::ldexp(8 + (bits & 7), exponent - 10);
      return static_cast<double>(load_as<float>(b)) * (b[4 + e] > 0x7f ? -q : q);
    }
    case DType::kNVFP4: {
      const int code = nibble(b[4 + e / 16 * 8 + e % 8], e % 16 >= 8);
      return nvfp4_scale(b[e / 16]) * (code >= 8 ? -e2m1(code & 7) : e2m1(code));
    }
    default:
      return codebook(dtype, b, e);
  }
}

// What a scale that is no finite number makes of a value is no number either, or infinite: with minimums often the one
// where the other is meant.
bool same_value(float a, float b) { return a == b || (!std::isfinite(a) && !std::isfinite(b)); }

std::vector<float> decode(const Format& format, std::span<const std::byte> bytes) {
  std::vector<float> values(bytes.size() / format.block_bytes * format.block_elements, -1.0f);
  format.decode(bytes.data(), values.data(), values.size());
  return values;
}

std::vector<std::byte> encode(const Format& format, const std::vector<float>& values) {
  std::vector<std::byte> bytes(values.size() / format.block_elements * format.block_bytes, std::byte{0xa5});
  format.encode(values.data(), bytes.data(), values.size());
  return bytes;
}

void expect_decodes(const Format& format, std::span<const std::byte> bytes) {
  const auto values = decode(format, bytes);
  for (size_t i = 0; i < values.size(); ++i) {
    const size_t block = i / format.block_elements;
    const auto wanted =
        static_cast<float>(element(format.dtype, reinterpret_cast<Block>(bytes.data()) + block * format.block_bytes,
                                   static_cast<int>(i % format.block_elements)));
    ASSERT_TRUE(same_value(values[i], wanted))
        << format.name << " element " << i << ": " << values[i] << ", not " << wanted;
  }
}

std::vector<Format> formats_where(bool (*wanted)(const Format&)) {
  std::vector<Format> chosen;
  std::copy_if(formats().begin(), formats().end(), std::back_inserter(chosen), wanted);
  return chosen;
}
std::string name_of(const testing::TestParamInfo<Format>& test) { return std::string(test.param.name); }

class QuantFormat : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(All, QuantFormat, testing::ValuesIn(formats_where([](const Format&) { return true; })),
                         name_of);
class QuantBlocks : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(All, QuantBlocks,
                         testing::ValuesIn(formats_where([](const Format& f) { return f.block_elements > 1; })),
                         name_of);
class QuantWritten : public testing::TestWithParam<Format> {};
INSTANTIATE_TEST_SUITE_P(All, QuantWritten,
                         testing::ValuesIn(formats_where([](const Format& f) { return f.encode != nullptr; })),
                         name_of);

TEST_P(QuantFormat, DecodesRandomBlocks) {
  const Format& format = GetParam();
  Random random(7);
  // One byte off: files may hold unaligned tensors.
  std::vector<std::byte> bytes(1 + 2000 * format.block_bytes);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random.next());
  expect_decodes(format, std::span(bytes).subspan(1));
}

// Every value of every byte of a block, the others being fixed: all codes, bit positions and scale fields.
TEST_P(QuantFormat, DecodesEveryByteValue) {
  const Format& format = GetParam();
  Random random(8);
  std::vector<std::byte> base(format.block_bytes);
  for (std::byte& byte : base) byte = static_cast<std::byte>(random.next() & 0x3f);  // finite scales
  std::vector<std::byte> bytes;
  for (size_t at = 0; at < base.size(); ++at) {
    for (int value = 0; value < 256; ++value) {
      auto block = base;
      block[at] = static_cast<std::byte>(value);
      bytes.insert(bytes.end(), block.begin(), block.end());
    }
  }
  expect_decodes(format, bytes);
}

// Relative error of a round trip (root of error energy over signal energy) on normal-like values, and exact zeros.
TEST_P(QuantWritten, RoundTripsWithinItsBound) {
  const Format& format = GetParam();
  static const std::map<DType, double> kBounds = {
      {DType::kF32, 0},      {DType::kF16, 3e-4},    {DType::kBF16, 2.4e-3},  {DType::kQ8_0, 0.006},
      {DType::kQ4_0, 0.095}, {DType::kQ4_1, 0.085},  {DType::kQ5_0, 0.047},   {DType::kQ5_1, 0.041},
      {DType::kQ4_K, 0.075}, {DType::kQ5_K, 0.038},  {DType::kQ6_K, 0.021},   {DType::kQ2_K, 0.33},
      {DType::kQ3_K, 0.16},  {DType::kIQ4_NL, 0.08}, {DType::kIQ4_XS, 0.085}, {DType::kMXFP4, 0.12},
      {DType::kTQ2_0, 0.9},  {DType::kTQ1_0, 0.9}};
  static const std::map<char, double> kMlxBounds = {{'2', 0.4},   {'3', 0.19},   {'4', 0.095},
                                                    {'5', 0.046}, {'6', 0.0225}, {'8', 0.0056}};
  const bool mlx = format.name.starts_with("MLX");
  ASSERT_TRUE(mlx || kBounds.contains(format.dtype)) << "a new format needs a bound";
  const double bound = mlx ? kMlxBounds.at(format.name[3]) : kBounds.at(format.dtype);
  Random random(9);
  std::vector<float> values(256 * 64);
  for (float& value : values) value = random.uniform(-1, 1) + random.uniform(-1, 1) + random.uniform(-1, 1);
  const auto back = decode(format, encode(format, values));
  double error = 0, energy = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    error += std::pow(static_cast<double>(back[i]) - values[i], 2);
    energy += std::pow(static_cast<double>(values[i]), 2);
  }
  const double relative = std::sqrt(error / energy);
  EXPECT_LE(relative, bound);
  EXPECT_GE(relative, bound * 0.5) << "the bound is too wide to notice anything";
  for (const float zero : decode(format, encode(format, std::vector<float>(512, 0.0f)))) EXPECT_EQ(zero, 0.0f);
}

// Weights may hold NaN, infinity and extreme values: any bytes may come out, but nothing undefined may happen.
TEST_P(QuantWritten, EncodesAnyFloat) {
  const Format& format = GetParam();
  constexpr float kInfinity = std::numeric_limits<float>::infinity(), kMax = std::numeric_limits<float>::max();
  for (const float special : {std::nanf(""), kInfinity, -kInfinity, kMax, -kMax, 1e-45f, -1e-40f, 1e-38f}) {
    for (const size_t stride : {size_t{1}, size_t{7}, size_t{256}}) {
      std::vector<float> values(256, 0.5f);
      for (size_t i = 0; i < values.size(); i += stride) values[i] = special;
      (void)decode(format, encode(format, values));
    }
  }
  Random random(10);
  std::vector<float> values(256 * 20);
  for (float& value : values) value = std::bit_cast<float>(static_cast<uint32_t>(random.next()));
  (void)decode(format, encode(format, values));
}

uint64_t fnv1a(std::span<const std::byte> bytes) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const std::byte byte : bytes) hash = (hash ^ static_cast<uint64_t>(byte)) * 0x100000001b3u;
  return hash;
}

// tests/data/quant/<name>.bin: the reference's blocks of sample_values(2, 2048), then its decoded values.
TEST_P(QuantBlocks, EqualsTheReference) {
  const Format& format = GetParam();
  if (format.ggml_id == kNoGgmlId)
    GTEST_SKIP() << "no file has such blocks: tests of the readers that make them compare";
  std::ifstream file(std::string(BATON_SOURCE_DIR) + "/tests/data/quant/" + std::string(format.name) + ".bin",
                     std::ios::binary);
  const std::string content((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const size_t coded = 2048 / format.block_elements * format.block_bytes;
  ASSERT_EQ(content.size(), coded + 2048 * sizeof(float));
  const auto reference = as_bytes(content).first(coded);
  const auto values = decode(format, reference);
  EXPECT_EQ(std::memcmp(values.data(), content.data() + coded, 2048 * sizeof(float)), 0);
  if (format.encode == nullptr) return;
  const auto ours = encode(format, sample_values(2, 2048));
  for (size_t i = 0; i < coded; ++i) {
    ASSERT_EQ(ours[i], reference[i]) << "byte " << i % format.block_bytes << " of block " << i / format.block_bytes;
  }
}

// Hashes of what gguf 0.19 decodes 1024 blocks to, in which every index of every grid occurs:
// scripts/make_type_fixtures.py.
TEST(Quant, DecodesWholeGridsLikeTheReference) {
  constexpr std::pair<DType, uint64_t> kDecoded[] = {
      {DType::kIQ2_XXS, 0x7d59e3f9ef58af3bu}, {DType::kIQ2_XS, 0x2ef9d6caf12a4b5du},
      {DType::kIQ2_S, 0xcf96cd7d499e11c3u},   {DType::kIQ3_XXS, 0x30bbb318822334aeu},
      {DType::kIQ3_S, 0x0733cc8dfc43d903u},   {DType::kIQ1_S, 0xbc5d05520e4a4656u},
      {DType::kIQ1_M, 0xd7cafe7bdf8288f2u},   {DType::kNVFP4, 0xa357fee600e0ccfdu},
      {DType::kQ1_0, 0x2a83516018522ea5u},    {DType::kQ2_0, 0xccab31ee473b3c10u}};
  for (const auto& [dtype, wanted] : kDecoded) {
    const Format& format = format_of(dtype);
    std::vector<std::byte> blocks(1024 * format.block_bytes);
    for (size_t i = 0; i < blocks.size(); ++i) {
      uint64_t z = (i / 8 + 1 + (uint64_t{2} << 32)) * 0x9e3779b97f4a7c15u;
      z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
      z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
      blocks[i] = static_cast<std::byte>((z ^ (z >> 31)) >> (8 * (i % 8)));
    }
    const size_t scale = dtype == DType::kIQ1_M ? 55 : 1;
    for (size_t block = 0; dtype != DType::kNVFP4 && block < 1024; ++block) {
      blocks[block * format.block_bytes + scale] &= std::byte{0xbf};  // finite
    }
    const auto values = decode(format, blocks);
    EXPECT_EQ(fnv1a(std::as_bytes(std::span(values))), wanted) << format.name;
  }
}

// Hashes of the bytes that ggml 0.25.3 (ggml_quantize_chunk, x86-64) makes of sample_values(1, 65536), in rows of 1024,
// without and with weights. The ternary formats: gguf 0.19 (quants.py), which gives the hashes of Q8_0, Q4_0 and Q5_1.
struct Known {
  DType dtype;
  uint64_t plain, weighted;  // 0: the format has no weights
};
constexpr Known kKnown[] = {{DType::kQ8_0, 0xe14a2298604953ecu, 0},
                            {DType::kQ4_0, 0xd16d790e7ee831fbu, 0xc8ceb0fe9d8c90b0u},
                            {DType::kQ4_1, 0xb29c3a708c00977cu, 0x8b69c906dcc5daf4u},
                            {DType::kQ5_0, 0x3d71b2c9cce2b9b9u, 0x9ef31752934c49e3u},
                            {DType::kQ5_1, 0x455af05a0f726c2cu, 0x42e5c635a90a07dau},
                            {DType::kQ4_K, 0x98c2dc86377f4a3du, 0x56aa26c8bd3571f5u},
                            {DType::kQ5_K, 0x660cb24d14d00decu, 0xd9f9489287e55559u},
                            {DType::kQ6_K, 0x824d7127ab30545fu, 0x597e8e255f0aca3eu},
                            {DType::kQ2_K, 0x4e008b898a3a6206u, 0x8edaae54eadedfbdu},
                            {DType::kQ3_K, 0x6c3f296b9783fd95u, 0x6862a9b5c3cc9a5cu},
                            {DType::kIQ4_NL, 0xdb7362a58d6c0462u, 0x5a1409cf01157cddu},
                            {DType::kIQ4_XS, 0xe7a83b462032abaau, 0x729ce5656936f0d8u},
                            {DType::kMXFP4, 0x2f9bfe8f3531b7e9u, 0},
                            {DType::kTQ2_0, 0x456b76c9217147c3u, 0},
                            {DType::kTQ1_0, 0xb835cbf46e469ad9u, 0}};
constexpr size_t kRow = 1024;

std::vector<std::byte> encode_weighted(const Format& format, const std::vector<float>& values,
                                       const std::vector<float>& importance) {
  std::vector<std::byte> bytes(values.size() / format.block_elements * format.block_bytes, std::byte{0xa5});
  const size_t row_size = kRow / format.block_elements * format.block_bytes;
  for (size_t row = 0; row < values.size() / kRow; ++row) {
    format.encode_weighted(values.data() + row * kRow, importance.data(), bytes.data() + row * row_size, kRow);
  }
  return bytes;
}

TEST(Quant, EncodesLikeTheReference) {
  const auto values = sample_values(1, 65536);
  Random random(5);
  std::vector<float> importance(kRow);
  for (float& weight : importance) weight = 0.01f + random.uniform() * random.uniform() * 4;
  size_t coded = 0;
  for (const Known& known : kKnown) {
    const Format& format = format_of(known.dtype);
    EXPECT_EQ(fnv1a(encode(format, values)), known.plain) << format.name;
    ASSERT_EQ(format.encode_weighted != nullptr, known.weighted != 0) << format.name;
    if (known.weighted == 0) continue;
    EXPECT_EQ(fnv1a(encode_weighted(format, values, importance)), known.weighted) << format.name;
  }
  for (const Format& format : formats()) {
    coded += format.block_elements > 1 && format.encode != nullptr && format.ggml_id != kNoGgmlId;
  }
  EXPECT_EQ(coded, std::size(kKnown)) << "a new format needs its hashes";
}

// The purpose of weights: the error that they weigh falls. Half of the columns matter a hundred times more.
TEST(Quant, WeightsLowerTheWeightedError) {
  Random random(6);
  std::vector<float> values(64 * kRow), importance(kRow);
  for (float& value : values) value = random.normal();
  for (float& weight : importance) weight = random.uniform() < 0.5f ? 0.01f : 1.0f;
  for (const Known& known : kKnown) {
    if (known.weighted == 0) continue;
    const Format& format = format_of(known.dtype);
    const auto error = [&](const std::vector<std::byte>& bytes) {
      const auto back = decode(format, bytes);
      double sum = 0;
      for (size_t i = 0; i < values.size(); ++i) {
        sum += static_cast<double>(importance[i % kRow]) * std::pow(static_cast<double>(back[i]) - values[i], 2);
      }
      return sum;
    };
    // Q6_K's and IQ4's searches are good already: little is left to gain.
    EXPECT_LT(error(encode_weighted(format, values, importance)), 0.999 * error(encode(format, values))) << format.name;
  }
}

// A block's bytes do not depend on its neighbours.
TEST(Quant, BlocksAreIndependent) {
  const auto values = sample_values(3, 512);
  for (const Format& format : formats()) {
    if (format.encode == nullptr) continue;
    const auto all = encode(format, values);
    const auto tail = encode(format, {values.begin() + 256, values.end()});
    EXPECT_TRUE(std::equal(tail.begin(), tail.end(), all.end() - static_cast<ptrdiff_t>(tail.size()))) << format.name;
  }
}

// Of a group too small for the least step, MLX's writer says that its end is no whole number of steps: bias 0.
TEST(Quant, TinyGroupsOfMlxHaveNoBias) {
  for (const Format& format : formats()) {
    if (!format.name.starts_with("MLX")) continue;
    for (const float value : {4e-8f, -4e-8f, 1e-12f}) {
      const auto block = encode(format, std::vector<float>(format.block_elements, value));
      EXPECT_EQ(load_as<float>(block.data() + 4), 0.0f) << format.name << " " << value;
    }
    const auto block = encode(format, std::vector<float>(format.block_elements, 2e-7f));
    EXPECT_EQ(load_as<float>(block.data() + 4), 2e-7f) << format.name;
  }
}

TEST(Quant, TableIsConsistent) {
  std::set<uint32_t> ids;
  std::set<std::string_view> names;
  for (size_t i = 0; i < formats().size(); ++i) {
    const Format& format = formats()[i];
    EXPECT_EQ(static_cast<size_t>(format.dtype), i);
    EXPECT_TRUE(format.ggml_id == kNoGgmlId || ids.insert(format.ggml_id).second);
    EXPECT_TRUE(names.insert(format.name).second);
    EXPECT_EQ(256 % format.block_elements, 0u);
    EXPECT_EQ(format_by_ggml_id(format.ggml_id), format.ggml_id == kNoGgmlId ? nullptr : &format);
    EXPECT_EQ(format_by_name(format.name), &format);
  }
  EXPECT_EQ(format_by_name("q4_k"), &format_of(DType::kQ4_K));
  EXPECT_EQ(format_by_name("Q4"), nullptr);
  EXPECT_EQ(format_by_ggml_id(9999), nullptr);
  // The numbers are written into sealed states: they never change.
  EXPECT_EQ(static_cast<int>(DType::kF32), 0);
  EXPECT_EQ(static_cast<int>(DType::kF16), 1);
  EXPECT_EQ(static_cast<int>(DType::kBF16), 2);
  EXPECT_EQ(static_cast<int>(DType::kQ8_0), 3);
  EXPECT_EQ(static_cast<int>(DType::kQ6_K), 10);
  EXPECT_EQ(static_cast<int>(DType::kMXFP4), 15);
  EXPECT_EQ(static_cast<int>(DType::kMLX2_G32), 16);
  EXPECT_EQ(static_cast<int>(DType::kMLX8_G128), 33);
  EXPECT_EQ(static_cast<int>(DType::kIQ2_XXS), 36);
  EXPECT_EQ(static_cast<int>(DType::kQ2_0), 45);
  EXPECT_EQ(static_cast<int>(DType::kF8_G32), 47);
}

TEST(Quant, RowBytes) {
  EXPECT_EQ(row_bytes(DType::kQ8_0, 64).value(), 68u);
  EXPECT_EQ(row_bytes(DType::kQ6_K, 512).value(), 420u);
  EXPECT_EQ(row_bytes(DType::kF32, 0).value(), 0u);
  EXPECT_FALSE(row_bytes(DType::kQ8_0, 65));
  EXPECT_FALSE(row_bytes(DType::kQ4_K, 128));
  EXPECT_NE(row_bytes(DType::kQ4_K, 128).error().message.find("256"), std::string::npos);
  EXPECT_FALSE(row_bytes(DType::kF32, uint64_t{1} << 63));
}

}  // namespace
}  // namespace baton
