// The searches on AVX-512.
#if defined(__x86_64__)

#include "baton/base/simd/avx512.h"
#include "baton/quant/searches.inl.h"

namespace baton {

const Searches& searches_avx512();
const Searches& searches_avx512() {
  static constexpr Searches kSearches = make_searches("avx512");
  return kSearches;
}

}  // namespace baton

#endif
