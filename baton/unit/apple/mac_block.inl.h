// Products of a block of weight rows with a panel of columns, once per instruction set: the including file defines
// BATON_MAC_TARGET, BATON_MAC_LANES, BATON_MAC_VECTORS and BATON_MAC_ROWS, inside a namespace of its own, and
// BATON_MAC_WIDEN where there is an instruction that turns fp16 lanes into f32. Each output
// is summed over k in order, multiply then add, so that every instruction set and every column gives the same bits.

using Lanes = float __attribute__((vector_size(BATON_MAC_LANES * sizeof(float))));
using UnalignedLanes =
    float __attribute__((vector_size(BATON_MAC_LANES * sizeof(float)), aligned(sizeof(float)), may_alias));

// w [rows][k], x [k][kMacColumns], out [rows][kMacColumns]; columns from `column` on, kLanes * kVectors of them.
template <int kRows, int kVectors>
BATON_MAC_TARGET void block(const float* w, const float* x, size_t k, size_t column, float* out) {
  // Read and written one vector at a time: a copy of the whole array would keep it in memory during the loop.
  Lanes sum[kRows][kVectors] = {};
  for (size_t i = 0; i < k; ++i) {
    const auto* in = reinterpret_cast<const UnalignedLanes*>(x + i * kMacColumns + column);
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      const float weight = w[static_cast<size_t>(r) * k + i];
#pragma GCC unroll 4
      for (int v = 0; v < kVectors; ++v) sum[r][v] += weight * in[v];
    }
  }
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    auto* to = reinterpret_cast<UnalignedLanes*>(out + static_cast<size_t>(r) * kMacColumns + column);
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) to[v] = sum[r][v];
  }
}

template <int kVectors>
BATON_MAC_TARGET void rows_of_block(const float* w, const float* x, size_t rows, size_t k, size_t columns, float* out) {
  constexpr size_t kStep = BATON_MAC_LANES * kVectors;
  for (size_t column = 0; column < columns; column += kStep) {
    size_t r = 0;
    for (; r + BATON_MAC_ROWS <= rows; r += BATON_MAC_ROWS) {
      block<BATON_MAC_ROWS, kVectors>(w + r * k, x, k, column, out + r * kMacColumns);
    }
    for (; r < rows; ++r) block<1, kVectors>(w + r * k, x, k, column, out + r * kMacColumns);
  }
}

BATON_MAC_TARGET void products(const float* w, const float* x, size_t rows, size_t k, size_t columns, float* out) {
  if (columns <= BATON_MAC_LANES) return rows_of_block<1>(w, x, rows, k, columns, out);
  rows_of_block<BATON_MAC_VECTORS>(w, x, rows, k, columns, out);
}

using Words = uint32_t __attribute__((vector_size(BATON_MAC_LANES * sizeof(uint32_t))));
using Halves = uint16_t __attribute__((vector_size(BATON_MAC_LANES * sizeof(uint16_t))));

// from_fp16 of fp16.h on lanes; NaN may change its payload.
BATON_MAC_TARGET inline Lanes widen(const std::byte* from, bool flush_subnormals) {
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof(halves));
#if defined(BATON_MAC_WIDEN)
  const Words out = (Words)(BATON_MAC_WIDEN(halves));
  // 2^-14 as bits. A mask of all ones keeps everything.
  return (Lanes)(out & ((Words)((out & 0x7fffffffu) >= 0x38800000u) | (flush_subnormals ? 0u : ~0u)));
#else
  const Words bits = __builtin_convertvector(halves, Words);
  const Words magnitude = bits & 0x7fffu;
  const Words finite = (Words)((Lanes)(magnitude << 13) * 0x1p112f);
  const Words special = 0x7f800000u | (magnitude & 0x3ffu) << 13;
  const Words is_special = (Words)(magnitude >= 0x7c00u);
  Words out = (bits & 0x8000u) << 16 | (special & is_special) | (finite & ~is_special);
  if (flush_subnormals) out &= (Words)(magnitude >= 0x400u);
  return (Lanes)out;
#endif
}

BATON_MAC_TARGET inline void decode_lanes(const std::byte* from, float* to, bool flush_subnormals) {
  const Lanes out = widen(from, flush_subnormals);
  __builtin_memcpy(to, &out, sizeof(out));
}

BATON_MAC_TARGET void decode(const std::byte* from, float* to, size_t count, bool flush_subnormals) {
  size_t i = 0;
  for (; i + BATON_MAC_LANES <= count; i += BATON_MAC_LANES) decode_lanes(from + 2 * i, to + i, flush_subnormals);
  if (i == count) return;
  std::byte last[2 * BATON_MAC_LANES] = {};
  float decoded[BATON_MAC_LANES];
  __builtin_memcpy(last, from + 2 * i, 2 * (count - i));
  decode_lanes(last, decoded, flush_subnormals);
  __builtin_memcpy(to + i, decoded, (count - i) * sizeof(float));
}

// One round of a transposition: lanes whose index has bit kBit change places between two rows kBit apart.
template <int kBit, int... kIndex>
BATON_MAC_TARGET inline void exchange(Lanes* a, Lanes* b, std::integer_sequence<int, kIndex...>) {
  const Lanes low =
      __builtin_shufflevector(*a, *b, ((kIndex & kBit) != 0 ? BATON_MAC_LANES + kIndex - kBit : kIndex)...);
  const Lanes high =
      __builtin_shufflevector(*a, *b, ((kIndex & kBit) != 0 ? BATON_MAC_LANES + kIndex : kIndex + kBit)...);
  *a = low;
  *b = high;
}

template <int kBit>
BATON_MAC_TARGET inline void transpose(Lanes* rows) {
  if constexpr (kBit < BATON_MAC_LANES) {
#pragma GCC unroll 16
    for (int i = 0; i < BATON_MAC_LANES; ++i) {
      if ((i & kBit) == 0)
        exchange<kBit>(rows + i, rows + i + kBit, std::make_integer_sequence<int, BATON_MAC_LANES>{});
    }
    transpose<2 * kBit>(rows);
  }
}

// The products with a single column x[k], rows along the lanes: out[r * kMacColumns].
BATON_MAC_TARGET void column(const std::byte* w, const float* x, size_t rows, size_t k, bool flush_subnormals,
                             float* out) {
  for (size_t first = 0; first < rows; first += BATON_MAC_LANES) {
    const size_t count = rows - first < BATON_MAC_LANES ? rows - first : BATON_MAC_LANES;
    Lanes sum = {};
    for (size_t i = 0; i < k; i += BATON_MAC_LANES) {
      const size_t terms = k - i < BATON_MAC_LANES ? k - i : BATON_MAC_LANES;
      Lanes tile[BATON_MAC_LANES];
      if (count == BATON_MAC_LANES && terms == BATON_MAC_LANES) {
#pragma GCC unroll 16
        for (size_t r = 0; r < BATON_MAC_LANES; ++r) tile[r] = widen(w + 2 * ((first + r) * k + i), flush_subnormals);
      } else {
        for (size_t r = 0; r < BATON_MAC_LANES; ++r) {
          std::byte values[2 * BATON_MAC_LANES] = {};
          if (r < count) __builtin_memcpy(values, w + 2 * ((first + r) * k + i), 2 * terms);
          tile[r] = widen(values, flush_subnormals);
        }
      }
      transpose<1>(tile);
      if (terms == BATON_MAC_LANES) {
#pragma GCC unroll 16
        for (size_t j = 0; j < BATON_MAC_LANES; ++j) sum += tile[j] * x[i + j];
      } else {
        for (size_t j = 0; j < terms; ++j) sum += tile[j] * x[i + j];
      }
    }
    for (size_t r = 0; r < count; ++r) out[(first + r) * kMacColumns] = sum[r];
  }
}
