// Kernels of layers: inventories of real shapes, splitting, golden files, and answers against f32 loops.
#include "baton/unit/apple/kernel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <set>

#include "baton/base/file.h"
#include "baton/unit/apple/device_kernel.h"
#include "baton/unit/apple/fixtures_test.h"

namespace baton::apple {
namespace {

using fixtures::OwnedWeight;
using fixtures::shape_only;

std::vector<KernelPlan> linear(std::string_view name, std::initializer_list<const Weight*> weights,
                               const KernelLimits& limits = {}) {
  std::vector<LayerPart> parts;
  for (const Weight* weight : weights) parts.push_back({std::string(1, static_cast<char>('a' + parts.size())), weight});
  auto plans = plan_linear(name, parts, limits);
  EXPECT_TRUE(plans) << plans.error().message;
  return plans ? std::move(*plans) : std::vector<KernelPlan>{};
}

// Qwen3.5-0.8B: 88 kernels, 5 shapes, 1.50 GB, as the published project has (its last head chunk is a sixth shape).
TEST(KernelPlan, InventoryOfQwen35) {
  const Weight qkv = shape_only(6144, 1024), z = shape_only(2048, 1024), q = shape_only(4096, 1024),
               k = shape_only(512, 1024), v = shape_only(512, 1024), o = shape_only(1024, 2048),
               gate = shape_only(3584, 1024), up = shape_only(3584, 1024), down = shape_only(1024, 3584),
               head = shape_only(248320, 1024);
  std::map<std::string, int> shapes;
  std::set<std::string> names;
  uint64_t bytes = 0;
  const auto add = [&](const std::vector<KernelPlan>& plans) {
    for (const KernelPlan& plan : plans) {
      ++shapes[plan.shape()];
      EXPECT_TRUE(names.insert(plan.name).second) << plan.name;
      bytes += plan.weight_bytes;
      EXPECT_LE(plan.weight_bytes, KernelLimits{}.weight_bytes_max);
    }
  };
  for (int layer = 0; layer < 24; ++layer) {
    const auto name = [&](const char* role) { return fmt::format("l{:02}_{}", layer, role); };
    add(layer % 4 == 3 ? linear(name("qkv"), {&q, &k, &v}) : linear(name("qkvz"), {&qkv, &z}));
    add(linear(name("o"), {&o}));
    add(*plan_swiglu(name("ffn"), gate, up, down, {}));
  }
  add(linear("head", {&head}));
  EXPECT_EQ(names.size(), 88u);
  EXPECT_EQ(shapes.size(), 5u);
  EXPECT_EQ(shapes["linear 1024 -> 8192 x 32"], 18);
  EXPECT_EQ(shapes["swiglu 1024 -> 3584 -> 1024 x 32"], 24);
  EXPECT_EQ(shapes["linear 1024 -> 15520 x 32"], 16);
  EXPECT_EQ(bytes / 10000000, 150u);
}

// Every row and column of the weights is in exactly one kernel, whatever the limits.
TEST(KernelPlan, SplitsCoverEverythingOnce) {
  const Weight a = shape_only(100, 90), b = shape_only(37, 90), gate = shape_only(75, 24), up = shape_only(75, 24),
               down = shape_only(20, 75);
  for (const KernelLimits& limits :
       {KernelLimits{}, KernelLimits{32, 5000, 16384, 16384}, KernelLimits{64, 1 << 20, 40, 16384},
        KernelLimits{32, 1 << 20, 16384, 33}, KernelLimits{32, 1500, 17, 19}}) {
    std::vector<int> seen(137 * 90);
    for (const KernelPlan& plan : linear("l", {&a, &b}, limits)) {
      EXPECT_LE(plan.weight_bytes, limits.weight_bytes_max);
      EXPECT_LE(plan.in_channels, limits.in_channels_max);
      EXPECT_LE(plan.out_channels, limits.out_channels_max);
      EXPECT_EQ(plan.accumulate, plan.in_begin > 0);
      int64_t row = plan.out_begin;
      for (const KernelPiece& piece : plan.pieces) {
        const int64_t first = piece.weight == &a ? 0 : 100;
        EXPECT_EQ(row, first + piece.part.row_begin);
        for (int64_t r = 0; r < piece.part.row_count; ++r, ++row) {
          for (int64_t c = 0; c < piece.part.column_count; ++c)
            ++seen[static_cast<size_t>(row * 90 + piece.part.column_begin + c)];
        }
      }
      EXPECT_EQ(row, plan.out_begin + plan.out_channels);
    }
    EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), 137 * 90);
    const auto ffn = plan_swiglu("f", gate, up, down, limits);
    if (limits.in_channels_max < 24 || limits.out_channels_max < 20) {
      ASSERT_FALSE(ffn);
      EXPECT_EQ(ffn.error().code, Code::kUnsupported);
      continue;
    }
    int64_t middle = 0;
    for (const KernelPlan& plan : *ffn) {
      EXPECT_EQ(plan.pieces[0].part.row_begin, middle);
      EXPECT_EQ(plan.pieces[2].part.column_begin, middle);
      EXPECT_EQ(plan.accumulate, middle > 0);
      EXPECT_LE(plan.weight_bytes, limits.weight_bytes_max);
      middle += plan.pieces[0].part.row_count;
    }
    EXPECT_EQ(middle, 75);
  }
}

// A 4B-sized feed-forward block: 149 MB are split as the published project had to.
TEST(KernelPlan, LargeFeedForward) {
  const Weight gate = shape_only(9728, 2560), down = shape_only(2560, 9728);
  const auto plans = plan_swiglu("l00_ffn", gate, gate, down, {});
  ASSERT_TRUE(plans);
  EXPECT_EQ(plans->size(), 3u);
  EXPECT_EQ(plans->back().name, "l00_ffn_2");
}

TEST(KernelPlan, RefusesWhatDoesNotFit) {
  const Weight a = shape_only(8, 16), b = shape_only(8, 17);
  const LayerPart parts[] = {{"a", &a}, {"b", &b}};
  EXPECT_FALSE(plan_linear("l", parts, {}));
  EXPECT_FALSE(plan_linear("l", {}, {}));
  EXPECT_FALSE(plan_linear("l", std::span(parts, 1), {48}));
  EXPECT_FALSE(plan_swiglu("l", a, a, b, {}));
}

// The bytes of text and weight file are part of the cache's identity: they change only on purpose.
// BATON_UPDATE_GOLDEN=1 writes them anew.
void compare_with_golden(const std::string& name, std::span<const std::byte> bytes) {
  const std::filesystem::path path = std::filesystem::path(BATON_SOURCE_DIR) / "tests/data/apple" / name;
  if (std::getenv("BATON_UPDATE_GOLDEN") != nullptr) fixtures::write_text(path, as_text(bytes));
  const auto expected = read_file(path, 1 << 20);
  ASSERT_TRUE(expected) << expected.error().message;
  EXPECT_TRUE(as_text(bytes) == *expected) << name << " differs; if that is wanted, run with BATON_UPDATE_GOLDEN=1";
}

TEST(Kernel, GoldenFiles) {
  const OwnedWeight q("q", 6, 4, 1), k("k", 2, 4, 2), gate("gate", 5, 4, 3), up("up", 5, 4, 4), down("down", 4, 5, 5);
  const LayerPart parts[] = {{"q", &q.weight}, {"k", &k.weight}};
  const auto qk = *plan_linear("l03_qk", parts, {}), one = *plan_linear("l03_o", std::span(parts, 1), {}),
             ffn = *plan_swiglu("l03_ffn", gate.weight, up.weight, down.weight, {});
  for (const MilDialect dialect : {MilDialect::kIos16, MilDialect::kIos18}) {
    for (const KernelPlan& plan : {qk[0], one[0], ffn[0]}) {
      const auto kernel = build_kernel(plan, OutOfRange::kRefuse, dialect);
      ASSERT_TRUE(kernel) << kernel.error().message;
      const std::string name = plan.name + (dialect == MilDialect::kIos16 ? "_ios16" : "_ios18");
      compare_with_golden(name + ".mil", as_bytes(kernel->mil));
      if (dialect == MilDialect::kIos16) compare_with_golden(plan.name + ".bin", kernel->weights);
      const auto again = build_kernel(plan, OutOfRange::kRefuse, dialect);
      EXPECT_TRUE(again && again->mil == kernel->mil && again->weights == kernel->weights);
    }
  }
}

TEST(Kernel, ValuesBeyondFp16NameTheWeight) {
  OwnedWeight w("layers.7.ffn.down", 4, 8, 1);
  w.values[5] = 70000;
  const LayerPart parts[] = {{"down", &w.weight}};
  const KernelPlan plan = plan_linear("l07_down", parts, {})->at(0);
  const auto refused = build_kernel(plan);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("layers.7.ffn.down"), std::string::npos);
  const auto clamped = build_kernel(plan, OutOfRange::kClamp);
  ASSERT_TRUE(clamped);
  EXPECT_EQ(clamped->range.overflows, 1u);
}

struct KernelOnDevice : testing::Test {
  fixtures::TemporaryFolder folder;
  EmulatorOptions options;
  std::unique_ptr<EmulatorDriver> driver;

  void SetUp() override {
    options.temporary_folder = folder.path();
    driver = std::move(*EmulatorDriver::create(options));
  }

  // All kernels of a layer over x [in][columns], as the host would: partial sums added in f32.
  std::vector<float> run(const std::vector<KernelPlan>& plans, const std::vector<float>& x, int64_t out) {
    std::vector<float> y(static_cast<size_t>(out * plans[0].columns));
    KernelLoader loader(*driver, {});
    for (const KernelPlan& plan : plans) {
      const auto built = build_kernel(plan);
      EXPECT_TRUE(built) << built.error().message;
      const auto kernel = loader.load(*built);
      EXPECT_TRUE(kernel) << kernel.error().message;
      if (!kernel) return y;
      const auto io = (*kernel)->new_io();
      const size_t columns = static_cast<size_t>(plan.columns), in = static_cast<size_t>(plan.in_channels) * columns;
      const size_t from = static_cast<size_t>(plan.in_begin) * columns,
                   to = static_cast<size_t>(plan.out_begin) * columns;
      EXPECT_TRUE(fixtures::fill(
          *io->input,
          {{x.begin() + static_cast<ptrdiff_t>(from), x.begin() + static_cast<ptrdiff_t>(from + in)}, columns}));
      const Status status = (*kernel)->evaluate(*io);
      EXPECT_TRUE(status) << fixtures::message(status);
      const auto values = *fixtures::read(*io->output, static_cast<size_t>(plan.out_channels) * columns, columns);
      for (size_t i = 0; i < values.size(); ++i) y[to + i] = plan.accumulate ? y[to + i] + values[i] : values[i];
    }
    return y;
  }
};

std::vector<float> input_of(int64_t channels, int64_t columns, uint64_t seed) {
  Random random(seed);
  std::vector<float> x(static_cast<size_t>(channels * columns));
  for (float& value : x) value = round_to_fp16(random.normal());
  return x;
}

float dot(const OwnedWeight& w, size_t row, const std::vector<float>& x, size_t column, size_t columns) {
  float sum = 0;
  const size_t in = static_cast<size_t>(w.weight.columns);
  for (size_t i = 0; i < in; ++i) sum += w.values[row * in + i] * x[i * columns + column];
  return sum;
}

TEST_F(KernelOnDevice, ProjectionsWholeAndSplit) {
  const OwnedWeight q("q", 70, 48, 1), k("k", 30, 48, 2), v("v", 20, 48, 3);
  for (const KernelLimits& limits : {KernelLimits{}, KernelLimits{64}, KernelLimits{32, 3000, 20, 33}}) {
    const size_t columns = static_cast<size_t>(limits.columns);
    const auto plans = linear("l00_qkv", {&q.weight, &k.weight, &v.weight}, limits);
    EXPECT_EQ(plans.size() > 1, limits.weight_bytes_max == 3000);
    const std::vector<float> x = input_of(48, limits.columns, 4), y = run(plans, x, 120);
    for (size_t r = 0; r < 120; ++r) {
      for (size_t c = 0; c < columns; ++c) {
        const float expected = r < 70    ? dot(q, r, x, c, columns)
                               : r < 100 ? dot(k, r - 70, x, c, columns)
                                         : dot(v, r - 100, x, c, columns);
        ASSERT_NEAR(y[r * columns + c], expected, 6e-3f) << r << " " << c;
      }
    }
  }
  EXPECT_TRUE(driver->report().warnings.empty()) << driver->report().warnings[0].text;
}

TEST_F(KernelOnDevice, SwigluWholeAndSplit) {
  const OwnedWeight gate("gate", 96, 32, 5, 0.3f), up("up", 96, 32, 6, 0.3f), down("down", 32, 96, 7);
  const std::vector<float> x = input_of(32, 32, 8);
  for (const KernelLimits& limits : {KernelLimits{}, KernelLimits{32, 7000}}) {
    const auto plans = *plan_swiglu("l00_ffn", gate.weight, up.weight, down.weight, limits);
    EXPECT_EQ(plans.size() > 1, limits.weight_bytes_max == 7000);
    const std::vector<float> y = run(plans, x, 32);
    for (size_t c = 0; c < 32; ++c) {
      std::vector<float> middle(96);
      for (size_t i = 0; i < 96; ++i) {
        const float g = dot(gate, i, x, c, 32);
        middle[i] = g / (1 + std::exp(-g)) * dot(up, i, x, c, 32);
      }
      for (size_t r = 0; r < 32; ++r) {
        float expected = 0;
        for (size_t i = 0; i < 96; ++i) expected += down.values[r * 96 + i] * middle[i];
        ASSERT_NEAR(y[r * 32 + c], expected, 2e-2f) << r << " " << c;
      }
    }
  }
}

// Fresh surfaces may hold anything: columns that were written give the same answers.
TEST_F(KernelOnDevice, PoisonedSurfaces) {
  options.poison_surfaces = true;
  driver = std::move(*EmulatorDriver::create(options));
  const OwnedWeight w("w", 16, 16, 1);
  const LayerPart parts[] = {{"w", &w.weight}};
  KernelLoader loader(*driver, {});
  const auto kernel = std::move(*loader.load(*build_kernel(plan_linear("l", parts, {})->at(0))));
  const auto io = *kernel->new_io();
  const std::vector<float> x = input_of(16, 32, 2);
  {
    const auto lock = std::move(*SurfaceLock::take(*io.input, LockMode::kReadWrite));
    EXPECT_EQ(lock.bytes()[0], std::byte{0x7e});
    for (size_t c = 0; c < 16; ++c) store_as<uint16_t>(&lock.bytes()[c * 64], to_fp16(x[c * 32]));  // column 0 only
  }
  ASSERT_TRUE(kernel->evaluate(io));
  const auto y = *fixtures::read(*io.output, 16 * 32, 32);
  for (size_t r = 0; r < 16; ++r) EXPECT_NEAR(y[r * 32], dot(w, r, x, 0, 32), 4e-3f);
  EXPECT_EQ(driver->report().warnings.at(0).rule, Rule::kNotANumber);
}

}  // namespace
}  // namespace baton::apple
