// Apple's Core ML through its public classes, looked up at run time: MLModel, MLModelConfiguration, MLMultiArray,
// MLFeatureValue, MLDictionaryFeatureProvider, and MLComputePlan where the system has it (macOS 14.4). Selectors and
// types: docs/coreml.md. Not yet run on Apple hardware: on Linux every call is tested against classes registered in
// GCC's Objective-C runtime.
#pragma once

#include <chrono>
#include <memory>

#include "baton/unit/apple/objc.h"
#include "baton/unit/coreml/package_engine.h"

namespace baton::coreml {

struct FrameworkOptions {
  ComputeUnits units = ComputeUnits::kAll;
  std::chrono::milliseconds plan_timeout{60'000};  // for the compute plan's answer
  // For a model to be loaded, which is where the system compiles for the engine: others saw it take 50 minutes, or
  // hang.
  std::chrono::milliseconds load_timeout{300'000};
};

// On a Mac: loads the frameworks, then as below. kUnsupported anywhere else, with the reason.
Result<std::unique_ptr<PackageEngine>> open_framework(const FrameworkOptions& options);
// With the symbols and classes that `lookup` and its runtime have. kUnsupported names what is missing.
Result<std::unique_ptr<PackageEngine>> create_framework(const apple::SymbolLookup& lookup,
                                                        const FrameworkOptions& options);

}  // namespace baton::coreml
