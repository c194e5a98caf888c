// The ane executor: a program lowered onto a driver of the neural engine, with the host's kernels for the rest. The
// driver is the emulator or Apple's; nothing of this has run on Apple hardware.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "baton/base/thread_pool.h"
#include "baton/unit/ane/device.h"
#include "baton/unit/ane/lowering.h"
#include "baton/unit/ane/options.h"
#include "baton/unit/apple/driver_emulator.h"
#include "baton/unit/host/pass.h"
#include "baton/unit/unit.h"

namespace baton::ane {

inline constexpr uint32_t kSeatsMax = 16;  // of a decode step: columns of a kernel

// A folder of this process, removed with all that is in it.
class ScratchFolder {
 public:
  ScratchFolder() = default;  // none
  static Result<ScratchFolder> make();
  ScratchFolder(ScratchFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  ScratchFolder& operator=(ScratchFolder&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~ScratchFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  explicit ScratchFolder(std::filesystem::path path) : path_(std::move(path)) {}
  std::filesystem::path path_;
};

// What a load found and what ran since, for reports. Times and joules are emulated: see EmulatorReport.
struct AneReport {
  uint32_t kernels = 0, shapes = 0;
  std::vector<std::string> host_layers;
  apple::RangeReport weight_range;
  std::vector<std::string> noteworthy;  // kernels whose weights do not sit well in fp16
  float activation_max = 0;             // largest input of a kernel
  DeviceCounts device;
  apple::LoaderCounts loads;
  double host_ms = 0, device_ms = 0, overlapped_ms = 0;  // wall time of prefills; overlapped: both at once
  uint64_t turns = 0, shared_turns = 0;  // of two chunks in flight; shared: host and device both had work
  std::optional<apple::EmulatorReport> emulator;
};

class AneExecutor final : public Executor {
 public:
  // `hardware`: Apple's driver, else the emulator. Errors of the loads carry the kernel's name.
  static Result<std::unique_ptr<AneExecutor>> load(std::shared_ptr<const Model> model, const AneOptions& options,
                                                   bool hardware, uint32_t threads);
  ~AneExecutor() override;

  const Model& model() const override { return *model_; }
  const StateShape& shape() const override { return states_.shape(); }
  uint64_t state_bytes(uint64_t tokens) const override { return states_.bytes_for(tokens); }
  std::optional<StateMemory> state_memory() const override { return states_.memory(); }
  Result<std::unique_ptr<SequenceState>> new_state(uint64_t tokens_max) override { return states_.make(tokens_max); }
  Status step(std::span<const Seat> seats, std::span<float> out, const StepContext& context) override;
  Placement placement() const override;
  std::string arithmetic() const override;

  AneReport report() const;

 private:
  // A chunk of a prompt on its way through the stages.
  struct Lane {
    std::unique_ptr<host::Pass> pass;
    DeviceIo io;
    size_t stage = 0;
    bool busy = false;
  };
  AneExecutor(std::shared_ptr<const Model> model, const AneOptions& options, bool hardware, uint32_t threads);
  Status check_process_limit() const;
  Status open_driver(uint32_t threads, std::unique_ptr<apple::Driver>* driver);

  // Consecutive stages of one kind, from the lane's next on; `device` says which kind.
  Status run_segment(Lane& lane, bool device);
  Status run_through(Lane& lane);
  Status run_chunks(const Seat& seat, std::span<float> out, const StepContext& context);
  Status run_pipelined(const Seat& seat, std::span<float> out, const StepContext& context);
  Status run_singles(std::span<const Seat> seats, std::span<float> out);
  void start_chunk(Lane& lane, const Seat& seat, uint64_t start, int64_t begin, int64_t count,
                   std::span<float> out) const;
  int64_t chunk_tokens() const { return options_.dispatch == Dispatch::kSequential ? 1 : options_.columns; }

  const std::shared_ptr<const Model> model_;
  const AneOptions options_;
  const bool hardware_;
  host::StatePool states_;
  ThreadPool host_pool_;
  ThreadPool pair_pool_;  // the caller and the thread that drives the device
  ScratchFolder scratch_folder_;
  Split split_;
  std::unique_ptr<host::Weights> weights_;
  Lowering lowering_;
  const apple::EmulatorDriver* emulator_ = nullptr;  // the device's driver, when it is one
  std::unique_ptr<AneDevice> device_;
  Lane lanes_[2];

  double host_ms_ = 0, device_ms_ = 0, overlapped_ms_ = 0;
  uint64_t turns_ = 0, shared_turns_ = 0;
};

}  // namespace baton::ane
