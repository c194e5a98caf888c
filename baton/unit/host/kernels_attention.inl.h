// Attention over keys and values of any form with an online softmax (Milakov and Gimelshein, 2018), in tiles of 64
// keys. All query heads of a kv head go together, so that its keys and values are read once.
#pragma once

#include "baton/unit/host/kernels_float.inl.h"

namespace baton::host {
namespace {

constexpr float kLowest = -3.0e38f;

// Values of a row from column `i`, a multiple of 16, on. What fills the last block up is there to be read.
template <KeyForm kForm>
BATON_INLINE F load_key(const unsigned char* row, int64_t i, int lanes) {
  if constexpr (kForm == KeyForm::kF16) return load_f16(row + 2 * i, lanes);
  if constexpr (kForm == KeyForm::kBF16) return load_bf16(row + 2 * i, lanes);
  if constexpr (kForm == KeyForm::kQ8_0) {
    const unsigned char* block = row + i / 32 * 34;
    return to_float(load_i8(block + 2 + i % 32)) * all_f16(block);
  }
  if constexpr (kForm == KeyForm::kQ4_0) {
    const unsigned char* block = row + i / 32 * 18;
    const I codes = load_u8(block + 2);
    return to_float((i % 32 == 0 ? codes & all(15) : codes >> 4) - all(8)) * all_f16(block);
  }
}

// Calls f(Constant<form>).
template <class Function>
BATON_INLINE void with_form(KeyForm form, Function f) {
  switch (form) {
    case KeyForm::kF16:
      return f(Constant<static_cast<int>(KeyForm::kF16)>{});
    case KeyForm::kBF16:
      return f(Constant<static_cast<int>(KeyForm::kBF16)>{});
    case KeyForm::kQ8_0:
      return f(Constant<static_cast<int>(KeyForm::kQ8_0)>{});
    case KeyForm::kQ4_0:
      return f(Constant<static_cast<int>(KeyForm::kQ4_0)>{});
  }
}

// G query heads, from `head` on, against one tile of at most 64 keys: scores, running maximum and sum, then the
// weighted values.
template <KeyForm kForm, int G>
struct DecodeTile {
  const AttendDecode& a;
  const unsigned char *keys, *values;  // of the tile
  int64_t row_bytes;
  bool is_first;
  int hidden, tokens, head;  // hidden: of the tile's first keys
  float rescale[G];
  alignas(64) float scores[G][kAttendKeys];

  // Of T keys from `t` on.
  template <int T>
  BATON_INLINE void score(int t) {
    const float* q = a.q + head * a.q_stride;
    const unsigned char* key = keys + t * row_bytes;
    F sum[G][T] = {};
    each_vector(a.keys.head_dim, [&](int64_t i, int lanes) BATON_LAMBDA {
      F k[T];
#pragma GCC unroll 4
      for (int j = 0; j < T; ++j) k[j] = load_key<kForm>(key + j * row_bytes, i, lanes);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) {
        const F x = load(q + g * a.q_stride + i, lanes);
#pragma GCC unroll 4
        for (int j = 0; j < T; ++j) sum[g][j] = fma(x, k[j], sum[g][j]);
      }
    });
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
      if constexpr (T == 4) {
        sum4(sum[g][0], sum[g][1], sum[g][2], sum[g][3], &scores[g][t]);
      } else {
        scores[g][t] = sum_of(sum[g][0]);
      }
    }
  }

  // Caps the scores, and takes the scale from them for what follows; those hidden weigh nothing.
  BATON_INLINE void limit(int g) {
    if (a.cap != 0) {
      const F cap = all(a.cap / a.scale);
      for (int i = 0; i < tokens; i += kLanes) store(scores[g] + i, soft_cap_of(load(scores[g] + i), cap));
    }
    for (int i = 0; i < hidden; ++i) scores[g][i] = kLowest;
    for (int i = tokens; i < round_up(tokens, kLanes); ++i) scores[g][i] = kLowest;
  }

  // Scores become weights; what was summed before is to be rescaled.
  BATON_INLINE void weigh(int g) {
    for (int i = tokens; i < round_up(tokens, kLanes); ++i) scores[g][i] = kLowest;  // weighs nothing, scaled or not
    F top = all(kLowest);
    if (a.cap != 0 || hidden > 0) limit(g);
    for (int i = 0; i < tokens; i += kLanes) {
      const F scaled = load(scores[g] + i) * all(a.scale);
      store(scores[g] + i, scaled);
      top = max(top, scaled);
    }
    const float before = is_first ? kLowest : a.highest[head + g];
    const float highest = __builtin_fmaxf(before, highest_of(top));
    F total{};
    for (int i = 0; i < tokens; i += kLanes) {
      const F weight = exp_of(load(scores[g] + i) - all(highest));
      store(scores[g] + i, weight);
      total = total + weight;
    }
    rescale[g] = is_first ? 0.0f : __builtin_expf(before - highest);
    a.highest[head + g] = highest;
    a.sum[head + g] = (is_first ? 0.0f : a.sum[head + g] * rescale[g]) + sum_of(total);
  }

  // V vectors of the values' columns from `d` on.
  template <int V>
  BATON_INLINE void gather(int64_t d, int lanes) {
    F sum[G][V] = {};
    float* const out = a.out + head * a.keys.head_dim + d;
    if (!is_first) {
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) {
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[g][v] = load(out + g * a.keys.head_dim + kLanes * v, lanes) * all(rescale[g]);
      }
    }
    for (int j = 0; j < tokens; ++j) {
      const unsigned char* from = values + j * row_bytes;
      F value[V];
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) value[v] = load_key<kForm>(from, d + kLanes * v, lanes);
#pragma GCC unroll 4
      for (int g = 0; g < G; ++g) {
        const F weight = all(scores[g][j]);
#pragma GCC unroll 4
        for (int v = 0; v < V; ++v) sum[g][v] = fma(weight, value[v], sum[g][v]);
      }
    }
#pragma GCC unroll 4
    for (int g = 0; g < G; ++g) {
#pragma GCC unroll 4
      for (int v = 0; v < V; ++v) store(out + g * a.keys.head_dim + kLanes * v, sum[g][v], lanes);
    }
  }
};

template <KeyForm kForm, int G>
void attend_tile(const AttendDecode& a, int64_t first, int tokens, int head) {
  DecodeTile<kForm, G> tile{a,
                            page_row(a.keys, a.keys.keys_at, first),
                            page_row(a.keys, a.keys.values_at, first),
                            key_row_bytes(kForm, a.keys.head_dim),
                            first == a.first,
                            first < a.seen_from ? static_cast<int>(a.seen_from - first) : 0,
                            tokens,
                            head,
                            {},
                            {}};
  int t = 0;
  for (; t + 4 <= tokens; t += 4) tile.template score<4>(t);
  for (; t < tokens; ++t) tile.template score<1>(t);
  for (int g = 0; g < G; ++g) tile.weigh(g);
  int64_t d = 0;
  for (; d + 4 * kLanes <= a.keys.head_dim; d += 4 * kLanes) tile.template gather<4>(d, kLanes);
  for (; d < a.keys.head_dim; d += kLanes) {
    tile.template gather<1>(d, a.keys.head_dim - d < kLanes ? static_cast<int>(a.keys.head_dim - d) : kLanes);
  }
}

template <KeyForm kForm>
void attend_decode_of(const AttendDecode& a) {
  const int64_t end = a.first + a.tokens;
  for (int64_t first = a.first; first < end; first += kAttendKeys) {
    const int tokens = static_cast<int>(end - first < kAttendKeys ? end - first : kAttendKeys);
    int head = 0;
    for (; head + 4 <= a.groups; head += 4) attend_tile<kForm, 4>(a, first, tokens, head);
    const int left = a.groups - head;
    if (left == 3) attend_tile<kForm, 3>(a, first, tokens, head);
    if (left == 2) attend_tile<kForm, 2>(a, first, tokens, head);
    if (left == 1) attend_tile<kForm, 1>(a, first, tokens, head);
  }
}

void attend_decode(const AttendDecode& a) {
  with_form(a.keys.form, [&](auto form) { attend_decode_of<static_cast<KeyForm>(decltype(form)::value)>(a); });
}

// Rows are (query token, head) pairs, row r = token * groups + head, and lie along the lanes: scores are transposed,
// [key][row], so the softmax needs no sums across lanes. Attend: AttendPrefill or AttendAll.
template <class Attend>
struct PrefillTile {
  const Attend& a;
  const int64_t head_dim;
  int64_t rows, padded, width;  // width: head_dim rounded up
  float *query, *scores, *keys, *values, *sums, *highest, *total, *rescale;

  explicit PrefillTile(const Attend& from) : a(from), head_dim(head_dim_of(from)) {
    rows = a.queries * a.groups;
    padded = round_up(rows, kLanes);
    width = round_up(head_dim, kLanes);
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
    for (int64_t d = 0; d < head_dim; ++d) {
      for (int64_t r = rows; r < padded; ++r) query[d * padded + r] = 0;
    }
    for (int64_t r = 0; r < rows; ++r) {
      const float* from = a.q + r / a.groups * a.q_stride + r % a.groups * head_dim;
      for (int64_t d = 0; d < head_dim; ++d) query[d * padded + r] = from[d] * a.scale;
    }
    for (int64_t r = 0; r < padded; ++r) highest[r] = kLowest;
    for (int64_t r = 0; r < padded; ++r) total[r] = 0;
    for (int64_t i = 0; i < padded * width; ++i) sums[i] = 0;
  }

  static int64_t head_dim_of(const AttendPrefill& from) { return from.keys.head_dim; }
  static int64_t head_dim_of(const AttendAll& from) { return from.head_dim; }

  template <KeyForm kForm>
  static void widen(const unsigned char* from, int64_t n, float* to) {
    each_vector(n, [&](int64_t i, int lanes) BATON_LAMBDA { store(to + i, load_key<kForm>(from, i, lanes), lanes); });
  }

  void fetch(const AttendPrefill& from, int64_t first, int64_t count) {
    const unsigned char* const keys_from = page_row(from.keys, from.keys.keys_at, first);
    const unsigned char* const values_from = page_row(from.keys, from.keys.values_at, first);
    const int64_t row_bytes = key_row_bytes(from.keys.form, head_dim);
    with_form(from.keys.form, [&](auto form) BATON_LAMBDA {
      constexpr auto kForm = static_cast<KeyForm>(decltype(form)::value);
      for (int64_t j = 0; j < count; ++j) {
        widen<kForm>(keys_from + j * row_bytes, head_dim, keys + j * width);
        widen<kForm>(values_from + j * row_bytes, head_dim, values + j * width);
      }
    });
  }
  void fetch(const AttendAll& from, int64_t first, int64_t count) {
    const auto copy = [&](const float* x, float* to) BATON_LAMBDA {
      each_vector(head_dim, [&](int64_t i, int lanes) BATON_LAMBDA { store(to + i, load(x + i, lanes), lanes); });
    };
    for (int64_t j = 0; j < count; ++j) {
      copy(from.keys + (first + j) * from.keys_stride, keys + j * width);
      copy(from.values + (first + j) * from.values_stride, values + j * width);
    }
  }

  // A row sees keys up to its own position.
  void hide(const AttendPrefill& from, int64_t first, int64_t count) {
    for (int64_t j = 0; j < count; ++j) {
      const int64_t hidden = (first + j - from.start) * from.groups;  // rows before this one may not see key first + j
      for (int64_t r = 0; r < hidden && r < rows; ++r) scores[j * padded + r] = kLowest;
      if (from.window == 0 && from.chunk == 0) continue;
      // Rows from this one on see no further back than behind it.
      const int64_t behind = from.chunk != 0 ? ((first + j) / from.chunk + 1) * from.chunk : first + j + from.window;
      const int64_t gone = (behind - from.start) * from.groups;
      for (int64_t r = gone > 0 ? gone : 0; r < rows; ++r) scores[j * padded + r] = kLowest;
    }
  }
  void hide(const AttendAll& from, int64_t first, int64_t count) {
    if (from.slopes != nullptr) fade(from, first, count);
    if (from.window == 0) return;
    for (int64_t j = 0; j < count; ++j) {
      float* const of_key = scores + j * padded;
      const int64_t token = first + j - from.start;  // among the queries
      const int64_t begin = (token - from.window) * from.groups, end = (token + from.window + 1) * from.groups;
      for (int64_t r = 0; r < begin && r < rows; ++r) of_key[r] = kLowest;
      for (int64_t r = end > 0 ? end : 0; r < rows; ++r) of_key[r] = kLowest;
    }
  }
  void fade(const AttendAll& from, int64_t first, int64_t count) {
    for (int64_t j = 0; j < count; ++j) {
      float* of_key = scores + j * padded;
      for (int64_t t = 0; t < from.queries; ++t) {
        const int64_t steps = first + j - from.start - t;
        const auto distance = static_cast<float>(steps < 0 ? -steps : steps);
        for (int64_t g = 0; g < from.groups; ++g) *of_key++ -= from.slopes[g] * distance;
      }
    }
  }

  void cap_scores(const AttendPrefill& from, int64_t count) {
    if (from.cap != 0) soft_cap(from.cap, count * padded, scores);
  }
  void cap_scores(const AttendAll&, int64_t) {}

  // Keys [first, first + count).
  void add_keys(int64_t first, int64_t count) {
    fetch(a, first, count);
    product({count, padded, head_dim, keys, width, 1, query, padded, scores, padded}, Store::kSet);
    cap_scores(a, count);
    hide(a, first, count);
    for (int64_t r = 0; r < padded; r += kLanes) {
      F top = load(highest + r);
      for (int64_t j = 0; j < count; ++j) top = max(top, load(scores + j * padded + r));
      const F factor = exp_of(load(highest + r) - top);
      F sum = load(total + r) * factor;
      for (int64_t j = 0; j < count; ++j) {
        const F weight = exp_of(load(scores + j * padded + r) - top);
        store(scores + j * padded + r, weight);
        sum = sum + weight;
      }
      store(highest + r, top);
      store(total + r, sum);
      store(rescale + r, factor);
    }
    if (first > 0) {
      for (int64_t r = 0; r < rows; ++r) {
        const F factor = all(rescale[r]);
        float* row = sums + r * width;
        for (int64_t d = 0; d < width; d += kLanes) store(row + d, load(row + d) * factor);
      }
    }
    product({rows, head_dim, count, scores, 1, padded, values, width, sums, width}, Store::kAdd);
  }

  void finish() {
    for (int64_t r = 0; r < rows; ++r) {
      float* to = a.out + r / a.groups * a.out_stride + r % a.groups * head_dim;
      const F factor = all(1.0f / total[r]);
      each_vector(head_dim, [&](int64_t d, int lanes)
                                BATON_LAMBDA { store(to + d, load(sums + r * width + d) * factor, lanes); });
    }
  }
};

void attend_prefill(const AttendPrefill& a) {
  PrefillTile<AttendPrefill> tile(a);
  tile.start();
  const int64_t end = a.start + a.queries;
  // Where the first query's window or chunk begins. What was added of a key that a row does not see is scaled to
  // nothing by the first that it does.
  int64_t seen = a.window == 0 || a.start < a.window ? 0 : a.start - a.window + 1;
  if (a.chunk != 0) seen = a.start / a.chunk * a.chunk;
  for (int64_t first = seen / kAttendKeys * kAttendKeys; first < end; first += kAttendKeys) {
    tile.add_keys(first, end - first < kAttendKeys ? end - first : kAttendKeys);
  }
  tile.finish();
}

void attend_all(const AttendAll& a) {
  PrefillTile<AttendAll> tile(a);
  tile.start();
  // What was added of a key that a row does not see is scaled to nothing by the first that it does.
  const int64_t seen = a.window == 0 || a.start < a.window ? 0 : a.start - a.window;
  const int64_t last = a.start + a.queries + a.window;
  const int64_t end = a.window == 0 || last > a.tokens ? a.tokens : last;
  for (int64_t first = seen / kAttendKeys * kAttendKeys; first < end; first += kAttendKeys) {
    tile.add_keys(first, end - first < kAttendKeys ? end - first : kAttendKeys);
  }
  tile.finish();
}

}  // namespace
}  // namespace baton::host
