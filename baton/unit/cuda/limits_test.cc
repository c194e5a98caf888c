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
  std::string refusal() const {
    const Status status = check_limits(model, plan_weights(model));
    if (status) return "";
    EXPECT_EQ(status.error().code, Code::kUnsupported);
    return status.error().message;
  }
};

std::string refused_product(OpKind kind, DType dtype, int64_t columns) {
  ShapeModel made(kind);
  made.op().weights = {made.add("blk.3.down", dtype, 8, columns)};
  return made.refusal();
}

// One row of x is all that must fit: 80 bytes for 32 integers beside 4 for each value, or 4 for each value.
TEST(CudaLimits, LongestRowsOfProducts) {
  EXPECT_EQ(columns_max(Form::kCodes), 14720);
  for (const Form form : {Form::kF32, Form::kF16, Form::kBF16}) EXPECT_EQ(columns_max(form), 24064);
  for (const OpKind kind : {OpKind::kLinear, OpKind::kHead}) {
    for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
      EXPECT_EQ(refused_product(kind, dtype, 24064), "");
      EXPECT_NE(refused_product(kind, dtype, 24065), "");
    }
    EXPECT_EQ(refused_product(kind, DType::kQ8_0, 14720), "");
    EXPECT_NE(refused_product(kind, DType::kQ8_0, 14752), "");
  }
  EXPECT_EQ(refused_product(OpKind::kLinear, DType::kBF16, 30000),
            "cuda: tensor 'blk.3.down' (BF16) has rows of 30000 values: products with rows take up to 24064; use "
            "another unit, such as cpu");
  EXPECT_EQ(refused_product(OpKind::kLinear, DType::kQ8_0, 18944),
            "cuda: tensor 'blk.3.down' (Q8_0) has rows of 18944 values: products with quantised rows take up to 14720; "
            "use another unit, such as cpu");
  EXPECT_NE(refused_product(OpKind::kLinear, DType::kQ8_0, 660'764'416), "") << "2^32 bytes and a few";
  EXPECT_EQ(refused_product(OpKind::kEmbed, DType::kQ8_0, 32768), "") << "looked up, not multiplied";
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
  EXPECT_EQ(refused(24064, 65536), "");
  EXPECT_EQ(refused(24096, 64),
            "cuda: tensor 'router' (Q8_0) has rows of 24096 values: products with rows take up to 24064; use another "
            "unit, such as cpu");
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

// Four rows where they fit, else one; of all that passes, no more than there is.
TEST(CudaLimits, SharedMemoryOfAnInstruction) {
  const auto bytes = [](Form form, int32_t columns) {
    Instruction instruction;
    instruction.what = Do::kMultiply;
    instruction.matrices = 1;
    instruction.matrix[0].form = form;
    instruction.matrix[0].pitch = pitch_of(columns);
    return shared_bytes_of(instruction);
  };
  EXPECT_EQ(bytes(Form::kBF16, 1024), 2048u + 4 * 4096);
  EXPECT_EQ(bytes(Form::kF32, 1025), 2048u + 4 * 5120) << "256 values at a time";
  EXPECT_EQ(bytes(Form::kCodes, 1024), 2048u + 4 * 2560 + 4096);
  EXPECT_EQ(bytes(Form::kF16, 5888), 2048u + 4 * 23552);
  EXPECT_EQ(bytes(Form::kF16, 6144), 2048u + 24576);
  for (const Form form : {Form::kF32, Form::kCodes}) {
    EXPECT_LE(bytes(form, columns_max(form)), kSharedBytes);
    EXPECT_GT(bytes(form, columns_max(form) + kPadding), kSharedBytes);
  }
  for (const Do what : kKinds) {
    Instruction instruction;
    instruction.what = what;
    EXPECT_GE(shared_bytes_of(instruction), kBeforeRows);
    EXPECT_LE(shared_bytes_of(instruction), kSharedBytes);
  }
}

}  // namespace
}  // namespace baton::cuda
