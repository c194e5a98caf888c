// States with a key: a MAC over the whole envelope, so that a state somebody else made or changed is refused, not only
// a damaged one. BLAKE2b-256, keyed (libsodium). Form and promises: docs/state_format.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

#include "baton/base/status.h"

namespace baton {

inline constexpr size_t kKeyFileBytesMin = 32, kKeyFileBytesMax = 4096;
inline constexpr size_t kMacBytes = 32;

// A secret. Move-only; wiped from memory when it goes, as is what was read to make it.
class StateKey {
 public:
  // Any file of 32 to 4096 bytes, all of which count (`head -c 32 /dev/urandom >key`). kInvalidInput for another length
  // and for bytes that are all the same.
  static Result<StateKey> read(const std::filesystem::path& path);
  // The same from memory; the bytes stay the caller's to wipe.
  static Result<StateKey> from_bytes(std::span<const std::byte> bytes);

  StateKey(StateKey&& other) noexcept;
  StateKey& operator=(StateKey&& other) noexcept;
  ~StateKey();

  // What the user should hear: the file can be read by others. Empty: nothing.
  const std::string& warning() const { return warning_; }

 private:
  friend class MacSum;
  StateKey() = default;
  std::array<unsigned char, 32> bytes_{};
  std::string warning_;
};

// The MAC of bytes that come in pieces. A copy goes on from where the original stands. Wiped when it goes.
class MacSum {
 public:
  explicit MacSum(const StateKey& key);
  MacSum(const MacSum&) = default;
  MacSum& operator=(const MacSum&) = delete;
  ~MacSum();
  void update(std::span<const std::byte> bytes);
  std::array<std::byte, kMacBytes> value() &&;
  // That it is `mac`, in constant time. kMismatch: nothing of what was summed may be used then.
  Status check(std::span<const std::byte> mac) &&;

 private:
  alignas(64) std::array<unsigned char, 384> state_;  // the library's
};

// Whether a state of `bytes` bytes that begins with `start` (a header's fixed part at least) says that a MAC ends it.
// Nothing else is checked. And the same as an error: kMismatch, kCorrupt.
bool has_mac(std::span<const std::byte> start, uint64_t bytes);
Status check_has_mac(std::span<const std::byte> start, uint64_t bytes);

// That the block was sealed with this key and nothing in it was changed since: in memory, as a whole. kMismatch:
// another key, or a block without a MAC; nothing of the block may be used then.
Status check_mac(std::span<const std::byte> block, const StateKey& key);

}  // namespace baton
