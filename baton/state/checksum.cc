// The library's streaming form, owned.
#include "baton/state/checksum.h"

#include <xxhash.h>

#include <new>

namespace baton {
namespace {

void release(XXH3_state_s* state) { XXH3_freeState(state); }

}  // namespace

uint64_t checksum(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

Checksum::Checksum() : state_(XXH3_createState(), release) {
  if (state_ == nullptr) throw std::bad_alloc();
  restart();
}

void Checksum::restart() { XXH3_64bits_reset(state_.get()); }

void Checksum::update(std::span<const std::byte> bytes) {
  XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

uint64_t Checksum::value() const { return XXH3_64bits_digest(state_.get()); }

}  // namespace baton
