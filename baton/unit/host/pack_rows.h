// One row of a stored type into its lane of a panel: one writer per layout (pack.h), called by pack.cc.
#pragma once

#include <cstdint>
#include <cstring>

#include "baton/unit/host/kernels.h"

namespace baton::host {

using Bytes = unsigned char;

inline constexpr int64_t kSuper = 256;

// The place of one row in a panel.
struct Lane {
  Bytes* scales;
  Bytes* values;
  int lane;
  int64_t columns;
};

inline void put_f16(Bytes* array, int lane, const Bytes* from) { std::memcpy(array + 2 * lane, from, 2); }

// 32 codes of `bits` (2 to 6, or 8) of one lane.
void put_codes(const uint8_t (&q)[kBlock], int bits, int lane, Bytes* block);

// `from`: a row of stored blocks, any alignment.
void put_q8_0(const Bytes* from, const Lane& to);
void put_simple(const Bytes* from, bool has_minimum, int high_bits, const Lane& to);  // Q4_0, Q4_1, Q5_0, Q5_1
void put_q4_k(const Bytes* from, const Lane& to);
void put_q5_k(const Bytes* from, const Lane& to);
void put_q6_k(const Bytes* from, const Lane& to);
void put_q3_k(const Bytes* from, const Lane& to);
void put_q2_k(const Bytes* from, const Lane& to);
void put_iq4_nl(const Bytes* from, const Lane& to);
void put_iq4_xs(const Bytes* from, const Lane& to);
void put_mxfp4(const Bytes* from, const Lane& to);
void put_affine(const Bytes* from, int bits, int64_t group, const Lane& to);

}  // namespace baton::host
