// Norms, gates, convolution, rotation and f32 products of every kernel set against double, at every length that changes
// the split into vectors and tail. Outputs are poisoned and must not be written past their end.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "baton/base/float.h"
#include "baton/base/random.h"
#include "baton/unit/host/kernel_sets.h"
#include "baton/unit/host/softplus.h"
#include "tests/support/test_names.h"

namespace baton::host {
namespace {

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

std::vector<float> random_values(Random& random, int64_t count, float scale = 1) {
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = scale * random.normal();
  return values;
}
double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double silu(double x) { return x * sigmoid(x); }

class FloatKernels : public testing::TestWithParam<const Kernels*> {
 protected:
  const Kernels& kernels() const { return *GetParam(); }

  // Lengths around each vector width; `run` fills its argument, `expected` gives element i.
  template <class Run, class Expected>
  void check(int64_t n, double tolerance, Run run, Expected expected) {
    std::vector<float> out(static_cast<size_t>(n) + 3, kPoison);
    run(out.data());
    for (int64_t i = 0; i < n; ++i) {
      const double want = expected(i);
      ASSERT_NEAR(out[static_cast<size_t>(i)], want, tolerance * (1 + std::fabs(want))) << i << " of " << n;
    }
    for (size_t i = static_cast<size_t>(n); i < out.size(); ++i) ASSERT_TRUE(std::isnan(out[i])) << "past " << n;
  }
};

TEST_P(FloatKernels, NormsAndGates) {
  Random random(1);
  for (int64_t n = 1; n <= 67; ++n) {
    const auto x = random_values(random, n), y = random_values(random, n, 4), w = random_values(random, n);
    double squares = 0;
    for (const float value : x) squares += static_cast<double>(value) * value;
    const double scale = 1 / std::sqrt(squares / static_cast<double>(n) + 1e-6);
    check(
        n, 1e-6, [&](float* out) { kernels().rms_norm(x.data(), w.data(), 1e-6f, n, out); },
        [&](int64_t i) { return x[i] * scale * w[i]; });
    check(
        n, 1e-6, [&](float* out) { kernels().gated_norm(x.data(), w.data(), y.data(), 1e-6f, n, out); },
        [&](int64_t i) { return x[i] * scale * w[i] * silu(y[i]); });
    check(
        n, 1e-6, [&](float* out) { kernels().swiglu(x.data(), y.data(), n, out); },
        [&](int64_t i) { return silu(x[i]) * y[i]; });
    check(
        n, 1e-6, [&](float* out) { kernels().sigmoid_gate(x.data(), y.data(), n, out); },
        [&](int64_t i) { return x[i] * sigmoid(y[i]); });
    check(
        n, 0, [&](float* out) { kernels().add(x.data(), y.data(), n, out); },
        [&](int64_t i) { return static_cast<double>(x[i] + y[i]); });
    check(
        n, 0, [&](float* out) { kernels().multiply(x.data(), y.data(), n, out); },
        [&](int64_t i) { return static_cast<double>(x[i] * y[i]); });
    const auto add_to_y = [&](float* out) {
      std::copy(y.begin(), y.end(), out);
      kernels().add_scaled(x.data(), 0.7f, n, out);
    };
    check(n, 0, add_to_y, [&](int64_t i) {
      const float product = 0.7f * x[i];
      return static_cast<double>(y[i] + product);
    });
  }
}

TEST_P(FloatKernels, ExponentialOverItsWholeRange) {
  const std::vector<float> ones(16, 1.0f);
  for (float x = -110; x < 110; x += 0.37f) {
    const std::vector<float> gates(16, x);
    std::vector<float> out(16, kPoison);
    kernels().sigmoid_gate(ones.data(), gates.data(), 16, out.data());
    ASSERT_NEAR(out[5], sigmoid(x), 3e-7 * sigmoid(x) + 1e-37) << x;
  }
  for (const float x : {std::numeric_limits<float>::infinity(), -std::numeric_limits<float>::infinity(), kPoison}) {
    const std::vector<float> gates(16, x);
    std::vector<float> out(16, 7.0f);
    kernels().sigmoid_gate(ones.data(), gates.data(), 16, out.data());
    if (std::isnan(x)) {
      EXPECT_TRUE(std::isnan(out[3]));
    } else {
      EXPECT_EQ(out[3], x > 0 ? 1.0f : 0.0f);
    }
  }
}

TEST_P(FloatKernels, Convolution) {
  Random random(2);
  for (const int taps : {2, 4, 7}) {
    for (const int64_t n : {1, 16, 31, 50}) {
      const int64_t stride = n + 2;
      const auto w = random_values(random, taps * stride), x = random_values(random, taps * stride);
      std::vector<const float*> rows;
      for (int j = 0; j < taps; ++j) rows.push_back(x.data() + j * stride);
      check(
          n, 1e-6, [&](float* out) { kernels().conv(rows.data(), taps, w.data(), stride, n, out); },
          [&](int64_t i) {
            double sum = 0;
            for (int j = 0; j < taps; ++j) sum += static_cast<double>(w[j * stride + i]) * x[j * stride + i];
            return silu(sum);
          });
      const auto z = random_values(random, n);
      check(
          n, 1e-6, [&](float* out) { kernels().short_conv(rows.data(), taps, w.data(), stride, z.data(), n, out); },
          [&](int64_t i) {
            double sum = 0;
            for (int j = 0; j < taps; ++j) sum += static_cast<double>(w[j * stride + i]) * x[j * stride + i];
            return z[i] * sum;
          });
    }
  }
}

TEST_P(FloatKernels, Rotation) {
  Random random(3);
  for (int64_t half = 1; half <= 35; ++half) {
    const auto x = random_values(random, 2 * half), c = random_values(random, half), s = random_values(random, half);
    check(
        2 * half, 1e-6, [&](float* out) { kernels().rope(x.data(), c.data(), s.data(), half, false, out); },
        [&](int64_t i) {
          return i < half ? static_cast<double>(x[i]) * c[i] - static_cast<double>(x[i + half]) * s[i]
                          : static_cast<double>(x[i]) * c[i - half] + static_cast<double>(x[i - half]) * s[i - half];
        });
    check(
        2 * half, 1e-6, [&](float* out) { kernels().rope(x.data(), c.data(), s.data(), half, true, out); },
        [&](int64_t i) {
          return i % 2 == 0 ? static_cast<double>(x[i]) * c[i / 2] - static_cast<double>(x[i + 1]) * s[i / 2]
                            : static_cast<double>(x[i]) * c[i / 2] + static_cast<double>(x[i - 1]) * s[i / 2];
        });
  }
}

TEST_P(FloatKernels, HalvesRoundToNearestEven) {
  Random random(4);
  for (int64_t n = 1; n <= 40; ++n) {
    auto x = random_values(random, n);
    x[0] = 65519.0f;
    if (n > 3) x[1] = 6.0e-8f, x[2] = 1.0f + 0x1p-11f, x[3] = 1.0e6f;
    std::vector<uint16_t> out(static_cast<size_t>(n) + 2, 0xabcd);
    kernels().to_f16(x.data(), n, out.data());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(out[i], f32_to_f16(x[i])) << x[i];
    ASSERT_EQ(out[n], 0xabcd);
  }
}

TEST_P(FloatKernels, ProductsOfOddShapes) {
  Random random(5);
  const int64_t shapes[][3] = {{1, 1, 1},    {3, 5, 2},   {12, 32, 9}, {13, 33, 17},
                               {31, 47, 64}, {64, 16, 5}, {7, 130, 33}};
  for (const auto& [m, n, k] : shapes) {
    for (const Store store : {Store::kSet, Store::kAdd, Store::kSubtract}) {
      for (const bool across : {false, true}) {
        const int64_t b_stride = n + 3, c_stride = n + 1;
        const auto a = random_values(random, m * k), b = random_values(random, k * b_stride);
        auto c = random_values(random, m * c_stride);
        for (int64_t i = 0; i < m; ++i) c[i * c_stride + n] = kPoison;
        const auto before = c;
        kernels().product({m, n, k, a.data(), across ? 1 : k, across ? m : 1, b.data(), b_stride, c.data(), c_stride},
                          store);
        for (int64_t i = 0; i < m; ++i) {
          for (int64_t j = 0; j < n; ++j) {
            double sum = 0;
            for (int64_t l = 0; l < k; ++l) {
              sum += static_cast<double>(a[across ? i + l * m : i * k + l]) * b[l * b_stride + j];
            }
            const double start = before[i * c_stride + j];
            const double want = store == Store::kSet ? sum : store == Store::kAdd ? start + sum : start - sum;
            ASSERT_NEAR(c[i * c_stride + j], want, 1e-4) << m << " " << n << " " << k << " at " << i << "," << j;
          }
          ASSERT_TRUE(std::isnan(c[i * c_stride + n]));
        }
      }
    }
  }
}

TEST(Softplus, IsExactOverItsWholeRange) {
  for (float x = -100.0f; x <= 100.0f; x += 0.03125f) {
    const double want = std::log1p(std::exp(static_cast<double>(x)));
    ASSERT_NEAR(softplus(x), want, 1.5e-7 * want + 1e-45) << x;
  }
  EXPECT_EQ(softplus(1e30f), 1e30f);
  EXPECT_EQ(softplus(-1e30f), 0.0f);
}

INSTANTIATE_TEST_SUITE_P(Sets, FloatKernels, testing::ValuesIn(kernel_sets()),
                         [](const auto& parameter) { return test_name(parameter.param->name); });

}  // namespace
}  // namespace baton::host
