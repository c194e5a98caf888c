// Packing, evaluating and unpacking of layers.
#include "baton/unit/ane/device.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "baton/unit/ane/columns.h"
#include "baton/unit/apple/fp16.h"

namespace baton::ane {
namespace {

using apple::LockMode;
using apple::SurfaceLock;

}  // namespace

AneDevice::AneDevice(std::unique_ptr<apple::Driver> driver, const std::vector<DeviceLayer>& layers,
                     const AneOptions& options)
    : driver_(std::move(driver)),
      layers_(layers),
      options_(options),
      loader_(*driver_, {.cache_folder = options.cache_folder, .donors = options.donors, .load_retries = 1}),
      kernels_(layers.size()) {}

AneDevice::~AneDevice() = default;

Result<std::unique_ptr<AneDevice>> AneDevice::load(std::unique_ptr<apple::Driver> driver,
                                                   const std::vector<DeviceLayer>& layers, const AneOptions& options) {
  std::unique_ptr<AneDevice> device(new AneDevice(std::move(driver), layers, options));
  for (size_t i = 0; i < layers.size(); ++i) {
    if (layers[i].is_head && options.lazy_head) continue;
    BATON_OK(device->load_layer(i));
  }
  return device;
}

Status AneDevice::load_layer(size_t index) {
  std::vector<std::unique_ptr<apple::DeviceKernel>> kernels;
  for (const apple::KernelPlan& plan : layers_[index].kernels) {
    BATON_TRY(const apple::Kernel kernel, apple::build_kernel(plan, options_.out_of_range));
    weight_range_.add(kernel.range);
    if (kernel.range.noteworthy()) noteworthy_.push_back(plan.name);
    BATON_TRY(auto loaded, loader_.load(kernel));
    kernels.push_back(std::move(loaded));
  }
  kernels_[index] = std::move(kernels);
  return {};
}

Status AneDevice::run(size_t index, host::Pass& pass, DeviceIo& io) {
  const DeviceLayer& layer = layers_[index];
  const int64_t begin = layer.only_for_logits ? pass.first_logit_row() : 0, end = pass.rows();
  if (begin >= end) return {};
  if (kernels_[index].empty()) BATON_OK(load_layer(index));
  const int64_t most = options_.dispatch == Dispatch::kSequential ? 1 : options_.columns;
  for (int64_t row = begin; row < end; row += most) {
    const int64_t rows = std::min(most, end - row);
    for (auto& [size, pair] : io.pairs_) pair.in_begin = -1;
    for (size_t i = 0; i < layer.kernels.size(); ++i) {
      BATON_OK(run_kernel(layer, i, *kernels_[index][i], pass, io, row, rows));
    }
  }
  return {};
}

Status AneDevice::run_kernel(const DeviceLayer& layer, size_t index, apple::DeviceKernel& kernel, host::Pass& pass,
                             DeviceIo& io, int64_t row, int64_t rows) {
  const apple::KernelPlan& plan = layer.kernels[index];
  DeviceIo::Pair& pair = io.pairs_[{plan.in_channels, plan.out_channels}];
  if (pair.input == nullptr) {
    BATON_TRY(apple::KernelIo made, kernel.new_io());
    pair.input = std::move(made.input);
    pair.output = std::move(made.output);
    io.requests_[&kernel] = std::move(made.request);
  }
  std::unique_ptr<apple::Request>& request = io.requests_[&kernel];
  if (request == nullptr) {
    BATON_TRY(request, kernel.new_request(*pair.input, *pair.output));
  }
  if (pair.in_begin != plan.in_begin) {
    BATON_TRY(SurfaceLock lock, SurfaceLock::take(*pair.input, LockMode::kReadWrite));
    const float largest =
        pack_columns(pass.row(layer.x, row) + plan.in_begin, pass.stride(layer.x), rows, plan.in_channels, plan.columns,
                     reinterpret_cast<uint16_t*>(lock.bytes().data()));
    BATON_OK(lock.unlock());
    activation_max_ = std::max(activation_max_, largest);
    // Beyond this fp16 rounds to infinity; the device would go on with it and say nothing.
    if (!(largest < 65520.0f)) {
      return fail(Code::kDevice,
                  fmt::format("ane: kernel '{}': an activation of {} does not fit fp16 (65504); run this "
                              "model on another unit",
                              plan.name, largest));
    }
    pair.in_begin = plan.in_begin;
  }
  BATON_OK(kernel.evaluate(*request));
  ++counts_.evaluations;
  counts_.columns += static_cast<uint64_t>(rows);
  BATON_TRY(SurfaceLock lock, SurfaceLock::take(*pair.output, LockMode::kReadOnly));
  unpack(layer, plan, lock.bytes(), pass, row, rows);
  return lock.unlock();
}

// The kernel's channels of the layer's output, to the registers or logits they belong to.
void AneDevice::unpack(const DeviceLayer& layer, const apple::KernelPlan& plan, std::span<const std::byte> bytes,
                       host::Pass& pass, int64_t row, int64_t rows) const {
  const auto* from = reinterpret_cast<const uint16_t*>(bytes.data());
  if (layer.is_head) {
    // Rows of logits lie where the caller wants them; neighbours are written together.
    for (int64_t r = 0; r < rows;) {
      float* to = pass.logits(row + r);
      int64_t count = 1;
      const int64_t vocab = layer.outputs;
      while (to != nullptr && r + count < rows && pass.logits(row + r + count) == to + count * vocab) ++count;
      if (to != nullptr) {
        unpack_columns(from, plan.columns, r, count, plan.out_channels, plan.accumulate, to + plan.out_begin, vocab);
      }
      r += count;
    }
    return;
  }
  for (const Target& target : layer.targets) {
    const int64_t first = std::max(target.begin, plan.out_begin);
    const int64_t last = std::min(target.begin + target.count, plan.out_begin + plan.out_channels);
    if (first >= last) continue;
    unpack_columns(from + (first - plan.out_begin) * plan.columns, plan.columns, 0, rows, last - first,
                   target.add || plan.accumulate, pass.row(target.out, row) + (first - target.begin),
                   pass.stride(target.out));
  }
}

}  // namespace baton::ane
