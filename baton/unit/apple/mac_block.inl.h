// Products of a block of weight rows with a panel of columns, once per instruction set: the including file defines
// BATON_MAC_TARGET, BATON_MAC_LANES, BATON_MAC_VECTORS and BATON_MAC_ROWS, inside a namespace of its own. Each output
// is summed over k in order, multiply then add, so that every instruction set and every column gives the same bits.

using Lanes = float __attribute__((vector_size(BATON_MAC_LANES * sizeof(float))));

// w [rows][k], x [k][kMacColumns], out [rows][kMacColumns]; columns from `column` on, kLanes * kVectors of them.
template <int kRows, int kVectors>
BATON_MAC_TARGET void block(const float* w, const float* x, size_t k, size_t column, float* out) {
  Lanes sum[kRows][kVectors] = {};
  for (size_t i = 0; i < k; ++i) {
    Lanes in[kVectors];
    __builtin_memcpy(in, x + i * kMacColumns + column, sizeof(in));
    for (int r = 0; r < kRows; ++r) {
      const float weight = w[static_cast<size_t>(r) * k + i];
      for (int v = 0; v < kVectors; ++v) sum[r][v] += weight * in[v];
    }
  }
  for (int r = 0; r < kRows; ++r) {
    __builtin_memcpy(out + static_cast<size_t>(r) * kMacColumns + column, sum[r], sizeof(sum[r]));
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

// from_fp16 of fp16.h on lanes, written without branches.
BATON_MAC_TARGET inline void decode_lanes(const std::byte* from, float* to, bool flush_subnormals) {
  using Halves = uint16_t __attribute__((vector_size(BATON_MAC_LANES * sizeof(uint16_t))));
  using Words = uint32_t __attribute__((vector_size(BATON_MAC_LANES * sizeof(uint32_t))));
  Halves halves;
  __builtin_memcpy(&halves, from, sizeof(halves));
  const Words bits = __builtin_convertvector(halves, Words);
  const Words magnitude = bits & 0x7fffu;
  const Words finite = (Words)((Lanes)(magnitude << 13) * 0x1p112f);
  const Words special = 0x7f800000u | (magnitude & 0x3ffu) << 13;
  const Words is_special = (Words)(magnitude >= 0x7c00u);
  Words out = (bits & 0x8000u) << 16 | (special & is_special) | (finite & ~is_special);
  if (flush_subnormals) out &= (Words)(magnitude >= 0x400u);
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
