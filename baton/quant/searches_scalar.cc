// The searches without instruction-set intrinsics.
#include "baton/base/simd/scalar.h"
#include "baton/quant/searches.inl.h"

namespace baton {

const Searches& searches_scalar();
const Searches& searches_scalar() {
  static constexpr Searches kSearches = make_searches("scalar");
  return kSearches;
}

}  // namespace baton
