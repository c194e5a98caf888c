// The loops of mac_kernels.h, written once in the words of base/simd: mac_<set>.cc includes its header first, and says
// how many rows (kRows) by vectors of columns (kVectors) are summed in registers.
#pragma once

#include "baton/unit/apple/mac_kernels.h"

#ifndef BATON_SIMD
#error "a header of baton/base/simd comes first: it says for which instruction set"
#endif

namespace baton::apple {
namespace {

using simd::abs, simd::all, simd::F, simd::kLanes, simd::load, simd::load_f16, simd::select, simd::store;

// R rows of w [rows][k] times V vectors of columns of x, from its begin on.
template <int R, int V>
void block(const float* w, const float* x, size_t k, float* out) {
  F sum[R][V] = {};
  for (size_t i = 0; i < k; ++i, x += kMacColumns) {
    F in[V];
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) in[v] = load(x + kLanes * v);
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F weight = all(w[static_cast<size_t>(r) * k + i]);
#pragma GCC unroll 2
      for (int v = 0; v < V; ++v) sum[r][v] = sum[r][v] + weight * in[v];
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < R; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < V; ++v) store(out + static_cast<size_t>(r) * kMacColumns + kLanes * v, sum[r][v]);
  }
}

template <int V>
void rows_of_block(const float* w, const float* x, size_t rows, size_t k, size_t columns, float* out) {
  for (size_t column = 0; column < columns; column += kLanes * V) {
    size_t r = 0;
    for (; r + kRows <= rows; r += kRows) block<kRows, V>(w + r * k, x + column, k, out + r * kMacColumns + column);
    for (; r < rows; ++r) block<1, V>(w + r * k, x + column, k, out + r * kMacColumns + column);
  }
}

void products(const float* w, const float* x, size_t rows, size_t k, size_t columns, float* out) {
  if (columns <= kLanes) return rows_of_block<1>(w, x, rows, k, columns, out);
  rows_of_block<kVectors>(w, x, rows, k, columns, out);
}

BATON_INLINE F widen(const std::byte* from, bool flush_subnormals) {
  const F value = load_f16(from);
  return flush_subnormals ? select(abs(value) < all(0x1p-14f), F{}, value) : value;
}
// The first `count` of a vector; the others are 0.
BATON_INLINE F widen_some(const std::byte* from, size_t count, bool flush_subnormals) {
  std::byte some[2 * kLanes] = {};
  __builtin_memcpy(some, from, 2 * count);
  return widen(some, flush_subnormals);
}

void decode(const std::byte* from, float* to, size_t count, bool flush_subnormals) {
  size_t i = 0;
  for (; i + kLanes <= count; i += kLanes) store(to + i, widen(from + 2 * i, flush_subnormals));
  if (i < count) store(to + i, widen_some(from + 2 * i, count - i, flush_subnormals), static_cast<int>(count - i));
}

// Rows along the lanes: 16 x 16 weights at a time are turned.
void column(const std::byte* w, const float* x, size_t rows, size_t k, bool flush_subnormals, float* out) {
  for (size_t first = 0; first < rows; first += kLanes) {
    const size_t count = rows - first < kLanes ? rows - first : kLanes;
    F sum{};
    for (size_t i = 0; i < k; i += kLanes) {
      const size_t terms = k - i < kLanes ? k - i : kLanes;
      float tile[kLanes * kLanes] = {}, turned[kLanes * kLanes];
      for (size_t r = 0; r < count; ++r) {
        const std::byte* from = w + 2 * ((first + r) * k + i);
        const bool whole = terms == kLanes;
        store(tile + kLanes * r, whole ? widen(from, flush_subnormals) : widen_some(from, terms, flush_subnormals));
      }
      simd::transpose(tile, kLanes, turned, kLanes);
      for (size_t j = 0; j < terms; ++j) sum = sum + load(turned + kLanes * j) * all(x[i + j]);
    }
    float sums[kLanes];
    store(sums, sum);
    for (size_t r = 0; r < count; ++r) out[(first + r) * kMacColumns] = sums[r];
  }
}

constexpr MacKernels kMacKernels = {products, decode, column};

}  // namespace
}  // namespace baton::apple
