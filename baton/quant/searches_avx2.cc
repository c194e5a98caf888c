// The searches on AVX2.
#if defined(__x86_64__)

#include "baton/base/simd/avx2.h"
#include "baton/quant/searches.inl.h"

namespace baton {

const Searches& searches_avx2();
const Searches& searches_avx2() {
  static constexpr Searches kSearches = make_searches("avx2");
  return kSearches;
}

}  // namespace baton

#endif
