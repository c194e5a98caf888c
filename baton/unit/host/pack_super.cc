// Rows of the formats with super-blocks of 256.
#include "baton/base/bytes.h"
#include "baton/unit/host/pack_rows.h"

namespace baton::host {
// f16 d, dmin; u8 scales[12]; [u8 qh[32]]; u8 qs[128]: Q4_K, Q5_K
void put_super(const Bytes* from, const Lane& to) {
  const int high_bits = to.layout.bits - 4;
  for (int64_t s = 0; s < to.columns / kSuper; ++s) {
    Bytes* super = to.scales(8 * s);
    put_f16(super, to.lane, from);
    put_f16(super + 32, to.lane, from + 2);
    const Bytes* packed = from + 4;
    for (int j = 0; j < 8; ++j) {
      const int scale = j < 4 ? packed[j] & 63 : (packed[j + 4] & 15) | packed[j - 4] >> 6 << 4;
      const int minimum = j < 4 ? packed[j + 4] & 63 : packed[j + 4] >> 4 | packed[j] >> 6 << 4;
      super[64 + 16 * j + to.lane] = static_cast<Bytes>(scale);
      super[192 + 16 * j + to.lane] = static_cast<Bytes>(minimum);
    }
    const Bytes* high = from + 16;
    const Bytes* nibbles = high + 32 * high_bits;
    for (int b = 0; b < 8; ++b) {
      uint8_t q[kBlock];
      for (int i = 0; i < kBlock; ++i) {
        q[i] = static_cast<uint8_t>(nibbles[32 * (b / 2) + i] >> 4 * (b % 2) & 15);
        if (high_bits == 1) q[i] = static_cast<uint8_t>(q[i] | (high[i] >> b & 1) << 4);
      }
      put_codes(q, to, 8 * s + b);
    }
    from = nibbles + 128;
  }
}

// u8 ql[128]; u8 qh[64]; i8 scales[16]; f16 d
void put_q6_k(const Bytes* from, const Lane& to) {
  for (int64_t s = 0; s < to.columns / kSuper; ++s, from += 210) {
    Bytes* super = to.scales(8 * s);
    put_f16(super, to.lane, from + 208);
    for (int j = 0; j < 16; ++j) super[32 + 16 * j + to.lane] = from[192 + j];
    for (int b = 0; b < 8; ++b) {
      const Bytes* low = from + 64 * (b / 4) + 32 * (b % 2);
      const Bytes* high = from + 128 + 32 * (b / 4);
      const int low_shift = b % 4 / 2 * 4, high_shift = b % 4 * 2;
      uint8_t q[kBlock];
      for (int i = 0; i < kBlock; ++i) {
        q[i] = static_cast<uint8_t>((low[i] >> low_shift & 15) | (high[i] >> high_shift & 3) << 4);
      }
      put_codes(q, to, 8 * s + b);
    }
  }
}

// u8 mask[32]; u8 q[64]; u8 scales[12]; f16 d
void put_q3_k(const Bytes* from, const Lane& to) {
  for (int64_t s = 0; s < to.columns / kSuper; ++s, from += 110) {
    Bytes* super = to.scales(8 * s);
    put_f16(super, to.lane, from + 108);
    const Bytes* packed = from + 96;
    for (int j = 0; j < 16; ++j) {
      const int low = j < 8 ? packed[j] & 15 : packed[j - 8] >> 4, high = packed[8 + j % 4] >> (2 * (j / 4)) & 3;
      super[32 + 16 * j + to.lane] = static_cast<Bytes>((low | high << 4) - 32);
    }
    for (int b = 0; b < 8; ++b) {
      const Bytes* low = from + 32 + 32 * (b / 4);
      uint8_t q[kBlock];
      for (int i = 0; i < kBlock; ++i) {
        q[i] = static_cast<uint8_t>((low[i] >> (2 * (b % 4)) & 3) | (from[i] >> b & 1) << 2);
      }
      put_codes(q, to, 8 * s + b);
    }
  }
}

// u8 scales[16]; u8 q[64]; f16 d; f16 dmin
void put_q2_k(const Bytes* from, const Lane& to) {
  for (int64_t s = 0; s < to.columns / kSuper; ++s, from += 84) {
    Bytes* super = to.scales(8 * s);
    put_f16(super, to.lane, from + 80);
    put_f16(super + 32, to.lane, from + 82);
    for (int j = 0; j < 16; ++j) super[64 + 16 * j + to.lane] = from[j];
    for (int b = 0; b < 8; ++b) {
      const Bytes* low = from + 16 + 32 * (b / 4);
      uint8_t q[kBlock];
      for (int i = 0; i < kBlock; ++i) q[i] = static_cast<uint8_t>(low[i] >> (2 * (b % 4)) & 3);
      put_codes(q, to, 8 * s + b);
    }
  }
}

// f16 d; u16 high; u8 low[4]; u8 q[128]
void put_iq4_xs(const Bytes* from, const Lane& to) {
  for (int64_t s = 0; s < to.columns / kSuper; ++s, from += 136) {
    Bytes* super = to.scales(8 * s);
    put_f16(super, to.lane, from);
    const unsigned high = load_as<uint16_t>(from + 2);
    for (int b = 0; b < 8; ++b) {
      const int low = from[4 + b / 2] >> (4 * (b % 2)) & 15;
      super[32 + 16 * b + to.lane] = static_cast<Bytes>((low | static_cast<int>(high >> (2 * b) & 3u) << 4) - 32);
      const Bytes* nibbles = from + 8 + 16 * b;
      uint8_t q[kBlock];
      for (int i = 0; i < 16; ++i) {
        q[i] = nibbles[i] & 15;
        q[16 + i] = nibbles[i] >> 4;
      }
      put_codes(q, to, 8 * s + b);
    }
  }
}

}  // namespace baton::host
