// Plans between shapes.
#include "baton/bridge/plan.h"

#include <gtest/gtest.h>

#include "tests/support/fake_state.h"

namespace baton {
namespace {

using test::fake_program;

Program program() { return fake_program(2, 2, 4, 8, 16, 32, 3, 40); }

TEST(Plan, AnotherTypeIsConverted) {
  const StateShape wide = state_shape(program(), DType::kF32), half = state_shape(program(), DType::kF16);
  const auto plan = plan_bridge(wide, half);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->segments[0].kind(), MoveKind::kCopy);
  EXPECT_EQ(plan->segments[1].kind(), MoveKind::kCopy);
  EXPECT_EQ(plan->segments[2].kind(), MoveKind::kConvert);
  EXPECT_EQ(plan->segments[3].kind(), MoveKind::kConvert);
  EXPECT_EQ(plan_bridge(half, half)->segments[2].kind(), MoveKind::kCopy);
}

TEST(Plan, BytesAreTheSenders) {
  const auto plan = plan_bridge(state_shape(program(), DType::kF16), state_shape(program(), DType::kF32));
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->bytes_per_token, 2u * 4 * 8 * 2);
  EXPECT_EQ(plan->bytes_fixed, 4u * (3 * 40 + 4 * 16 * 32));
}

TEST(Plan, RefusesAnotherModel) {
  const StateShape from = state_shape(program(), DType::kF32);
  const auto message = [&](const Program& other) {
    const auto plan = plan_bridge(from, state_shape(other, DType::kF32));
    EXPECT_FALSE(plan.has_value());
    if (plan) return std::string();
    EXPECT_EQ(plan.error().code, Code::kMismatch);
    return plan.error().message;
  };
  EXPECT_NE(message(fake_program(2, 2, 4, 9, 16, 32, 3, 40)).find("layer 1 keys [4, n, 8]"), std::string::npos);
  EXPECT_NE(message(fake_program(2, 2, 4, 8, 17, 32, 3, 40)).find("layer 0 recurrent"), std::string::npos);
  EXPECT_NE(message(fake_program(4, 2, 4, 8, 16, 32, 3, 40)).find("4 segments"), std::string::npos);
  EXPECT_NE(message(fake_program(2, 3, 4, 8, 16, 32, 3, 40)).find("segment 2"), std::string::npos);
}

TEST(Plan, RefusesUnsoundShapes) {
  StateShape bad = state_shape(program(), DType::kF32);
  bad.segments[3].dims[2] = 0;
  EXPECT_EQ(plan_bridge(bad, bad).error().code, Code::kInternal);
}

TEST(Plan, PrintsATable) {
  const std::string text =
      to_text(*plan_bridge(state_shape(program(), DType::kF16), state_shape(program(), DType::kF32)));
  EXPECT_NE(text.find("layer 1 keys         F16   F32   convert"), std::string::npos) << text;
  EXPECT_NE(text.find("layer 0 recurrent    F32   F32   copy"), std::string::npos) << text;
  EXPECT_NE(text.find("64 per token"), std::string::npos) << text;
  EXPECT_NE(text.find("moved: 8672 bytes + 128 per token"), std::string::npos) << text;
}

}  // namespace
}  // namespace baton
