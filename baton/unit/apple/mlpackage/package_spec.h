// A Core ML model of the ML program kind as data, and its protobuf form. Field numbers: docs/coreml.md, from the public
// Model.proto, FeatureTypes.proto and MIL.proto of coremltools. Only what this project writes is read: one function
// `main` with one block, tensors of known shape, constants as immediate values or places in a weight file.
#pragma once

#include <cstddef>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/unit/apple/mil.h"

namespace baton::apple {

// Specification version 7: iOS 16, macOS 13, the first that takes fp16 as input and output.
inline constexpr int32_t kSpecificationVersion = 7;
inline constexpr std::string_view kCoreMlOpset = "CoreML6";

struct PackageFeature {
  std::string name;
  MilTensorType type;
  std::string description;
};

struct PackageSpec {
  int32_t specification_version = kSpecificationVersion;
  std::vector<PackageFeature> inputs, outputs;
  std::string description;                      // for people
  std::map<std::string, std::string> metadata;  // user-defined
  MilFunction main;                             // opset is kCoreMlOpset
};

// The bytes depend only on the spec.
std::string encode_spec(const PackageSpec& spec);
// kCorrupt or kUnsupported with the place.
Result<PackageSpec> decode_spec(std::span<const std::byte> bytes);

}  // namespace baton::apple
