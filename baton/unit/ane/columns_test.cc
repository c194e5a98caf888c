// Packing and unpacking against single values, at sizes around the tiles.
#include "baton/unit/ane/columns.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "baton/base/float.h"
#include "baton/base/random.h"

namespace baton::ane {
namespace {

TEST(Columns, PackGivesEachTokenItsColumnAndZerosTheRest) {
  Random random(3);
  for (const int64_t columns : {32, 64}) {
    for (const int64_t rows : {1, 7, 8, 9, 31, 32}) {
      for (const int64_t channels : {1, 8, 13, 40}) {
        const int64_t stride = channels + 3;
        std::vector<float> x(static_cast<size_t>(rows * stride));
        float largest = 0;
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t c = 0; c < channels; ++c) {
            float& value = x[static_cast<size_t>(r * stride + c)] = 100 * random.normal();
            largest = std::max(largest, std::fabs(value));
          }
        }
        std::vector<uint16_t> out(static_cast<size_t>(channels * columns + 1), 0x7e00);
        EXPECT_EQ(pack_columns(x.data(), stride, rows, channels, columns, out.data()), largest);
        for (int64_t c = 0; c < channels; ++c) {
          for (int64_t t = 0; t < columns; ++t) {
            const uint16_t want = t < rows ? f32_to_f16(x[static_cast<size_t>(t * stride + c)]) : uint16_t{0};
            ASSERT_EQ(out[static_cast<size_t>(c * columns + t)], want) << rows << " x " << channels << " at " << c;
          }
        }
        EXPECT_EQ(out.back(), 0x7e00);
      }
    }
  }
}

TEST(Columns, PackTellsWhatFp16CannotHold) {
  std::vector<uint16_t> out(32);
  for (const float value : {70000.0f, std::numeric_limits<float>::infinity(), std::nanf("")}) {
    EXPECT_GE(pack_columns(&value, 1, 1, 1, 32, out.data()), 65520.0f) << value;
  }
}

TEST(Columns, UnpackSetsOrAddsTheAskedColumnsOnly) {
  Random random(4);
  constexpr int64_t kColumns = 32;
  for (const int64_t first : {0, 5, 24, 31}) {
    for (const int64_t rows : {1, 7, 8}) {
      if (first + rows > kColumns) continue;
      for (const int64_t channels : {1, 8, 21}) {
        for (const bool add : {false, true}) {
          // Exactly the surface's bytes: reading past them is found by the sanitizers.
          std::vector<uint16_t> from(static_cast<size_t>(channels * kColumns));
          for (uint16_t& half : from) half = f32_to_f16(random.normal());
          const int64_t stride = channels + 2;
          std::vector<float> to(static_cast<size_t>(rows * stride), 0.5f);
          unpack_columns(from.data(), kColumns, first, rows, channels, add, to.data(), stride);
          for (int64_t r = 0; r < rows; ++r) {
            for (int64_t c = 0; c < stride; ++c) {
              const float was = 0.5f;
              const float value =
                  c < channels ? f16_to_f32(from[static_cast<size_t>(c * kColumns + first + r)]) + (add ? was : 0.0f)
                               : was;
              ASSERT_EQ(to[static_cast<size_t>(r * stride + c)], value);
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace baton::ane
