// Figures that the source documents publish for the five pipelines, as they stand there, each with its place and with
// what it is used for here: half of them to calibrate the prediction, the others to be predicted.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

namespace baton {

enum class Quantity : uint8_t { kTtftMs, kPrefillTps, kDecodeTps, kBridgeMs, kPrefillWatts, kDecodeWatts };
std::string_view to_string(Quantity quantity);

// How the weights lie in the GPU's memory.
enum class GpuWeights : uint8_t {
  kBf16,
  k8Bit,      // 8 bits and a scale and offset of 16 bits for each 64
  kPromoted,  // 16 bits used in f32 arithmetic: read, widened, written, read again
};
std::string_view to_string(GpuWeights weights);

struct PublishedRow {
  std::string_view source;  // "H": AtomGradient/hybrid-ane-mlx-bench, "B": AtomGradient/hybird-batch-prefill-on-ane,
                            // "F": skyfallsin/apple-neural-engine-field-guide
  std::string_view chip;
  std::string_view shape;     // of shapes.h
  std::string_view pipeline;  // of pipelines.h; "ane-batch-only": batched prefill and decode on the engine
  GpuWeights weights;
  uint32_t tokens;  // processed before the first one of the answer; chat template included
  Quantity quantity;
  double value;
  bool calibrates;
  std::string_view doubt;  // empty: none
};

std::span<const PublishedRow> published_rows();

}  // namespace baton
