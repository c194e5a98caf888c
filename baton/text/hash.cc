// The seed of tables.
#include "baton/text/hash.h"

#include <unistd.h>
#if defined(__APPLE__)
#include <sys/random.h>
#endif

#include <chrono>

namespace baton {
namespace {

uint64_t make_seed() {
  const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
  uint64_t seed = 0;
  // Where the system has no entropy to give, time and address must do.
  if (::getentropy(&seed, sizeof(seed)) != 0) seed = mix_bits(reinterpret_cast<uintptr_t>(&seed));
  return mix_bits(seed ^ static_cast<uint64_t>(now));
}

}  // namespace

uint64_t table_seed() {
  static const uint64_t seed = make_seed();
  return seed;
}

}  // namespace baton
