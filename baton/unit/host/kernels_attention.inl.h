// Attention over f16 keys and values with an online softmax (Milakov and Gimelshein, 2018), in tiles of 64 keys. All
// query heads of a kv head go together, so that its keys and values are read once.

inline constexpr float kLowest = -3.0e38f;

// G query heads against one tile of at most 64 keys: scores, running maximum and sum, then the weighted values.
template <class L, int G>
void attend_tile(const AttendDecode& a, int64_t first, int tokens, int head, bool is_first) {
  using F = typename L::F;
  alignas(64) float scores[G][kAttendKeys];
  const float* q = a.q + head * a.q_stride;
  int t = 0;
  const auto score = [&](auto count) BATON_LAMBDA {
    constexpr int T = decltype(count)::value;
    for (; t + T <= tokens; t += T) {
      const uint16_t* key = a.keys + (first + t) * a.head_dim;
      F sum[G][T];
      unroll<G * T>([&](auto i) BATON_LAMBDA { sum[i.value / T][i.value % T] = L::zero(); });
      each_vector(a.head_dim, [&](int64_t i, int lanes) BATON_LAMBDA {
        F k[T];
        unroll<T>([&](auto j) BATON_LAMBDA {
          const uint16_t* from = key + j.value * a.head_dim + i;
          k[j.value] = lanes == kLanes ? L::load_f16(from) : L::load_f16_n(from, lanes);
        });
        unroll<G>([&](auto g) BATON_LAMBDA {
          const F x = load_some<L>(q + g.value * a.q_stride + i, lanes);
          unroll<T>([&](auto j) BATON_LAMBDA { sum[g.value][j.value] = L::fma(x, k[j.value], sum[g.value][j.value]); });
        });
      });
      unroll<G>([&](auto g) BATON_LAMBDA {
        if constexpr (T == 4) {
          L::sum4(sum[g.value][0], sum[g.value][1], sum[g.value][2], sum[g.value][3], &scores[g.value][t]);
        } else {
          scores[g.value][t] = L::sum(sum[g.value][0]);
        }
      });
    }
  };
  score(Constant<4>{});
  score(Constant<1>{});

  float rescale[G];
  for (int g = 0; g < G; ++g) {
    for (int i = tokens; i < round_up(tokens, kLanes); ++i) scores[g][i] = kLowest;  // weighs nothing, scaled or not
    F top = L::set1(kLowest);
    for (int i = 0; i < tokens; i += kLanes) {
      const F scaled = L::mul(L::load(scores[g] + i), L::set1(a.scale));
      L::store(scores[g] + i, scaled);
      top = L::max(top, scaled);
    }
    const float before = is_first ? kLowest : a.highest[head + g];
    const float highest = __builtin_fmaxf(before, L::highest(top));
    F total = L::zero();
    for (int i = 0; i < tokens; i += kLanes) {
      const F weight = exp_of<L>(L::sub(L::load(scores[g] + i), L::set1(highest)));
      L::store(scores[g] + i, weight);
      total = L::add(total, weight);
    }
    rescale[g] = is_first ? 0.0f : __builtin_expf(before - highest);
    a.highest[head + g] = highest;
    a.sum[head + g] = (is_first ? 0.0f : a.sum[head + g] * rescale[g]) + L::sum(total);
  }

  int64_t d = 0;
  const auto gather = [&](auto count, int lanes) BATON_LAMBDA {
    constexpr int V = decltype(count)::value;
    F sum[G][V];
    unroll<G>([&](auto g) BATON_LAMBDA {
      float* from = a.out + (head + g.value) * a.head_dim + d;
      unroll<V>([&](auto v) BATON_LAMBDA {
        sum[g.value][v.value] =
            is_first ? L::zero() : L::mul(load_some<L>(from + 16 * v.value, lanes), L::set1(rescale[g.value]));
      });
    });
    for (int j = 0; j < tokens; ++j) {
      const uint16_t* from = a.values + (first + j) * a.head_dim + d;
      F value[V];
      unroll<V>([&](auto v) BATON_LAMBDA {
        value[v.value] = lanes == kLanes ? L::load_f16(from + 16 * v.value) : L::load_f16_n(from, lanes);
      });
      unroll<G>([&](auto g) BATON_LAMBDA {
        const F weight = L::set1(scores[g.value][j]);
        unroll<V>([&](auto v)
                      BATON_LAMBDA { sum[g.value][v.value] = L::fma(weight, value[v.value], sum[g.value][v.value]); });
      });
    }
    unroll<G>([&](auto g) BATON_LAMBDA {
      float* to = a.out + (head + g.value) * a.head_dim + d;
      unroll<V>([&](auto v) BATON_LAMBDA { store_some<L>(to + 16 * v.value, sum[g.value][v.value], lanes); });
    });
  };
  for (; d + 4 * kLanes <= a.head_dim; d += 4 * kLanes) gather(Constant<4>{}, kLanes);
  for (; d < a.head_dim; d += kLanes) {
    gather(Constant<1>{}, a.head_dim - d < kLanes ? static_cast<int>(a.head_dim - d) : kLanes);
  }
}

template <class L>
void attend_decode(const AttendDecode& a) {
  for (int64_t first = 0; first < a.tokens; first += kAttendKeys) {
    const int tokens = static_cast<int>(a.tokens - first < kAttendKeys ? a.tokens - first : kAttendKeys);
    int head = 0;
    for (; head + 4 <= a.groups; head += 4) attend_tile<L, 4>(a, first, tokens, head, first == 0);
    const int left = a.groups - head;
    if (left == 3) attend_tile<L, 3>(a, first, tokens, head, first == 0);
    if (left == 2) attend_tile<L, 2>(a, first, tokens, head, first == 0);
    if (left == 1) attend_tile<L, 1>(a, first, tokens, head, first == 0);
  }
}

// Rows are (query token, head) pairs, row r = token * groups + head, and lie along the lanes: scores are transposed,
// [key][row], so the softmax needs no sums across lanes.
template <class L>
struct PrefillTile {
  const AttendPrefill& a;
  int64_t rows, padded, width;  // width: head_dim rounded up
  float *query, *scores, *keys, *values, *sums, *highest, *total, *rescale;

  explicit PrefillTile(const AttendPrefill& from) : a(from) {
    rows = a.queries * a.groups;
    padded = round_up(rows, kLanes);
    width = round_up(a.head_dim, kLanes);
    float* next = a.scratch;
    const auto take = [&](int64_t floats) BATON_LAMBDA {
      float* at = next;
      next += floats;
      return at;
    };
    query = take(width * padded);  // [head_dim][row], scaled
    scores = take(kAttendKeys * padded);
    keys = take(kAttendKeys * width);
    values = take(kAttendKeys * width);
    sums = take(padded * width);  // [row][head_dim]
    highest = take(padded);
    total = take(padded);
    rescale = take(padded);
  }

  void start() {
    for (int64_t d = 0; d < a.head_dim; ++d) {
      for (int64_t r = rows; r < padded; ++r) query[d * padded + r] = 0;
    }
    for (int64_t r = 0; r < rows; ++r) {
      const float* from = a.q + r / a.groups * a.q_stride + r % a.groups * a.head_dim;
      for (int64_t d = 0; d < a.head_dim; ++d) query[d * padded + r] = from[d] * a.scale;
    }
    for (int64_t r = 0; r < padded; ++r) highest[r] = kLowest;
    for (int64_t r = 0; r < padded; ++r) total[r] = 0;
    for (int64_t i = 0; i < padded * width; ++i) sums[i] = 0;
  }

  static void widen(const uint16_t* from, int64_t n, float* to) {
    each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA {
      store_some<L>(to + i, lanes == kLanes ? L::load_f16(from + i) : L::load_f16_n(from + i, lanes), lanes);
    });
  }

  // Keys [first, first + count), of which a row sees those up to its own position.
  void add_keys(int64_t first, int64_t count) {
    for (int64_t j = 0; j < count; ++j) {
      widen(a.keys + (first + j) * a.head_dim, a.head_dim, keys + j * width);
      widen(a.values + (first + j) * a.head_dim, a.head_dim, values + j * width);
    }
    product<L>({count, padded, a.head_dim, keys, width, 1, query, padded, scores, padded}, Store::kSet);
    for (int64_t j = 0; j < count; ++j) {
      const int64_t hidden = (first + j - a.start) * a.groups;  // rows before this one may not see key first + j
      for (int64_t r = 0; r < hidden && r < rows; ++r) scores[j * padded + r] = kLowest;
    }
    for (int64_t r = 0; r < padded; r += kLanes) {
      auto top = L::load(highest + r);
      for (int64_t j = 0; j < count; ++j) top = L::max(top, L::load(scores + j * padded + r));
      const auto factor = exp_of<L>(L::sub(L::load(highest + r), top));
      auto sum = L::mul(L::load(total + r), factor);
      for (int64_t j = 0; j < count; ++j) {
        const auto weight = exp_of<L>(L::sub(L::load(scores + j * padded + r), top));
        L::store(scores + j * padded + r, weight);
        sum = L::add(sum, weight);
      }
      L::store(highest + r, top);
      L::store(total + r, sum);
      L::store(rescale + r, factor);
    }
    if (first > 0) {
      for (int64_t r = 0; r < rows; ++r) {
        const auto factor = L::set1(rescale[r]);
        for (int64_t d = 0; d < width; d += kLanes) {
          L::store(sums + r * width + d, L::mul(L::load(sums + r * width + d), factor));
        }
      }
    }
    product<L>({rows, a.head_dim, count, scores, 1, padded, values, width, sums, width}, Store::kAdd);
  }

  void finish() {
    for (int64_t r = 0; r < rows; ++r) {
      float* to = a.out + r / a.groups * a.out_stride + r % a.groups * a.head_dim;
      const auto factor = L::set1(1.0f / total[r]);
      each_vector(a.head_dim, [&](int64_t d, int lanes) BATON_LAMBDA {
        store_some<L>(to + d, L::mul(L::load(sums + r * width + d), factor), lanes);
      });
    }
  }
};

template <class L>
void attend_prefill(const AttendPrefill& a) {
  PrefillTile<L> tile(a);
  tile.start();
  const int64_t end = a.start + a.queries;
  for (int64_t first = 0; first < end; first += kAttendKeys) {
    tile.add_keys(first, end - first < kAttendKeys ? end - first : kAttendKeys);
  }
  tile.finish();
}
