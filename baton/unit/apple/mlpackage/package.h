// A .mlpackage folder: Manifest.json, Data/com.apple.CoreML/model.mlmodel (protobuf) and
// Data/com.apple.CoreML/weights/weight.bin (blob storage v2). Layout and keys: docs/coreml.md.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "baton/base/file.h"
#include "baton/unit/apple/mlpackage/package_spec.h"

namespace baton::apple {

inline constexpr std::string_view kWeightFile = "@model_path/weights/weight.bin";

// Dense fp16 values by feature name.
using HalfArrays = std::map<std::string, std::vector<uint16_t>, std::less<>>;

// Writes the folder under a temporary name beside it and renames: a reader sees the whole package or none. An existing
// package of that name is replaced. The bytes depend only on spec and weights.
Status write_package(const std::filesystem::path& folder, const PackageSpec& spec, std::span<const std::byte> weights);

struct Package {
  std::filesystem::path folder;
  PackageSpec spec;
  MappedFile weights;
};
// Manifest, model and weight file, each checked for form. Errors name the file.
Result<Package> open_package(const std::filesystem::path& folder);

// Rules of the programs this project writes, separate from those of the engine's in-memory path (docs/ane.md): opset
// and operations, names, parameters, features that equal the function's inputs and outputs, weights in the one file.
// Types and shapes are checked when the program is run or inferred by check_mil. Errors name the operation.
Status check_package(const PackageSpec& spec);

}  // namespace baton::apple
