// Q1_0: 128 values in 18 bytes. f16 d; u8 q[16], bit e mod 8 of q[e / 8]. value = d where the bit is set, else -d.
// Q2_0: 64 values in 18 bytes. f16 d; u8 q[16], bits 2 (e mod 4) of q[e / 4]. value = d * (q - 1).
#include "baton/quant/codec.h"
#include "baton/quant/iq_parts.h"

namespace baton {
namespace {

void unpack_bits(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block);
  for (size_t i = 0; i < 16; ++i) store_as(as_bytes_of(to.codes + 8 * i), bits_to_bytes(u8_at(block, 2 + i)));
}

void unpack_pairs(const std::byte* block, Codes& to) {
  to.d = load_as<uint16_t>(block);
  for (size_t i = 0; i < 8; ++i) {
    store_as(as_bytes_of(to.codes + 8 * i), pairs_to_bytes(load_as<uint16_t>(block + 2 + 2 * i)));
  }
}

}  // namespace

template <>
Codec codec<DType::kQ1_0>() {
  return codec_of<DType::kQ1_0, unpack_bits>();
}
template <>
Codec codec<DType::kQ2_0>() {
  return codec_of<DType::kQ2_0, unpack_pairs>();
}

}  // namespace baton
