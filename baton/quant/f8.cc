// F8_G32: 32 values in 36 bytes. f32 d; u8 q[32], E4M3 numbers (FN: no infinities, 0x7f and 0xff are no numbers).
// value = d * q.
#include <limits>

#include "baton/quant/codec.h"

namespace baton {
namespace {

float e4m3(uint8_t bits) {
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<float>::quiet_NaN();
  const float magnitude = 2 * half_e4m3(bits & 0x7f);
  return (bits & 0x80) != 0 ? -magnitude : magnitude;
}

void decode(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t done = 0; done < count; done += 32, from += kBlockBytes<DType::kF8_G32>, to += 32) {
    const auto d = load_as<float>(from);
    for (size_t i = 0; i < 32; ++i) to[i] = d * e4m3(u8_at(from, 4 + i));
  }
}

}  // namespace

template <>
Codec codec<DType::kF8_G32>() {
  return {nullptr, decode};
}

}  // namespace baton
