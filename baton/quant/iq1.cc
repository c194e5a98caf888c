// IQ1: values of -1, 0 and 1, eight at a time by an index of 11 bits into a grid, each moved by an eighth up or down;
// value = d * (2 s + 1) * (grid +- 1/8). 256 values.
// IQ1_S: 50 bytes. f16 d; u8 index[32]; u16 high[8], of 32 values each: bits 8 .. 10 of four indices, lowest first; s
// of
//        3 bits; the top bit is set where the eighth goes down. As codes: a minimum, 8 (2 s + 1) * q - (2 s + 1) * 7 or
//        9, of d / 8.
// IQ1_M: 56 bytes. u8 index[32]; u8 high[16]: half a byte for each index, 3 bits and whether the eighth goes down; u16
//        scales[4]: four s of 3 bits, of 16 values each, and above them a quarter of the f16 d, lowest first.
#include "baton/quant/codec.h"
#include "baton/quant/iq_grids.h"
#include "baton/quant/iq_parts.h"

namespace baton {
namespace {

void unpack_s(const std::byte* block, Codes& to) {
  to.d = to.m = load_as<uint16_t>(block);
  for (size_t part = 0; part < 8; ++part) {
    const auto high = load_as<uint16_t>(block + 34 + 2 * part);
    const int s = 2 * (high >> 12 & 7) + 1;
    to.s[part] = static_cast<uint8_t>(8 * s);
    to.n[part] = static_cast<uint8_t>(s * ((high & 0x8000) != 0 ? 9 : 7));
    for (size_t l = 0; l < 4; ++l) {
      const int index = u8_at(block, 2 + 4 * part + l) | (high >> (3 * l) & 7) << 8;
      store_as(as_bytes_of(to.codes + 32 * part + 8 * l), pairs_to_bytes(kIq1Grid[index]));
    }
  }
}

void unpack_m(const std::byte* block, Codes& to) {
  constexpr uint64_t kDown = 0x0404040404040404u;
  to.d = 0;
  for (size_t i = 0; i < 4; ++i) {
    const auto scales = load_as<uint16_t>(block + 48 + 2 * i);
    to.d |= static_cast<uint32_t>(scales >> 12) << 4 * i;
    for (size_t j = 0; j < 4; ++j) to.s[4 * i + j] = static_cast<uint8_t>(2 * (scales >> (3 * j) & 7) + 1);
  }
  for (size_t i = 0; i < 32; ++i) {
    const int high = u8_at(block, 32 + i / 2) >> (i % 2 * 4) & 15;
    const uint64_t grid = pairs_to_bytes(kIq1Grid[u8_at(block, i) | (high & 7) << 8]);
    store_as(as_bytes_of(to.codes + 8 * i), (high & 8) != 0 ? grid | kDown : grid);
  }
}

}  // namespace

template <>
Codec codec<DType::kIQ1_S>() {
  return codec_of<DType::kIQ1_S, unpack_s>();
}
template <>
Codec codec<DType::kIQ1_M>() {
  return codec_of<DType::kIQ1_M, unpack_m>();
}

}  // namespace baton
