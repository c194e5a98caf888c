// The unit as it is asked for and listed.
#include <gtest/gtest.h>

#include <algorithm>

#include "baton/unit/cuda/driver_emulated.h"
#include "baton/unit/cuda/embedded.h"
#include "baton/unit/entry.h"
#include "tests/support/card_memory.h"

namespace baton {
extern const UnitEntry k_unit_cuda;

namespace {

Result<UnitOptions> parse(std::string_view words) { return UnitOptions::parse("cuda", words, k_unit_cuda.options()); }
Result<std::unique_ptr<Unit>> make(std::string_view words) {
  BATON_TRY(const UnitOptions options, parse(words));
  return k_unit_cuda.create(options);
}

TEST(CudaUnit, ANumberIsTheCards) {
  EXPECT_EQ(parse("1")->number("device"), 1u);
  EXPECT_EQ(parse("1")->words(), "1");
  EXPECT_EQ(parse("device=1")->words(), "1") << "the same choice";
  EXPECT_EQ(parse("kv=f32,3,driver=emulated")->words(), "3,driver=emulated,kv=f32");
  EXPECT_EQ(parse("3,driver=emulated,kv=f32")->words(), "3,driver=emulated,kv=f32");
  EXPECT_EQ(parse("")->words(), "");
  UnitOptions options = *parse("2,kv=bf16");
  options.leave_out("device");
  EXPECT_EQ(options.words(), "kv=bf16");
}

TEST(CudaUnit, WrongNumbersAreRefused) {
  for (const char* number : {"64", "01", "-1"})
    EXPECT_EQ(parse(number).error().message, std::string("unit cuda: ") + number + ": write device=0..63");
  EXPECT_EQ(parse("x").error().message.find("unit cuda has no option 'x'; it has device=0..63"), 0u);
  EXPECT_EQ(parse("device").error().message, "unit cuda: device: write device=0..63");
  EXPECT_EQ(parse("1,device=0").error().message, "unit cuda: device is given twice");
  EXPECT_EQ(parse("0,1").error().message, "unit cuda: device is given twice");
}

TEST(CudaUnit, AnEmulatedCardIsListedAsOne) {
  cuda::emulated_reset();
  const auto unit = make("1,driver=emulated,kv=f32");
  ASSERT_TRUE(unit) << unit.error().message;
  const Caps& caps = (*unit)->caps();
  EXPECT_EQ((*unit)->name(), "cuda");
  EXPECT_TRUE(caps.emulated);
  EXPECT_EQ(caps.kv_type, DType::kF32);
  EXPECT_EQ(caps.product_type, DType::kBF16);
  EXPECT_TRUE(caps.states_grow);
  const std::vector<std::string> features = {"emulated-card", "16.0-GiB", "sm_90", "CUDA-13.0"};
  EXPECT_EQ(caps.features, features);
  EXPECT_EQ(caps.logit_tolerances.size(), formats().size());
  EXPECT_NE(std::find(caps.native_formats.begin(), caps.native_formats.end(), DType::kBF16), caps.native_formats.end());
  EXPECT_EQ(cuda::emulated_use(), cuda::EmulatedUse()) << "a listed card is not opened";
  EXPECT_EQ(make("2,driver=emulated").error().message, "cuda: there is no card 2: the last is 1");
}

TEST(CudaUnit, BatchesOnTensorCoresAreAChoice) {
  const auto exact = make("driver=emulated"), tensor = make("driver=emulated,batch=tensor");
  ASSERT_TRUE(exact && tensor);
  EXPECT_TRUE((*exact)->caps().decodes_exact);
  EXPECT_FALSE((*tensor)->caps().decodes_exact);
  EXPECT_EQ((*tensor)->caps().decode_seats_max, 64u);
  EXPECT_LT((*exact)->caps().decode_seats_max, 64u);
}

TEST(CudaUnit, WithoutACardItSaysWhy) {
  const auto unit = make("");
  if (unit) GTEST_SKIP() << "this machine has a card";
  EXPECT_EQ(unit.error().code, Code::kUnsupported);
  if (cuda::kernel_images().empty()) {
    EXPECT_EQ(unit.error().message,
              "built without CUDA: nvcc was not found or not wanted (BATON_CUDA) when this program was built; build it "
              "where nvcc is, or choose another unit ('baton units'); cuda:driver=emulated does the same work on the "
              "processor, far slower");
    EXPECT_EQ(cuda::kernel_build(), "");
  } else {
    EXPECT_NE(unit.error().message.find("NVIDIA"), std::string::npos) << unit.error().message;
    EXPECT_EQ(cuda::kernel_build().find("nvcc "), 0u);
    EXPECT_NE(unit.error().message.find("; this program has kernels by " + std::string(cuda::kernel_build())),
              std::string::npos)
        << unit.error().message;
  }
  EXPECT_TRUE(k_unit_cuda.more().empty());
}

// A fat binary begins so, whatever is in it.
TEST(CudaUnit, KernelsAreFatBinaries) {
  for (const cuda::KernelImage& image : cuda::kernel_images()) {
    const auto* bytes = static_cast<const uint8_t*>(image.bytes);
    EXPECT_EQ(bytes[0] | bytes[1] << 8 | bytes[2] << 16 | static_cast<uint32_t>(bytes[3]) << 24, 0xba55ed50u)
        << image.name;
  }
}

}  // namespace
}  // namespace baton
