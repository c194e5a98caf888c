// The vectorised conversions against base/float.h, and within half a unit in the last place.
#include "baton/bridge/convert.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/base/random.h"
#include "baton/state/shape.h"

namespace baton {
namespace {

constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};

float widen(DType type, const std::byte* at) {
  if (type == DType::kF32) return load_as<float>(at);
  return type == DType::kF16 ? f16_to_f32(load_as<uint16_t>(at)) : bf16_to_f32(load_as<uint16_t>(at));
}

uint32_t narrow(DType type, float value) {
  if (type == DType::kF32) return std::bit_cast<uint32_t>(value);
  return type == DType::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
}

uint32_t bits_at(DType type, const std::byte* at) {
  return type == DType::kF32 ? load_as<uint32_t>(at) : load_as<uint16_t>(at);
}

// Converts `values` (of type `from`) and compares each with the one-at-a-time conversion, bit by bit.
void expect_same_as_scalar(const std::vector<std::byte>& values, DType from, DType to) {
  const size_t count = values.size() / value_bytes(from);
  std::vector<std::byte> out(count * value_bytes(to));
  convert_run(values.data(), from, out.data(), to, count);
  for (size_t i = 0; i < count; ++i) {
    const float value = widen(from, values.data() + i * value_bytes(from));
    ASSERT_EQ(bits_at(to, out.data() + i * value_bytes(to)), narrow(to, value)) << value << " at " << i;
  }
}

TEST(Convert, EveryFiniteNarrowValue) {
  for (const DType from : {DType::kF16, DType::kBF16}) {
    for (const DType to : kTypes) {
      std::vector<std::byte> values;
      for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        std::byte one[2];
        store_as<uint16_t>(one, static_cast<uint16_t>(bits));
        const float value = widen(from, one);
        if (std::isfinite(value) && (to == from || to != DType::kF16 || std::fabs(value) < 65520.0f)) {
          values.insert(values.end(), one, one + 2);
        }
      }
      expect_same_as_scalar(values, from, to);
    }
  }
}

TEST(Convert, RandomFloatsOfEveryMagnitude) {
  Random random(7);
  for (const DType to : kTypes) {
    std::vector<std::byte> values(4 * 300000);
    for (size_t i = 0; i < values.size(); i += 4) {
      auto bits = static_cast<uint32_t>(random.next());
      if (random.below(2) == 0) bits &= 0xfffff000u;  // ties
      const uint32_t limit = to == DType::kF16 ? 0x477ff000u : 0x7f7f8000u;
      store_as<uint32_t>(values.data() + i, (bits & 0x7fffffffu) < limit ? bits : bits & 0x800fffffu);
    }
    expect_same_as_scalar(values, DType::kF32, to);
  }
}

TEST(Convert, WithinHalfAUnitInTheLastPlace) {
  Random random(8);
  const auto worst = [&](DType to, int digits, int exponent_min) {
    double units = 0;
    for (int i = 0; i < 100000; ++i) {
      const float value = random.normal() * std::ldexp(1.0f, static_cast<int>(random.below(34)) - 24);
      std::byte in[4], out[4];
      store_as<float>(in, value);
      convert_run(in, DType::kF32, out, to, 1);
      const int exponent = value == 0 ? exponent_min : std::max(std::ilogb(value), exponent_min);
      units =
          std::max(units, std::fabs(static_cast<double>(widen(to, out)) - value) / std::ldexp(1.0, exponent - digits));
    }
    return units;
  };
  EXPECT_LE(worst(DType::kF16, 10, -14), 0.5);
  EXPECT_LE(worst(DType::kBF16, 7, -126), 0.5);
}

TEST(Convert, OddCountsAndNoAlignment) {
  Random random(9);
  for (size_t count = 0; count < 40; ++count) {
    for (const DType from : kTypes) {
      for (const DType to : kTypes) {
        std::vector<std::byte> in(1 + count * value_bytes(from)), out(1 + count * value_bytes(to) + 1, std::byte{0x5a});
        for (size_t i = 0; i < count; ++i) {
          std::byte* at = in.data() + 1 + i * value_bytes(from);
          const uint32_t bits = narrow(from, random.normal());
          from == DType::kF32 ? store_as<uint32_t>(at, bits) : store_as<uint16_t>(at, static_cast<uint16_t>(bits));
        }
        convert_run(in.data() + 1, from, out.data() + 1, to, count);
        EXPECT_EQ(out.front(), std::byte{0x5a});
        EXPECT_EQ(out.back(), std::byte{0x5a});
        for (size_t i = 0; i < count; ++i) {
          EXPECT_EQ(bits_at(to, out.data() + 1 + i * value_bytes(to)),
                    narrow(to, widen(from, in.data() + 1 + i * value_bytes(from))));
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton
