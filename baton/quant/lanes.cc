// Which instruction sets this processor has.
#include "baton/quant/lanes.h"

#include <vector>

#include "baton/base/simd/cpu_features.h"

namespace baton {

extern const Lanes lanes_base;
#if defined(__x86_64__)
extern const Lanes lanes_avx2;
extern const Lanes lanes_avx512;
#endif

std::span<const Lanes* const> all_lanes() {
  static const std::vector<const Lanes*> found = [] {
    std::vector<const Lanes*> tables = {&lanes_base};
#if defined(__x86_64__)
    if (runs(InstructionSet::avx2)) tables.push_back(&lanes_avx2);
    if (runs(InstructionSet::avx512)) tables.push_back(&lanes_avx512);
#endif
    return tables;
  }();
  return found;
}

const Lanes& lanes() {
  static const Lanes& fastest = *all_lanes().back();
  return fastest;
}

}  // namespace baton
