// States with a key: a MAC over the whole envelope, so that a state somebody else made or changed is refused, not only
// a damaged one. BLAKE2b-256, keyed (libsodium). Form and promises: docs/state_format.md.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <vector>

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
  friend Result<std::vector<std::byte>> add_mac(std::vector<std::byte> block, const StateKey& key);
  friend Status check_mac(std::span<const std::byte> block, const StateKey& key);
  StateKey() = default;
  std::array<unsigned char, 32> bytes_{};
  std::string warning_;
};

// Whether the block says that it carries a MAC. Nothing is checked.
bool has_mac(std::span<const std::byte> block);

// A sealed block without a MAC -> the same with one. kInvalidInput when it is not a sealed block, or has one.
Result<std::vector<std::byte>> add_mac(std::vector<std::byte> block, const StateKey& key);

// That the block was sealed with this key and nothing in it was changed since, in constant time for blocks of one
// length. kMismatch: another key, or a block without a MAC; nothing of the block may be used then.
Status check_mac(std::span<const std::byte> block, const StateKey& key);

// check_mac, then the block as open_seal takes it: without the MAC.
Result<std::vector<std::byte>> remove_mac(std::vector<std::byte> block, const StateKey& key);

}  // namespace baton
