// Sizes of states.
#include "baton/engine/work.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(StateBytes, GrowWithTokensOnlyWhereTheStateDoes) {
  Layout one;
  one.segments.push_back({SlotKind::kKeys, 0, DType::kF16, {2, 1, 4}, {4, 4, 1}, 8});
  one.segments.push_back({SlotKind::kRecurrent, 1, DType::kF32, {1, 3, 3}, {9, 3, 1}, 9});
  EXPECT_EQ(state_bytes(one), 16u + 36u);
  EXPECT_EQ(state_bytes_estimate(one, 10), 160u + 36u);
}

}  // namespace
}  // namespace baton
