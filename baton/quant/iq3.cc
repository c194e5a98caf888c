// IQ3: eight magnitudes, four at a time by an index into a grid of the format. 256 values; f16 d first.
// IQ3_XXS: 98 bytes. u8 index[64]; for each 32 values a u32 with signs and s as in IQ2_XXS. Magnitudes 4, 12 .. 52 and
//          62; value = d / 4 * (2 s + 1) * magnitude.
// IQ3_S:   110 bytes. u8 index[64]; u8 high[8]: bit 8 of eight indices each, lowest first; u8 signs[32]; u8 s[4]: of 32
//          values each, low half first. Magnitudes 1, 3 .. 15; value = d * (2 s + 1) * magnitude.
#include "baton/quant/codec.h"
#include "baton/quant/iq_grids.h"
#include "baton/quant/iq_parts.h"

namespace baton {
namespace {

// Eight codes of two groups: magnitudes, and the sign in bit 3.
void put_eight(uint16_t first, uint16_t second, uint32_t signs, uint8_t* codes) {
  const auto both = first | static_cast<uint32_t>(second) << 16;
  store_as(as_bytes_of(codes), nibbles_to_bytes(both) | bits_to_bytes(signs) << 3);
}

void unpack_xxs(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block);
  for (size_t part = 0; part < 8; ++part) {
    const auto rest = load_as<uint32_t>(block + 66 + 4 * part);
    to.s[part] = static_cast<uint8_t>(2 * (rest >> 28) + 1);
    for (size_t l = 0; l < 4; ++l) {
      const size_t at = 2 + 8 * part + 2 * l;
      put_eight(kIq3XxsGrid[u8_at(block, at)], kIq3XxsGrid[u8_at(block, at + 1)], eight_signs(rest >> (7 * l) & 127),
                to.codes + 32 * part + 8 * l);
    }
  }
}

void unpack_s(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block);
  for (size_t part = 0; part < 8; ++part) {
    to.s[part] = static_cast<uint8_t>(2 * (u8_at(block, 106 + part / 2) >> (part % 2 * 4) & 15) + 1);
    const unsigned high = u8_at(block, 66 + part);
    for (size_t l = 0; l < 4; ++l) {
      const size_t i = 4 * part + l;
      const unsigned first = u8_at(block, 2 + 2 * i) | (high >> (2 * l) & 1) << 8;
      const unsigned second = u8_at(block, 3 + 2 * i) | (high >> (2 * l + 1) & 1) << 8;
      put_eight(kIq3SGrid[first], kIq3SGrid[second], u8_at(block, 74 + i), to.codes + 8 * i);
    }
  }
}

}  // namespace

template <>
Codec codec<DType::kIQ3_XXS>() {
  return codec_of<DType::kIQ3_XXS, unpack_xxs>();
}
template <>
Codec codec<DType::kIQ3_S>() {
  return codec_of<DType::kIQ3_S, unpack_s>();
}

}  // namespace baton
