// Locks are counted; the hash of the bytes is taken whenever the last lock that may write is given back.
#include "baton/unit/apple/emulator_surface.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>

namespace baton::apple {

EmulatedSurface::EmulatedSurface(const SurfaceProperties& properties, bool poison, bool watch, std::mutex& mutex,
                                 Diagnostics& diagnostics)
    : properties_(properties), watch_(watch), mutex_(mutex), diagnostics_(diagnostics), bytes_(properties.alloc_size) {
  if (poison) std::fill(bytes_.begin(), bytes_.end(), std::byte{0x7e});  // fp16 0x7e7e is NaN
  known_hash_ = hash();
}

uint64_t EmulatedSurface::hash() const { return watch_ ? XXH3_64bits(bytes_.data(), bytes_.size()) : 0; }

void EmulatedSurface::look_for_stray_writes() {
  if (writers_ > 0 || hash() == known_hash_) return;
  diagnostics_.warn(readers_ > 0 ? Rule::kSurfaceReadOnly : Rule::kSurfaceUnlocked,
                    fmt::format("a surface of {} bytes was written {}", bytes_.size(),
                                readers_ > 0 ? "under a read-only lock" : "without a lock"));
  known_hash_ = hash();
}

Result<std::span<std::byte>> EmulatedSurface::lock(LockMode mode) {
  const std::scoped_lock guard(mutex_);
  look_for_stray_writes();
  ++(mode == LockMode::kReadOnly ? readers_ : writers_);
  return std::span<std::byte>(bytes_);
}

Status EmulatedSurface::unlock(LockMode mode) {
  const std::scoped_lock guard(mutex_);
  uint32_t& count = mode == LockMode::kReadOnly ? readers_ : writers_;
  if (count == 0) return fail(rule_error(Rule::kCallOrder, "a surface is unlocked that is not locked in this mode"));
  if (mode == LockMode::kReadOnly) {
    look_for_stray_writes();
    --count;
  } else if (--count == 0) {
    known_hash_ = hash();
  }
  return {};
}

void EmulatedSurface::before_device() {
  look_for_stray_writes();
  if (writers_ + readers_ > 0) {
    diagnostics_.warn(Rule::kSurfaceLocked,
                      fmt::format("a surface of {} bytes is locked while the device uses it", bytes_.size()));
  }
}

void EmulatedSurface::after_device() { known_hash_ = hash(); }

}  // namespace baton::apple
