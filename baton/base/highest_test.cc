// index_of_highest against std::max_element, for every length and place.
#include "baton/base/highest.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "baton/base/random.h"

namespace baton {
namespace {

TEST(Highest, IsWhatMaxElementFinds) {
  Random random(4);
  for (size_t count = 1; count < 70; ++count) {
    std::vector<float> values(count);
    for (int round = 0; round < 20; ++round) {
      for (float& value : values) value = static_cast<float>(random.below(9)) - 12;  // equal ones, all negative
      const auto want = static_cast<size_t>(std::max_element(values.begin(), values.end()) - values.begin());
      ASSERT_EQ(index_of_highest(values), want) << count;
    }
  }
}

TEST(Highest, IsNeverNaN) {
  const float nan = std::nanf("");
  EXPECT_EQ(index_of_highest(std::vector<float>{nan, 1, nan, 2, nan}), 3u);
  std::vector<float> values(40, nan);
  EXPECT_EQ(index_of_highest(values), 0u);
  values[17] = -INFINITY;
  EXPECT_EQ(index_of_highest(values), 17u);
  values[39] = -3;
  EXPECT_EQ(index_of_highest(values), 39u);
  EXPECT_EQ(index_of_highest({}), 0u);
}

}  // namespace
}  // namespace baton
