// Which instruction sets this processor has.
#include "baton/quant/searches.h"

#include <vector>

#include "baton/base/simd/cpu_features.h"

namespace baton {

// Each may be entered where its set runs.
const Searches& searches_scalar();
#if defined(__x86_64__)
const Searches& searches_avx2();
const Searches& searches_avx512();
#endif

std::span<const Searches* const> all_searches() {
  static const std::vector<const Searches*> found = [] {
    std::vector<const Searches*> tables = {&searches_scalar()};
#if defined(__x86_64__)
    if (runs(InstructionSet::avx2)) tables.push_back(&searches_avx2());
    if (runs(InstructionSet::avx512)) tables.push_back(&searches_avx512());
#endif
    return tables;
  }();
  return found;
}

const Searches& searches() {
  static const Searches& fastest = *all_searches().back();
  return fastest;
}

}  // namespace baton
