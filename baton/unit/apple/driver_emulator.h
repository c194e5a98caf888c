// The neural engine as an emulator: the same calls, text, weight files and folders as the device, under the rules of
// docs/ane.md, each refusal with the rule's name. What passes here in strict mode has the best chance on hardware; it
// has not run there yet. Times and joules it gives come from published figures and are emulated, never measured.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "baton/unit/apple/chip.h"
#include "baton/unit/apple/driver.h"
#include "baton/unit/apple/mac.h"
#include "baton/unit/apple/rule.h"

namespace baton::apple {

// What the identifier of a model is made of: sources disagree, so a design must work with both.
enum class IdentifierMode : uint8_t { kContent, kKeysOnly };

struct EmulatorOptions {
  std::filesystem::path temporary_folder;  // must exist
  Mode mode = Mode::kStrict;
  Numerics numerics;
  IdentifierMode identifier = IdentifierMode::kContent;
  uint32_t compiles_max = 119;      // successful compiles
  uint32_t loaded_max = 119;        // models loaded at a time
  ProcessCounts* counts = nullptr;  // what the two limits are limits of: the process's, or null for this driver alone
  uint64_t surface_bytes_min = 0;   // a request with a smaller surface fails; hardware: 16384
  uint64_t program_bytes_max = 4ull << 30;  // weights of a program: its window in the engine's address space
  int64_t columns_min = 0;                  // a port with shorter rows gives zeros and says nothing; hardware: 32
  bool poison_surfaces = false;             // fresh surfaces hold NaN, so that code that relies on zeros is found
  bool watch_surfaces = true;               // find writes without a lock by a hash of the bytes
  uint32_t threads = 1;                     // of the arithmetic; 0: all cores
  const ChipPreset* chip = nullptr;         // times and joules as on this chip; null: none
};

// Everything since the driver was made.
struct EmulatorReport {
  uint64_t compiles = 0;               // successful
  uint64_t loads = 0;                  // successful
  uint64_t loads_without_compile = 0;  // of them, of artefacts that another model or process compiled
  uint64_t loaded = 0;                 // now
  uint64_t evaluations = 0;
  uint64_t flops = 0, weight_bytes_read = 0;
  float abs_max = 0;  // largest finite result
  std::vector<Warning> warnings;
  uint64_t warnings_dropped = 0;
  // With a chip preset only, otherwise below 0. Emulated, from published figures; the host's own work is not in them.
  double emulated_ms = -1, emulated_compile_ms = -1;
  double emulated_joules = -1;  // below 0 also when the chip's power is unknown
};

class EmulatorDriver final : public Driver {
 public:
  // kNotFound when the temporary folder does not exist.
  static Result<std::unique_ptr<EmulatorDriver>> create(const EmulatorOptions& options);
  ~EmulatorDriver() override;

  std::string_view name() const override { return "emulator"; }
  std::string evidence() const override;
  std::filesystem::path temporary_folder() const override;
  Result<std::unique_ptr<DeviceModel>> create_model(std::string_view mil,
                                                    const std::vector<WeightEntry>* weights) override;
  Result<std::unique_ptr<Surface>> create_surface(const SurfaceProperties& properties) override;
  Result<std::unique_ptr<Request>> create_request(const RequestSpec& spec) override;

  EmulatorReport report() const;

 private:
  struct Shared;
  class Model;
  class EmulatedRequest;
  explicit EmulatorDriver(const EmulatorOptions& options);

  std::unique_ptr<Shared> shared_;
};

}  // namespace baton::apple
