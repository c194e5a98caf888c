// A step's instructions for many rows: products of one form each, rows of x made before them, shares of blocks.
#include "baton/unit/cuda/mma_list.h"

#include <gtest/gtest.h>

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
  EXPECT_EQ(planes_bytes_of(list), 28u * kPlaneSpanBytes + 64 * sizeof(float));
  const auto with = with_planes(list, 4096);
  ASSERT_EQ(with.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(with[i].what, i % 2 == 0 ? Do::kPrepare : Do::kMultiply);
    EXPECT_EQ(with[i].to_planes, i % 2 == 0);
    EXPECT_EQ(with[i].scratch, 4096u);
  }
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
