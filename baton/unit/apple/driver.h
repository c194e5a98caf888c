// The calls that reach the neural engine, one virtual function for each call of the system's private classes, in their
// order: create_model (descriptor and model), files written by the caller, compile, load, create_surface,
// create_request, evaluate, unload. Two drivers: the emulator, anywhere; Apple's classes, on a Mac. device_kernel.h has
// the sequence.
//
// Threads: a driver and what it made may be used from any thread; calls of one model are serialised inside. Models,
// surfaces and requests must not outlive their driver, nor requests their surfaces. Errors begin with the system's
// words (rule.h); after a failed evaluate the contents of the outputs are undefined.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/base/status.h"

namespace baton::apple {

// Memory the device reads and writes, as the keys of an IOSurface.
struct SurfaceProperties {
  uint64_t width = 0;
  uint64_t height = 1;
  uint64_t bytes_per_element = 1;
  uint64_t bytes_per_row = 0;
  uint64_t alloc_size = 0;
  uint32_t pixel_format = 0;

  // The only form in use: one row of bytes.
  static SurfaceProperties flat(uint64_t bytes) { return {bytes, 1, 1, bytes, bytes, 0}; }
};

enum class LockMode : uint8_t { kReadWrite, kReadOnly };

class Surface {
 public:
  virtual ~Surface() = default;
  virtual const SurfaceProperties& properties() const = 0;
  // The bytes, alloc_size of them, until unlock with the same mode. Fresh surfaces are zero, except in the emulator's
  // poison mode. Writing under kReadOnly, or keeping the pointer, is a fault that the emulator reports.
  virtual Result<std::span<std::byte>> lock(LockMode mode) = 0;
  virtual Status unlock(LockMode mode) = 0;
};

// Locks in a scope. The status of the unlock is lost in the destructor; call unlock() to see it.
class SurfaceLock {
 public:
  static Result<SurfaceLock> take(Surface& surface, LockMode mode) {
    BATON_TRY(const std::span<std::byte> bytes, surface.lock(mode));
    return SurfaceLock(&surface, mode, bytes);
  }
  SurfaceLock(SurfaceLock&& other) noexcept
      : surface_(std::exchange(other.surface_, nullptr)), mode_(other.mode_), bytes_(other.bytes_) {}
  SurfaceLock& operator=(SurfaceLock&&) = delete;
  ~SurfaceLock() { static_cast<void>(unlock()); }

  std::span<std::byte> bytes() const { return bytes_; }
  Status unlock() {
    Surface* surface = std::exchange(surface_, nullptr);
    return surface != nullptr ? surface->unlock(mode_) : Status{};
  }

 private:
  SurfaceLock(Surface* surface, LockMode mode, std::span<std::byte> bytes)
      : surface_(surface), mode_(mode), bytes_(bytes) {}
  Surface* surface_;
  LockMode mode_;
  std::span<std::byte> bytes_;
};

// Surfaces of this size and multiples of it: what projects with long runs use. Less than 16 KiB was refused or gave
// zeros.
inline constexpr uint64_t kSurfaceStep = 65536;
inline constexpr uint64_t surface_bytes(uint64_t port_bytes) {
  return port_bytes < kSurfaceStep ? kSurfaceStep : (port_bytes + kSurfaceStep - 1) / kSurfaceStep * kSurfaceStep;
}

// What the process has compiled and has loaded, over all its drivers: the system's limits (about 119 of each) are those
// of a process, not of a driver.
struct ProcessCounts {
  std::atomic<uint32_t> compiles{0}, loaded{0};
};
ProcessCounts& process_counts();

// Surfaces in the order of the ports' names, with their indices: 0 to n - 1 for a program of one function, else what
// DeviceModel::port_indices says.
struct RequestSpec {
  std::vector<Surface*> inputs;
  std::vector<int32_t> input_indices;
  std::vector<Surface*> outputs;
  std::vector<int32_t> output_indices;
  int32_t procedure = 0;              // which function of the program, in the order of the text
  Surface* weights_buffer = nullptr;  // has no effect on baked weights: leave it null
  bool perf_stats = false;            // refused for programs like this one: leave it false

  static RequestSpec one(Surface* input, Surface* output) { return {{input}, {0}, {output}, {0}, 0, nullptr, false}; }
};

// Built once, used for many evaluations of one model; never shared between models.
class Request {
 public:
  virtual ~Request() = default;
};

// One entry of the weights dictionary. The data is copied or hashed before create_model returns.
struct WeightEntry {
  std::string key;  // "@model_path/weights/l00_q.bin", as in the text
  uint64_t offset = 0;
  std::span<const std::byte> data;
};

struct PortIndices {
  std::vector<int32_t> inputs, outputs;
};

// Destroying a loaded model unloads it.
class DeviceModel {
 public:
  virtual ~DeviceModel() = default;
  // Folder name of the model below the temporary folder; the same for the same program.
  virtual const std::string& identifier() const = 0;
  // Reads model.mil and the weights from the folder; leaves net.plist and data there.
  virtual Status compile() = 0;
  // Needs net.plist and data in the folder, of this or an earlier process.
  virtual Status load() = 0;
  // Of a loaded program of several functions: the indices that requests of function `procedure` use. One project asks
  // the system for them; that they are not 0 to n - 1 for every function is its finding.
  virtual Result<PortIndices> port_indices(int32_t procedure) = 0;
  // Synchronous.
  virtual Status evaluate(const Request& request) = 0;
  virtual Status unload() = 0;
};

class Driver {
 public:
  virtual ~Driver() = default;
  virtual std::string_view name() const = 0;
  // What will do the arithmetic and how that is known, for placement reports: says "emulated" when it is.
  virtual std::string evidence() const = 0;
  // Where folders of models go. May vanish between processes.
  virtual std::filesystem::path temporary_folder() const = 0;

  // `weights` null is refused (the call needs a dictionary, empty for programs without weights).
  virtual Result<std::unique_ptr<DeviceModel>> create_model(std::string_view mil,
                                                            const std::vector<WeightEntry>* weights) = 0;
  virtual Result<std::unique_ptr<Surface>> create_surface(const SurfaceProperties& properties) = 0;
  virtual Result<std::unique_ptr<Request>> create_request(const RequestSpec& spec) = 0;
};

}  // namespace baton::apple
