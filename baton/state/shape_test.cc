// Sizes and soundness of shapes.
#include "baton/state/shape.h"

#include <gtest/gtest.h>

#include "tests/support/fake_state.h"

namespace baton {
namespace {

using test::fake_program;

TEST(Shape, IsInTheOrderOfTheSlots) {
  const Program program = fake_program(2, 2, 4, 8, 16, 32, 3, 40);
  const StateShape shape = state_shape(program, DType::kF16);
  ASSERT_EQ(shape.segments.size(), 4u);
  EXPECT_EQ(shape.segments[0], (Segment{SlotKind::kConv, 0, DType::kF32, {1, 3, 40}}));
  EXPECT_EQ(shape.segments[1], (Segment{SlotKind::kRecurrent, 0, DType::kF32, {4, 16, 32}}));
  EXPECT_EQ(shape.segments[2], (Segment{SlotKind::kKeys, 1, DType::kF16, {4, 0, 8}}));
  EXPECT_EQ(shape.segments[3], (Segment{SlotKind::kValues, 1, DType::kF16, {4, 0, 8}}));
  EXPECT_TRUE(check_shape(shape).has_value());
}

TEST(Shape, BytesAtAPosition) {
  const Program program = fake_program(2, 2, 4, 8, 16, 32, 3, 40);
  const StateShape shape = state_shape(program, DType::kF16);
  EXPECT_EQ(bytes_per_token(shape), 2u * 4 * 8 * 2);
  EXPECT_EQ(section_bytes(shape, 0), 4u * (3 * 40 + 4 * 16 * 32));
  EXPECT_EQ(section_bytes(shape, 7), section_bytes(shape, 0) + 7 * bytes_per_token(shape));
  EXPECT_EQ(section_bytes(shape, uint64_t{1} << 62), UINT64_MAX);
  EXPECT_EQ(dims_at(shape.segments[2], 7), (Dims{4, 7, 8}));
  EXPECT_EQ(dims_at(shape.segments[0], 7), (Dims{1, 3, 40}));
}

TEST(Shape, RefusesWhatHoldsNothingOrTooMuch) {
  const StateShape sound = state_shape(fake_program(1, 1, 4, 8, 16, 32, 3, 40), DType::kF32);
  const auto refused = [&](auto change) {
    StateShape shape = sound;
    change(shape.segments[0]);
    const Status status = check_shape(shape);
    return !status && status.error().code == Code::kInternal &&
           status.error().message.find("layer 0 keys") != std::string::npos;
  };
  EXPECT_TRUE(check_shape(sound).has_value());
  EXPECT_TRUE(refused([](Segment& s) { s.dims[0] = 0; }));
  EXPECT_TRUE(refused([](Segment& s) { s.dims[2] = 0; }));
  EXPECT_TRUE(refused([](Segment& s) { s.dims[0] = s.dims[2] = uint64_t{1} << 32; }));
  EXPECT_TRUE(refused([](Segment& s) { s.dtype = DType::kQ4_1; }));
  StateShape blocks = state_shape(fake_program(2, 2, 4, 40, 16, 32, 3, 40), DType::kQ8_0);
  EXPECT_TRUE(check_shape(blocks).has_value());
  EXPECT_EQ(bytes_per_token(blocks), 2u * 4 * 68);
  blocks.segments[0].dtype = DType::kQ8_0;
  EXPECT_FALSE(check_shape(blocks).has_value()) << "a convolution is no row of keys";
}

TEST(Shape, PrintsOneLinePerSegment) {
  const std::string text = to_text(state_shape(fake_program(2, 2, 4, 8, 16, 32, 3, 40), DType::kBF16));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_NE(text.find("layer 1 keys"), std::string::npos);
  EXPECT_NE(text.find("[4, n, 8]"), std::string::npos);
  EXPECT_NE(text.find("64 bytes per token"), std::string::npos);
}

}  // namespace
}  // namespace baton
