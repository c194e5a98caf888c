// Every instruction set gives the same fits and codes, groups at the end of a batch included.
#include "baton/quant/searches.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <vector>

#include "baton/base/random.h"
#include "baton/quant/coding.h"
#include "baton/quant/samples_test.h"

namespace baton {
namespace {

constexpr size_t kGroups = 64 * 16 - 3;  // no multiple of a vector

// Bit patterns: NaN would differ from itself.
template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(T)) == 0;
}

class EverySearches : public testing::TestWithParam<const Searches*> {};
INSTANTIATE_TEST_SUITE_P(All, EverySearches, testing::ValuesIn(all_searches().begin(), all_searches().end()),
                         [](const auto& test) { return std::string(test.param->name); });

TEST_P(EverySearches, SameAsTheBase) {
  const Searches& base = *all_searches().front();
  const Searches& other = *GetParam();
  const auto x = sample_values(11, 32 * (kGroups + 3));
  Random random(12);
  std::vector<float> weights(x.size());
  for (float& weight : weights) weight = random.uniform() + 0.001f;
  for (const float* given : {static_cast<const float*>(nullptr), static_cast<const float*>(weights.data())}) {
    for (const size_t n : {size_t{16}, size_t{32}}) {
      for (const auto& search :
           {AsymmetricSearch{15, -1.0f, 0.1f, 20, false}, AsymmetricSearch{3, -0.5f, 0.1f, 15, true}}) {
        std::vector<AsymmetricFit> wanted(kGroups), found(kGroups);
        base.asymmetric(x.data(), given, n, kGroups, search, wanted.data());
        other.asymmetric(x.data(), given, n, kGroups, search, found.data());
        EXPECT_TRUE(same_bits(wanted, found)) << n;
      }
      std::vector<SymmetricFit> wanted(kGroups), found(kGroups);
      base.symmetric(x.data(), given, n, kGroups, 32, wanted.data());
      other.symmetric(x.data(), given, n, kGroups, 32, found.data());
      EXPECT_TRUE(same_bits(wanted, found)) << n;
    }
    std::vector<float> wanted(kGroups), found(kGroups);
    base.iq4(x.data(), given, kGroups, wanted.data());
    other.iq4(x.data(), given, kGroups, found.data());
    EXPECT_TRUE(same_bits(wanted, found));
  }
  std::vector<float> wanted(kGroups), found(kGroups);
  std::vector<uint8_t> wanted_codes(16 * kGroups), codes(16 * kGroups);
  base.refined(x.data(), kGroups, wanted.data(), wanted_codes.data());
  other.refined(x.data(), kGroups, found.data(), codes.data());
  EXPECT_TRUE(same_bits(wanted, found));
  EXPECT_EQ(wanted_codes, codes);
}

TEST_P(EverySearches, CodesAreRoundedAsTheyShould) {
  const Searches& searches = *GetParam();
  Random random(13);
  std::array<float, 32> x{};
  for (int round = 0; round < 200; ++round) {
    for (float& value : x) value = static_cast<float>(static_cast<int>(random.below(40)) - 20) * 0.25f;  // many halves
    std::array<uint8_t, 32> codes{};
    std::array<int8_t, 32> away{};
    searches.codes(x.data(), 32, 0.5f, 0.5f, -4, 9, codes.data());
    searches.rounded_away(x.data(), 2.0f, away.data());
    for (size_t i = 0; i < 32; ++i) {
      const float even = std::nearbyint((x[i] + 0.5f) / 0.5f);
      EXPECT_EQ(codes[i], static_cast<int>(std::clamp(even, -4.0f, 9.0f)) + 4);
      EXPECT_EQ(away[i], static_cast<int>(std::round(x[i] * 2.0f)));
    }
    float low = 0, high = 0;
    searches.limits(x.data(), &low, &high);
    EXPECT_EQ(low, *std::min_element(x.begin(), x.end()));
    EXPECT_EQ(high, *std::max_element(x.begin(), x.end()));
    const auto largest =
        std::max_element(x.begin(), x.end(), [](float a, float b) { return std::fabs(a) < std::fabs(b); });
    EXPECT_EQ(searches.extreme(x.data()), *largest);
    searches.truncated(x.data(), 0.0f, 2.0f, 8.5f, 15, codes.data());
    for (size_t i = 0; i < 32; ++i) {
      EXPECT_EQ(codes[i], static_cast<int>(std::clamp(std::trunc(x[i] * 2.0f + 8.5f), 0.0f, 15.0f)));
    }
  }
}

// Around every half up to 127, one float to each side.
TEST_P(EverySearches, HalvesGoAwayFromZero) {
  for (int half = 1; half < 254; half += 2) {
    for (const float sign : {1.0f, -1.0f}) {
      const float middle = 0.5f * static_cast<float>(half);
      std::array<float, 32> x{};
      x[0] = sign * std::nextafter(middle, 0.0f);
      x[1] = sign * middle;
      x[2] = sign * std::nextafter(middle, 1000.0f);
      std::array<int8_t, 32> codes{};
      GetParam()->rounded_away(x.data(), 1.0f, codes.data());
      for (size_t i = 0; i < 3; ++i) EXPECT_EQ(codes[i], static_cast<int>(std::round(x[i]))) << x[i];
    }
  }
}

// Around every threshold of the grid, one float to each side: the nearer neighbour, the upper one of two as near.
TEST_P(EverySearches, NearestOfTheGrid) {
  for (size_t i = 0; i + 1 < std::size(kIq4Values); ++i) {
    const float middle = static_cast<float>(kIq4Values[i] + kIq4Values[i + 1]) / 2;
    const std::array<float, 3> x = {std::nextafter(middle, -1e9f), middle, std::nextafter(middle, 1e9f)};
    std::array<uint8_t, 3> codes{};
    GetParam()->iq4_codes(x.data(), 3, 1.0f, codes.data());
    EXPECT_EQ(codes, (std::array<uint8_t, 3>{static_cast<uint8_t>(i), static_cast<uint8_t>(i + 1),
                                             static_cast<uint8_t>(i + 1)}));
  }
}

}  // namespace
}  // namespace baton
