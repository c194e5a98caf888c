// One row of a stored type into its lane of a panel: one writer per layout (pack.h), called by pack.cc.
#pragma once

#include <cstdint>
#include <cstring>

#include "baton/unit/host/pack.h"

namespace baton::host {

using Bytes = unsigned char;

inline constexpr int64_t kSuper = 256;

// The place of one row in a panel.
struct Lane {
  Bytes* panel;
  GroupLayout layout;
  int lane;
  int64_t columns;

  int64_t blocks() const { return columns / kBlock; }
  // The scales of block b's group, and the block's codes.
  Bytes* scales(int64_t b) const { return panel + b / layout.blocks * group_bytes(layout); }
  Bytes* codes(int64_t b) const {
    return scales(b) + layout.scale_bytes + b % layout.blocks * int64_t{64} * layout.bits;
  }
};

inline void put_f16(Bytes* array, int lane, const Bytes* from) { std::memcpy(array + 2 * lane, from, 2); }

// The codes of block `b` of one lane.
void put_codes(const uint8_t (&q)[kBlock], const Lane& to, int64_t b);

// `from`: a row of stored blocks, any alignment.
void put_q8_0(const Bytes* from, const Lane& to);
void put_simple(const Bytes* from, bool has_minimum, const Lane& to);  // Q4_0, Q4_1, Q5_0, Q5_1
void put_super(const Bytes* from, const Lane& to);                     // Q4_K, Q5_K
void put_q6_k(const Bytes* from, const Lane& to);
void put_q3_k(const Bytes* from, const Lane& to);
void put_q2_k(const Bytes* from, const Lane& to);
void put_iq4_nl(const Bytes* from, const Lane& to);
void put_iq4_xs(const Bytes* from, const Lane& to);
void put_mxfp4(const Bytes* from, const Lane& to);
void put_affine(const Bytes* from, const Lane& to);

}  // namespace baton::host
