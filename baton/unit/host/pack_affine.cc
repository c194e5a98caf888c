// Rows of MLX's affine formats: per group f32 scale, f32 bias, then the codes as a bit stream, lowest bit first.
#include "baton/base/bytes.h"
#include "baton/unit/host/pack_rows.h"

namespace baton::host {
namespace {

template <int Bits>
void put_groups(const Bytes* from, const Lane& to) {
  for (int64_t b = 0; b < to.blocks(); ++b, from += 4 * Bits) {
    if (b % to.layout.blocks == 0) {
      const auto scale = load_as<float>(from), bias = load_as<float>(from + 4);
      store_as(to.scales(b) + 4 * to.lane, scale);
      // Codes of 8 bits are multiplied as q - 128.
      store_as(to.scales(b) + 64 + 4 * to.lane, Bits == 8 ? bias + 128 * scale : bias);
      from += 8;
    }
    Bytes stream[4 * Bits + 1] = {};  // the last code's second byte may lie beyond
    std::memcpy(stream, from, 4 * Bits);
    uint8_t q[kBlock];
    for (int i = 0; i < kBlock; ++i) {
      const int at = i * Bits / 8, shift = i * Bits % 8;
      q[i] = static_cast<uint8_t>((stream[at] | stream[at + 1] << 8) >> shift & ((1 << Bits) - 1));
    }
    put_codes(q, to, b);
  }
}

}  // namespace

void put_affine(const Bytes* from, const Lane& to) {
  switch (to.layout.bits) {
    case 2:
      return put_groups<2>(from, to);
    case 3:
      return put_groups<3>(from, to);
    case 4:
      return put_groups<4>(from, to);
    case 5:
      return put_groups<5>(from, to);
    case 6:
      return put_groups<6>(from, to);
    default:
      return put_groups<8>(from, to);
  }
}

}  // namespace baton::host
