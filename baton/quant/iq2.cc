// IQ2: magnitudes 8, 25 and 43, eight at a time by an index into a grid of the format; value = d / 8 * (2 s + 1) *
// magnitude, with its sign. 256 values; f16 d first.
// IQ2_XXS: 66 bytes. For each 32 values u8 index[4]; u32 with four signs of 7 bits, lowest first, and s above them.
// IQ2_XS:  74 bytes. u16 q[32]: 9 bits of index, 7 of signs; u8 s[8]: of 16 values each, low half first.
// IQ2_S:   82 bytes. u8 index[32]; u8 signs[32]; u8 high[8]: of four indices each, bits 8 and 9, lowest first; u8 s[8]
//          as in IQ2_XS.
// Bit i of signs is that of value i; of 7 bits the eighth makes their number even.
#include "baton/quant/codec.h"
#include "baton/quant/iq_grids.h"
#include "baton/quant/iq_parts.h"

namespace baton {
namespace {

// Eight codes: magnitudes, and the sign in bit 2.
void put_eight(uint16_t grid, uint32_t signs, uint8_t* codes) {
  store_as(as_bytes_of(codes), pairs_to_bytes(grid) | bits_to_bytes(signs) << 2);
}

// The 4 bits of 16 parts.
void put_nibble_scales(const std::byte* from, uint8_t* s) {
  for (size_t part = 0; part < 16; ++part) {
    s[part] = static_cast<uint8_t>(2 * (u8_at(from, part / 2) >> (part % 2 * 4) & 15) + 1);
  }
}

void unpack_xxs(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block);
  for (size_t part = 0; part < 8; ++part) {
    const std::byte* const from = block + 2 + 8 * part;
    const auto rest = load_as<uint32_t>(from + 4);
    to.s[part] = static_cast<uint8_t>(2 * (rest >> 28) + 1);
    for (size_t l = 0; l < 4; ++l) {
      put_eight(kIq2XxsGrid[u8_at(from, l)], eight_signs(rest >> (7 * l) & 127), to.codes + 32 * part + 8 * l);
    }
  }
}

void unpack_xs(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block);
  put_nibble_scales(block + 66, to.s);
  for (size_t i = 0; i < 32; ++i) {
    const auto q = load_as<uint16_t>(block + 2 + 2 * i);
    put_eight(kIq2XsGrid[q & 511], eight_signs(q >> 9), to.codes + 8 * i);
  }
}

void unpack_s(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block);
  put_nibble_scales(block + 74, to.s);
  for (size_t i = 0; i < 32; ++i) {
    const int high = u8_at(block, 66 + i / 4) >> (i % 4 * 2) & 3;
    put_eight(kIq2SGrid[u8_at(block, 2 + i) | high << 8], u8_at(block, 34 + i), to.codes + 8 * i);
  }
}

}  // namespace

template <>
Codec codec<DType::kIQ2_XXS>() {
  return codec_of<DType::kIQ2_XXS, unpack_xxs>();
}
template <>
Codec codec<DType::kIQ2_XS>() {
  return codec_of<DType::kIQ2_XS, unpack_xs>();
}
template <>
Codec codec<DType::kIQ2_S>() {
  return codec_of<DType::kIQ2_S, unpack_s>();
}

}  // namespace baton
