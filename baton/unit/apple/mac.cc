// Panels times weights: a plain path (mac_kernels.h), and a path that watches every running sum.
#include "baton/unit/apple/mac.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cmath>
#include <limits>
#include <utility>

#include "baton/base/simd/cpu_features.h"
#include "baton/unit/apple/fp16.h"
#include "baton/unit/apple/mac_kernels.h"

namespace baton::apple {
namespace {

constexpr float kSumLimit = 32768.0f;
constexpr float kNormLimit = 32000.0f;  // Cauchy-Schwarz bound below which no running sum, rounded, reaches kSumLimit
constexpr int64_t kRowGrain = 32;

bool flushes(const Numerics& numerics) { return numerics.profile != Profile::kModern; }
// The plain path rounds nothing between the products and the end of the sum.
bool needs_watch(const Numerics& numerics) { return numerics.grouped_adders || numerics.profile == Profile::kM3; }

// A product as the M3 keeps it: 11 bits, ties away from zero, nothing below the smallest normal value.
float m3_product(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffffu;
  if (magnitude >= 0x7f800000u) return value;
  const float rounded = std::bit_cast<float>((magnitude + 0x1000u) & 0xffffe000u);
  const float kept = rounded < kFp16NormalMin ? 0.0f : rounded;
  return std::bit_cast<float>(std::bit_cast<uint32_t>(kept) | (bits & 0x80000000u));
}

// Result of a multiply-accumulate as it is stored.
float stored(float sum, const Numerics& numerics) {
  const float value = round_to_fp16(sum);
  return flushes(numerics) && std::fabs(value) < kFp16NormalMin ? 0.0f : value;
}

struct Watch {
  bool clamp;       // sums at the limit become infinite
  bool m3 = false;  // products are rounded one by one
  MacEvents events = {};

  float checked(float sum) {
    const bool nan = sum != sum;
    events.undefined |= nan;
    sum = nan ? 0.0f : sum;
    const bool reached = std::fabs(sum) >= kSumLimit;
    events.limit |= reached;
    return reached && clamp ? std::copysign(std::numeric_limits<float>::infinity(), sum) : sum;
  }
  float product(float a, float b) {
    const float value = a * b;
    const bool nan = value != value;
    events.undefined |= nan;
    if (nan) return 0.0f;
    return m3 ? m3_product(value) : value;
  }
};

}  // namespace

// Each may be entered where its set runs.
const MacKernels& mac_kernels_scalar();
#if defined(__x86_64__)
const MacKernels& mac_kernels_avx2();
const MacKernels& mac_kernels_avx512();
#endif

const MacKernels& mac_kernels() {
#if defined(__x86_64__)
  if (runs(InstructionSet::avx512)) return mac_kernels_avx512();
  if (runs(InstructionSet::avx2)) return mac_kernels_avx2();
#endif
  return mac_kernels_scalar();
}

std::string_view to_string(Profile profile) {
  constexpr std::string_view kNames[] = {"m1", "modern", "m3"};
  return kNames[static_cast<size_t>(profile)];
}

MacMatrix::MacMatrix(std::span<const std::byte> data, size_t rows, size_t k)
    : data_(data), rows_(rows), k_(k), norms_(rows) {
  const MacKernels& kernels = mac_kernels();
  std::vector<float> row_values(k);
  for (size_t r = 0; r < rows; ++r) {
    kernels.decode(row(r), row_values.data(), k, false);
    float squares[16] = {};  // several sums, so that the loop can be vectorised
    size_t i = 0;
    for (; i + 16 <= k; i += 16) {
      for (size_t j = 0; j < 16; ++j) squares[j] += row_values[i + j] * row_values[i + j];
    }
    for (; i < k; ++i) squares[0] += row_values[i] * row_values[i];
    float sum = 0;
    for (const float part : squares) sum += part;
    norms_[r] = std::isfinite(sum) ? std::sqrt(sum) : std::numeric_limits<float>::infinity();
  }
}

void MacPanel::reset(size_t k_values) {
  k = k_values;
  values.assign(k * kMacColumns, 0.0f);
}

void MacPanel::finish(const Numerics& numerics) {
  float squares[kMacColumns] = {};
  const float least = flushes(numerics) ? kFp16NormalMin : 0.0f;
  for (size_t i = 0; i < k; ++i) {
    float* row = values.data() + i * kMacColumns;
    for (size_t c = 0; c < kMacColumns; ++c) {
      row[c] = std::fabs(row[c]) < least ? 0.0f : row[c];
      squares[c] += row[c] * row[c];
    }
  }
  columns_used = 0;
  norm_max = 0;
  for (size_t c = 0; c < kMacColumns; ++c) {
    if (squares[c] != 0) columns_used = c + 1;
    norm_max =
        std::max(norm_max, std::isfinite(squares[c]) ? std::sqrt(squares[c]) : std::numeric_limits<float>::infinity());
  }
}

MacEvents multiply_row_checked(const float* weights, const MacPanel& panel, const Numerics& numerics, float* out) {
  // A single product has no adder behind it: it may reach 65504.
  const bool limited = panel.k > 1, m3 = numerics.profile == Profile::kM3;
  Watch watch{limited && numerics.profile == Profile::kM1, m3};
  float sum[kMacColumns] = {};
  bool lost[kMacColumns] = {};  // kM3: the sum reached the limit
  if (numerics.grouped_adders) {
    for (size_t i = 0; i < panel.k; i += 4) {
      for (size_t c = 0; c < kMacColumns; ++c) {
        float p[4] = {};
        for (size_t j = 0; j < 4 && i + j < panel.k; ++j) {
          p[j] = watch.product(weights[i + j], panel.values[(i + j) * kMacColumns + c]);
        }
        const float low = watch.checked(round_to_fp16(p[0] + p[1])), high = watch.checked(round_to_fp16(p[2] + p[3]));
        sum[c] = watch.checked(sum[c] + watch.checked(round_to_fp16(low + high)));
      }
    }
  } else {
    for (size_t i = 0; i < panel.k; ++i) {
      const float* in = panel.values.data() + i * kMacColumns;
      for (size_t c = 0; c < kMacColumns; ++c) {
        sum[c] = watch.checked(sum[c] + watch.product(weights[i], in[c]));
        lost[c] |= m3 && limited && std::fabs(sum[c]) >= kSumLimit;
      }
    }
  }
  for (size_t c = 0; c < kMacColumns; ++c) out[c] = lost[c] ? 0.0f : watch.checked(stored(sum[c], numerics));
  if (!limited) watch.events.limit = false;
  return watch.events;
}

MacEvents multiply_row(const float* weights, const MacPanel& panel, const Numerics& numerics, float* out) {
  float squares = 0;
  for (size_t i = 0; i < panel.k; ++i) squares += weights[i] * weights[i];
  const float bound = std::sqrt(squares) * panel.norm_max;  // NaN and infinity fail the comparison
  if (!(bound < kNormLimit) || needs_watch(numerics)) return multiply_row_checked(weights, panel, numerics, out);
  float sum[kMacColumns] = {};
  for (size_t i = 0; i < panel.k; ++i) {
    const float *in = panel.values.data() + i * kMacColumns, weight = weights[i];
    for (size_t c = 0; c < kMacColumns; ++c) sum[c] += weight * in[c];
  }
  for (size_t c = 0; c < kMacColumns; ++c) out[c] = stored(sum[c], numerics);
  return {};
}

MacEvents multiply(const MacMatrix& matrix, size_t row_begin, size_t row_end, const MacPanel& panel, size_t columns,
                   const Numerics& numerics, ThreadPool& pool, float* out, size_t out_stride) {
  const MacKernels& kernels = mac_kernels();
  const size_t k = matrix.k(), used = panel.columns_used;
  std::vector<MacEvents> events(pool.size());
  std::vector<float> single(used == 1 ? k : 0);
  for (size_t i = 0; i < single.size(); ++i) single[i] = panel.values[i * kMacColumns];
  pool.parallel_for(
      static_cast<int64_t>(row_end - row_begin), kRowGrain, [&](int64_t first, int64_t last, uint32_t thread) {
        const size_t rows = static_cast<size_t>(last - first), begin = row_begin + static_cast<size_t>(first);
        // Kept: a vector made for each product costs as much as a small product.
        static thread_local std::vector<float> memory;
        if (memory.size() < kRowGrain * (k + kMacColumns)) memory.resize(kRowGrain * (k + kMacColumns));
        float *weights = memory.data(), *sums = weights + kRowGrain * k;
        if (used == 1) {
          kernels.column(matrix.row(begin), single.data(), rows, k, flushes(numerics), sums);
        } else if (used > 1) {
          kernels.decode(matrix.row(begin), weights, rows * k, flushes(numerics));
          kernels.products(weights, panel.values.data(), rows, k, used, sums);
        }
        for (size_t r = 0; r < rows; ++r) {
          float *row = sums + r * kMacColumns, *to = out + (static_cast<size_t>(first) + r) * out_stride;
          const float bound = matrix.norm(begin + r) * panel.norm_max;
          if (bound < kNormLimit && !needs_watch(numerics)) {
            for (size_t c = 0; c < used; ++c) row[c] = stored(row[c], numerics);
            if (used < columns) std::fill(row + used, row + columns, 0.0f);
          } else {
            float* in = weights + r * k;
            if (used <= 1) kernels.decode(matrix.row(begin + r), in, k, flushes(numerics));
            for (size_t i = 0; i < k; ++i) in[i] = in[i] != in[i] ? std::numeric_limits<float>::infinity() : in[i];
            events[thread].add(multiply_row_checked(in, panel, numerics, row));
          }
          std::copy_n(row, columns, to);
        }
      });
  MacEvents all;
  for (const MacEvents& part : events) all.add(part);
  return all;
}

}  // namespace baton::apple
