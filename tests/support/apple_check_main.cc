// baton-apple-check: the first run on a Mac. Opens the driver with its start-up check, runs a few kernels of the sizes
// that models have, compares them with the emulator, times them, and prints a report to send back (docs/units.md).
// With --emulate everything runs on the emulator: for a look at the report on any machine, and for tests.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "baton/base/bytes.h"
#include "baton/base/clock.h"
#include "baton/base/file.h"
#include "baton/base/output_file.h"
#include "baton/base/random.h"
#include "baton/unit/apple/device_kernel.h"
#include "baton/unit/apple/driver_apple.h"
#include "baton/unit/apple/driver_emulator.h"
#include "baton/unit/apple/fp16.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace baton::apple {
namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int64_t kColumns = 32;

struct Flags {
  bool emulate = false, quick = false;
  std::string json;
};

// One system fact by its sysctl name; empty elsewhere.
std::string system_fact([[maybe_unused]] const char* name) {
#if defined(__APPLE__)
  char text[256] = {};
  size_t bytes = sizeof(text) - 1;
  if (::sysctlbyname(name, text, &bytes, nullptr, 0) == 0) return text;
#endif
  return "";
}

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
  int64_t in, middle, out;
  bool quick;
};
constexpr Trial kTrials[] = {{"tiny", 64, 0, 64, true},
                             {"square_small", 256, 0, 256, true},
                             {"ffn_small", 128, 384, 128, true},
                             {"square_large", 1024, 0, 1024, false},
                             {"delta_first", 1024, 0, 8192, false},
                             {"ffn_large", 1024, 3584, 1024, false},
                             {"head_chunk", 1024, 0, 16384, false}};

Result<Kernel> make_kernel(const Trial& trial, std::vector<std::unique_ptr<OwnedWeight>>& weights) {
  const auto weight = [&](const char* name, int64_t rows, int64_t columns) -> const Weight& {
    weights.push_back(std::make_unique<OwnedWeight>(name, rows, columns, weights.size() + 1));
    return weights.back()->weight;
  };
  const KernelLimits limits;
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
  return build_kernel(plans.at(0));
}

// Columns 0 and 17 hold the same values: their results must be the same bits.
std::vector<uint16_t> input_of(int64_t channels) {
  Random random(99);
  std::vector<uint16_t> values(static_cast<size_t>(channels * kColumns));
  for (uint16_t& value : values) value = to_fp16(random.uniform(-2, 2));
  for (int64_t c = 0; c < channels; ++c)
    values[static_cast<size_t>(c * kColumns + 17)] = values[static_cast<size_t>(c * kColumns)];
  return values;
}

struct Ran {
  std::vector<uint16_t> output;
  double load_ms = 0, first_ms = 0, median_ms = 0;
};

Result<Ran> run_kernel(Driver& driver, const Kernel& kernel, std::span<const uint16_t> values, int repeats) {
  const SteadyClock clock;
  const auto since = [&](int64_t start) { return ms_between(start, clock.now_ns()); };
  LoaderOptions options;
  options.load_retries = 1;
  KernelLoader loader(driver, options);
  Ran ran;
  int64_t start = clock.now_ns();
  BATON_TRY(const auto loaded, loader.load(kernel));
  ran.load_ms = since(start);
  BATON_TRY(const KernelIo io, loaded->new_io());
  {
    BATON_TRY(const SurfaceLock lock, SurfaceLock::take(*io.input, LockMode::kReadWrite));
    std::memcpy(lock.bytes().data(), values.data(), values.size() * 2);
  }
  std::vector<double> times;
  for (int i = 0; i <= repeats; ++i) {
    start = clock.now_ns();
    BATON_OK(loaded->evaluate(io));
    times.push_back(since(start));
  }
  ran.first_ms = times[0];
  times.erase(times.begin());
  std::nth_element(times.begin(), times.begin() + static_cast<ptrdiff_t>(times.size() / 2), times.end());
  ran.median_ms = times[times.size() / 2];
  BATON_TRY(const SurfaceLock lock, SurfaceLock::take(*io.output, LockMode::kReadOnly));
  ran.output.resize(static_cast<size_t>(kernel.plan.out_channels * kColumns));
  std::memcpy(ran.output.data(), lock.bytes().data(), ran.output.size() * 2);
  return ran;
}

bool columns_equal(const std::vector<uint16_t>& output) {
  for (size_t row = 0; row < output.size(); row += kColumns) {
    if (output[row] != output[row + 17]) return false;
  }
  return true;
}

// Of one kernel: times, and how far it is from the emulator. A sum of K fp16 products in f32, rounded to fp16, may
// differ by the order of the sum: an fp16 step of the result, or 0.2 % of the largest; tables of sigmoid are coarser.
Result<OrderedJson> try_kernel(Driver& device, Driver& emulator, const Trial& trial, int repeats) {
  std::vector<std::unique_ptr<OwnedWeight>> weights;
  BATON_TRY(const Kernel kernel, make_kernel(trial, weights));
  const auto input = input_of(kernel.plan.in_channels);
  BATON_TRY(const Ran expected, run_kernel(emulator, kernel, input, 1));
  BATON_TRY(const Ran got, run_kernel(device, kernel, input, repeats));
  double worst = 0, largest = 0;
  uint64_t equal = 0;
  for (size_t i = 0; i < got.output.size(); ++i) {
    const double want = from_fp16(expected.output[i]), have = from_fp16(got.output[i]);
    const double distance = std::fabs(want - have);
    worst = std::max(worst, std::isnan(distance) ? HUGE_VAL : distance);
    largest = std::max(largest, std::fabs(want));
    equal += expected.output[i] == got.output[i];
  }
  const double bound = (trial.middle == 0 ? 0.002 : 0.02) * largest;
  OrderedJson json;
  json["kernel"] = trial.name;
  json["shape"] = kernel.plan.shape();
  json["weight_bytes"] = kernel.plan.weight_bytes;
  json["compile_and_load_ms"] = got.load_ms;
  json["first_ms"] = got.first_ms;
  json["evaluate_ms"] = got.median_ms;
  json["values"] = got.output.size();
  json["equal_values"] = equal;
  json["worst_difference"] = worst;
  json["largest_value"] = largest;
  json["columns_independent"] = columns_equal(got.output);
  json["agrees"] = worst <= bound && largest > 0 && columns_equal(got.output);
  return json;
}

// Which of the emulator's profiles the arithmetic is like: a sum of 40 x 1000, infinite on the first chips, and a
// product with a subnormal weight, 0 there (docs/ane.md, arithmetic).
Result<OrderedJson> probe_numerics(Driver& device) {
  constexpr int64_t kChannels = 64;
  OwnedWeight weight("w", kChannels, kChannels, 1);
  std::fill(weight.values.begin(), weight.values.end(), uint16_t{0});
  for (size_t i = 0; i < 40; ++i) weight.values[i] = to_fp16(1);
  weight.values[kChannels] = to_fp16(0x1p-20f);
  const LayerPart parts[] = {{"w", &weight.weight}};
  BATON_TRY(const auto plans, plan_linear("numerics", parts, KernelLimits()));
  BATON_TRY(const Kernel kernel, build_kernel(plans.at(0)));
  const std::vector<uint16_t> input(kChannels * kColumns, to_fp16(1000));
  BATON_TRY(const Ran ran, run_kernel(device, kernel, input, 1));
  const float sum = from_fp16(ran.output[0]), product = from_fp16(ran.output[kColumns]);
  OrderedJson json;
  json["sum_of_40000"] = std::isfinite(sum) ? OrderedJson(sum) : OrderedJson("infinite");
  json["subnormal_weight_kept"] = product != 0;
  json["profile"] =
      std::isfinite(sum) && product != 0 ? "modern" : (!std::isfinite(sum) && product == 0 ? "m1" : "neither");
  return json;
}

// Latency of a dispatch and weight streaming, as a line through the smallest and the largest kernel.
OrderedJson timing_of(const OrderedJson& kernels) {
  const OrderedJson *small = nullptr, *large = nullptr;
  for (const auto& kernel : kernels) {
    if (!kernel.contains("evaluate_ms")) continue;
    if (small == nullptr) small = &kernel;
    large = &kernel;
  }
  if (small == nullptr || small == large) return nullptr;
  const auto bytes = [](const OrderedJson& kernel) { return kernel["weight_bytes"].get<double>(); };
  const auto ms = [](const OrderedJson& kernel) { return kernel["evaluate_ms"].get<double>(); };
  OrderedJson json;
  json["dispatch_ms"] = ms(*small);
  const double more = ms(*large) - ms(*small);
  json["weights_gb_s"] = more > 0 ? OrderedJson((bytes(*large) - bytes(*small)) / more * 1e-6) : OrderedJson(nullptr);
  return json;
}

struct Devices {
  std::unique_ptr<EmulatorDriver> emulator;
  std::unique_ptr<Driver> device;  // null: none could be opened
  std::string start_up;            // "passed", or why not
};

// The one that stands for a device has the errors of its tables, so that the comparison has something to find.
Result<std::unique_ptr<EmulatorDriver>> make_emulator(const std::filesystem::path& folder, bool stands_for_device) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  EmulatorOptions options;
  options.temporary_folder = folder;
  options.numerics.profile = Profile::kModern;
  options.numerics.perturbed_tables = stands_for_device;
  options.watch_surfaces = false;
  return EmulatorDriver::create(options);
}

// The start-up check refuses a device whose answers differ; the kernels are then tried without it, for the report.
Result<Devices> open_devices(const Flags& flags, const std::filesystem::path& folder) {
  Devices devices;
  BATON_TRY(devices.emulator, make_emulator(folder / "expected", false));
  if (flags.emulate) {
    BATON_TRY(devices.device, make_emulator(folder / "device", true));
    devices.start_up = "not run: this is the emulator";
    return devices;
  }
  for (const bool self_check : {true, false}) {
    AppleOptions options;
    options.self_check = self_check;
    auto opened = AppleDriver::open(options);
    if (opened) {
      devices.device = *std::move(opened);
      if (self_check) devices.start_up = "passed";
      break;
    }
    if (self_check) devices.start_up = opened.error().message;
  }
  return devices;
}

OrderedJson run_trials(const Flags& flags, Devices& devices) {
  OrderedJson kernels = OrderedJson::array();
  for (const Trial& trial : kTrials) {
    if (flags.quick && !trial.quick) continue;
    std::fprintf(stderr, "kernel %s\n", trial.name);
    auto result = try_kernel(*devices.device, *devices.emulator, trial, flags.quick ? 5 : 50);
    if (result) {
      kernels.push_back(*std::move(result));
    } else {
      kernels.push_back({{"kernel", trial.name}, {"agrees", false}, {"error", result.error().message}});
    }
  }
  return kernels;
}

std::string kernel_text(const OrderedJson& kernel) {
  if (kernel.contains("error"))
    return fmt::format("  {:<14} FAILED: {}\n", kernel["kernel"].get<std::string>(),
                       kernel["error"].get<std::string>());
  const auto number = [&](const char* key) { return kernel[key].get<double>(); };
  return fmt::format(
      "  {:<14} {:<34} {:>6.1f} MB  compile+load {:>8.1f} ms  first {:>8.3f} ms  then {:>8.3f} ms  "
      "equal {:>5.1f} %  worst {:.3g} of {:.3g}  columns {}  {}\n",
      kernel["kernel"].get<std::string>(), kernel["shape"].get<std::string>(), number("weight_bytes") * 1e-6,
      number("compile_and_load_ms"), number("first_ms"), number("evaluate_ms"),
      100 * number("equal_values") / number("values"), number("worst_difference"), number("largest_value"),
      kernel["columns_independent"].get<bool>() ? "independent" : "DEPEND ON EACH OTHER",
      kernel["agrees"].get<bool>() ? "agrees" : "DIFFERS");
}

std::string report_text(const OrderedJson& report) {
  std::string text = "baton-apple-check " BATON_VERSION "\n";
  for (const auto& [key, value] : report.items()) {
    if (value.is_string()) text += fmt::format("{:<16} {}\n", key, value.get<std::string>());
  }
  if (report.contains("kernels")) {
    text += "kernels, compared with the emulator\n";
    for (const auto& kernel : report["kernels"]) text += kernel_text(kernel);
  }
  if (report.contains("timing") && report["timing"].is_object()) {
    const OrderedJson& timing = report["timing"];
    text += fmt::format("{}timing  dispatch {:.3f} ms", report["emulated"].get<bool>() ? "emulated " : "",
                        timing["dispatch_ms"].get<double>());
    if (timing["weights_gb_s"].is_number())
      text += fmt::format(", weights {:.1f} GB/s", timing["weights_gb_s"].get<double>());
    text += "\n";
  }
  if (report.contains("numerics")) text += fmt::format("numerics         {}\n", report["numerics"].dump());
  return text + fmt::format("verdict          {}\n", report["ok"].get<bool>()
                                                         ? "all kernels agree"
                                                         : "NOT usable as it is; please send this report");
}

Result<OrderedJson> check(const Flags& flags, const std::filesystem::path& folder) {
  OrderedJson report;
  report["model"] = system_fact("hw.model");
  report["chip"] = system_fact("machdep.cpu.brand_string");
  report["system"] = system_fact("kern.osproductversion") + " " + system_fact("kern.osversion");
  report["emulated"] = flags.emulate;
  BATON_TRY(Devices devices, open_devices(flags, folder));
  report["start_up_check"] = devices.start_up;
  report["ok"] = false;
  if (devices.device == nullptr) return report;
  report["evidence"] = devices.device->evidence();
  report["kernels"] = run_trials(flags, devices);
  bool agree = true;
  for (const auto& kernel : report["kernels"]) agree = agree && kernel["agrees"].get<bool>();
  report["timing"] = timing_of(report["kernels"]);
  auto numerics = probe_numerics(*devices.device);
  report["numerics"] = numerics ? *std::move(numerics) : OrderedJson({{"error", numerics.error().message}});
  report["ok"] = agree && (flags.emulate || devices.start_up == "passed");
  return report;
}

int run(const Flags& flags) {
  const auto folder = std::filesystem::temp_directory_path() / "baton_apple_check";
  const auto report = check(flags, folder);
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  if (!report) {
    fmt::print(stderr, "baton-apple-check: {}\n", report.error().message);
    return 1;
  }
  fmt::print("{}", report_text(*report));
  if (!flags.json.empty()) {
    const std::string text = report->dump(2) + "\n";
    const auto written = write_output(flags.json, as_bytes(text), kModeShared);
    if (!written) {
      fmt::print(stderr, "baton-apple-check: {}\n", written.error().message);
      return 1;
    }
  }
  return (*report)["ok"].get<bool>() ? 0 : 1;
}

}  // namespace
}  // namespace baton::apple

int main(int argc, char** argv) {
  baton::apple::Flags flags;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--emulate") {
      flags.emulate = true;
    } else if (argument == "--quick") {
      flags.quick = true;
    } else if (argument == "--json" && i + 1 < argc) {
      flags.json = argv[++i];
    } else {
      fmt::print(stderr, "usage: baton-apple-check [--quick] [--json FILE] [--emulate]\n");
      return 2;
    }
  }
  return baton::apple::run(flags);
}
