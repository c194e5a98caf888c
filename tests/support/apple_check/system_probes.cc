// What lies around the engine: Core ML on two choices of units, the host's arithmetic, energy, and two probes that end
// badly, for a test of the check itself.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <thread>

#include "baton/base/clock.h"
#include "baton/base/random.h"
#include "baton/unit/apple/device_kernel.h"
#include "baton/unit/apple/fp16.h"
#include "baton/unit/apple/io_report.h"
#include "baton/unit/apple/mlpackage/mil_block.h"
#include "baton/unit/apple/mlpackage/package.h"
#include "baton/unit/coreml/framework.h"
#include "tests/support/apple_check/probe.h"

#if defined(__APPLE__)
#include <dlfcn.h>
#endif

namespace baton::apple {
namespace {

// A package of one convolution, 256 channels and 64 columns: every value a small integer.
constexpr int64_t kWidth = 256, kLength = 64;

float package_input(int64_t channel, int64_t column) { return static_cast<float>((channel * 7 + column * 3) % 61); }

Result<PackageSpec> conv_package(std::vector<std::byte>* file) {
  std::vector<float> values(static_cast<size_t>(kWidth * kWidth));
  for (int64_t r = 0; r < kWidth; ++r) values[static_cast<size_t>(r * kWidth + (r * 5 + 3) % kWidth)] = 2;
  Weight weight = {
      "w", DType::kF32, kWidth, kWidth, reinterpret_cast<const std::byte*>(values.data()), values.size() * 4, ""};
  BlobWriter blobs;
  MilBlock block(blobs, std::string(kWeightFile));
  const MilDims dims = {1, kWidth, 1, kLength};
  const auto x = block.input("x", dims);
  RangeReport range;
  BATON_TRY(const auto kernel, block.weight("w", weight, whole(weight), {kWidth, kWidth, 1, 1}, &range));
  block.output("y", block.conv("conv", x, kernel, 1));
  PackageSpec spec;
  const MilTensorType type{MilType::kFp16, dims, false};
  spec.inputs = {{"x", type, "integers"}};
  spec.outputs = {{"y", type, "twice another channel"}};
  spec.description = "baton-apple-check";
  spec.main = std::move(block).take();
  spec.main.opset = kCoreMlOpset;
  *file = std::move(blobs).finish();
  return spec;
}

Result<OrderedJson> probe_coreml(const CheckContext& context, const std::string& name) {
  coreml::FrameworkOptions options;
  options.units = name.ends_with("cpu") ? coreml::ComputeUnits::kCpuOnly : coreml::ComputeUnits::kCpuAndNeuralEngine;
  options.load_timeout = std::chrono::seconds(120);
  options.plan_timeout = std::chrono::seconds(20);
  std::unique_ptr<coreml::PackageEngine> engine;
  if (context.emulate) {
    engine = coreml::interpreter_engine(1);
  } else {
    BATON_TRY(engine, coreml::open_framework(options));
  }
  std::vector<std::byte> file;
  BATON_TRY(const PackageSpec spec, conv_package(&file));
  const auto package = context.folder / "check.mlpackage", compiled = context.folder / "check.mlmodelc";
  const SteadyClock clock;
  OrderedJson json = {{"ok", false}};
  const auto timed = [&](const char* what, const auto& work) -> Status {
    const int64_t start = clock.now_ns();
    BATON_OK(work());
    json[fmt::format("{}_ms", what)] = ms_between(start, clock.now_ns());
    return {};
  };
  std::unique_ptr<coreml::LoadedPackage> loaded;
  HalfArrays inputs, outputs;
  auto& x = inputs["x"];
  for (int64_t r = 0; r < kWidth; ++r) {
    for (int64_t c = 0; c < kLength; ++c) x.push_back(to_fp16(package_input(r, c)));
  }
  const auto predict = [&]() -> Status {
    BATON_TRY(outputs, loaded->predict(inputs));
    return {};
  };
  BATON_OK(write_package(package, spec, file));
  BATON_OK(timed("compile", [&] { return engine->compile(package, compiled); }));
  BATON_OK(timed("load", [&]() -> Status {
    BATON_TRY(loaded, engine->load(compiled, spec));
    return {};
  }));
  BATON_OK(timed("first_prediction", predict));
  BATON_OK(timed("prediction", predict));
  uint64_t wrong = 0;
  const std::vector<uint16_t>& y = outputs["y"];
  for (size_t i = 0; i < y.size(); ++i) {
    const auto r = static_cast<int64_t>(i) / kLength, c = static_cast<int64_t>(i) % kLength;
    wrong += y[i] != to_fp16(2 * package_input((r * 5 + 3) % kWidth, c));
  }
  json["ok"] = wrong == 0 && y.size() == x.size();
  json["wrong_values"] = wrong;
  json["units"] = to_string(options.units);
  json["emulated"] = engine->emulated();
  const coreml::DeviceShares& shares = loaded->shares();
  if (shares.operations > 0) {
    json["plan"] = {{"neural_engine", shares.neural_engine}, {"gpu", shares.gpu}, {"cpu", shares.cpu}};
  } else {
    json["plan"] = shares.unknown;
  }
  return json;
}

// The fastest of five products of 512 x 512 matrices, in GFLOP/s.
template <class Product>
double gflops(const Product& product) {
  constexpr size_t kSize = 512;
  Random random(3);
  std::vector<float> a(kSize * kSize), b(kSize * kSize), c(kSize * kSize);
  for (float& value : a) value = random.uniform(-1, 1);
  for (float& value : b) value = random.uniform(-1, 1);
  const SteadyClock clock;
  double best = HUGE_VAL;
  for (int i = 0; i < 5; ++i) {
    const int64_t start = clock.now_ns();
    product(static_cast<int>(kSize), a.data(), b.data(), c.data());
    best = std::min(best, ms_between(start, clock.now_ns()));
  }
  return 2.0 * kSize * kSize * kSize / best * 1e-6;
}

void plain_product(int size, const float* a, const float* b, float* c) {
  const auto n = static_cast<size_t>(size);
  std::fill_n(c, n * n, 0.0f);
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < n; ++k) {
      for (size_t j = 0; j < n; ++j) c[i * n + j] += a[i * n + k] * b[k * n + j];
    }
  }
}

// What the host could do beside the engine: plain loops on one thread, and the system's own products (AMX, SME).
Result<OrderedJson> probe_host(const CheckContext&, const std::string&) {
  OrderedJson json = {{"ok", true}, {"threads", std::thread::hardware_concurrency()}};
  json["plain_f32_gflop_s"] = gflops(plain_product);
  json["accelerate_f32_gflop_s"] = nullptr;
#if defined(__APPLE__)
  void* library = dlopen("/System/Library/Frameworks/Accelerate.framework/Accelerate", RTLD_NOW);
  using Sgemm = void (*)(int, int, int, int, int, int, float, const float*, int, const float*, int, float, float*, int);
  if (const auto sgemm = library != nullptr ? reinterpret_cast<Sgemm>(dlsym(library, "cblas_sgemm")) : nullptr) {
    json["accelerate_f32_gflop_s"] = gflops([&](int n, const float* a, const float* b, float* c) {
      sgemm(101, 111, 111, n, n, n, 1.0f, a, n, b, n, 0.0f, c, n);  // row-major, nothing transposed
    });
  }
#endif
  return json;
}

// Joules of an idle second, and of seconds in which the engine works.
Result<OrderedJson> probe_energy(const CheckContext& context, const std::string&) {
  BATON_TRY(const auto report, IoReport::open());
  BATON_TRY(const auto device, open_device(context));
  BATON_TRY(const Kernel kernel, exact_kernel(context, kExactSize));
  const std::vector<uint16_t> input(static_cast<size_t>(kExactSize * kExactSize), to_fp16(1));
  OrderedJson json = {{"ok", true}};
  const SteadyClock clock;
  const auto measure = [&](const char* what, const auto& work) -> Status {
    BATON_OK(report->start());
    const int64_t start = clock.now_ns();
    BATON_OK(work());
    BATON_TRY(const auto joules, report->joules());
    OrderedJson part = {{"seconds", ms_between(start, clock.now_ns()) * 1e-3}};
    for (const auto& [channel, value] : joules) {
      const bool whole = channel.find("Energy") != std::string::npos || channel.starts_with("ANE") ||
                         channel.starts_with("DRAM") || channel.starts_with("GPU") || channel.starts_with("CPU");
      if (whole) part[channel] = value;
    }
    json[what] = part;
    return {};
  };
  BATON_OK(measure("idle", []() -> Status {
    std::this_thread::sleep_for(std::chrono::seconds(1));
    return {};
  }));
  BATON_OK(measure("engine", [&]() -> Status {
    BATON_TRY(const Ran ran, run_kernel(*device, kernel, input, input.size(), context.quick ? 1000 : 10000));
    json["evaluate_ms"] = ran.median_ms;
    return {};
  }));
  return json;
}

Result<OrderedJson> probe_hang(const CheckContext&, const std::string&) {
  std::this_thread::sleep_for(std::chrono::hours(1));
  return OrderedJson();
}

Result<OrderedJson> probe_crash(const CheckContext&, const std::string&) {
  std::raise(SIGSEGV);
  return OrderedJson();
}

}  // namespace

std::vector<Probe> system_probes() {
  return {{"host", "host", true, false, 60, probe_host},
          {"coreml-cpu", "coreml", true, false, 180, probe_coreml},
          {"coreml-ane", "coreml", true, false, 180, probe_coreml},
          {"energy", "energy", true, false, 60, probe_energy},
          {"hang", "self-test", false, true, 1, probe_hang},
          {"crash", "self-test", false, true, 10, probe_crash}};
}

}  // namespace baton::apple
