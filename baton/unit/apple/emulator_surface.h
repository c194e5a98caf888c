// Surfaces of the emulated engine: memory that knows its locks and finds out when it was written without one.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "baton/unit/apple/driver.h"
#include "baton/unit/apple/rule.h"

namespace baton::apple {

class EmulatedSurface final : public Surface {
 public:
  // `mutex` and `diagnostics` are the driver's and outlive the surface.
  EmulatedSurface(const SurfaceProperties& properties, bool poison, bool watch, std::mutex& mutex,
                  Diagnostics& diagnostics);

  const SurfaceProperties& properties() const override { return properties_; }
  Result<std::span<std::byte>> lock(LockMode mode) override;
  Status unlock(LockMode mode) override;

  // For evaluate, under the driver's mutex: looks for faults before the device uses the bytes, and takes note after.
  void before_device();
  void after_device();
  std::span<std::byte> bytes() { return bytes_; }

 private:
  uint64_t hash() const;
  void look_for_stray_writes();

  const SurfaceProperties properties_;
  const bool watch_;
  std::mutex& mutex_;
  Diagnostics& diagnostics_;
  std::vector<std::byte> bytes_;
  uint32_t writers_ = 0, readers_ = 0;
  uint64_t known_hash_ = 0;
};

}  // namespace baton::apple
