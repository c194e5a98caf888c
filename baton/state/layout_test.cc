// Sizes and soundness of layouts.
#include "baton/state/layout.h"

#include <gtest/gtest.h>

#include "baton/base/random.h"
#include "tests/support/fake_state.h"

namespace baton {
namespace {

using test::fake_layout;
using test::fake_program;
using test::FakeOrder;

TEST(Layout, CanonicalIsDenseInTheOrderOfTheSlots) {
  const Program program = fake_program(2, 2, 4, 8, 16, 32, 3, 40);
  const Layout layout = canonical_layout(program, 10, DType::kF16);
  ASSERT_EQ(layout.segments.size(), 4u);
  const SegmentLayout& conv = layout.segments[0];
  EXPECT_EQ(conv.dims, (Dims{1, 3, 40}));
  EXPECT_EQ(conv.strides, (Dims{120, 40, 1}));
  EXPECT_EQ(conv.dtype, DType::kF32);
  const SegmentLayout& recurrent = layout.segments[1];
  EXPECT_EQ(recurrent.dims, (Dims{4, 16, 32}));
  EXPECT_EQ(recurrent.elements, 4u * 16 * 32);
  const SegmentLayout& keys = layout.segments[2];
  EXPECT_EQ(keys.dims, (Dims{4, 10, 8}));
  EXPECT_EQ(keys.strides, (Dims{80, 8, 1}));
  EXPECT_EQ(keys.dtype, DType::kF16);
  EXPECT_TRUE(check_layout(layout).has_value());
}

TEST(Layout, BytesAtAPosition) {
  const Program program = fake_program(2, 2, 4, 8, 16, 32, 3, 40);
  const Layout layout = canonical_layout(program, 10, DType::kF16);
  EXPECT_EQ(bytes_per_token(layout), 2u * 4 * 8 * 2);
  EXPECT_EQ(section_bytes(layout, 0), 4u * (3 * 40 + 4 * 16 * 32));
  EXPECT_EQ(section_bytes(layout, 7), section_bytes(layout, 0) + 7 * bytes_per_token(layout));
  EXPECT_EQ(dims_at(layout.segments[2], 7), (Dims{4, 7, 8}));
  EXPECT_EQ(dims_at(layout.segments[0], 7), (Dims{1, 3, 40}));
}

TEST(Layout, RefusesWhatWouldReadOutsideOrOverlap) {
  const Program program = fake_program(1, 1, 4, 8, 16, 32, 3, 40);
  const Layout sound = canonical_layout(program, 10, DType::kF32);
  const auto refused = [&](auto change) {
    Layout layout = sound;
    change(layout.segments[0]);
    const Status status = check_layout(layout);
    return !status && status.error().code == Code::kInternal &&
           status.error().message.find("layer 0 keys") != std::string::npos;
  };
  EXPECT_TRUE(check_layout(sound).has_value());
  EXPECT_TRUE(refused([](SegmentLayout& s) { s.elements -= 1; }));
  EXPECT_TRUE(refused([](SegmentLayout& s) { s.strides[1] = 7; }));
  EXPECT_TRUE(refused([](SegmentLayout& s) { s.strides[2] = 0; }));
  EXPECT_TRUE(refused([](SegmentLayout& s) { s.strides[0] = uint64_t{1} << 63; }));
  EXPECT_TRUE(refused([](SegmentLayout& s) { s.dims[0] = 0; }));
  EXPECT_TRUE(refused([](SegmentLayout& s) { s.dims[2] = 0; }));
  EXPECT_TRUE(refused([](SegmentLayout& s) { s.dims[1] = s.dims[2] = 0; }));
  EXPECT_TRUE(refused([](SegmentLayout& s) { s.dtype = DType::kQ8_0; }));
  EXPECT_TRUE(refused([](SegmentLayout& s) { s.elements = uint64_t{1} << 63; }));
  Layout no_room = sound;
  no_room.segments[0].dims[1] = 0;
  EXPECT_TRUE(check_layout(no_room).has_value());
}

TEST(Layout, RandomLayoutsAreSound) {
  const Program program = fake_program(4, 2, 3, 5, 7, 11, 3, 13);
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Random random(seed);
    const Layout layout = test::random_layout(program, 1 + random.below(9), random);
    EXPECT_TRUE(check_layout(layout).has_value()) << to_text(layout);
  }
}

TEST(Layout, StorageOrderGoesFromTheLargestStride) {
  const Program program = fake_program(1, 1, 4, 8, 16, 32, 3, 40);
  EXPECT_EQ(storage_order(fake_layout(program, 10, {}).segments[0]), "heads,tokens,dim");
  EXPECT_EQ(storage_order(fake_layout(program, 10, FakeOrder{{1, 0, 2}}).segments[0]), "tokens,heads,dim");
  EXPECT_EQ(storage_order(fake_layout(program, 1, FakeOrder{{1, 0, 2}}).segments[0]), "tokens,heads,dim");
  EXPECT_EQ(storage_order(fake_layout(program, 10, FakeOrder{{0, 2, 1}}).segments[0]), "heads,dim,tokens");
}

TEST(Layout, PrintsOneLinePerSegment) {
  const std::string text = to_text(canonical_layout(fake_program(2, 2, 4, 8, 16, 32, 3, 40), 10, DType::kBF16));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 4);
  EXPECT_NE(text.find("layer 1 keys"), std::string::npos);
  EXPECT_NE(text.find("[4, n, 8]"), std::string::npos);
  EXPECT_NE(text.find("64 bytes per token"), std::string::npos);
}

}  // namespace
}  // namespace baton
