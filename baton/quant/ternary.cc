// Values of -1, 0 and 1, 256 to a block. value = d * (q - 1).
// TQ2_0: 66 bytes. u8 q[64], bit pairs as in Q2_K; f16 d.
// TQ1_0: 54 bytes. u8 q[48]; u8 rest[4]; f16 d. A byte is ceil(256 / 243 * n) of a number n of five digits in base 3,
// the first value topmost: byte l of q[0 .. 31] has values l + 32 i, of q[32 .. 47] 160 + l + 16 i, of `rest`, whose
// last digit is unused, 240 + l + 4 i.
#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr int kDigits = 5;

// Digit i of byte l is code count * i + l.
void unpack_digits(const std::byte* from, size_t count, size_t digits, uint8_t* codes) {
  for (size_t l = 0; l < count; ++l) {
    unsigned rest = u8_at(from, l);
    for (size_t i = 0; i < digits; ++i, rest &= 255) {
      rest *= 3;
      codes[count * i + l] = static_cast<uint8_t>(rest >> 8);
    }
  }
}
void pack_digits(const uint8_t* codes, size_t count, size_t digits, std::byte* to) {
  for (size_t l = 0; l < count; ++l) {
    unsigned number = 0;
    for (size_t i = 0; i < kDigits; ++i) number = 3 * number + (i < digits ? codes[count * i + l] : 0);
    to[l] = static_cast<std::byte>((256 * number + 242) / 243);
  }
}

// The scale, which is the largest magnitude, and the codes; halves round away from zero.
float ternary_codes(const float* from, uint8_t* codes) {
  float highest = 0;
  for (size_t i = 0; i < kSuperBlock; ++i) {
    if (highest < std::fabs(from[i])) highest = std::fabs(from[i]);
  }
  const float inverse = reciprocal_or_zero(highest);
  for (size_t i = 0; i < kSuperBlock; ++i) {
    const float v = from[i] * inverse;
    codes[i] = v >= 0.5f ? 2 : v <= -0.5f ? 0 : 1;
  }
  return highest;
}

template <DType kType, void (*kPack)(const uint8_t* codes, std::byte* to)>
void encode(const float* from, std::byte* to, size_t count) {
  for (size_t done = 0; done < count; done += kSuperBlock, to += kBlockBytes<kType>) {
    uint8_t codes[kSuperBlock];
    store_f16(to + kBlockBytes<kType> - 2, ternary_codes(from + done, codes));
    kPack(codes, to);
  }
}

void unpack_pairs_of_bits(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block + 64);
  unpack_twos(block, to.codes);
}

void unpack_base_3(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block + 52);
  unpack_digits(block, 32, 5, to.codes);
  unpack_digits(block + 32, 16, 5, to.codes + 160);
  unpack_digits(block + 48, 4, 4, to.codes + 240);
}
void pack_base_3(const uint8_t* codes, std::byte* to) {
  pack_digits(codes, 32, 5, to);
  pack_digits(codes + 160, 16, 5, to + 32);
  pack_digits(codes + 240, 4, 4, to + 48);
}

}  // namespace

template <>
Codec codec<DType::kTQ2_0>() {
  return codec_of<DType::kTQ2_0, unpack_pairs_of_bits>(encode<DType::kTQ2_0, pack_twos>);
}
template <>
Codec codec<DType::kTQ1_0>() {
  return codec_of<DType::kTQ1_0, unpack_base_3>(encode<DType::kTQ1_0, pack_base_3>);
}

}  // namespace baton
