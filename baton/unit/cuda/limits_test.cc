// Shapes at the bounds of kernels and one step behind them; what a load says of those.
#include "baton/unit/cuda/limits.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "baton/unit/cuda/driver_emulated.h"
#include "baton/unit/cuda/kernels.h"
#include "baton/unit/cuda/launch.h"
#include "baton/unit/cuda/mixers_geometry.h"
#include "baton/unit/cuda/staging.h"
#include "baton/unit/cuda/weights.h"

namespace baton::cuda {
namespace {

constexpr uint32_t kLargeCard = 227 * 1024, kSmallCard = 99 * 1024;  // shared memory of a block

// Of one op, whose weights are not there.
struct ShapeModel {
  Model model;

  explicit ShapeModel(OpKind kind) {
    model.spec.name = "shapes";
    model.program.ops.push_back({.kind = kind, .layer = 3});
  }
  Op& op() { return model.program.ops[0]; }
  WeightId add(std::string name, DType dtype, int64_t rows, int64_t columns) {
    model.weights.push_back(
        {.name = std::move(name), .dtype = dtype, .rows = rows, .columns = columns, .data = nullptr, .source = {}});
    return static_cast<WeightId>(model.weights.size()) - 1;
  }
  std::string refusal(uint32_t shared_bytes = kLargeCard) const {
    const Status status = check_limits(model, plan_weights(model), shared_bytes);
    if (status) return "";
    EXPECT_EQ(status.error().code, Code::kUnsupported);
    return status.error().message;
  }
};

std::string refused_product(OpKind kind, DType dtype, int64_t columns, uint32_t shared_bytes = kLargeCard) {
  ShapeModel made(kind);
  made.op().weights = {made.add("blk.3.down", dtype, 8, columns)};
  return made.refusal(shared_bytes);
}
int32_t longest(Form form, uint32_t shared_bytes, Prologue prologue = Prologue::kNone) {
  Instruction like;
  like.what = Do::kMultiply;
  like.prologue = prologue;
  like.matrices = 1;
  like.matrix[0].form = form;
  like.matrix[0].bits = 8;
  like.matrix[0].block_log2 = 5;
  like.matrix[0].scale_form = Form::kF16;
  return columns_max(like, shared_bytes);
}

// 4 KiB, one row of x, eight bundles of pieces with their barriers, and 9.5 KiB of what a kernel keeps. A row: 80 bytes
// for 32 integers, and 4 for each value where they are made from those; or 4 for each value.
TEST(CudaLimits, LongestRowsOfProducts) {
  EXPECT_EQ(longest(Form::kBF16, kLargeCard), (227 * 1024 - 13'824 - 8 * (4 * 512 + 16)) / 4 / 256 * 256);
  EXPECT_EQ(longest(Form::kF32, kLargeCard), (227 * 1024 - 13'824 - 8 * (4 * 1024 + 16)) / 4 / 256 * 256);
  EXPECT_EQ(longest(Form::kCodes, kLargeCard), (227 * 1024 - 13'824 - 8 * (4 * 320 + 16)) / 160 * 64);
  EXPECT_EQ(longest(Form::kCodes, kLargeCard, Prologue::kLayer), 32000);
  EXPECT_EQ(longest(Form::kCodes, kSmallCard), 30848) << "a 27B has 17,408";
  EXPECT_EQ(longest(Form::kBF16, kSmallCard), (99 * 1024 - 13'824 - 8 * (4 * 512 + 16)) / 4 / 256 * 256);
  for (const OpKind kind : {OpKind::kLinear, OpKind::kHead}) {
    EXPECT_EQ(refused_product(kind, DType::kBF16, 50432), "");
    EXPECT_NE(refused_product(kind, DType::kBF16, 50436), "");
    EXPECT_EQ(refused_product(kind, DType::kQ8_0, 30848, kSmallCard), "");
    EXPECT_NE(refused_product(kind, DType::kQ8_0, 30912, kSmallCard), "");
  }
  EXPECT_EQ(refused_product(OpKind::kLinear, DType::kBF16, 70000),
            "cuda: tensor 'blk.3.down' (BF16) has rows of 70000 values: products with rows take up to 50432 on this "
            "card; use another unit, such as cpu");
  EXPECT_EQ(refused_product(OpKind::kLinear, DType::kQ8_0, 30912, kSmallCard),
            "cuda: tensor 'blk.3.down' (Q8_0) has rows of 30912 values: products with quantised rows take up to 30848 "
            "on this card; use another unit, such as cpu");
  EXPECT_NE(refused_product(OpKind::kLinear, DType::kQ8_0, 660'764'416), "") << "2^32 bytes and a few";
  EXPECT_EQ(refused_product(OpKind::kEmbed, DType::kQ8_0, 132768), "") << "looked up, not multiplied";
}

// Routers are F32 on the card; experts go without shared memory.
TEST(CudaLimits, RoutersAndExperts) {
  const auto refused = [](int64_t width, int64_t inner) {
    ShapeModel made(OpKind::kExperts);
    made.op().experts = made.op().experts_used = 1;
    const WeightId router = made.add("router", DType::kQ8_0, 1, width), gates = made.add("g", DType::kQ8_0, 8, width);
    const WeightId ups = made.add("u", DType::kQ8_0, 8, width), downs = made.add("d", DType::kQ8_0, 8, inner);
    made.op().weights = {router, gates, ups, downs};
    return made.refusal();
  };
  EXPECT_EQ(refused(46336, 65536), "");
  EXPECT_EQ(refused(46368, 64),
            "cuda: tensor 'router' (Q8_0) has rows of 46368 values: products with rows take up to 46336 on this card; "
            "use another unit, such as cpu");
}

TEST(CudaLimits, WidestHeads) {
  for (const OpKind kind : {OpKind::kAttend, OpKind::kAttendAll}) {
    ShapeModel made(kind);
    for (const int32_t width : {1, 64, 256}) {
      made.op().width = width;
      EXPECT_EQ(made.refusal(), "") << width;
    }
    made.op().width = 257;
    EXPECT_NE(made.refusal(), "");
    made.op().width = 512;
    EXPECT_EQ(made.refusal(), "cuda: op " + std::string(to_string(kind)) +
                                  " of layer 3 has heads of 512 values: its kernels take up to 256; use another unit, "
                                  "such as cpu");
  }
}

TEST(CudaLimits, LongestKeysOfADeltaRule) {
  ShapeModel made(OpKind::kDeltaRule);
  made.op().key_dim = 256, made.op().value_dim = 512;
  EXPECT_EQ(made.refusal(), "") << "values are any number: units have 64 columns of a state at most";
  made.op().key_dim = 257;
  EXPECT_EQ(made.refusal(),
            "cuda: op delta_rule of layer 3 has keys of 257 values: its kernels take up to 256; use another unit, such "
            "as cpu");
}

// What is behind the first is looked at, too, and nothing was asked of the card.
TEST(CudaLimits, ALoadIsRefusedBeforeAnythingIsAllocated) {
  emulated_reset();
  {
    const auto card = *Card::open(emulated_driver(), 0);
    auto made = std::make_shared<Model>(ShapeModel(OpKind::kAdd).model);
    made->program.ops.push_back({.kind = OpKind::kAttend, .layer = 7, .width = 320});
    const uint64_t calls = emulated_calls();
    const auto weights = Weights::load(*card, made);
    ASSERT_FALSE(weights);
    EXPECT_EQ(weights.error().code, Code::kUnsupported);
    EXPECT_EQ(weights.error().message,
              "cuda: op attend of layer 7 has heads of 320 values: its kernels take up to 256; use another unit, such "
              "as cpu");
    EXPECT_EQ(emulated_calls(), calls);
  }
  EXPECT_EQ(emulated_use(), EmulatedUse());
}

TEST(CudaLimits, SharedMemoryOfAnInstruction) {
  for (const Do what : kKinds) {
    Instruction instruction;
    instruction.what = what;
    EXPECT_GE(shared_bytes_of(instruction), kBeforeRows);
    EXPECT_LE(shared_bytes_of(instruction), kSharedBytes);
  }
}

}  // namespace
}  // namespace baton::cuda
