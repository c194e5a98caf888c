// IQ4_XS: 256 values in 136 bytes, read only. f16 d; u16 high; u8 low[4]; u8 q[128]. Eight sub-blocks of 32, nibbles as
// in IQ4_NL; 6-bit scale i, minus 32: nibble i of `low`, bit pair i of `high`. value = d * scale * table[q].
#include "baton/quant/codec.h"
#include "baton/quant/iq4_table.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kBytes = 136, kLowAt = 4, kCodesAt = 8;

void decode(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t block = 0; block < count / kSuperBlock; ++block, from += kBytes) {
    const float d = f16_at(from);
    const unsigned high = load_as<uint16_t>(from + 2);
    for (size_t sub = 0; sub < 8; ++sub, to += 32) {
      const unsigned low = static_cast<unsigned>(u8_at(from, kLowAt + sub / 2)) >> (4 * (sub % 2)) & 15u;
      const float scale = d * static_cast<float>(static_cast<int>(low | (high >> (2 * sub) & 3u) << 4) - 32);
      const std::byte* codes = from + kCodesAt + 16 * sub;
      for (size_t j = 0; j < 16; ++j) {
        to[j] = scale * kIq4Values[u8_at(codes, j) & 15];
        to[j + 16] = scale * kIq4Values[u8_at(codes, j) >> 4];
      }
    }
  }
}

}  // namespace

template <>
Codec codec<DType::kIQ4_XS>() {
  return {decode, nullptr};
}

}  // namespace baton
