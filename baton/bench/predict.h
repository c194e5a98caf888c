// What the five pipelines would do on a chip of Apple's, from sizes and a few figures of the chip: dispatch latency,
// bandwidth, arithmetic, host work. Every result is emulated: nothing was measured by this project. The figures of the
// M2 Ultra are fitted to the calibration rows of published.h; other chips take the published preset of their neural
// engine, and the rest in proportion to their specification.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/bench/published.h"
#include "baton/bench/shapes.h"
#include "baton/unit/apple/chip.h"

namespace baton {

// Figures that the published tables decide. Bandwidths in 1e9 bytes/s, arithmetic in 1e12 or 1e9 operations/s.
struct MachineFigures {
  double engine_gb_s = 36;       // weight streaming of the neural engine
  double host_gflops = 20;       // arithmetic and copies between evaluations
  double gpu_gb_s = 600;         // weight streaming of the GPU
  double gpu_8bit_tflops = 12;   // the same with 8-bit weights, which are widened first
  double gpu_tflops = 14;        // of a prefill
  double gpu_step_ms = 4;        // of a decode step, beside the weights
  double gpu_prefill_ms = 20;    // of a prefill, beside weights and arithmetic
  double gpu_cold_ms = 40;       // more, where every run is a new process (source B)
  double coreml_fixed_ms = 200;  // of a prefill through Core ML
  double coreml_tflops = 8;
  double bridge_gb_s = 2.7;  // saving, reading and rebuilding a state
  double gpu_prefill_watts = 60, gpu_decode_watts = 17;
  double host_watts = 4;  // of everything else while the neural engine works
};

class Predictor {
 public:
  // kNotFound names the presets; kUnsupported when the figures of a chip's GPU are not published.
  static Result<Predictor> create(std::string_view chip);

  // Of any shape; the kernels of each are planned once.
  Result<double> value(const PublishedRow& row);

  struct Times {
    double ttft_ms = 0, prefill_tps = 0, decode_tps = 0, bridge_ms = 0;
    uint64_t bridge_bytes = 0, memory_bytes = 0;
    std::optional<double> watts, joules;  // of prefill and 200 decoded tokens; empty: power is not published
  };
  // A pipeline of pipelines.h on this chip. kUnsupported where the chip's GPU is not described.
  Result<Times> times(std::string_view pipeline, const ModelShape& shape, GpuWeights weights, uint32_t tokens);

  const apple::ChipPreset& chip() const { return *chip_; }
  const MachineFigures& figures() const { return figures_; }
  bool has_gpu() const { return has_gpu_; }

 private:
  explicit Predictor(const apple::ChipPreset& chip) : chip_(&chip) {}
  Status fit();
  double error();
  Result<const EngineWork*> work_of(const ModelShape& shape);
  double engine_ms(const std::vector<KernelWork>& kernels) const;
  double host_ms(const ModelShape& shape, const EngineWork& work, double depth) const;
  double gpu_step_ms(const ModelShape& shape, GpuWeights weights, double depth) const;
  double bridge_ms(const ModelShape& shape) const;
  Result<double> prefill_ms(const PublishedRow& row, const ModelShape& shape);
  Result<double> decode_ms(const PublishedRow& row, const ModelShape& shape);
  double watts(std::string_view pipeline, bool prefill) const;

  const apple::ChipPreset* chip_;
  MachineFigures figures_;
  bool has_gpu_ = true, power_known_ = true;
  std::map<std::string, EngineWork, std::less<>> work_;
};

// A published row beside its prediction. `deviation` 0.1: predicted a tenth too large.
struct Comparison {
  PublishedRow row;
  double predicted = 0, deviation = 0;
};
// All rows, each on its own chip.
Result<std::vector<Comparison>> compare_published();
// Why the predictions of rows like this are wrong, as far as the sources tell; empty: not known.
std::string_view explanation(const PublishedRow& row);

inline constexpr double kDeviationStated = 0.2;  // larger ones are listed with their reason

}  // namespace baton
