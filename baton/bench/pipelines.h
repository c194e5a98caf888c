// The five pipelines of the source documents by name, run on this machine: which unit was asked for each phase, which
// did it and how that is known, times, the bridge, memory, energy.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/bench/stats.h"

namespace baton {

// Units as parse_unit() reads them; "gpu" stands for the best decode unit there is.
struct Pipeline {
  std::string name, prefill, decode;
};

// gpu, coreml-hybrid, ane, ane-hybrid, ane-batch.
std::vector<Pipeline> preset_pipelines();
// [{"name": "x", "prefill": "ane:columns=64", "decode": "cpu"}, ...]. kInvalidInput with the place.
Result<std::vector<Pipeline>> parse_pipelines(std::string_view json, std::string_view file);

// Whether figures were measured here, come from an emulator or an estimate, or are not known.
enum class Quality : uint8_t { kMeasured, kEmulated, kUnknown };
std::string_view to_string(Quality quality);

struct PhaseReport {
  std::string asked, ran, evidence;  // ran is empty where nothing ran
  bool emulated = false;
};

// One pipeline and prompt length. Values are medians over the runs; empty: not known.
struct PipelineRow {
  std::string pipeline;
  PhaseReport prefill, decode;
  uint32_t prompt_tokens = 0, runs = 0;
  std::optional<Summary> ttft_ms, prefill_tps, decode_tps, bridge_ms;
  std::optional<uint64_t> bridge_bytes, peak_memory_bytes;
  std::optional<double> watts, joules;  // of a whole answer
  Quality time = Quality::kUnknown, energy = Quality::kUnknown;
};

struct SkippedPipeline {
  std::string pipeline, reason;
  bool failed = false;  // it ran, and its unit failed or computed nonsense: not merely absent or too small
};

struct PipelineSettings {
  std::filesystem::path model;
  std::vector<uint32_t> prompt_tokens = {6, 13, 28, 74, 133, 410};
  uint32_t decode_tokens = 32;
  uint32_t runs = 10;
  // Wall time of an emulated unit says nothing of the device: fewer runs are enough to show that it works.
  uint32_t emulated_runs = 1;  // at least 1
  uint32_t threads = 0;
};

struct PipelineReport {
  std::vector<PipelineRow> rows;
  std::vector<SkippedPipeline> skipped;
  uint32_t loads = 0;  // of the model with a set of units: pipelines of one group share one
};

// Indices of pipelines that can share what is loaded: neighbours that have the same units with options, where there are
// some. Kernels of the neural engine are limited per process, and minutes are spent to compile them.
std::vector<std::vector<size_t>> shared_groups(std::span<const Pipeline> pipelines);

// Runs what can run, one after another, each with one warm-up that does not count (none where a unit is emulated).
// Memory of pipelines that share a group is that of all units of the group. A pipeline whose unit does not exist,
// cannot be created or cannot load the model is skipped with the reason; so is a prompt that does not fit, under
// "<pipeline>, <n> tokens". `progress` gets a line now and then. Errors only for a model that cannot be read.
Result<PipelineReport> run_pipelines(std::span<const Pipeline> pipelines, const PipelineSettings& settings,
                                     const std::function<void(std::string_view)>& progress);

// The unit that "gpu" stands for among `names`: the first of metal, cuda, vulkan, gpu, then cpu. Empty: none of them.
std::string_view best_decode_unit(std::span<const std::string_view> names);

}  // namespace baton
