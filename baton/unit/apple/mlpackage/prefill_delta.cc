// The gated delta rule over chunks of L tokens (Yang et al., "Parallelizing Linear Transformers with the Delta Rule
// over Sequence Length" and "Gated Delta Networks", 2024). With G the sums of log decays inside a chunk, D[t, i] =
// exp(G_t - G_i) for i <= t, and S the state before the chunk:
//   A = beta_t D[t, i] (k_t . k_i) for i < t        T = (I + A)^-1
//   U = T (beta v) - T (beta exp(G) k) S            the corrections u_t of all tokens of the chunk
//   out = exp(G) q S + (D * q k^T) U                S' = exp(G_L) S + (exp(G_L - G) k)^T U
// Linear in v and S: all of U, out and S' are kDeltaCarrier times larger here than what they stand for.
// Everything but S is computed for all chunks at once; a padding column has beta = 0 and no decay, so it changes
// nothing. T by doubling the size of inverted diagonal blocks: T <- T - T (A under the diagonal blocks) T. Each step
// holds true inverses of parts of I + A, which stay small; powers of A would not (tokens that repeat give binomials).
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "baton/unit/apple/mlpackage/prefill_lowering.h"

namespace baton::apple {

struct PrefillLowering::DeltaOperands {
  int64_t length = 0, chunks = 0;              // L and how many
  Value keys_in, correction;                   // [N, H, L, dk] T (beta exp(G) k), [N, H, L, dv] T (beta v)
  Value query, key_tail, scores, decay_total;  // exp(G) q, exp(G_L - G) k, D * q k^T, exp(G_L)
};

namespace {

int64_t chunk_length(int64_t seq) {
  int64_t length = 1;
  while (length < kDeltaChunkMax && seq % (2 * length) == 0) length *= 2;
  return length;
}

}  // namespace

// Channels [first, first + heads * width) of [1, C, 1, S] as [N, heads, L, width].
PrefillLowering::Value PrefillLowering::delta_heads(std::string_view name, Value x, int64_t first, int64_t heads,
                                                    int64_t width) {
  const int64_t length = chunk_length(shape_.seq), chunks = shape_.seq / length;
  const std::string base(name);
  const Value part = block_.slice(base + "_part", x, 1, first, heads * width);
  const Value split = block_.reshape(base + "_split", part, {heads, width, chunks, length});
  return block_.transpose(base + "_chunks", split, {2, 0, 3, 1});
}

// l2norm(x) * scale of the key heads that begin at channel `first`, repeated for the value heads: [N, H, L, dk].
PrefillLowering::Value PrefillLowering::delta_keys(const Op& op, std::string_view name, int64_t first, float scale) {
  const int64_t key_heads = op.kv_heads, repeats = op.heads / op.kv_heads, dim = op.key_dim;
  const std::string base(name);
  const Value heads = delta_heads(name, get(op.x), first, key_heads, dim);
  // sum x^2 + eps = dim (mean x^2 + eps / dim)
  const Value normed = rms(base + "_l2", heads, 3, op.eps / static_cast<float>(dim));
  const Value scaled =
      block_.binary("mul", base + "_unit", normed, block_.scalar(scale / std::sqrt(static_cast<float>(dim))));
  if (repeats == 1) return scaled;
  const int64_t length = block_.dim(scaled, 2), chunks = block_.dim(scaled, 0);
  const std::vector<Value> copies(static_cast<size_t>(repeats), scaled);
  if (op.head_map == HeadMap::kTiled) return block_.concat(base + "_tiled", copies, 1);
  // Grouped: each key head stands `repeats` times in a row; rows of a head are one run of L * dk values.
  const Value runs = block_.reshape(base + "_runs", scaled, {chunks, key_heads, 1, length * dim});
  const std::vector<Value> grouped(static_cast<size_t>(repeats), runs);
  return block_.reshape(base + "_grouped", block_.concat(base + "_repeats", grouped, 2),
                        {chunks, op.heads, length, dim});
}

// (I + lower)^-1 for strictly lower triangular [N, H, L, L].
PrefillLowering::Value PrefillLowering::delta_inverse(Value lower) {
  const int64_t length = block_.dim(lower, 3);
  const auto matrix = [&](const std::string& key, const auto& element) {
    return block_.constant(key, {1, 1, length, length}, [&](size_t i) {
      const auto at = static_cast<int64_t>(i);
      return element(at / length, at % length) ? 1.0f : 0.0f;
    });
  };
  const Value identity = matrix(fmt::format("identity_{}", length), [](int64_t t, int64_t i) { return t == i; });
  Value inverse = identity;
  for (int64_t size = 1; size < length; size *= 2) {
    const Value under = matrix(fmt::format("under_{}_{}", length, size), [&](int64_t t, int64_t i) {
      return t / (2 * size) == i / (2 * size) && t / size % 2 == 1 && i / size % 2 == 0;
    });
    const Value part = block_.binary("mul", "under", lower, under);
    if (size == 1) {
      inverse = block_.binary("sub", "inverse", identity, part);
      continue;
    }
    const Value left = block_.matmul("inverse_left", inverse, part, false, false);
    inverse = block_.binary("sub", "inverse", inverse, block_.matmul("inverse_right", left, inverse, false, false));
  }
  return inverse;
}

// Everything that does not need the state.
Status PrefillLowering::delta_operands(const Op& op, DeltaOperands* out) {
  const int64_t seq = shape_.seq, length = chunk_length(seq), chunks = seq / length, heads = op.heads;
  out->length = length;
  out->chunks = chunks;
  const int64_t key_width = int64_t{op.kv_heads} * op.key_dim;

  // g = A softplus(a + dt). log(1 + e) with e = exp(-|x|) as 2 atanh(e / (2 + e)): small values keep their relative
  // accuracy, which decides how long a head remembers; 1 + e in fp16 would lose it.
  BATON_TRY(const Value dt, vector("dt", op.weights[Op::kTimeBias], {1, heads, 1, 1}));
  BATON_TRY(const Value rate, vector("rate", op.weights[Op::kDecayRate], {1, heads, 1, 1}));
  const Value x = block_.binary("add", "decay_in", get(op.z), dt);
  const Value minus = block_.binary("mul", "minus", x, block_.scalar(-1));
  const Value e = block_.unary("exp", "e", block_.binary("minimum", "minus_abs", x, minus));
  const Value z = block_.binary("real_div", "z", e, block_.binary("add", "e_plus", e, block_.scalar(2)));
  const Value zz = block_.binary("mul", "zz", z, z);
  // 2 z (1 + z^2 (1/3 + z^2 (1/5 + z^2 / 7))), z <= 1/3
  Value series =
      block_.binary("add", "s5", block_.binary("mul", "s7", zz, block_.scalar(1.0f / 7)), block_.scalar(0.2f));
  series = block_.binary("add", "s3", block_.binary("mul", "s5z", zz, series), block_.scalar(1.0f / 3));
  series = block_.binary("add", "s1", block_.binary("mul", "s3z", zz, series), block_.scalar(1));
  const Value log1p = block_.binary("mul", "log1p", block_.binary("mul", "z2", z, block_.scalar(2)), series);
  const Value softplus = block_.binary("add", "softplus", block_.unary("relu", "positive", x), log1p);
  const Value decay =
      block_.binary("mul", "log_decay", block_.binary("mul", "decay", softplus, rate), keep_);  // [1, H, 1, S]
  const Value beta_columns = block_.binary("mul", "beta", block_.unary("sigmoid", "beta_open", get(op.y)), keep_);

  const auto by_chunk = [&](std::string_view name, Value value) {  // [1, H, 1, S] -> [N, H, 1, L]
    const std::string base(name);
    return block_.transpose(base + "_chunks", block_.reshape(base + "_split", value, {heads, chunks, 1, length}),
                            {1, 0, 2, 3});
  };
  const Value g = by_chunk("g", decay);
  const Value beta = block_.transpose("beta_rows", by_chunk("beta", beta_columns), {0, 1, 3, 2});  // [N, H, L, 1]
  // Sums of g over segments, each by its own row of zeros and ones, so that no difference of large sums is taken.
  const auto sums = [&](const std::string& key, int64_t columns, const auto& inside) {
    return block_.constant(fmt::format("{}_{}", key, length), {1, 1, length, columns}, [&](size_t i) {
      const auto at = static_cast<int64_t>(i);
      return inside(at / columns, at % columns) ? 1.0f : 0.0f;
    });
  };
  const Value between =
      sums("between", length * length, [&](int64_t j, int64_t ti) { return j > ti % length && j <= ti / length; });
  const Value after = sums("after", length, [](int64_t j, int64_t t) { return j > t; });
  const auto decay_of = [&](std::string_view name, Value by) {  // exp of the sums: [N, H, 1, columns]
    const std::string base(name);
    return block_.unary("exp", base, block_.matmul(base + "_log", g, by, false, false));
  };
  const Value lower_or_equal = sums("diagonal", length, [](int64_t t, int64_t i) { return i <= t; });
  const Value lower = sums("lower", length, [](int64_t t, int64_t i) { return i < t; });
  const Value segment = block_.reshape("segment", decay_of("segments", between), {chunks, heads, length, length});
  const Value to_end = block_.transpose("to_end_rows", decay_of("to_end", after), {0, 1, 3, 2});
  const bool carries = chunks > 1 || shape_.past > 0;  // some chunk begins with a state
  if (carries) out->decay_total = decay_of("total", sums("whole", 1, [](int64_t, int64_t) { return true; }));

  const Value q = delta_keys(op, "q", 0, 1 / std::sqrt(static_cast<float>(op.key_dim)));
  const Value k = delta_keys(op, "k", key_width, 1);
  Value v = delta_heads("v", get(op.x), 2 * key_width, heads, op.value_dim);
  if (shape_.carrier != 1) v = block_.binary("mul", "v_carried", v, block_.scalar(shape_.carrier));

  // beta in the left operand: the engine's compiler refuses a product of one value with itself, transposed.
  const Value key_products = block_.matmul("kk", block_.binary("mul", "k_beta", k, beta), k, false, true);
  const Value a = block_.binary("mul", "a", key_products, block_.binary("mul", "strict", segment, lower));
  const Value inverse = delta_inverse(a);
  out->correction = block_.matmul("correction", inverse, block_.binary("mul", "beta_v", v, beta), false, false);
  if (carries) {
    const Value until = sums("until", length, [](int64_t j, int64_t t) { return j <= t; });
    const Value from_start = block_.transpose("from_start_rows", decay_of("from_start", until), {0, 1, 3, 2});
    const Value beta_k = block_.binary("mul", "beta_k", k, block_.binary("mul", "beta_decay", beta, from_start));
    out->keys_in = block_.matmul("keys_in", inverse, beta_k, false, false);
    out->query = block_.binary("mul", "q_decayed", q, from_start);
  }
  const Value scores = block_.matmul("qk", q, k, false, true);
  out->scores = block_.binary("mul", "qk_decayed", scores, block_.binary("mul", "diagonal", segment, lower_or_equal));
  out->key_tail = block_.binary("mul", "k_decayed", k, to_end);
  return {};
}

// The chunks in order; returns the state after the last.
PrefillLowering::Value PrefillLowering::delta_chunks(const Op& op, const DeltaOperands& operands,
                                                     std::vector<Value>* outputs) {
  Value state = states_[static_cast<size_t>(op.slot)];
  if (state.index >= 0 && shape_.carrier != 1)
    state = block_.binary("mul", "state_carried", state, block_.scalar(shape_.carrier));
  for (int64_t c = 0; c < operands.chunks; ++c) {
    const auto chunk = [&](std::string_view name, Value value) {
      return block_.slice(fmt::format("{}_{}", name, c), value, 0, c, 1);
    };
    Value u = chunk("u", operands.correction);
    const Value scores = chunk("p", operands.scores), tail = chunk("tail", operands.key_tail);
    const bool empty = state.index < 0;  // the state is zero
    if (!empty)
      u = block_.binary("sub", "corrected", u,
                        block_.matmul("seen", chunk("w", operands.keys_in), state, false, false));
    Value out = block_.matmul("inside", scores, u, false, false);
    Value next = block_.matmul("learned", tail, u, true, false);
    if (!empty) {
      out = block_.binary("add", "out", out, block_.matmul("before", chunk("qd", operands.query), state, false, false));
      next = block_.binary("add", "state", next,
                           block_.binary("mul", "decayed", state, chunk("total", operands.decay_total)));
    }
    outputs->push_back(out);
    state = next;
  }
  return state;
}

Status PrefillLowering::delta(const Op& op) {
  DeltaOperands operands;
  BATON_OK(delta_operands(op, &operands));
  std::vector<Value> outputs;
  Value state = delta_chunks(op, operands, &outputs);
  if (shape_.carrier != 1) state = block_.binary("mul", "state_plain", state, block_.scalar(1 / shape_.carrier));
  state_output(op.slot, state);
  const Value all = block_.concat("outs", outputs, 0);  // [N, H, L, dv]
  const Value columns = block_.transpose("out_columns", all, {1, 3, 0, 2});
  set(op.out, block_.reshape("mixed", columns, {1, int64_t{op.heads} * op.value_dim, 1, shape_.seq}), shape_.carrier);
  return {};
}

}  // namespace baton::apple
