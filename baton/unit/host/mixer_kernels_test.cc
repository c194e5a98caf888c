// The delta rule of every kernel set against their definitions in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "baton/base/random.h"
#include "baton/unit/host/kernel_sets.h"
#include "tests/support/test_names.h"

namespace baton::host {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_values(Random& random, int64_t count) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = random.normal();
  return values;
}

float scale_of(int64_t dim) { return 1.0f / std::sqrt(static_cast<float>(dim)); }

// 64-byte aligned floats, poisoned.
struct Scratch {
  explicit Scratch(int64_t floats) : memory(static_cast<size_t>(floats) + 16, kPoison) {
    const auto address = reinterpret_cast<uintptr_t>(memory.data());
    data = memory.data() + (64 - address % 64) % 64 / 4;
  }
  std::vector<float> memory;
  float* data;
};

class AttentionAll : public testing::TestWithParam<const Kernels*> {};

// Rows of keys, values, queries and results lie apart, and what is between them is poisoned.
TEST_P(AttentionAll, AllSeeEarlierAndLaterKeys) {
  Random random(13);
  struct Around {
    int64_t window;
    bool fades;
  };
  constexpr Around kArounds[] = {{0, false}, {1, false}, {0, true}, {20, false}, {64, false}, {7, true}, {129, false}};
  size_t case_of = 0;
  for (const int64_t dim : {5, 8, 32, 40, 64}) {
    for (const int groups : {1, 3}) {
      for (const auto& [tokens, start, queries] : {std::tuple<int64_t, int64_t, int64_t>{1, 0, 1},
                                                   {7, 0, 7},
                                                   {70, 3, 20},
                                                   {131, 60, 71},
                                                   {200, 190, 10},
                                                   {257, 0, 42},
                                                   {257, 128, 40}}) {
        const int64_t stride = groups * dim + 3, keys_stride = dim + 1, values_stride = dim + 5;
        auto keys = random_values(random, tokens * keys_stride), values = random_values(random, tokens * values_stride);
        auto q = random_values(random, queries * stride);
        for (int64_t t = 0; t < tokens; ++t) {
          keys[t * keys_stride + dim] = kPoison;
          for (int64_t i = dim; i < values_stride; ++i) values[t * values_stride + i] = kPoison;
        }
        for (int64_t t = 0; t < queries; ++t) std::fill_n(q.begin() + t * stride + groups * dim, 3, kPoison);
        const std::vector<float> slopes = {0.5F, 0.03125F, 0.3F};
        std::vector<float> out(q.size(), kPoison);
        const Scratch scratch(attend_scratch_floats(queries * groups, dim));
        const Around& around = kArounds[case_of++ % std::size(kArounds)];
        GetParam()->attend_all({q.data(), stride, keys.data(), keys_stride, values.data(), values_stride, dim, tokens,
                                start, queries, around.window, groups, scale_of(dim),
                                around.fades ? slopes.data() : nullptr, out.data(), stride, scratch.data});
        for (int64_t t = 0; t < queries; ++t) {
          for (int g = 0; g < groups; ++g) {
            const int64_t at = t * stride + g * dim, own = start + t;
            std::vector<double> want(static_cast<size_t>(dim));
            double sum = 0;
            for (int64_t p = 0; p < tokens; ++p) {
              const int64_t steps = std::abs(p - own);
              if (around.window != 0 && steps > around.window) continue;
              double score = 0;
              for (int64_t d = 0; d < dim; ++d) score += double{q[at + d]} * keys[p * keys_stride + d];
              const double weight =
                  std::exp(score * scale_of(dim) - (around.fades ? slopes[g] * static_cast<double>(steps) : 0));
              sum += weight;
              for (int64_t d = 0; d < dim; ++d) want[d] += weight * values[p * values_stride + d];
            }
            for (int64_t d = 0; d < dim; ++d) {
              ASSERT_NEAR(out[at + d], want[d] / sum, 2e-5)
                  << "dim " << dim << " groups " << groups << " tokens " << tokens << " query " << own << " window "
                  << around.window << " fades " << around.fades << " head " << g << " at " << d;
            }
          }
          for (int64_t i = groups * dim; i < stride; ++i) ASSERT_TRUE(std::isnan(out[t * stride + i]));
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Sets, AttentionAll, testing::ValuesIn(kernel_sets()),
                         [](const auto& parameter) { return test_name(parameter.param->name); });

// Inputs of one value head and the recurrence in double.
struct DeltaCase {
  DeltaCase(int64_t n, int64_t dk, int64_t dv, float strongest_decay, Random& random)
      : tokens(n), key_dim(dk), value_dim(dv), stride(2 * dk + dv + 1) {
    x = random_values(random, n * stride);
    start = random_values(random, dk * dv);
    for (int64_t t = 0; t < n; ++t) {
      log_decay.push_back(-strongest_decay * random.uniform());
      beta.push_back(random.uniform());
    }
  }
  DeltaHead head(float* state, float* out, float* scratch) const {
    DeltaHead h{};
    h.q = x.data();
    h.k = x.data() + key_dim;
    h.v = x.data() + 2 * key_dim;
    h.x_stride = stride;
    h.log_decay = log_decay.data();
    h.beta = beta.data();
    h.gate_stride = 1;
    h.tokens = tokens;
    h.key_dim = key_dim;
    h.value_dim = value_dim;
    h.eps = 1e-6f;
    h.state = state;
    h.out = out;
    h.out_stride = value_dim + 2;
    h.scratch = scratch;
    return h;
  }
  void oracle(std::vector<double>& state, std::vector<double>& out) const {
    state.assign(start.begin(), start.end());
    out.assign(static_cast<size_t>(tokens * value_dim), 0);
    for (int64_t t = 0; t < tokens; ++t) {
      const float* q = x.data() + t * stride;
      const float* k = q + key_dim;
      const float* v = k + key_dim;
      double q_squares = 1e-6, k_squares = 1e-6;
      for (int64_t i = 0; i < key_dim; ++i) q_squares += double{q[i]} * q[i], k_squares += double{k[i]} * k[i];
      const double q_scale = 1 / std::sqrt(q_squares * static_cast<double>(key_dim)),
                   k_scale = 1 / std::sqrt(k_squares);
      for (int64_t j = 0; j < value_dim; ++j) {
        double error = v[j];
        for (int64_t i = 0; i < key_dim; ++i) {
          state[i * value_dim + j] *= std::exp(double{log_decay[t]});
          error -= state[i * value_dim + j] * k[i] * k_scale;
        }
        for (int64_t i = 0; i < key_dim; ++i) {
          state[i * value_dim + j] += k[i] * k_scale * beta[t] * error;
          out[t * value_dim + j] += state[i * value_dim + j] * q[i] * q_scale;
        }
      }
    }
  }

  int64_t tokens, key_dim, value_dim, stride;
  std::vector<float> x, start, log_decay, beta;
};

class Delta : public testing::TestWithParam<const Kernels*> {
 protected:
  void check(const DeltaCase& c) {
    std::vector<double> want_state, want_out;
    c.oracle(want_state, want_out);
    for (const bool chunked : {false, true}) {
      SCOPED_TRACE(testing::Message() << (chunked ? "chunked" : "recurrent") << " tokens " << c.tokens << " dims "
                                      << c.key_dim << " x " << c.value_dim);
      std::vector<float> state = c.start;
      std::vector<float> out(static_cast<size_t>(c.tokens * (c.value_dim + 2)), kPoison);
      const Scratch scratch(delta_scratch_floats(c.key_dim, c.value_dim));
      const DeltaHead head = c.head(state.data(), out.data(), scratch.data);
      (chunked ? GetParam()->delta_chunked : GetParam()->delta_recurrent)(head);
      for (size_t i = 0; i < state.size(); ++i) ASSERT_NEAR(state[i], want_state[i], 3e-5) << "state " << i;
      for (int64_t t = 0; t < c.tokens; ++t) {
        for (int64_t j = 0; j < c.value_dim; ++j) {
          ASSERT_NEAR(out[t * (c.value_dim + 2) + j], want_out[t * c.value_dim + j], 3e-5)
              << "token " << t << " at " << j;
        }
        ASSERT_TRUE(std::isnan(out[t * (c.value_dim + 2) + c.value_dim])) << "wrote past the values";
      }
    }
  }
};

TEST_P(Delta, EveryRemainder) {
  Random random(21);
  for (int64_t tokens = 1; tokens <= 130; ++tokens) check(DeltaCase(tokens, 16, 17, 1.0f, random));
}

TEST_P(Delta, OddAndRealDims) {
  Random random(22);
  for (const auto& [dk, dv] : {std::pair<int64_t, int64_t>{32, 48}, {128, 128}, {5, 3}, {40, 100}}) {
    for (const int64_t tokens : {1, 7, 64, 65, 100}) check(DeltaCase(tokens, dk, dv, 0.5f, random));
  }
}

// exp(G) underflows to 0 inside a chunk, and exp(-G) would overflow.
TEST_P(Delta, StrongDecayStaysFinite) {
  Random random(23);
  for (const float strongest : {0.0f, 20.0f, 200.0f}) check(DeltaCase(100, 32, 48, strongest, random));
}

// They would cost Intel's processors most of the time; the caller's arithmetic keeps them.
TEST_P(Delta, SubnormalsVanishInTheStateAlone) {
  Random random(7);
  DeltaCase c(40, 32, 32, 0, random);
  std::fill(c.x.begin(), c.x.end(), 0.0f);
  std::fill(c.log_decay.begin(), c.log_decay.end(), -0.5f);  // e^-20 in all
  std::fill(c.start.begin(), c.start.end(), 1e-34f);
  for (const bool chunked : {false, true}) {
    std::vector<float> state = c.start, out(static_cast<size_t>(c.tokens * (c.value_dim + 2)), kPoison);
    const Scratch scratch(delta_scratch_floats(c.key_dim, c.value_dim));
    const DeltaHead head = c.head(state.data(), out.data(), scratch.data);
    (chunked ? GetParam()->delta_chunked : GetParam()->delta_recurrent)(head);
#if defined(__x86_64__)
    for (const float value : state) ASSERT_EQ(value, 0.0f);
#else
    for (const float value : state) ASSERT_LT(value, 1e-42f);
#endif
    const volatile float tiny = 1e-34f, factor = 1e-8f;
    EXPECT_GT(tiny * factor, 0.0f);
  }
}
INSTANTIATE_TEST_SUITE_P(Sets, Delta, testing::ValuesIn(kernel_sets()),
                         [](const auto& parameter) { return test_name(parameter.param->name); });

}  // namespace
}  // namespace baton::host
