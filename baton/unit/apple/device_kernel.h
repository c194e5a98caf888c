// A kernel on a device, through the whole sequence of calls: model, folder, files, compile or cached load, surfaces,
// request. The same code for every driver.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "baton/unit/apple/driver.h"
#include "baton/unit/apple/kernel.h"

namespace baton::apple {

// One pair of surfaces and the request that binds them. A second one lets the host fill one while the device uses the
// other. Must not outlive its kernel.
struct KernelIo {
  std::unique_ptr<Surface> input, output;
  std::unique_ptr<Request> request;
};

enum class LoadedBy : uint8_t { kCompile, kCache, kDonor };

class DeviceKernel {
 public:
  ~DeviceKernel();
  DeviceKernel(const DeviceKernel&) = delete;
  DeviceKernel& operator=(const DeviceKernel&) = delete;

  const KernelPlan& plan() const { return plan_; }
  const std::string& identifier() const { return model_->identifier(); }
  LoadedBy loaded_by() const { return loaded_by_; }
  // Bytes of the ports: channels * columns * 2. Surfaces are larger: surface_bytes() of driver.h.
  uint64_t input_bytes() const { return port_size(plan_.in_channels); }
  uint64_t output_bytes() const { return port_size(plan_.out_channels); }

  Result<KernelIo> new_io();
  // For kernels of one size that share surfaces; the request is this kernel's alone.
  Result<std::unique_ptr<Request>> new_request(Surface& input, Surface& output);
  // Reads the request's input, writes its output, all columns. Neither may be locked.
  Status evaluate(const Request& request);
  Status evaluate(const KernelIo& io) { return evaluate(*io.request); }

 private:
  friend class KernelLoader;
  DeviceKernel(Driver& driver, const KernelPlan& plan) : driver_(driver), plan_(plan) {}
  uint64_t port_size(int64_t channels) const { return static_cast<uint64_t>(channels * plan_.columns) * 2; }

  Driver& driver_;
  KernelPlan plan_;
  LoadedBy loaded_by_ = LoadedBy::kCompile;
  std::filesystem::path folder_to_remove_;  // empty: kept for the next process
  std::unique_ptr<DeviceModel> model_;
};

struct LoaderOptions {
  // Where markers of compiled kernels are kept, so that the next process loads them without compiling. Empty: every
  // kernel is compiled and its folder removed with it. Created when it does not exist.
  std::filesystem::path cache_folder;
  // Make kernels of a shape that was compiled before out of its net.plist and their own weights, without compiling. One
  // project has shown it; off until a check on the machine at hand has passed.
  bool donors = false;
  uint32_t load_retries = 0;  // after 100 ms each; one helps on hardware under load
};

struct LoaderCounts {
  uint32_t compiles = 0, cache_loads = 0, donor_loads = 0, stale_markers = 0;
};

// Used from one thread. The driver outlives the loader and its kernels.
class KernelLoader {
 public:
  KernelLoader(Driver& driver, const LoaderOptions& options) : driver_(driver), options_(options) {}

  // The kernel's bytes are not needed afterwards. A cached or donated load that fails falls back to compiling.
  // kMismatch when another kernel has the same identifier.
  Result<std::unique_ptr<DeviceKernel>> load(const Kernel& kernel);
  const LoaderCounts& counts() const { return counts_; }

 private:
  struct Job;
  Status write_files(const Job& job) const;
  bool load_cached(Job* job);
  bool load_from_donor(Job* job);
  Status compile_and_load(Job* job);
  std::filesystem::path marker(const std::string& identifier) const;

  Driver& driver_;
  const LoaderOptions options_;
  LoaderCounts counts_;
  std::map<std::string, std::string> contents_;          // identifier -> hash of text and weights
  std::map<std::string, std::filesystem::path> donors_;  // shape -> folder of a compiled kernel
};

}  // namespace baton::apple
