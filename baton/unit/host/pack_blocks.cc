// Rows of the formats with blocks of 32, and the layout of codes that all formats share.
#include "baton/base/bytes.h"
#include "baton/unit/host/pack_rows.h"

namespace baton::host {
namespace {

// Four codes are one word: word j of a lane goes to group j.
struct Words {
  Words(const uint8_t (&q)[kBlock]) { std::memcpy(at, q, sizeof(at)); }
  uint32_t at[8];
};

// bits [shift, shift + 2) of each code, four codes to a byte: two groups of [16 rows][4].
void put_pairs(const Words& q, int shift, int lane, Bytes* to) {
  for (int half = 0; half < 2; ++half) {
    uint32_t bits = 0;
    for (int i = 0; i < 4; ++i) bits |= (q.at[4 * half + i] >> shift & 0x03030303u) << 2 * i;
    store_as(to + 64 * half + 4 * lane, bits);
  }
}

// bit `shift` of each code, eight codes to a byte: one group.
void put_bits(const Words& q, int shift, int lane, Bytes* to) {
  uint32_t bits = 0;
  for (int i = 0; i < 8; ++i) bits |= (q.at[i] >> shift & 0x01010101u) << i;
  store_as(to + 4 * lane, bits);
}

void put_nibbles(const Words& q, int lane, Bytes* to) {
  for (int i = 0; i < 4; ++i) {
    store_as(to + 64 * i + 4 * lane, (q.at[i] & 0x0f0f0f0fu) | (q.at[4 + i] & 0x0f0f0f0fu) << 4);
  }
}

// u8 q[16]: low nibbles, then high nibbles.
void split_nibbles(const Bytes* from, uint8_t (&q)[kBlock]) {
  for (int i = 0; i < 16; ++i) {
    q[i] = from[i] & 15;
    q[16 + i] = from[i] >> 4;
  }
}

}  // namespace

void put_codes(const uint8_t (&q)[kBlock], const Lane& to, int64_t b) {
  const int bits = to.layout.bits;
  Bytes* const codes = to.codes(b);
  const Words words(q);
  if (bits == 8) {
    for (int i = 0; i < 8; ++i) store_as(codes + 64 * i + 4 * to.lane, words.at[i]);
  } else if (bits < 4) {
    put_pairs(words, 0, to.lane, codes);
    if (bits == 3) put_bits(words, 2, to.lane, codes + 128);
  } else {
    put_nibbles(words, to.lane, codes);
    if (bits == 5) put_bits(words, 4, to.lane, codes + 256);
    if (bits == 6) put_pairs(words, 4, to.lane, codes + 256);
  }
}

// f16 d; i8 q[32]
void put_q8_0(const Bytes* from, const Lane& to) {
  for (int64_t b = 0; b < to.blocks(); ++b, from += 34) {
    put_f16(to.scales(b) + 32 * (b % to.layout.blocks), to.lane, from);
    Bytes* const codes = to.codes(b) + 4 * to.lane;
    for (int i = 0; i < 8; ++i) store_as(codes + 64 * i, load_as<uint32_t>(from + 2 + 4 * i) ^ 0x80808080u);
  }
}

// f16 d; [f16 m]; [u8 qh[4]]; u8 qs[16]: Q4_0, Q4_1, Q5_0, Q5_1
void put_simple(const Bytes* from, bool has_minimum, const Lane& to) {
  for (int64_t b = 0; b < to.blocks(); ++b) {
    Bytes* const scales = to.scales(b) + 32 * (b % to.layout.blocks);
    put_f16(scales, to.lane, from);
    from += 2;
    if (has_minimum) {
      put_f16(scales + 32, to.lane, from);
      from += 2;
    }
    uint32_t high = 0;
    if (to.layout.bits == 5) {
      high = load_as<uint32_t>(from);
      from += 4;
    }
    uint8_t q[kBlock];
    for (int i = 0; i < 16; ++i) {
      q[i] = static_cast<uint8_t>((from[i] & 15) | (high >> i & 1) << 4);
      q[16 + i] = static_cast<uint8_t>(from[i] >> 4 | (high >> (16 + i) & 1) << 4);
    }
    from += 16;
    put_codes(q, to, b);
  }
}

// f16 d; u8 q[16]
void put_iq4_nl(const Bytes* from, const Lane& to) {
  for (int64_t b = 0; b < to.blocks(); ++b, from += 18) {
    put_f16(to.scales(b) + 32 * (b % to.layout.blocks), to.lane, from);
    uint8_t q[kBlock];
    split_nibbles(from + 2, q);
    put_codes(q, to, b);
  }
}

// u8 e; u8 q[16]
void put_mxfp4(const Bytes* from, const Lane& to) {
  for (int64_t b = 0; b < to.blocks(); ++b, from += 17) {
    to.scales(b)[16 * (b % to.layout.blocks) + to.lane] = from[0];
    uint8_t q[kBlock];
    split_nibbles(from + 1, q);
    put_codes(q, to, b);
  }
}

}  // namespace baton::host
