// What the kernels share: unrolling, vectors with a tail, register tiles. The kernels_*.inl.h are written once in the
// words of base/simd, whose header for the file's instruction set comes first; what a linker could merge with common
// code is in unnamed namespaces (base/simd/simd.h, scripts/check_symbols.py).
#pragma once

#include "baton/unit/host/kernels.h"

#ifndef BATON_SIMD
#error "a header of base/simd comes first: it says for which instruction set"
#endif

namespace baton::host {
namespace {

using simd::abs, simd::all, simd::all_f16, simd::fma, simd::max, simd::min, simd::round, simd::scale_by_power,
    simd::select;
using simd::add_bytes, simd::dot, simd::dot_biased, simd::field, simd::field_into, simd::kDotKeepsBias, simd::look_up;
using simd::B, simd::F, simd::I, simd::M, simd::SubnormalsAreZero;
using simd::float_of, simd::highest_of, simd::sum4, simd::sum_of, simd::to_float, simd::to_int, simd::transpose;
using simd::load, simd::load_bf16, simd::load_bf16_pairs, simd::load_bytes, simd::load_f16, simd::load_i8;
using simd::load_u8, simd::store, simd::store_bytes, simd::store_f16, simd::store_narrow;

// How far a panel is read ahead where the processor does not do it as well by itself: into the second
// cache, as the first has too few buffers for what is under way to memory at a time.
constexpr int64_t kAheadBytes = 6144;
BATON_INLINE void fetch_ahead(const unsigned char* from) { __builtin_prefetch(from + kAheadBytes, 0, 2); }

template <int N>
struct Constant {
  static constexpr int value = N;
};

template <class A, class B>
constexpr bool same_type = false;
template <class A>
constexpr bool same_type<A, A> = true;

template <bool First, class A, class B>
struct EitherOf {
  using Type = A;
};
template <class A, class B>
struct EitherOf<false, A, B> {
  using Type = B;
};
template <bool First, class A, class B>
using Either = typename EitherOf<First, A, B>::Type;

template <int... I>
struct Indices {};
template <int N, int... I>
struct IndicesTo : IndicesTo<N - 1, N - 1, I...> {};
template <int... I>
struct IndicesTo<0, I...> {
  using Type = Indices<I...>;
};

// f(Constant<0>) ... f(Constant<N - 1>), unrolled by construction: for what needs its index as a constant. Side by
// side: where each call lies within the next, compilers copy the first N times over.
template <class Function, int... I>
constexpr BATON_INLINE void unroll_over(Indices<I...>, Function& f) {
  (f(Constant<I>{}), ...);
}
template <int N, class Function>
constexpr BATON_INLINE void unroll(Function&& f) {
  unroll_over(typename IndicesTo<N>::Type{}, f);
}

// f(Constant<T>, token) for tiles of `Most` tokens, then smaller ones; not `All` sizes for what is rare, to save code.
template <bool All, int Most, class Function>
BATON_INLINE void each_token_tile(int64_t tokens, Function&& f) {
  int64_t t = 0;
  const auto step = [&](auto count) BATON_LAMBDA {
    for (; tokens - t >= count.value; t += count.value) f(count, t);
  };
  if constexpr (All) step(Constant<Most>{});
  if constexpr (Most > 8) step(Constant<8>{});
  if constexpr (Most > 4) step(Constant<4>{});
  if constexpr (All && Most > 2) step(Constant<2>{});
  if constexpr (Most > 1) step(Constant<1>{});
}

// f(offset, lanes): whole vectors first, then the rest.
template <class Function>
BATON_INLINE void each_vector(int64_t n, Function&& f) {
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) f(i, kLanes);
  if (i < n) f(i, static_cast<int>(n - i));
}

// f(Constant<P>, panel) for groups of P panels, then one by one.
template <int P, class Function>
BATON_INLINE void each_panel_group(int64_t begin, int64_t end, Function&& f) {
  int64_t panel = begin;
  for (; panel + P <= end; panel += P) f(Constant<P>{}, panel);
  if constexpr (P > 1) {
    for (; panel < end; ++panel) f(Constant<1>{}, panel);
  }
}

// How many rows of a panel the matrix has.
BATON_INLINE int rows_of(const Matrix& w, int64_t panel) {
  const int64_t left = w.rows - kLanes * panel;
  return left < kLanes ? static_cast<int>(left) : kLanes;
}

BATON_INLINE void write_rows(float* to, F value, int lanes, bool add) {
  if (add) value = load(to, lanes) + value;
  store(to, value, lanes);
}

}  // namespace
}  // namespace baton::host
