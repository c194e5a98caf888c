// Kernels of the sizes that models have, compared with the emulator and timed; and how the arithmetic behaves at its
// edges.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "baton/base/clock.h"
#include "baton/base/random.h"
#include "baton/unit/apple/device_kernel.h"
#include "baton/unit/apple/driver_emulator.h"
#include "baton/unit/apple/fp16.h"
#include "tests/support/apple_check/probe.h"

namespace baton::apple {
namespace {

constexpr int64_t kColumns = 32;

struct OwnedWeight {
  std::vector<uint16_t> values;
  Weight weight;

  OwnedWeight(const char* name, int64_t rows, int64_t columns, uint64_t seed) {
    Random random(seed);
    const float scale = 1.0f / std::sqrt(static_cast<float>(columns));
    values.resize(static_cast<size_t>(rows * columns));
    for (uint16_t& value : values) value = to_fp16(random.uniform(-1.7f, 1.7f) * scale);
    weight = {name, DType::kF16, rows, columns, reinterpret_cast<const std::byte*>(values.data()), values.size() * 2,
              ""};
  }
  OwnedWeight(const OwnedWeight&) = delete;
};

// A layer to try: linear `in` -> `out`, or with `middle` a SwiGLU block.
struct Trial {
  const char* name;
  int64_t in, middle, out, columns;
  bool quick;
};
constexpr Trial kTrials[] = {
    {"square_small", 256, 0, 256, 32, true},    {"ffn_small", 256, 768, 256, 32, true},
    {"square_large", 1024, 0, 1024, 32, false}, {"delta_first", 1024, 0, 8192, 32, false},
    {"ffn_large", 1024, 3584, 1024, 32, false}, {"ffn_large_128", 1024, 3584, 1024, 128, false},
    {"head_chunk", 1024, 0, 16384, 32, false}};

Result<Kernel> make_kernel(const CheckContext& context, const Trial& trial,
                           std::vector<std::unique_ptr<OwnedWeight>>& weights) {
  const auto weight = [&](const char* name, int64_t rows, int64_t columns) -> const Weight& {
    weights.push_back(std::make_unique<OwnedWeight>(name, rows, columns, weights.size() + 1));
    return weights.back()->weight;
  };
  KernelLimits limits;
  limits.columns = trial.columns;
  std::vector<KernelPlan> plans;
  if (trial.middle == 0) {
    const LayerPart parts[] = {{"w", &weight("w", trial.out, trial.in)}};
    BATON_TRY(plans, plan_linear(trial.name, parts, limits));
  } else {
    const Weight& gate = weight("gate", trial.middle, trial.in);
    const Weight& up = weight("up", trial.middle, trial.in);
    const Weight& down = weight("down", trial.out, trial.middle);
    BATON_TRY(plans, plan_swiglu(trial.name, gate, up, down, limits));
  }
  BATON_TRY(Kernel kernel, build_kernel(plans.at(0), OutOfRange::kRefuse, dialect_of(context.head)));
  kernel.mil = with_head(std::move(kernel.mil), context.head);
  return kernel;
}

// Columns 0 and 17 hold the same values: their results must be the same bits.
std::vector<uint16_t> input_of(const KernelPlan& plan) {
  Random random(99);
  std::vector<uint16_t> values(static_cast<size_t>(plan.in_channels * plan.columns));
  for (uint16_t& value : values) value = to_fp16(random.uniform(-2, 2));
  for (int64_t c = 0; c < plan.in_channels; ++c)
    values[static_cast<size_t>(c * plan.columns + 17)] = values[static_cast<size_t>(c * plan.columns)];
  return values;
}

bool columns_equal(const std::vector<uint16_t>& output, int64_t columns) {
  for (size_t row = 0; row < output.size(); row += static_cast<size_t>(columns)) {
    if (output[row] != output[row + 17]) return false;
  }
  return true;
}

// Exact tables, nothing lost: what a kernel should give.
Result<std::unique_ptr<EmulatorDriver>> expectation(const CheckContext& context) {
  EmulatorOptions options;
  options.temporary_folder = context.folder / "expected";
  std::error_code error;
  std::filesystem::create_directories(options.temporary_folder, error);
  options.mode = Mode::kLenient;
  options.numerics.profile = Profile::kModern;
  options.watch_surfaces = false;
  return EmulatorDriver::create(options);
}

// Times, and how far it is from the emulator. A sum of K fp16 products in f32, rounded to fp16, may differ by the order
// of the sum: an fp16 step of the result, or 0.2 % of the largest; tables of sigmoid are coarser.
Result<OrderedJson> probe_kernel(const CheckContext& context, const std::string& name) {
  const auto* trial = std::find_if(std::begin(kTrials), std::end(kTrials),
                                   [&](const Trial& item) { return name == fmt::format("kernel-{}", item.name); });
  BATON_CHECK(trial != std::end(kTrials));
  std::vector<std::unique_ptr<OwnedWeight>> weights;
  BATON_TRY(const Kernel kernel, make_kernel(context, *trial, weights));
  BATON_TRY(const auto device, open_device(context));
  BATON_TRY(const auto emulator, expectation(context));
  const auto input = input_of(kernel.plan);
  const auto values = static_cast<size_t>(kernel.plan.out_channels * kernel.plan.columns);
  BATON_TRY(const Ran expected, run_kernel(*emulator, kernel, input, values, 0));
  BATON_TRY(const Ran got, run_kernel(*device, kernel, input, values, context.quick ? 5 : 50));
  double worst = 0, largest = 0;
  uint64_t equal = 0;
  for (size_t i = 0; i < values; ++i) {
    const double want = from_fp16(expected.output[i]), have = from_fp16(got.output[i]);
    const double distance = std::fabs(want - have);
    worst = std::max(worst, std::isnan(distance) ? HUGE_VAL : distance);
    largest = std::max(largest, std::fabs(want));
    equal += expected.output[i] == got.output[i];
  }
  const double bound = (trial->middle == 0 ? 0.002 : 0.02) * largest;
  const bool independent = columns_equal(got.output, kernel.plan.columns);
  OrderedJson json;
  json["ok"] = worst <= bound && largest > 0 && independent;
  json["shape"] = kernel.plan.shape();
  json["weight_bytes"] = kernel.plan.weight_bytes;
  json["compile_and_load_ms"] = got.load_ms;
  json["first_ms"] = got.first_ms;
  json["evaluate_ms"] = got.median_ms;
  json["gflop_s"] = got.median_ms > 0 ? static_cast<double>(kernel.plan.flops) / got.median_ms * 1e-6 : 0;
  json["values"] = values;
  json["equal_values"] = equal;
  json["worst_difference"] = std::isfinite(worst) ? OrderedJson(worst) : OrderedJson("not a number");
  json["largest_value"] = largest;
  json["columns_independent"] = independent;
  return json;
}

// Which of the emulator's profiles the arithmetic is like: a sum of 40 x 1000, infinite on the first chips and 0 on one
// other; a product with a subnormal weight, and a normal product below 2^-14 (docs/ane.md, arithmetic).
Result<OrderedJson> probe_numerics(const CheckContext& context, const std::string&) {
  constexpr int64_t kChannels = 64;
  OwnedWeight weight("w", kChannels, kChannels, 1);
  std::fill(weight.values.begin(), weight.values.end(), uint16_t{0});
  for (size_t i = 0; i < 40; ++i) weight.values[i] = to_fp16(1);
  weight.values[kChannels] = to_fp16(0x1p-20f);
  // 40 products of 2^-15 each: 0 where each is flushed, 40 / 32768 where the sum is wide.
  for (size_t i = 0; i < 40; ++i) weight.values[2 * kChannels + i] = to_fp16(0x1p-14f);
  const LayerPart parts[] = {{"w", &weight.weight}};
  BATON_TRY(const auto plans, plan_linear("numerics", parts, KernelLimits()));
  BATON_TRY(Kernel kernel, build_kernel(plans.at(0), OutOfRange::kRefuse, dialect_of(context.head)));
  kernel.mil = with_head(std::move(kernel.mil), context.head);
  BATON_TRY(const auto device, open_device(context));
  // Columns 0 to 15 hold 1000, the others 0.5.
  std::vector<uint16_t> input(kChannels * kColumns);
  for (size_t i = 0; i < input.size(); ++i) input[i] = to_fp16(i % kColumns < 16 ? 1000.0f : 0.5f);
  BATON_TRY(const Ran ran, run_kernel(*device, kernel, input, input.size(), 1));
  const float sum = from_fp16(ran.output[0]), product = from_fp16(ran.output[kColumns]);
  const float small = from_fp16(ran.output[2 * kColumns + 20]);
  OrderedJson json;
  json["ok"] = true;  // whatever it is, it is known then
  json["sum_of_40000"] = std::isfinite(sum) ? OrderedJson(sum) : OrderedJson("infinite");
  json["subnormal_weight_kept"] = product != 0;
  json["products_below_2_to_minus_14_kept"] = small != 0;
  json["profile"] = std::isinf(sum) && product == 0 && small != 0 ? "m1"
                    : sum == 0 && product == 0 && small == 0      ? "m3"
                    : sum == 40000 && product != 0 && small != 0  ? "modern"
                                                                  : "another";
  return json;
}

}  // namespace

Result<Kernel> exact_kernel(const CheckContext& context, int64_t columns) {
  OwnedWeight weight("w", kExactSize, kExactSize, 1);
  std::fill(weight.values.begin(), weight.values.end(), uint16_t{0});
  for (int64_t r = 0; r < kExactSize; ++r) {
    weight.values[static_cast<size_t>(r * kExactSize + kExactSize - 1 - r)] = to_fp16(1);
    weight.values[static_cast<size_t>(r * kExactSize + (r + 7) % kExactSize)] = to_fp16(2);
  }
  KernelLimits limits;
  limits.columns = columns;
  const LayerPart parts[] = {{"w", &weight.weight}};
  BATON_TRY(const auto plans, plan_linear("exact", parts, limits));
  BATON_TRY(Kernel kernel, build_kernel(plans.at(0), OutOfRange::kRefuse, dialect_of(context.head)));
  kernel.mil = with_head(std::move(kernel.mil), context.head);
  return kernel;
}

uint16_t exact_input(int64_t channel, int64_t column) {
  return to_fp16(static_cast<float>((channel * 37 + column * 5) % 499));
}

float exact_output(int64_t channel, int64_t column) {
  const int64_t one = kExactSize - 1 - channel, two = (channel + 7) % kExactSize;
  return (one == two ? 0 : from_fp16(exact_input(one, column))) + 2 * from_fp16(exact_input(two, column));
}

Result<Ran> run_kernel(Driver& driver, const Kernel& kernel, std::span<const uint16_t> input, size_t out_values,
                       int repeats, uint64_t in_surface, uint64_t out_surface) {
  const SteadyClock clock;
  const auto since = [&](int64_t start) { return ms_between(start, clock.now_ns()); };
  LoaderOptions options;
  options.load_retries = 1;
  KernelLoader loader(driver, options);
  Ran ran;
  int64_t start = clock.now_ns();
  BATON_TRY(const auto loaded, loader.load(kernel));
  ran.load_ms = since(start);
  const uint64_t in_bytes = in_surface > 0 ? in_surface : surface_bytes(loaded->input_bytes());
  const uint64_t out_bytes = out_surface > 0 ? out_surface : surface_bytes(loaded->output_bytes());
  BATON_CHECK(input.size_bytes() <= in_bytes && out_values * 2 <= out_bytes);
  BATON_TRY(const auto in, driver.create_surface(SurfaceProperties::flat(in_bytes)));
  BATON_TRY(const auto out, driver.create_surface(SurfaceProperties::flat(out_bytes)));
  BATON_TRY(const auto request, loaded->new_request(*in, *out));
  {
    BATON_TRY(const SurfaceLock lock, SurfaceLock::take(*in, LockMode::kReadWrite));
    std::memcpy(lock.bytes().data(), input.data(), input.size_bytes());
  }
  std::vector<double> times;
  for (int i = 0; i <= repeats; ++i) {
    start = clock.now_ns();
    BATON_OK(loaded->evaluate(*request));
    times.push_back(since(start));
  }
  ran.first_ms = times[0];
  if (times.size() > 1) times.erase(times.begin());
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
  ran.median_ms = times[times.size() / 2];
  BATON_TRY(const SurfaceLock lock, SurfaceLock::take(*out, LockMode::kReadOnly));
  ran.output.resize(out_values);
  std::memcpy(ran.output.data(), lock.bytes().data(), out_values * 2);
  return ran;
}

std::vector<Probe> kernel_probes() {
  std::vector<Probe> out;
  for (const Trial& trial : kTrials)
    out.push_back({fmt::format("kernel-{}", trial.name), "kernel", trial.quick, false, 120, probe_kernel});
  out.push_back({"numerics", "numerics", true, false, 60, probe_numerics});
  return out;
}

}  // namespace baton::apple
