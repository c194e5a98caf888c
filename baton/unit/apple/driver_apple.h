// The neural engine through the private classes of macOS, by look-up at run time: _ANEInMemoryModelDescriptor,
// _ANEInMemoryModel, _ANERequest, _ANEIOSurfaceObject, and IOSurface (selectors and types: docs/ane.md). Not yet run on
// Apple hardware: on Linux every call is tested against classes registered in GCC's Objective-C runtime.
#pragma once

#include <filesystem>
#include <memory>

#include "baton/unit/apple/driver.h"
#include "baton/unit/apple/objc.h"

namespace baton::apple {

struct AppleOptions {
  std::filesystem::path temporary_folder;  // empty: the system's, where the compile service looks
  // Compare three tiny programs with the emulator before anything else runs; a difference refuses the driver.
  bool self_check = true;
};

class AppleDriver final : public Driver {
 public:
  // On a Mac: loads the frameworks, then as below. kUnsupported anywhere else, with the reason.
  static Result<std::unique_ptr<AppleDriver>> open(const AppleOptions& options);
  // With the symbols and classes that `lookup` and its runtime have. kUnsupported names what is missing, or what the
  // start-up check found.
  static Result<std::unique_ptr<AppleDriver>> create(const SymbolLookup& lookup, const AppleOptions& options);
  ~AppleDriver() override;

  std::string_view name() const override { return "apple"; }
  std::string evidence() const override;
  std::filesystem::path temporary_folder() const override;
  Result<std::unique_ptr<DeviceModel>> create_model(std::string_view mil,
                                                    const std::vector<WeightEntry>* weights) override;
  Result<std::unique_ptr<Surface>> create_surface(const SurfaceProperties& properties) override;
  Result<std::unique_ptr<Request>> create_request(const RequestSpec& spec) override;

 private:
  struct Calls;
  class Model;
  class IoSurface;
  class IoRequest;
  explicit AppleDriver(std::unique_ptr<Calls> calls);

  std::unique_ptr<Calls> calls_;
};

}  // namespace baton::apple
