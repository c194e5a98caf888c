// log(1 + e^x), of the decay gate.
#pragma once

#include <cmath>

namespace baton::host {

// From 20 on what x lacks is below half a unit in its last place, and e^x must not overflow.
inline float softplus(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

}  // namespace baton::host
