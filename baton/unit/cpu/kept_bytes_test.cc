// What a load keeps, told before it: for every format.
#include <gtest/gtest.h>

#include "baton/unit/cpu/small_model_test.h"
#include "baton/unit/host/weights.h"

namespace baton::cpu {
namespace {

class KeptOf : public testing::TestWithParam<DType> {};

std::vector<DType> all_formats() {
  std::vector<DType> all;
  for (const Format& format : formats()) all.push_back(format.dtype);
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, KeptOf, testing::ValuesIn(all_formats()),
                         [](const auto& test) { return std::string(to_string(test.param)); });

TEST_P(KeptOf, IsWhatALoadReserves) {
  const SmallModel small(GetParam());
  const auto model = small.model();
  const std::vector<bool> all(model->weights.size(), true);
  const host::Kernels& kernels = *host::kernel_sets().front();
  const auto loaded = host::Weights::load(model, kernels, all, "cpu", {host::ExpertPlace::kMemory});
  ASSERT_TRUE(loaded) << loaded.error().message;
  const uint64_t kept = host::kept_bytes(*model).all, reserved = (*loaded)->reserved_bytes();
  EXPECT_LE(kept, reserved);
  EXPECT_LT(reserved - kept, 2 * 4096u);  // matrices and vectors end in whole pages
}

TEST(KeptBytes, AreMoreThanTheFilesWhereTheKernelsReadOtherCodes) {
  const auto per_stored = [](DType type) {
    const SmallModel small(type);
    const auto model = small.model();
    return static_cast<double>(host::kept_bytes(*model).all) / static_cast<double>(model->weight_bytes());
  };
  EXPECT_GT(per_stored(DType::kIQ2_XXS), 1.2);
  EXPECT_GT(per_stored(DType::kIQ1_M), 1.2);
}

// What a decode step reads is the packed form too, of each matrix once.
TEST(KeptBytes, OfATokenAreThePackedMatrices) {
  for (const DType type : {DType::kIQ2_XXS, DType::kIQ1_M, DType::kQ4_K, DType::kF16}) {
    const SmallModel small(type);
    const auto model = small.model();
    const KeptBytes kept = host::kept_bytes(*model);
    uint64_t packed = 0, stored = 0;
    for (const Op& op : model->program.ops) {
      if (op.kind != OpKind::kLinear && op.kind != OpKind::kHead) continue;
      const Weight& weight = model->weights[static_cast<size_t>(op.weights[Op::kMatrix])];
      packed +=
          static_cast<uint64_t>(host::matrix_bytes(host::matrix_shape(weight.dtype, weight.rows, weight.columns)));
      stored += weight.bytes;
    }
    EXPECT_EQ(kept.token, packed) << to_string(type);
    EXPECT_LE(kept.token, kept.all) << to_string(type);
    const double least = type == DType::kIQ2_XXS || type == DType::kIQ1_M ? 1.2 : 1;
    EXPECT_GE(static_cast<double>(kept.token), least * static_cast<double>(stored)) << to_string(type);
  }
}

}  // namespace
}  // namespace baton::cpu
