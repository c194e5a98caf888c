// A step's instructions for many rows: products of one form each, rows of x made before them, shares of blocks.
#include "baton/unit/cuda/mma_list.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "baton/unit/cuda/mma_layout.h"

namespace baton::cuda {
namespace {

Matrix matrix(Form form, int32_t rows, int32_t columns = 1024, uint8_t bits = 0) {
  Matrix made;
  made.form = form;
  made.rows = rows;
  made.columns = columns;
  made.pitch = pitch_of(columns);
  made.bits = bits;
  return made;
}

Instruction product(std::vector<Matrix> matrices, Epilogue epilogue = Epilogue::kNone) {
  Instruction made;
  made.what = Do::kMultiply;
  made.epilogue = epilogue;
  made.x_width = matrices[0].columns;
  made.scratch = 77;
  for (const Matrix& one : matrices) {
    made.matrix[made.matrices] = one;
    made.outs[made.matrices] = static_cast<Address>(1000 + made.matrices);
    ++made.matrices;
  }
  return made;
}

TEST(MmaList, ProductsAreOfOneFormEach) {
  const Matrix bf16 = matrix(Form::kBF16, 64), f32 = matrix(Form::kF32, 16), codes = matrix(Form::kCodes, 32, 1024, 4);
  Instruction heads;
  heads.what = Do::kHeads;
  const std::vector<Instruction> step = {product({bf16, bf16, f32, codes}), heads};
  const auto list = mma_list(step);
  ASSERT_TRUE(list);
  ASSERT_EQ(list->size(), 4u);
  const int32_t counts[] = {2, 1, 1};
  Address out = 1000;
  for (size_t i = 0; i < 3; ++i) {
    const Instruction& one = (*list)[i];
    EXPECT_EQ(one.matrices, counts[i]);
    EXPECT_TRUE(takes_mma(one));
    EXPECT_EQ(one.scratch, 0u);
    for (int32_t k = 0; k < one.matrices; ++k) EXPECT_EQ(one.outs[k], out++);
  }
  EXPECT_EQ((*list)[3].what, Do::kHeads);
}

TEST(MmaList, AGateAndAnUpOfDifferentFormsDoNotGo) {
  const std::vector<Instruction> step = {product({matrix(Form::kBF16, 64), matrix(Form::kF16, 64)}, Epilogue::kSwiGlu)};
  EXPECT_FALSE(mma_list(step));
}

TEST(MmaList, RowsAreMadeBeforeEachProduct) {
  const std::vector<Instruction> step = {product({matrix(Form::kBF16, 64)}), product({matrix(Form::kBF16, 64, 3584)})};
  const auto list = *mma_list(step);
  EXPECT_EQ(planes_bytes_of(list), kPlaneBuffers * planes_bytes(list[1]));
  const auto with = with_planes(list, 4096);
  ASSERT_EQ(with.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(with[i].what, i % 2 == 0 ? Do::kPrepare : Do::kMultiply);
    EXPECT_EQ(with[i].to_planes, i % 2 == 0);
    EXPECT_EQ(with[i].scratch, 4096u + kPlanesHanded * planes_bytes(list[1]));
  }
}

// The rows of products lie in buffers that nobody else writes until they are taken, and nobody takes others.
TEST(MmaList, ProductsHandTheirRowsOn) {
  const auto between = [](Instruction in, Address x, Address out) {
    in.x = x, in.outs[0] = out;
    return in;
  };
  const Instruction square = product({matrix(Form::kBF16, 1024)});
  const auto scaled = [&](Address x, Address out, Address by) {
    Instruction in = between(square, x, out);
    in.prologue = Prologue::kRms, in.op.width = 1024, in.vectors[0] = by;
    return in;
  };
  Instruction heads;
  heads.what = Do::kHeads;
  heads.out = 1;
  const std::vector<Instruction> step = {between(square, 9, 1),  // of no product: a kPrepare
                                         between(square, 1, 2),  // takes what 0 makes, and makes what 2 and 3 take
                                         scaled(2, 3, 500),
                                         scaled(2, 4, 500),
                                         scaled(2, 5, 600),      // with another norm: a kPrepare
                                         between(square, 3, 6),  // behind others
                                         heads,
                                         between(square, 1, 7),  // what a product made is written over: a kPrepare
                                         between(product({matrix(Form::kBF16, 64)}), 7, 8)};
  const auto list = *mma_list(step);
  const auto with = with_planes(list, 1 << 20);
  std::vector<size_t> place;
  for (size_t i = 0; i < with.size(); ++i) {
    if (with[i].what != Do::kPrepare) place.push_back(i);
  }
  ASSERT_EQ(place.size(), step.size());
  const auto at = [&](size_t i) -> const Instruction& { return with[place[i]]; };
  for (const size_t i : {0u, 4u, 7u}) {
    const Instruction& prepare = with[place[i] - 1];
    EXPECT_TRUE(prepare.what == Do::kPrepare && prepare.to_planes && prepare.scratch == at(i).scratch) << i;
    EXPECT_EQ(prepare.x, at(i).x);
  }
  EXPECT_EQ(with.size(), step.size() + 3);
  const std::vector<std::pair<size_t, std::vector<size_t>>> handed = {{0, {1}}, {1, {2, 3}}, {2, {5}}, {7, {8}}};
  for (const auto& [by, takers] : handed) {
    EXPECT_NE(at(by).next, 0u) << by;
    EXPECT_FALSE(at(by).next_groups);
    for (const size_t taker : takers) EXPECT_EQ(at(taker).scratch, at(by).next) << by << ' ' << taker;
    // Whoever works meanwhile has other buffers.
    for (size_t i = place[by]; i <= place[takers.back()]; ++i) {
      const bool takes = std::any_of(takers.begin(), takers.end(), [&](size_t taker) { return place[taker] == i; });
      if (!takes && with[i].what != Do::kHeads) {
        EXPECT_NE(with[i].scratch, at(by).next) << by << ' ' << i;
      }
      if (i != place[by]) {
        EXPECT_NE(with[i].next, at(by).next) << by << ' ' << i;
      }
    }
  }
  EXPECT_EQ(at(1).next_scales, 500u);
  EXPECT_EQ(at(0).next_scales, 0u);
  for (const size_t i : {3u, 4u, 5u, 8u}) EXPECT_EQ(at(i).next, 0u) << i;
}

// What another instruction has written over is not what a product made.
TEST(MmaList, RowsThatAreWrittenOverAreNotHandedOn) {
  Instruction first = product({matrix(Form::kBF16, 1024)}), second = product({matrix(Form::kBF16, 64)}), heads;
  heads.what = Do::kHeads;
  second.x = first.outs[0];
  for (const bool over : {false, true}) {
    heads.out2 = over ? first.outs[0] : 0;
    const std::vector<Instruction> step = {first, heads, second};
    const auto with = with_planes(*mma_list(step), 4096);
    EXPECT_EQ(with.size(), over ? 5u : 4u);
    EXPECT_EQ(with[1].next != 0, !over);
  }
}

// Rows that are no whole spans are made by nobody but a kPrepare.
TEST(MmaList, NarrowRowsAreNotHandedOn) {
  Instruction first = product({matrix(Form::kBF16, 192, 64)}), second = product({matrix(Form::kBF16, 64, 192)});
  second.x = first.outs[0];
  const std::vector<Instruction> step = {first, second};
  const auto with = with_planes(*mma_list(step), 4096);
  EXPECT_EQ(with.size(), 4u);
  EXPECT_EQ(with[1].next, 0u);
}

// Each unit is one block's; slices do not depend on how many blocks there are.
TEST(MmaList, UnitsAreSharedOut) {
  for (const uint32_t blocks : {1u, 84u, 132u}) {
    for (const int32_t rows : {16, 1000, 1024, 7168, 248320}) {
      Instruction one = product({matrix(Form::kBF16, rows)});
      share_mma(one, blocks);
      const int64_t units = (rows + 15) / 16;
      EXPECT_EQ(int64_t{one.product.outputs} * blocks + one.product.more, units);
      EXPECT_LT(one.product.more, static_cast<int32_t>(blocks));
      EXPECT_EQ(one.product.parts, std::max<int64_t>(1, blocks / units));
      EXPECT_EQ(1 << one.product.slices_log2, rows <= 1024 ? 8 : rows == 7168 ? 4 : 1);
    }
  }
  Instruction pair = product({matrix(Form::kBF16, 3584), matrix(Form::kBF16, 3584)}, Epilogue::kSwiGlu);
  share_mma(pair, 132);
  EXPECT_EQ(pair.product.outputs * 132 + pair.product.more, 448);
  EXPECT_TRUE(pair.product.has(ProductShares::kPairs));
}

}  // namespace
}  // namespace baton::cuda
