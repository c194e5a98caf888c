// What the kernel templates share: unrolling, vectors with a tail, register tiles. Included by each instruction set's
// file inside its own anonymous namespace, so that nothing compiled with its flags can be linked into common code; for
// the same reason these files call no inline function of the standard library (scripts/check_symbols.py).

#define BATON_INLINE inline __attribute__((always_inline))
#define BATON_NOINLINE __attribute__((noinline))
#define BATON_LAMBDA __attribute__((always_inline))

template <int N>
struct Constant {
  static constexpr int value = N;
};

template <class A, class B>
inline constexpr bool same_type = false;
template <class A>
inline constexpr bool same_type<A, A> = true;

// f(Constant<0>) ... f(Constant<N - 1>), unrolled by construction.
template <int N, class Function>
constexpr BATON_INLINE void unroll(Function&& f) {
  if constexpr (N > 0) {
    unroll<N - 1>(f);
    f(Constant<N - 1>{});
  }
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
template <class L>
BATON_INLINE typename L::F load_some(const float* from, int lanes) {
  return lanes == kLanes ? L::load(from) : L::load_n(from, lanes);
}
template <class L>
BATON_INLINE void store_some(float* to, typename L::F value, int lanes) {
  if (lanes == kLanes) {
    L::store(to, value);
  } else {
    L::store_n(to, value, lanes);
  }
}
template <class L>
BATON_INLINE void write_rows(float* to, typename L::F value, int lanes, bool add) {
  if (add) value = L::add(load_some<L>(to, lanes), value);
  store_some<L>(to, value, lanes);
}
