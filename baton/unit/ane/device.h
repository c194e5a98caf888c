// The layers of a lowered program on a driver: their kernels loaded, and a layer run over the rows of a pass.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "baton/unit/ane/lowering.h"
#include "baton/unit/apple/device_kernel.h"
#include "baton/unit/host/pass.h"

namespace baton::ane {

// Surfaces of one pass: a pair for each size of kernel, shared by the kernels of that size, and a request for each
// kernel. Must not outlive the device.
class DeviceIo {
 private:
  friend class AneDevice;
  struct Pair {
    std::unique_ptr<apple::Surface> input, output;
    // What the input surface holds of the rows under way: it is packed once for the kernels that read the same.
    int64_t in_begin = -1;
  };
  std::map<std::pair<int64_t, int64_t>, Pair> pairs_;  // by input and output channels
  std::map<const apple::DeviceKernel*, std::unique_ptr<apple::Request>> requests_;
};

struct DeviceCounts {
  uint64_t evaluations = 0;
  uint64_t columns = 0;  // of them, filled with tokens; summed over evaluations
};

class AneDevice {
 public:
  // Loads every kernel but, with options.lazy_head, the head's. Slow. Errors: the driver's, with the kernel's name;
  // weight-range; kOutOfMemory.
  static Result<std::unique_ptr<AneDevice>> load(std::unique_ptr<apple::Driver> driver,
                                                 const std::vector<DeviceLayer>& layers, const AneOptions& options);
  ~AneDevice();

  // Runs layer `index` for the rows the pass wants of it. kDevice names the kernel when an activation does not fit
  // fp16. Calls with different passes may come from different threads, one at a time.
  Status run(size_t index, host::Pass& pass, DeviceIo& io);

  const apple::Driver& driver() const { return *driver_; }
  const apple::LoaderCounts& loader_counts() const { return loader_.counts(); }
  const DeviceCounts& counts() const { return counts_; }
  // Of the conversion of the weights to fp16: all of them, and the kernels worth telling about.
  const apple::RangeReport& weight_range() const { return weight_range_; }
  const std::vector<std::string>& noteworthy() const { return noteworthy_; }
  float activation_max() const { return activation_max_; }  // largest input of a kernel so far

 private:
  AneDevice(std::unique_ptr<apple::Driver> driver, const std::vector<DeviceLayer>& layers, const AneOptions& options);
  Status load_layer(size_t index);
  Status run_kernel(const DeviceLayer& layer, size_t kernel, apple::DeviceKernel& loaded, host::Pass& pass,
                    DeviceIo& io, int64_t row, int64_t rows);
  void unpack(const DeviceLayer& layer, const apple::KernelPlan& plan, std::span<const std::byte> bytes,
              host::Pass& pass, int64_t row, int64_t rows) const;

  const std::unique_ptr<apple::Driver> driver_;
  const std::vector<DeviceLayer>& layers_;
  const AneOptions options_;
  apple::KernelLoader loader_;
  std::vector<std::vector<std::unique_ptr<apple::DeviceKernel>>> kernels_;  // by layer
  apple::RangeReport weight_range_;
  std::vector<std::string> noteworthy_;
  DeviceCounts counts_;
  float activation_max_ = 0;
};

}  // namespace baton::ane
