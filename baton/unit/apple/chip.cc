// The presets. Sources are named by the letters of docs/ane.md; "range" is the middle of the range that all sources
// span.
#include "baton/unit/apple/chip.h"

#include <algorithm>

namespace baton::apple {
namespace {

// A line through F's compile times on the M3 Max: 11-33 ms tiny, 60 ms for 13.1 MB, 100 ms for 31.5 MB, 80 ms for 37.4
// MB; it misses them by up to 20 %. Load: the middle of 5-10 ms.
constexpr double kCompileMs = 22, kCompileMsPerMb = 1.9, kLoadMs = 7.5;

constexpr ChipPreset kPresets[] = {
    {"m1", 0.21, 51, 12, 5.5, kCompileMs, kCompileMsPerMb, kLoadMs,
     "dispatch 0.19-0.23 ms, 51 GB/s, 12 TFLOPS, 5.5 W at 8.1 TFLOPS: G, measured; compile: F, M3 Max"},
    {"m2-ultra", 0.10, 36, 15.8, 1.58, kCompileMs, kCompileMsPerMb, kLoadMs,
     "36 GB/s: A, inferred from 42 ms a token; 1.58 W: H, measured; dispatch: low end of the range of 0.1-0.25 ms; "
     "15.8 "
     "TFLOPS: nominal for one of two engines; compile: F, M3 Max"},
    {"m3-max", 0.17, 87, 10, -1, kCompileMs, kCompileMsPerMb, kLoadMs,
     "87 GB/s: F, 0.32 ms for a 13.1 MB conv less the dispatch; 10 TFLOPS: M, M3 Pro; dispatch: range; compile: F"},
    {"m4", 0.095, 90, 18.6, -1, kCompileMs, kCompileMsPerMb, kLoadMs,
     "dispatch and 18.6 TOPS: M, measured; 90 GB/s: middle of the range of 36-145; compile: F, M3 Max"},
    {"m4-max", 0.175, 90, 10.9, -1, kCompileMs, kCompileMsPerMb, kLoadMs,
     "dispatch and 10.93 TFLOPS: M, measured; 90 GB/s: middle of the range of 36-145; compile: F, M3 Max"},
    {"m5", 0.07, 145, 12.3, -1, 11, kCompileMsPerMb, 1.7,
     "dispatch, 12.17-12.44 TFLOPS, compile 11 ms and load 1.7 ms of 256x256: M, measured; 145 GB/s: G, measured"},
};

}  // namespace

std::span<const ChipPreset> chip_presets() { return kPresets; }

const ChipPreset* chip_preset(std::string_view name) {
  for (const ChipPreset& preset : kPresets) {
    if (preset.name == name) return &preset;
  }
  return nullptr;
}

double evaluate_ms(const ChipPreset& chip, uint64_t weight_bytes, uint64_t flops) {
  const double stream = static_cast<double>(weight_bytes) / (chip.weights_gb_s * 1e6);
  const double arithmetic = static_cast<double>(flops) / (chip.tflops * 1e9);
  return chip.dispatch_ms + std::max(stream, arithmetic);
}

double compile_ms(const ChipPreset& chip, uint64_t weight_bytes) {
  return chip.compile_ms + chip.compile_ms_per_mb * static_cast<double>(weight_bytes) * 1e-6;
}

}  // namespace baton::apple
