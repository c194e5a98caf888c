// Q6_K: 256 values in 210 bytes. u8 low[128]; u8 high[64]; i8 scales[16]; f16 d. Sub-blocks of 16; per 128 values 64
// low and 32 high bytes: low[l] nibbles are elements l and l + 64, low[l + 32] l + 32 and l + 96; the bit pairs of
// high[l] belong to l, l + 32, l + 64, l + 96 in that order. value = d * scale * (q - 32).
#include <array>
#include <cstring>

#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kBytes = kBlockBytes<DType::kQ6_K>, kHighAt = 128, kScalesAt = 192, kScaleAt = 208;

void unpack(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block + kScaleAt);
  std::memcpy(to.s, block + kScalesAt, 16);
  for (size_t half = 0; half < 2; ++half) {
    const std::byte* low = block + 64 * half;
    const std::byte* high = block + kHighAt + 32 * half;
    for (size_t k = 0; k < 4; ++k) {
      uint8_t* const codes = to.codes + 128 * half + 32 * k;
      for (size_t l = 0; l < 32; l += 8) {  // eight codes at a time
        const auto nibbles = load_as<uint64_t>(low + 32 * (k % 2) + l) >> (k / 2 * 4);
        const auto pairs = load_as<uint64_t>(high + l) >> (2 * k);
        store_as(codes + l, (nibbles & 0x0f0f0f0f0f0f0f0f) | (pairs & 0x0303030303030303) << 4);
      }
    }
  }
}

void pack(const std::array<uint8_t, kSuperBlock>& codes, std::byte* to) {
  for (size_t half = 0; half < 2; ++half) {
    const uint8_t* q = codes.data() + 128 * half;
    for (size_t l = 0; l < 32; ++l) {
      to[64 * half + l] = static_cast<std::byte>((q[l] & 15) | (q[l + 64] & 15) << 4);
      to[64 * half + l + 32] = static_cast<std::byte>((q[l + 32] & 15) | (q[l + 96] & 15) << 4);
      to[kHighAt + 32 * half + l] =
          static_cast<std::byte>(q[l] >> 4 | (q[l + 32] >> 4) << 2 | (q[l + 64] >> 4) << 4 | (q[l + 96] >> 4) << 6);
    }
  }
}

void encode_weighted(const float* __restrict from, const float* __restrict importance, std::byte* __restrict to,
                     size_t count) {
  std::array<SymmetricFit, 16> fits;
  std::array<uint8_t, kSuperBlock> codes;
  for (size_t done = 0; done < count; done += kSuperBlock, to += kBytes) {
    const float* x = from + done;
    searches().symmetric(x, importance != nullptr ? importance + done : nullptr, 16, 16, 32, fits.data());
    float scale_max = 0, magnitude_max = 0;
    for (const SymmetricFit& fit : fits) {
      if (std::fabs(fit.scale) > magnitude_max) magnitude_max = std::fabs(fit.scale), scale_max = fit.scale;
    }
    if (!(magnitude_max >= 1e-15f)) {
      std::fill_n(to, kBytes, std::byte{0});
      continue;
    }
    const float inverse = -128.0f / scale_max;
    store_f16(to + kScaleAt, 1 / inverse);
    for (size_t i = 0; i < 16; ++i) {
      const auto scale = static_cast<int8_t>(std::min(127, nearest_int(inverse * fits[i].scale)));
      to[kScalesAt + i] = static_cast<std::byte>(scale);
      const float d = f16_at(to + kScaleAt) * static_cast<float>(scale);
      if (d == 0) {
        fit_codes(x + 16 * i, 16, fits[i], 32, codes.data() + 16 * i);
      } else {
        searches().codes(x + 16 * i, 16, 0.0f, d, -32, 31, codes.data() + 16 * i);
      }
    }
    pack(codes, to);
  }
}
void encode(const float* from, std::byte* to, size_t count) { encode_weighted(from, nullptr, to, count); }

}  // namespace

template <>
Codec codec<DType::kQ6_K>() {
  return codec_of<DType::kQ6_K, unpack>(encode, encode_weighted);
}

}  // namespace baton
