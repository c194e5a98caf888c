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
  Lowered made = lower(
      program, RowCount::kMany, Products::kBF16, [](WeightId) { return Form::kBF16; }, 227 * 1024);
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

TEST(CudaLowering, FewOutputsHaveATailOfTheirOwn) {
  Lowered whole;
  lowered({linear(0, 1), linear(1, 2), linear(2, 3)}, &whole);
  std::vector<Do> kinds;
  for (const Node& node : whole.tail_of_few) {
    kinds.push_back(node.instruction.what);
    EXPECT_EQ(node.instruction.wanted_only, node.instruction.what != Do::kPick);
    EXPECT_EQ(node.from_operand, -1);
  }
  EXPECT_EQ(kinds, (std::vector{Do::kPick, Do::kMultiply, Do::kMultiply, Do::kMultiply}));
  EXPECT_EQ(whole.tail_of_few.back().outs[0], whole.outputs);
}

// The convolution of a prompt goes with what it is for, where that goes in chunks and the kernel knows its taps.
TEST(CudaLowering, ConvolutionsGoWithTheDeltaRule) {
  const auto kinds = [](int32_t taps, int32_t dim, RowCount rows, uint32_t shared_bytes) {
    Program program;
    for (const int32_t width : {64, 3 * dim, 3 * dim, 64, 64, dim}) program.registers.push_back({"", width});
    program.slots = {{SlotKind::kConv, 0, 0, taps - 1, 3 * dim}, {SlotKind::kRecurrent, 0, 1, dim, dim}};
    Op embed{.kind = OpKind::kEmbed}, conv{.kind = OpKind::kCausalConv}, delta{.kind = OpKind::kDeltaRule};
    embed.out = 0, embed.weights[Op::kMatrix] = 0;
    conv.x = 1, conv.out = 2, conv.slot = 0, conv.taps = taps, conv.weights[Op::kTaps] = 3;
    delta.x = 2, delta.y = 3, delta.z = 4, delta.out = 5, delta.slot = 1, delta.heads = delta.kv_heads = 1;
    delta.key_dim = delta.value_dim = dim;
    Op output{.kind = OpKind::kOutput};
    output.x = 5;
    program.ops = {embed, linear(0, 1), conv, delta, output};
    program.output_width = dim;
    const Lowered made = lower(
        program, rows, Products::kBF16, [](WeightId) { return Form::kBF16; }, shared_bytes);
    std::vector<Do> all;
    for (const Node& node : made.body) {
      const Do what = node.instruction.what;
      if (what == Do::kConv || what == Do::kDelta || what == Do::kConvDelta) all.push_back(what);
      if (what == Do::kConvDelta) {
        EXPECT_EQ(node.instruction.op.x, 1);
        EXPECT_EQ(node.instruction.op.taps, taps);
        EXPECT_EQ(node.instruction.op.slot2, 0);
        EXPECT_EQ(node.vectors[2], 3);
        EXPECT_EQ(node.layer_done, 0);
      }
    }
    return all;
  };
  using Kinds = std::vector<Do>;
  const Kinds one = {Do::kConvDelta}, two = {Do::kConv, Do::kDelta};
  EXPECT_EQ(kinds(4, 128, RowCount::kMany, 227 * 1024), one);
  EXPECT_EQ(kinds(4, 128, RowCount::kMany, 99 * 1024), two);
  EXPECT_EQ(kinds(3, 128, RowCount::kMany, 227 * 1024), two);
  EXPECT_EQ(kinds(4, 64, RowCount::kMany, 227 * 1024), two);
  EXPECT_EQ(kinds(3, 64, RowCount::kFew, 99 * 1024), one) << "rows that decode have no other way";
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
