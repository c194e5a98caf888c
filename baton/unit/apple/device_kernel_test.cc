// The sequence of calls under good and bad conditions: cache, donors, lost folders, limits, identifiers.
#include "baton/unit/apple/device_kernel.h"

#include <gtest/gtest.h>

#include <cmath>

#include "baton/base/file.h"
#include "baton/unit/apple/fixtures_test.h"

namespace baton::apple {
namespace {

using fixtures::OwnedWeight;

struct Loading : testing::Test {
  fixtures::TemporaryFolder folder, cache;
  EmulatorOptions options;
  OwnedWeight first{"first", 24, 16, 1}, second{"second", 24, 16, 2};

  void SetUp() override { options.temporary_folder = folder.path(); }
  std::unique_ptr<EmulatorDriver> driver() const { return std::move(*EmulatorDriver::create(options)); }
  LoaderOptions cached() const { return {cache.path(), false, 0}; }
  Kernel kernel(const char* name, const OwnedWeight& weight) const {
    const LayerPart parts[] = {{"w", &weight.weight}};
    return *build_kernel(plan_linear(name, parts, {})->at(0));
  }
  // Output 0 of column 0 for an input of ones.
  static float answer(DeviceKernel& kernel) {
    const auto io = *kernel.new_io();
    EXPECT_TRUE(fixtures::fill(*io.input, {std::vector<float>(16 * 32, 1.0f), 32}));
    const Status status = kernel.evaluate(io);
    EXPECT_TRUE(status) << fixtures::message(status);
    return fixtures::read(*io.output, 24 * 32, 32)->at(0);
  }
  static float expected(const OwnedWeight& weight) {
    float sum = 0;
    for (size_t i = 0; i < 16; ++i) sum += weight.values[i];
    return sum;
  }
  bool artefacts_left() const { return !std::filesystem::is_empty(folder.path()); }
};

TEST_F(Loading, WithoutCacheNothingIsLeft) {
  const auto device = driver();
  KernelLoader loader(*device, {});
  {
    const auto kernel = std::move(*loader.load(this->kernel("l00_w", first)));
    EXPECT_EQ(kernel->loaded_by(), LoadedBy::kCompile);
    EXPECT_NEAR(answer(*kernel), expected(first), 4e-3f);
    EXPECT_TRUE(artefacts_left());
    EXPECT_EQ(device->report().loaded, 1u);
  }
  EXPECT_FALSE(artefacts_left());
  EXPECT_EQ(device->report().loaded, 0u);
}

TEST_F(Loading, SecondStartDoesNotCompile) {
  for (int start = 0; start < 2; ++start) {
    const auto device = driver();
    KernelLoader loader(*device, cached());
    const auto a = std::move(*loader.load(kernel("l00_w", first))),
               b = std::move(*loader.load(kernel("l01_w", second)));
    EXPECT_EQ(a->loaded_by(), start == 0 ? LoadedBy::kCompile : LoadedBy::kCache);
    EXPECT_NEAR(answer(*a), expected(first), 4e-3f);
    EXPECT_NEAR(answer(*b), expected(second), 4e-3f);
    EXPECT_EQ(loader.counts().cache_loads, start == 0 ? 0u : 2u);
    EXPECT_EQ(device->report().compiles, start == 0 ? 2u : 0u);
    EXPECT_EQ(device->report().loads_without_compile, start == 0 ? 0u : 2u);
  }
}

// The system may clean its temporary folder, or half of it: the kernel is compiled again.
TEST_F(Loading, LostArtefactsAreCompiledAgain) {
  for (const char* lost : {"", "net.plist", "data", "cut"}) {
    SCOPED_TRACE(lost);
    std::string identifier;
    {
      const auto device = driver();
      KernelLoader loader(*device, cached());
      identifier = (*loader.load(kernel("l00_w", first)))->identifier();
    }
    if (std::string_view(lost) == "cut") {
      std::filesystem::resize_file(folder.path() / identifier / "data", 100);
    } else {
      std::filesystem::remove_all(folder.path() / identifier / lost);
    }
    const auto device = driver();
    KernelLoader loader(*device, cached());
    const auto again = loader.load(kernel("l00_w", first));
    ASSERT_TRUE(again) << again.error().message;
    EXPECT_EQ((*again)->loaded_by(), LoadedBy::kCompile);
    EXPECT_EQ(loader.counts().stale_markers, 1u);
    EXPECT_NEAR(answer(**again), expected(first), 4e-3f);
  }
}

TEST_F(Loading, LostCacheFolder) {
  {
    const auto device = driver();
    KernelLoader loader(*device, cached());
    ASSERT_TRUE(loader.load(kernel("l00_w", first)));
  }
  std::filesystem::remove_all(cache.path());
  const auto device = driver();
  KernelLoader loader(*device, cached());
  const auto again = loader.load(kernel("l00_w", first));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ((*again)->loaded_by(), LoadedBy::kCompile);
}

TEST_F(Loading, MissingTemporaryFolder) {
  options.temporary_folder = folder.path() / "gone";
  const auto refused = EmulatorDriver::create(options);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kNotFound);

  options.temporary_folder = folder.path() / "a";
  std::filesystem::create_directories(options.temporary_folder);
  const auto device = driver();
  std::filesystem::remove_all(options.temporary_folder);
  fixtures::write_text(options.temporary_folder, "a file where the folder was");
  KernelLoader loader(*device, {});
  const auto failed = loader.load(kernel("l00_w", first));
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("l00_w"), std::string::npos) << failed.error().message;
}

// Under the reading that an identifier covers text and keys only, other weights under the same names must not be taken
// for what was compiled before, in this process or an earlier one.
TEST_F(Loading, IdentifiersOfKeysOnly) {
  options.identifier = IdentifierMode::kKeysOnly;
  {
    const auto device = driver();
    KernelLoader loader(*device, cached());
    const auto a = std::move(*loader.load(kernel("l00_w", first)));
    const auto same_name = loader.load(kernel("l00_w", second));
    ASSERT_FALSE(same_name);
    EXPECT_EQ(same_name.error().code, Code::kMismatch);
    EXPECT_TRUE(loader.load(kernel("l01_w", second)));
  }
  const auto device = driver();
  KernelLoader loader(*device, cached());
  const auto other = loader.load(kernel("l00_w", second));
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_EQ((*other)->loaded_by(), LoadedBy::kCompile);
  EXPECT_EQ(loader.counts().stale_markers, 1u);
  EXPECT_NEAR(answer(**other), expected(second), 4e-3f);
}

TEST_F(Loading, DonorsSaveCompiles) {
  options.compiles_max = 1;
  const auto device = driver();
  KernelLoader loader(*device, {{}, true, 0});
  const auto a = std::move(*loader.load(kernel("l00_w", first)));
  auto b = loader.load(kernel("l01_w", second));
  ASSERT_TRUE(b) << b.error().message;
  EXPECT_EQ((*b)->loaded_by(), LoadedBy::kDonor);
  EXPECT_NEAR(answer(**b), expected(second), 4e-3f);
  EXPECT_NEAR(answer(*a), expected(first), 4e-3f);
  EXPECT_EQ(loader.counts().donor_loads, 1u);

  KernelLoader plain(*device, {});
  const auto limited = plain.load(kernel("l02_w", second));
  ASSERT_FALSE(limited);
  EXPECT_EQ(rule_in(limited.error()), Rule::kCompileLimit);
}

TEST_F(Loading, LoadLimitIsGivenBack) {
  options.loaded_max = 2;
  const auto device = driver();
  KernelLoader loader(*device, {});
  auto a = std::move(*loader.load(kernel("l00_w", first))), b = std::move(*loader.load(kernel("l01_w", second)));
  const auto refused = loader.load(kernel("l02_w", first));
  ASSERT_FALSE(refused);
  EXPECT_EQ(rule_in(refused.error()), Rule::kLoadLimit);
  EXPECT_EQ(refused.error().code, Code::kDevice);
  a.reset();
  EXPECT_TRUE(loader.load(kernel("l02_w", first)));
}

TEST_F(Loading, EightyEightKernels) {
  const auto device = driver();
  KernelLoader loader(*device, {});
  std::vector<std::unique_ptr<DeviceKernel>> kernels;
  for (int i = 0; i < 88; ++i) {
    auto next = loader.load(kernel(fmt::format("l{:02}_w", i).c_str(), i % 2 == 0 ? first : second));
    ASSERT_TRUE(next) << next.error().message;
    kernels.push_back(std::move(*next));
  }
  EXPECT_NEAR(answer(*kernels[87]), expected(second), 4e-3f);
  EXPECT_EQ(device->report().loaded, 88u);
}

// Weights are frozen at compile: files rewritten afterwards change nothing, a load after that still reads `data`.
TEST_F(Loading, WeightsAreFrozenAtCompile) {
  const auto device = driver();
  const Kernel built = kernel("l00_w", first);
  const std::vector<WeightEntry> weights = {{built.weights_key, 0, built.weights}};
  auto model = std::move(*fixtures::loaded_model(*device, built.mil, weights));
  fixtures::write_text(folder.path() / model->identifier() / "weights/l00_w.bin",
                       as_text(kernel("l00_w", second).weights));
  ASSERT_TRUE(model->unload());
  ASSERT_TRUE(model->load());
  const auto input = std::move(*device->create_surface(SurfaceProperties::flat(16 * 64)));
  const auto output = std::move(*device->create_surface(SurfaceProperties::flat(24 * 64)));
  ASSERT_TRUE(fixtures::fill(*input, {std::vector<float>(16 * 32, 1.0f), 32}));
  const auto request = std::move(*device->create_request(RequestSpec::one(input.get(), output.get())));
  ASSERT_TRUE(model->evaluate(*request));
  EXPECT_NEAR(fixtures::read(*output, 24 * 32, 32)->at(0), expected(first), 4e-3f);
}

// A weight file damaged between compile and load is refused, or changes only values: never a crash.
TEST_F(Loading, DamagedArtefacts) {
  const Kernel built = kernel("l00_w", first);
  const std::vector<WeightEntry> weights = {{built.weights_key, 0, built.weights}};
  Random random(3);
  int refused = 0;
  for (int i = 0; i < 300; ++i) {
    const auto device = driver();
    auto model = std::move(*device->create_model(built.mil, &weights));
    const auto place = folder.path() / model->identifier();
    fixtures::write_text(place / "model.mil", built.mil);
    fixtures::write_text(place / "weights/l00_w.bin", as_text(built.weights));
    ASSERT_TRUE(model->compile());
    const auto path = place / (i % 2 == 0 ? "data" : "net.plist");
    std::string bytes = *read_file(path, 1 << 20);
    for (int n = 0; n < 3; ++n)
      bytes[random.below(std::min<size_t>(bytes.size(), 200))] = static_cast<char>(random.next());
    if (i % 5 == 0) bytes.resize(random.below(bytes.size()));
    fixtures::write_text(path, bytes);
    refused += model->load() ? 0 : 1;
  }
  EXPECT_GT(refused, 100);
}

TEST_F(Loading, EmulatedTimesNeedAPreset) {
  {
    const auto device = driver();
    KernelLoader loader(*device, {});
    answer(**loader.load(kernel("l00_w", first)));
    EXPECT_LT(device->report().emulated_ms, 0);
    EXPECT_LT(device->report().emulated_joules, 0);
    EXPECT_NE(device->evidence().find("emulated"), std::string::npos);
  }
  for (const ChipPreset& chip : chip_presets()) {
    options.chip = &chip;
    const auto device = driver();
    KernelLoader loader(*device, {});
    const auto loaded = std::move(*loader.load(kernel("l00_w", first)));
    answer(*loaded);
    answer(*loaded);
    const EmulatorReport report = device->report();
    EXPECT_DOUBLE_EQ(report.emulated_ms, 2 * evaluate_ms(chip, 24 * 16 * 2, 24 * 16 * 64));
    EXPECT_GE(report.emulated_ms, 2 * chip.dispatch_ms);
    EXPECT_GT(report.emulated_compile_ms, 0);
    EXPECT_EQ(report.emulated_joules >= 0, chip.active_watts >= 0);
    EXPECT_NE(device->evidence().find(chip.name), std::string::npos);
    EXPECT_EQ(chip_preset(chip.name), &chip);
  }
  EXPECT_EQ(chip_preset("m99"), nullptr);
}

TEST(Chip, StreamingOrArithmetic) {
  const ChipPreset& chip = *chip_preset("m1");
  EXPECT_NEAR(evaluate_ms(chip, 51000000, 1), chip.dispatch_ms + 1, 1e-9);
  EXPECT_NEAR(evaluate_ms(chip, 1, 24000000000), chip.dispatch_ms + 2, 1e-9);
}

}  // namespace
}  // namespace baton::apple
