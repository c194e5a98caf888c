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

void put_codes(const uint8_t (&q)[kBlock], int bits, int lane, Bytes* block) {
  if (bits == 8) {
    for (int i = 0; i < 8; ++i) std::memcpy(block + 64 * i + 4 * lane, q + 4 * i, 4);
    return;
  }
  const Words words(q);
  if (bits < 4) {
    put_pairs(words, 0, lane, block);
    if (bits == 3) put_bits(words, 2, lane, block + 128);
    return;
  }
  put_nibbles(words, lane, block);
  if (bits == 5) put_bits(words, 4, lane, block + 256);
  if (bits == 6) put_pairs(words, 4, lane, block + 256);
}

// f16 d; i8 q[32]
void put_q8_0(const Bytes* from, const Lane& to) {
  for (int64_t b = 0; b < to.columns / kBlock; ++b, from += 34) {
    put_f16(to.scales + 32 * b, to.lane, from);
    for (int i = 0; i < 8; ++i) {
      const uint32_t four = load_as<uint32_t>(from + 2 + 4 * i) ^ 0x80808080u;
      store_as(to.values + 512 * b + 64 * i + 4 * to.lane, four);
    }
  }
}

// f16 d; [f16 m]; [u8 qh[4]]; u8 qs[16]: Q4_0, Q4_1, Q5_0, Q5_1
void put_simple(const Bytes* from, bool has_minimum, int high_bits, const Lane& to) {
  const int64_t blocks = to.columns / kBlock;
  for (int64_t b = 0; b < blocks; ++b) {
    put_f16(to.scales + 32 * b, to.lane, from);
    from += 2;
    if (has_minimum) {
      put_f16(to.scales + 32 * (blocks + b), to.lane, from);
      from += 2;
    }
    uint32_t high = 0;
    if (high_bits == 1) {
      high = load_as<uint32_t>(from);
      from += 4;
    }
    uint8_t q[kBlock];
    for (int i = 0; i < 16; ++i) {
      q[i] = static_cast<uint8_t>((from[i] & 15) | (high >> i & 1) << 4);
      q[16 + i] = static_cast<uint8_t>(from[i] >> 4 | (high >> (16 + i) & 1) << 4);
    }
    from += 16;
    put_codes(q, 4 + high_bits, to.lane, to.values + b * (256 + 64 * high_bits));
  }
}

// f16 d; u8 q[16]
void put_iq4_nl(const Bytes* from, const Lane& to) {
  for (int64_t b = 0; b < to.columns / kBlock; ++b, from += 18) {
    put_f16(to.scales + 32 * b, to.lane, from);
    uint8_t q[kBlock];
    split_nibbles(from + 2, q);
    put_nibbles(q, to.lane, to.values + 256 * b);
  }
}

// u8 e; u8 q[16]
void put_mxfp4(const Bytes* from, const Lane& to) {
  for (int64_t b = 0; b < to.columns / kBlock; ++b, from += 17) {
    to.scales[16 * b + to.lane] = from[0];
    uint8_t q[kBlock];
    split_nibbles(from + 1, q);
    put_nibbles(q, to.lane, to.values + 256 * b);
  }
}

}  // namespace baton::host
