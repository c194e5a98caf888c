// XXH3-64 over bytes that arrive in pieces. Guards against damage, not against an attacker.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

struct XXH3_state_s;

namespace baton {

uint64_t checksum(std::span<const std::byte> bytes);

// The checksum of everything given to `update` since construction or `restart`. Throws std::bad_alloc (576 bytes).
class Checksum {
 public:
  Checksum();
  void restart();
  void update(std::span<const std::byte> bytes);
  uint64_t value() const;

 private:
  std::unique_ptr<XXH3_state_s, void (*)(XXH3_state_s*)> state_;
};

}  // namespace baton
