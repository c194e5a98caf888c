// Half precision and bfloat16 against an oracle in double arithmetic, all codes both ways.
#include "baton/base/float.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "baton/base/random.h"

namespace baton {
namespace {

// The value of a code by the definition: sign, exponent, fraction; `fraction_bits` 10 for f16, 7 for bf16.
double value_of(uint32_t code, int fraction_bits, int bias) {
  const int exponent_bits = 15 - fraction_bits;
  const uint32_t fraction = code & ((1u << fraction_bits) - 1);
  const int exponent = static_cast<int>(code >> fraction_bits & ((1u << exponent_bits) - 1));
  const double sign = code >> 15 ? -1.0 : 1.0;
  if (exponent == (1 << exponent_bits) - 1)
    return fraction != 0 ? std::nan("") : sign * std::numeric_limits<double>::infinity();
  const double scaled = exponent == 0
                            ? std::ldexp(fraction, 1 - bias - fraction_bits)
                            : std::ldexp(fraction + std::ldexp(1.0, fraction_bits), exponent - bias - fraction_bits);
  return sign * scaled;
}

struct Half {
  static constexpr int kFraction = 10, kBias = 15;
  static float widen(uint16_t bits) { return f16_to_f32(bits); }
  static uint16_t narrow(float value) { return f32_to_f16(value); }
};
struct Brain {
  static constexpr int kFraction = 7, kBias = 127;
  static float widen(uint16_t bits) { return bf16_to_f32(bits); }
  static uint16_t narrow(float value) { return f32_to_bf16(value); }
};

template <class Kind>
class Narrow : public testing::Test {};
using Kinds = testing::Types<Half, Brain>;
TYPED_TEST_SUITE(Narrow, Kinds);

TYPED_TEST(Narrow, AllCodesBothWays) {
  for (uint32_t code = 0; code < 65536; ++code) {
    const float value = TypeParam::widen(static_cast<uint16_t>(code));
    const double wanted = value_of(code, TypeParam::kFraction, TypeParam::kBias);
    if (std::isnan(wanted)) {
      ASSERT_TRUE(std::isnan(value)) << code;
      ASSERT_TRUE(std::isnan(TypeParam::widen(TypeParam::narrow(value)))) << code;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), wanted) << code;
    ASSERT_EQ(std::signbit(value), code >> 15 != 0) << code;
    ASSERT_EQ(TypeParam::narrow(value), code);
  }
}

// Between each two neighbouring codes: just below the middle, the middle (to even), just above.
TYPED_TEST(Narrow, RoundsToNearestEven) {
  const uint32_t infinity = ((1u << (15 - TypeParam::kFraction)) - 1) << TypeParam::kFraction;
  for (uint32_t code = 0; code < infinity; ++code) {
    const double low = value_of(code, TypeParam::kFraction, TypeParam::kBias);
    const double step = code + 1 == infinity ? low - value_of(code - 1, TypeParam::kFraction, TypeParam::kBias)
                                             : value_of(code + 1, TypeParam::kFraction, TypeParam::kBias) - low;
    const auto middle = static_cast<float>(low + step / 2);
    if (static_cast<double>(middle) != low + step / 2) continue;  // below f32's own denormals
    const uint32_t even = code % 2 == 0 ? code : code + 1;
    for (const uint32_t sign : {0u, 0x8000u}) {
      const float s = sign != 0 ? -1.0f : 1.0f;
      ASSERT_EQ(TypeParam::narrow(s * middle), even | sign) << code;
      ASSERT_EQ(TypeParam::narrow(s * std::nextafter(middle, 0.0f)), code | sign) << code;
      ASSERT_EQ(TypeParam::narrow(s * std::nextafter(middle, std::numeric_limits<float>::infinity())),
                (code + 1) | sign)
          << code;
    }
  }
}

TYPED_TEST(Narrow, RandomBitsAreNearest) {
  Random random(1);
  for (int i = 0; i < 200000; ++i) {
    const auto value = std::bit_cast<float>(static_cast<uint32_t>(random.next()));
    const uint16_t code = TypeParam::narrow(value);
    if (std::isnan(value)) {
      ASSERT_TRUE(std::isnan(TypeParam::widen(code)));
      continue;
    }
    ASSERT_EQ(code >> 15 != 0, std::signbit(value));
    const double error = std::fabs(TypeParam::widen(code) - static_cast<double>(value));
    if (std::isinf(TypeParam::widen(code))) continue;
    for (const uint32_t other : {code - 1u, code + 1u}) {
      if ((other & 0x8000u) != (code & 0x8000u) || other > 0xffffu) continue;
      const double there = value_of(other, TypeParam::kFraction, TypeParam::kBias);
      ASSERT_LE(error, std::fabs(there - static_cast<double>(value))) << value;
    }
  }
}

}  // namespace
}  // namespace baton
