// The multiply-accumulate of the emulated engine: fp16 weights times columns of fp16 values, summed in f32, with what
// the published measurements say happens at the edges (docs/ane.md, numerics): sums that reach 32768, infinities,
// subnormals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "baton/base/thread_pool.h"
#include "baton/unit/apple/mac_kernels.h"

namespace baton::apple {

enum class Profile : uint8_t {
  kM1,      // partial sums of 32768 and above become infinite, subnormals are flushed, slices of W have a gain of 16
  kModern,  // none of these; 32768 is reported
  // One project's measurements of an M3 Ultra: subnormal operands and results are 0; each product is rounded to fp16,
  // ties away from zero, and one below 2^-14 is 0; a running sum that reaches 32768 makes the result 0.
  kM3,
};
std::string_view to_string(Profile profile);

struct Numerics {
  Profile profile = Profile::kM1;
  // sigmoid, tanh and silu off by up to 0.0034, 0.0017 and 0.003, the worst errors measured; otherwise exact.
  bool perturbed_tables = false;
  // The first adders take 4 products and round each of their sums to fp16 (slow).
  bool grouped_adders = false;
};

struct MacEvents {
  bool limit = false;      // a running sum reached 32768 in magnitude
  bool undefined = false;  // infinity minus infinity or zero times infinity, taken as 0
  void add(const MacEvents& other) {
    limit |= other.limit;
    undefined |= other.undefined;
  }
};

// Weights [rows, k] in fp16, borrowed, possibly unaligned; prepared once.
class MacMatrix {
 public:
  MacMatrix(std::span<const std::byte> data, size_t rows, size_t k);
  size_t rows() const { return rows_; }
  size_t k() const { return k_; }
  const std::byte* row(size_t r) const { return data_.data() + 2 * r * k_; }
  // Euclidean norm of a row; infinite when the row has a value that is not finite.
  float norm(size_t r) const { return norms_[r]; }

 private:
  std::span<const std::byte> data_;
  size_t rows_, k_;
  std::vector<float> norms_;
};

// Up to kMacColumns columns of k values: [k][kMacColumns], fp16 values as f32 without NaN. Columns that are not used
// are 0.
struct MacPanel {
  std::vector<float> values;
  size_t k = 0;
  // After finish(): columns up to the last that is not all zero, and the largest norm of a column.
  size_t columns_used = 0;
  float norm_max = 0;

  void reset(size_t k_values);
  // Flushes subnormals when the profile does, and measures the columns.
  void finish(const Numerics& numerics);
};

// out[r * out_stride + c] = row r of `matrix` times column c of `panel`, for rows [row_begin, row_end) and `columns`
// columns: f32 values that fp16 can hold. Bits depend on the row and the column only, not on the path taken: the plain
// path runs where the norms prove that no sum can reach 32768.
MacEvents multiply(const MacMatrix& matrix, size_t row_begin, size_t row_end, const MacPanel& panel, size_t columns,
                   const Numerics& numerics, ThreadPool& pool, float* out, size_t out_stride);

// The same sums for one row of f32 weights that hold fp16 values: out[kMacColumns]. multiply_row() takes the plain path
// where the norms allow it.
MacEvents multiply_row(const float* weights, const MacPanel& panel, const Numerics& numerics, float* out);
MacEvents multiply_row_checked(const float* weights, const MacPanel& panel, const Numerics& numerics, float* out);

}  // namespace baton::apple
