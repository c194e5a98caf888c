// Plans between layouts.
#include "baton/bridge/plan.h"

#include <gtest/gtest.h>

#include "tests/support/fake_state.h"

namespace baton {
namespace {

using test::fake_layout;
using test::fake_program;
using test::FakeOrder;

Program program() { return fake_program(2, 2, 4, 8, 16, 32, 3, 40); }

TEST(Plan, KindOfMove) {
  const Layout plain = fake_layout(program(), 10, {});
  const auto kind = [&](const FakeOrder& to, size_t segment) {
    const auto plan = plan_bridge(plain, fake_layout(program(), 99, to), false);
    return plan ? plan->segments.at(segment).kind : MoveKind::kAlias;
  };
  for (size_t i = 0; i < 4; ++i) EXPECT_EQ(kind({}, i), MoveKind::kCopy);
  EXPECT_EQ(kind(FakeOrder{{0, 1, 2}, DType::kF32, DType::kF32, 5}, 2), MoveKind::kCopy);
  EXPECT_EQ(kind(FakeOrder{{0, 2, 1}}, 1), MoveKind::kTranspose);
  EXPECT_EQ(kind(FakeOrder{{1, 0, 2}}, 2), MoveKind::kTranspose);
  EXPECT_EQ(kind(FakeOrder{{1, 0, 2}}, 0), MoveKind::kCopy);  // one, columns, channels: the first dim is 1
  EXPECT_EQ(kind(FakeOrder{{1, 0, 2}, DType::kF16}, 3), MoveKind::kConvert);
  EXPECT_EQ(kind(FakeOrder{{0, 1, 2}, DType::kF16}, 1), MoveKind::kCopy);
}

TEST(Plan, SameExecutorHandsTheStateOver) {
  const Layout layout = fake_layout(program(), 10, {});
  const auto plan = plan_bridge(layout, layout, true);
  ASSERT_TRUE(plan.has_value());
  for (const SegmentPlan& segment : plan->segments) EXPECT_EQ(segment.kind, MoveKind::kAlias);
}

TEST(Plan, BytesAreTheSenders) {
  const Layout from = fake_layout(program(), 10, FakeOrder{{0, 1, 2}, DType::kF16});
  const auto plan = plan_bridge(from, fake_layout(program(), 10, {}), false);
  ASSERT_TRUE(plan.has_value());
  EXPECT_EQ(plan->bytes_per_token, 2u * 4 * 8 * 2);
  EXPECT_EQ(plan->bytes_fixed, 4u * (3 * 40 + 4 * 16 * 32));
}

TEST(Plan, RefusesAnotherModel) {
  const Layout from = fake_layout(program(), 10, {});
  const auto message = [&](const Program& other) {
    const auto plan = plan_bridge(from, fake_layout(other, 10, {}), false);
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

TEST(Plan, RefusesUnsoundLayouts) {
  Layout bad = fake_layout(program(), 10, {});
  bad.segments[3].elements = 1;
  EXPECT_EQ(plan_bridge(bad, bad, false).error().code, Code::kInternal);
}

TEST(Plan, PrintsATable) {
  const Layout from = fake_layout(program(), 10, FakeOrder{{0, 1, 2}, DType::kF16});
  const Layout to = fake_layout(program(), 20, FakeOrder{{1, 0, 2}});
  const std::string text = to_text(*plan_bridge(from, to, false), from, to);
  EXPECT_NE(text.find("layer 1 keys"), std::string::npos) << text;
  EXPECT_NE(text.find("F16  heads,tokens,dim"), std::string::npos) << text;
  EXPECT_NE(text.find("F32  tokens,heads,dim"), std::string::npos) << text;
  EXPECT_NE(text.find("convert"), std::string::npos) << text;
  EXPECT_NE(text.find("64 per token"), std::string::npos) << text;
  EXPECT_NE(text.find("sealed: 8672 bytes + 128 per token"), std::string::npos) << text;
}

}  // namespace
}  // namespace baton
