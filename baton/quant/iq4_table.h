// The values of the 4-bit codes of IQ4_NL and IQ4_XS: finer near zero.
#pragma once

#include <array>

namespace baton {

inline constexpr std::array<float, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                     1,    13,   25,  38,  53,  69,  89,  113};

}  // namespace baton
