// What published measurements say of the neural engines of some chips, for estimates: dispatch latency, weight
// streaming, arithmetic, power. Nothing here was measured by this project; everything computed from it is marked
// "emulated".
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace baton::apple {

struct ChipPreset {
  std::string_view name;                          // "m1", "m2-ultra"
  double dispatch_ms;                             // of one evaluation, warm
  double weights_gb_s;                            // weight streaming, 1e9 bytes/s
  double tflops;                                  // fp16 multiply and add counted as 2
  double active_watts;                            // of the engine while it works; below 0: unknown
  double compile_ms, compile_ms_per_mb, load_ms;  // per kernel; per 1e6 bytes of weights
  std::string_view basis;  // which figures are measured and by whom, which are taken from a range
};

std::span<const ChipPreset> chip_presets();
// Null when unknown.
const ChipPreset* chip_preset(std::string_view name);

// dispatch + max(weights / bandwidth, flops / peak): the form that fits the published data.
double evaluate_ms(const ChipPreset& chip, uint64_t weight_bytes, uint64_t flops);
double compile_ms(const ChipPreset& chip, uint64_t weight_bytes);

}  // namespace baton::apple
