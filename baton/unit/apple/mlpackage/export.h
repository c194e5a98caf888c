// Writes the prefill of a model as Core ML packages: one for each length and each chunk of layers (docs/coreml.md).
// Embedding, final norm and output head stay on the host: prefill hands over states and never needs logits.
// Not yet run on Apple hardware.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "baton/unit/apple/mlpackage/package.h"
#include "baton/unit/apple/mlpackage/prefill_graph.h"

namespace baton::apple {

inline constexpr uint64_t kPackageWeightBytesMax = 2'000'000'000;   // a file of a bundle on macOS, as others report
inline constexpr uint64_t kPackageWeightBytesWanted = 900'000'000;  // chunks that are chosen stay below; iOS takes 1 GB
inline constexpr int32_t kPackageChunksMax = 64;

// Contiguous layers with about equal weights. `chunks` 0: as few as keep each below kPackageWeightBytesWanted.
// kInvalidInput when a chunk would pass kPackageWeightBytesMax, or there are more chunks than layers.
Result<std::vector<LayerRange>> plan_chunks(const Model& model, int32_t chunks);

// "model-name_prefill_seq64_past512_chunk1of2.mlpackage"
std::string package_name(const Model& model, const PrefillShape& shape, size_t chunk, size_t chunks);

struct PackageContent {
  PackageSpec spec;
  std::vector<std::byte> weights;
  RangeReport range;
  size_t ops = 0;
};
// One package in memory.
Result<PackageContent> build_package(const Model& model, const PrefillShape& shape,
                                     const std::vector<LayerRange>& chunks, size_t chunk);

struct ExportOptions {
  std::vector<PrefillShape> shapes;
  int32_t chunks = 0;
  std::function<void(const std::string& name, size_t done, size_t total)> on_package;  // may be empty
};

struct ExportedPackage {
  std::filesystem::path path;
  PrefillShape shape;
  LayerRange layers;
  uint64_t weight_bytes = 0, model_bytes = 0;
  size_t ops = 0;
};
struct ExportReport {
  std::vector<ExportedPackage> packages;
  RangeReport range;  // of the weights, each counted once
};
// Makes the folder `out`. Packages of the same name are replaced.
Result<ExportReport> export_packages(const Model& model, const ExportOptions& options,
                                     const std::filesystem::path& out);

}  // namespace baton::apple
