// The tables, row by row. Watts are the sum of GPU, neural engine and CPU.
#include "baton/bench/published.h"

namespace baton {
namespace {

constexpr std::string_view kShape08 = "qwen3.5-0.8b", kShape2 = "qwen3.5-2b", kShape9 = "qwen3.5-9b";
constexpr std::string_view kShapeDense = "qwen3-4b";
constexpr std::string_view kFellBack =
    "the source's program ran this row on MLX: chunked Core ML models were never called before its commit cd10f93";
constexpr std::string_view kWithLoad = "the source's window holds loading and prefill too";
constexpr auto kPromoted = GpuWeights::kPromoted, k8Bit = GpuWeights::k8Bit, kBf16 = GpuWeights::kBf16;
constexpr auto kTtftMs = Quantity::kTtftMs, kPrefillTps = Quantity::kPrefillTps, kDecodeTps = Quantity::kDecodeTps;
constexpr auto kBridgeMs = Quantity::kBridgeMs, kPrefillWatts = Quantity::kPrefillWatts;
constexpr auto kDecodeWatts = Quantity::kDecodeWatts;

constexpr PublishedRow kRows[] = {
    {"H", "m2-ultra", kShape08, "gpu", kPromoted, 6, kTtftMs, 56, false, ""},
    {"H", "m2-ultra", kShape08, "gpu", kPromoted, 133, kTtftMs, 69, false, ""},
    {"H", "m2-ultra", kShape08, "gpu", kPromoted, 410, kTtftMs, 96, false, ""},
    {"H", "m2-ultra", kShape08, "gpu", kPromoted, 6, kDecodeTps, 71.5, false, ""},
    {"H", "m2-ultra", kShape08, "gpu", kPromoted, 133, kDecodeTps, 70.2, false, ""},
    {"H", "m2-ultra", kShape08, "gpu", kPromoted, 410, kDecodeTps, 69, false, ""},
    {"H", "m2-ultra", kShape2, "gpu", k8Bit, 6, kTtftMs, 14, true, ""},
    {"H", "m2-ultra", kShape2, "gpu", k8Bit, 133, kTtftMs, 73, true, ""},
    {"H", "m2-ultra", kShape2, "gpu", k8Bit, 410, kTtftMs, 162, true, ""},
    {"H", "m2-ultra", kShape2, "gpu", k8Bit, 6, kDecodeTps, 141.8, true, ""},
    {"H", "m2-ultra", kShape2, "gpu", k8Bit, 133, kDecodeTps, 141, true, ""},
    {"H", "m2-ultra", kShape2, "gpu", k8Bit, 410, kDecodeTps, 138.9, true, ""},
    {"H", "m2-ultra", kShape2, "gpu", kBf16, 6, kTtftMs, 22, false, ""},
    {"H", "m2-ultra", kShape2, "gpu", kBf16, 133, kTtftMs, 54, false, ""},
    {"H", "m2-ultra", kShape2, "gpu", kBf16, 410, kTtftMs, 123, true, ""},
    {"H", "m2-ultra", kShape2, "gpu", kBf16, 6, kDecodeTps, 101.3, false, ""},
    {"H", "m2-ultra", kShape2, "gpu", kBf16, 133, kDecodeTps, 100.6, false, ""},
    {"H", "m2-ultra", kShape2, "gpu", kBf16, 410, kDecodeTps, 99.7, false, ""},
    {"H", "m2-ultra", kShape9, "gpu", k8Bit, 6, kTtftMs, 39, true, ""},
    {"H", "m2-ultra", kShape9, "gpu", k8Bit, 133, kTtftMs, 265, true, ""},
    {"H", "m2-ultra", kShape9, "gpu", k8Bit, 410, kTtftMs, 625, true, ""},
    {"H", "m2-ultra", kShape9, "gpu", k8Bit, 6, kDecodeTps, 56.4, true, ""},
    {"H", "m2-ultra", kShape9, "gpu", k8Bit, 133, kDecodeTps, 56.1, true, ""},
    {"H", "m2-ultra", kShape9, "gpu", k8Bit, 410, kDecodeTps, 56.5, true, ""},
    {"H", "m2-ultra", kShape08, "coreml-hybrid", kPromoted, 6, kTtftMs, 274, true, ""},
    {"H", "m2-ultra", kShape08, "coreml-hybrid", kPromoted, 133, kTtftMs, 411, false, ""},
    {"H", "m2-ultra", kShape08, "coreml-hybrid", kPromoted, 410, kTtftMs, 100, false, kFellBack},
    {"H", "m2-ultra", kShape08, "coreml-hybrid", kPromoted, 6, kDecodeTps, 69.2, false, ""},
    {"H", "m2-ultra", kShape08, "coreml-hybrid", kPromoted, 133, kDecodeTps, 71.3, false, ""},
    {"H", "m2-ultra", kShape08, "coreml-hybrid", kPromoted, 410, kDecodeTps, 73.3, false, kFellBack},
    {"H", "m2-ultra", kShape2, "coreml-hybrid", kBf16, 6, kTtftMs, 22, false, kFellBack},
    {"H", "m2-ultra", kShape2, "coreml-hybrid", kBf16, 133, kTtftMs, 54, false, kFellBack},
    {"H", "m2-ultra", kShape2, "coreml-hybrid", kBf16, 410, kTtftMs, 122, false, kFellBack},
    {"H", "m2-ultra", kShape2, "coreml-hybrid", kBf16, 6, kDecodeTps, 104.2, false, kFellBack},
    {"H", "m2-ultra", kShape2, "coreml-hybrid", kBf16, 133, kDecodeTps, 102.3, false, kFellBack},
    {"H", "m2-ultra", kShape2, "coreml-hybrid", kBf16, 410, kDecodeTps, 100.7, false, kFellBack},
    {"H", "m2-ultra", kShape9, "coreml-hybrid", k8Bit, 6, kTtftMs, 319, true, ""},
    {"H", "m2-ultra", kShape9, "coreml-hybrid", k8Bit, 133, kTtftMs, 672, false, ""},
    {"H", "m2-ultra", kShape9, "coreml-hybrid", k8Bit, 410, kTtftMs, 1265, true, ""},
    {"H", "m2-ultra", kShape9, "coreml-hybrid", k8Bit, 6, kDecodeTps, 50, false, ""},
    {"H", "m2-ultra", kShape9, "coreml-hybrid", k8Bit, 133, kDecodeTps, 49.7, false, ""},
    {"H", "m2-ultra", kShape9, "coreml-hybrid", k8Bit, 410, kDecodeTps, 47.6, false, ""},
    {"H", "m2-ultra", kShape08, "ane", kPromoted, 18, kTtftMs, 769, false, ""},
    {"H", "m2-ultra", kShape08, "ane", kPromoted, 145, kTtftMs, 5867, false, ""},
    {"H", "m2-ultra", kShape08, "ane", kPromoted, 422, kTtftMs, 17831, false, ""},
    {"H", "m2-ultra", kShape08, "ane", kPromoted, 18, kDecodeTps, 24.3, false, ""},
    {"H", "m2-ultra", kShape08, "ane", kPromoted, 145, kDecodeTps, 23.8, false, ""},
    {"H", "m2-ultra", kShape08, "ane", kPromoted, 422, kDecodeTps, 22.8, false, ""},
    {"H", "m2-ultra", kShape08, "ane-hybrid", kPromoted, 18, kTtftMs, 767, false, ""},
    {"H", "m2-ultra", kShape08, "ane-hybrid", kPromoted, 145, kTtftMs, 6060, false, ""},
    {"H", "m2-ultra", kShape08, "ane-hybrid", kPromoted, 422, kTtftMs, 17601, false, ""},
    {"H", "m2-ultra", kShape08, "ane-hybrid", kPromoted, 18, kDecodeTps, 66.6, false, ""},
    {"H", "m2-ultra", kShape08, "ane-hybrid", kPromoted, 145, kDecodeTps, 70, false, ""},
    {"H", "m2-ultra", kShape08, "ane-hybrid", kPromoted, 422, kDecodeTps, 69.7, false, ""},
    {"B", "m2-ultra", kShape08, "ane-batch-only", kPromoted, 13, kPrefillTps, 148.7, true, ""},
    {"B", "m2-ultra", kShape08, "ane-batch-only", kPromoted, 28, kPrefillTps, 237.5, true, ""},
    {"B", "m2-ultra", kShape08, "ane-batch-only", kPromoted, 74, kPrefillTps, 268, true, ""},
    {"B", "m2-ultra", kShape08, "ane-batch-only", kPromoted, 13, kDecodeTps, 17.6, true, ""},
    {"B", "m2-ultra", kShape08, "ane-batch-only", kPromoted, 28, kDecodeTps, 16.4, true, ""},
    {"B", "m2-ultra", kShape08, "ane-batch-only", kPromoted, 74, kDecodeTps, 17.1, true, ""},
    {"B", "m2-ultra", kShape08, "gpu", kPromoted, 13, kPrefillTps, 138.2, true, ""},
    {"B", "m2-ultra", kShape08, "gpu", kPromoted, 28, kPrefillTps, 290, true, ""},
    {"B", "m2-ultra", kShape08, "gpu", kPromoted, 74, kPrefillTps, 736.2, true, ""},
    {"B", "m2-ultra", kShape08, "gpu", kPromoted, 13, kDecodeTps, 61.2, true, ""},
    {"B", "m2-ultra", kShape08, "gpu", kPromoted, 28, kDecodeTps, 64.5, true, ""},
    {"B", "m2-ultra", kShape08, "gpu", kPromoted, 74, kDecodeTps, 64.1, true, ""},
    {"B", "m2-ultra", kShape08, "ane-batch", kPromoted, 13, kPrefillTps, 148.3, true, ""},
    {"B", "m2-ultra", kShape08, "ane-batch", kPromoted, 28, kPrefillTps, 237.9, true, ""},
    {"B", "m2-ultra", kShape08, "ane-batch", kPromoted, 74, kPrefillTps, 271.1, true, ""},
    {"B", "m2-ultra", kShape08, "ane-batch", kPromoted, 13, kDecodeTps, 39.4, true, ""},
    {"B", "m2-ultra", kShape08, "ane-batch", kPromoted, 28, kDecodeTps, 53.9, true, ""},
    {"B", "m2-ultra", kShape08, "ane-batch", kPromoted, 74, kDecodeTps, 54, true, ""},
    {"B", "m2-ultra", kShape2, "ane-batch-only", kBf16, 13, kPrefillTps, 91.7, false, ""},
    {"B", "m2-ultra", kShape2, "ane-batch-only", kBf16, 28, kPrefillTps, 160.4, false, ""},
    {"B", "m2-ultra", kShape2, "ane-batch-only", kBf16, 74, kPrefillTps, 172.7, false, ""},
    {"B", "m2-ultra", kShape2, "ane-batch-only", kBf16, 13, kDecodeTps, 12.4, false, ""},
    {"B", "m2-ultra", kShape2, "ane-batch-only", kBf16, 28, kDecodeTps, 12.5, false, ""},
    {"B", "m2-ultra", kShape2, "ane-batch-only", kBf16, 74, kDecodeTps, 12.7, false, ""},
    {"B", "m2-ultra", kShape2, "gpu", kBf16, 13, kPrefillTps, 179.6, false, ""},
    {"B", "m2-ultra", kShape2, "gpu", kBf16, 28, kPrefillTps, 358, false, ""},
    {"B", "m2-ultra", kShape2, "gpu", kBf16, 74, kPrefillTps, 828.6, false, ""},
    {"B", "m2-ultra", kShape2, "gpu", kBf16, 13, kDecodeTps, 90.8, false, ""},
    {"B", "m2-ultra", kShape2, "gpu", kBf16, 28, kDecodeTps, 94.1, false, ""},
    {"B", "m2-ultra", kShape2, "gpu", kBf16, 74, kDecodeTps, 92.4, false, ""},
    {"B", "m2-ultra", kShape2, "ane-batch", kPromoted, 13, kPrefillTps, 92.8, false, ""},
    {"B", "m2-ultra", kShape2, "ane-batch", kPromoted, 28, kPrefillTps, 159.3, false, ""},
    {"B", "m2-ultra", kShape2, "ane-batch", kPromoted, 74, kPrefillTps, 173.1, false, ""},
    {"B", "m2-ultra", kShape2, "ane-batch", kPromoted, 13, kDecodeTps, 22.6, false, ""},
    {"B", "m2-ultra", kShape2, "ane-batch", kPromoted, 28, kDecodeTps, 29, false, ""},
    {"B", "m2-ultra", kShape2, "ane-batch", kPromoted, 74, kDecodeTps, 29.2, false, ""},
    {"B", "m2-ultra", kShape08, "ane-batch", kPromoted, 74, kBridgeMs, 27, true, ""},
    {"B", "m2-ultra", kShape2, "ane-batch", kPromoted, 74, kBridgeMs, 26, false, ""},
    {"H", "m2-ultra", kShape08, "gpu", kPromoted, 410, kPrefillWatts, 64.39, true, ""},
    {"H", "m2-ultra", kShape08, "gpu", kPromoted, 410, kDecodeWatts, 17.15, true, ""},
    {"H", "m2-ultra", kShape08, "ane", kPromoted, 422, kPrefillWatts, 5.57, true, ""},
    {"H", "m2-ultra", kShape08, "ane-hybrid", kPromoted, 422, kDecodeWatts, 18.22, false, ""},
    {"H", "m2-ultra", kShape08, "ane", kPromoted, 422, kDecodeWatts, 7.05, false, kWithLoad},
    {"F", "m3-max", kShapeDense, "ane", kBf16, 64, kDecodeTps, 6.2, false, ""},
};

}  // namespace

std::string_view to_string(Quantity quantity) {
  switch (quantity) {
    case Quantity::kTtftMs:
      return "TTFT ms";
    case Quantity::kPrefillTps:
      return "prefill t/s";
    case Quantity::kDecodeTps:
      return "decode t/s";
    case Quantity::kBridgeMs:
      return "bridge ms";
    case Quantity::kPrefillWatts:
      return "prefill W";
    case Quantity::kDecodeWatts:
      break;
  }
  return "decode W";
}

std::string_view to_string(GpuWeights weights) {
  switch (weights) {
    case GpuWeights::kBf16:
      return "16-bit";
    case GpuWeights::k8Bit:
      return "8-bit";
    case GpuWeights::kPromoted:
      break;
  }
  return "16-bit in f32";
}

std::span<const PublishedRow> published_rows() { return kRows; }

}  // namespace baton
