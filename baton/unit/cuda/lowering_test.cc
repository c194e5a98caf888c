// What products of many rows hand on, and what is rounded for them.
#include "baton/unit/cuda/lowering.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace baton::cuda {
namespace {

Op linear(RegisterId x, RegisterId out) {
  Op op{.kind = OpKind::kLinear};
  op.x = x, op.out = out, op.weights[Op::kMatrix] = out;
  return op;
}
Op each(OpKind kind, RegisterId x, RegisterId y, RegisterId out) {
  Op op{.kind = kind};
  op.x = x, op.y = y, op.out = out;
  return op;
}

// The nodes behind the embedding, which are of rows whose outputs are asked for, but for what is picked.
std::vector<Node> lowered(std::vector<Op> ops, Lowered* whole = nullptr) {
  Program program;
  for (const int32_t width : {64, 128, 192, 64, 64, 128}) program.registers.push_back({"", width});
  Op embed{.kind = OpKind::kEmbed};
  embed.out = 0, embed.weights[Op::kMatrix] = 0;
  Op output{.kind = OpKind::kOutput};
  output.x = ops.back().out;
  program.ops = {embed};
  program.ops.insert(program.ops.end(), ops.begin(), ops.end());
  program.ops.push_back(output);
  program.output_width = program.registers[static_cast<size_t>(output.x)].width;
  Lowered made = lower(program, RowCount::kMany, Products::kBF16, [](WeightId) { return Form::kBF16; });
  std::vector<Node> nodes = made.tail;
  std::erase_if(nodes, [](const Node& node) { return node.instruction.what == Do::kPick; });
  if (whole != nullptr) *whole = std::move(made);
  return nodes;
}

TEST(CudaLowering, AProductRoundsRowsOfTheNext) {
  Lowered whole;
  const auto nodes = lowered({linear(0, 1), linear(1, 2), linear(2, 3)}, &whole);
  ASSERT_EQ(nodes.size(), 5u);
  EXPECT_EQ(nodes[0].instruction.what, Do::kPrepare);
  EXPECT_EQ(nodes[0].to_operand, 0);
  EXPECT_EQ(nodes[1].from_operand, 0);
  EXPECT_EQ(nodes[1].to_operand, 1);
  EXPECT_TRUE(nodes[1].instruction.to_bf16);
  EXPECT_EQ(nodes[1].outs[0], -1) << "nobody reads it";
  EXPECT_EQ(nodes[2].from_operand, 1);
  EXPECT_EQ(nodes[2].to_operand, -1) << "its own rows lie there";
  EXPECT_FALSE(nodes[2].instruction.to_bf16);
  EXPECT_EQ(nodes[2].outs[0], 2);
  EXPECT_EQ(nodes[3].instruction.what, Do::kPrepare);
  EXPECT_EQ(nodes[4].from_operand, 0);
  EXPECT_EQ(nodes[4].outs[0], 3) << "outputs";
  EXPECT_EQ(whole.operand_width[0], 192);
  EXPECT_EQ(whole.operand_width[1], 128);
}

TEST(CudaLowering, NotWhatOthersRead) {
  // The sum reads the first product, too.
  const auto nodes = lowered({linear(0, 3), linear(3, 4), each(OpKind::kSwiGlu, 3, 4, 3)});
  ASSERT_GE(nodes.size(), 4u);
  for (const Node& node : nodes) {
    EXPECT_LT(node.to_operand, 1);
    EXPECT_TRUE(node.instruction.what != Do::kTile || node.outs[0] >= 0);
  }
  // And where the next adds it to its own products.
  for (const Node& node : lowered({linear(0, 3), linear(3, 4), each(OpKind::kAdd, 4, 3, 4)}))
    EXPECT_LT(node.to_operand, 1);
}

TEST(CudaLowering, WhatActivationsMakeIsHandedOn) {
  const auto nodes = lowered({linear(0, 1), linear(0, 5), each(OpKind::kSwiGlu, 1, 5, 1), linear(1, 3)});
  ASSERT_EQ(nodes.size(), 3u);
  EXPECT_EQ(nodes[1].instruction.epilogue, Epilogue::kSwiGlu);
  EXPECT_EQ(nodes[1].to_operand, 1);
  EXPECT_EQ(nodes[2].from_operand, 1);
}

}  // namespace
}  // namespace baton::cuda
