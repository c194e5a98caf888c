// Attention of every kernel set over every form of keys and values, against its definition in double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "baton/base/random.h"
#include "baton/state/rows.h"
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

// Rows of keys or values in a form, and what they hold.
struct Rows {
  // As kernels see them: of a rotated form, rotated already.
  Rows(KeyForm form, int64_t tokens, int64_t dim, Random& random) {
    constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_0};
    const DType dtype = kTypes[static_cast<size_t>(form)];
    const Format& format = format_of(dtype);
    row_bytes = key_row_bytes(form, dim);
    EXPECT_EQ(static_cast<uint64_t>(row_bytes), row_bytes_of(dtype, static_cast<uint64_t>(dim)));
    bytes.resize(static_cast<size_t>(tokens * row_bytes));
    const auto padded = static_cast<int64_t>(padded_columns(dtype, static_cast<uint64_t>(dim)));
    for (int64_t t = 0; t < tokens; ++t) {
      std::vector<float> row(static_cast<size_t>(padded));
      for (int64_t d = 0; d < dim; ++d) row[static_cast<size_t>(d)] = 2 * random.normal();
      std::byte* const to = bytes.data() + t * row_bytes;
      format.encode(row.data(), to, row.size());
      format.decode(to, row.data(), row.size());
      values.insert(values.end(), row.begin(), row.begin() + dim);
    }
  }
  int64_t row_bytes = 0;
  std::vector<std::byte> bytes;
  std::vector<float> values;  // [tokens, dim]
};

// Keys and values in pages that lie apart, poisoned where they hold nothing.
class Pages {
 public:
  Pages(KeyForm form, const Rows& keys, const Rows& values, int64_t tokens, int64_t dim)
      : form_(form), dim_(dim), half_(kPageTokens * keys.row_bytes + 16) {
    for (int64_t first = 0; first < tokens; first += kPageTokens) {
      std::vector<std::byte>& page = memory_.emplace_back(static_cast<size_t>(2 * half_), std::byte{0xff});
      const auto count = std::min(kPageTokens, tokens - first) * keys.row_bytes;
      std::copy_n(keys.bytes.begin() + first * keys.row_bytes, count, page.begin() + 16);
      std::copy_n(values.bytes.begin() + first * keys.row_bytes, count, page.begin() + half_ + 16);
    }
    for (const auto& page : memory_) table_.push_back(reinterpret_cast<const unsigned char*>(page.data()));
  }
  KeyPages get() const { return {table_.data(), 16, static_cast<uint64_t>(half_) + 16, dim_, form_}; }

 private:
  const KeyForm form_;
  const int64_t dim_, half_;
  std::vector<std::vector<std::byte>> memory_;
  std::vector<const unsigned char*> table_;
};

struct AttentionCase {
  const Kernels* kernels;
  KeyForm form;
};

std::vector<AttentionCase> attention_cases() {
  std::vector<AttentionCase> all;
  for (const Kernels* kernels : kernel_sets()) {
    for (const KeyForm form : {KeyForm::kF16, KeyForm::kBF16, KeyForm::kQ8_0, KeyForm::kQ4_0})
      all.push_back({kernels, form});
  }
  return all;
}

class Attention : public testing::TestWithParam<AttentionCase> {
 protected:
  // What a query sees of the tokens before it, and the cap of its scores; 0: all, none.
  struct Sight {
    int64_t window;
    float cap;
    int64_t chunk;
    int64_t first(int64_t tokens) const {
      if (chunk != 0) return (tokens - 1) / chunk * chunk;
      return window == 0 ? 0 : std::max<int64_t>(0, tokens - window);
    }
  };
  static constexpr Sight kSights[] = {{0, 0, 0},     {1, 0, 0},     {20, 0, 0}, {64, 0, 0}, {0, 1.5F, 0},
                                      {33, 0.7F, 0}, {0, 0.7F, 33}, {0, 0, 5},  {0, 0, 64}};

  // What is rotated comes in whole blocks.
  static int64_t fitting(int64_t dim) { return GetParam().form == KeyForm::kQ4_0 ? (dim + 31) / 32 * 32 : dim; }
  // q: [groups, dim]; keys, values: [tokens, dim]
  static std::vector<double> attend(const float* q, const std::vector<float>& keys, const std::vector<float>& values,
                                    int64_t tokens, int64_t dim, double scale, const Sight& sight) {
    std::vector<double> weights(static_cast<size_t>(tokens));
    const int64_t first = sight.first(tokens);
    double highest = -1e30, sum = 0;
    for (int64_t t = first; t < tokens; ++t) {
      for (int64_t d = 0; d < dim; ++d) weights[t] += static_cast<double>(q[d]) * keys[t * dim + d];
      weights[t] *= scale;
      if (sight.cap > 0) weights[t] = sight.cap * std::tanh(weights[t] / sight.cap);
      highest = std::max(highest, weights[t]);
    }
    for (int64_t t = first; t < tokens; ++t) sum += weights[t] = std::exp(weights[t] - highest);
    std::vector<double> out(static_cast<size_t>(dim));
    for (int64_t t = first; t < tokens; ++t) {
      for (int64_t d = 0; d < dim; ++d) out[d] += weights[t] / sum * values[t * dim + d];
    }
    return out;
  }
};

TEST_P(Attention, OneQueryEqualsItsDefinition) {
  Random random(11);
  for (const int64_t given : {5, 8, 16, 24, 40, 64, 72, 128, 256}) {
    const int64_t dim = fitting(given);
    for (const int groups : {1, 2, 3, 4, 5, 8}) {
      for (const int64_t tokens : {1, 2, 15, 16, 63, 64, 65, 131}) {
        const Rows keys(GetParam().form, tokens, dim, random), values(GetParam().form, tokens, dim, random);
        const int64_t q_stride = dim + 2;
        const auto q = random_values(random, groups * q_stride);
        std::vector<float> out(static_cast<size_t>(groups * dim), kPoison), highest(groups, kPoison),
            sum(groups, kPoison);
        const Pages pages(GetParam().form, keys, values, tokens, dim);
        for (const Sight& sight : kSights) {
          std::fill(out.begin(), out.end(), kPoison);
          const int64_t from = sight.first(tokens), tile = from / kAttendKeys * kAttendKeys;
          GetParam().kernels->attend_decode({q.data(), q_stride, pages.get(), tile, tokens - tile, from, groups,
                                             scale_of(dim), sight.cap, out.data(), highest.data(), sum.data()});
          for (int g = 0; g < groups; ++g) {
            const auto want =
                attend(q.data() + g * q_stride, keys.values, values.values, tokens, dim, scale_of(dim), sight);
            for (int64_t d = 0; d < dim; ++d) {
              ASSERT_NEAR(out[g * dim + d] / sum[g], want[d], 2e-5)
                  << "dim " << dim << " groups " << groups << " tokens " << tokens << " window " << sight.window
                  << " chunk " << sight.chunk << " cap " << sight.cap << " head " << g << " at " << d;
            }
          }
        }
      }
    }
  }
}

TEST_P(Attention, ManyQueriesAreCausal) {
  Random random(12);
  size_t case_of = 0;
  for (const int64_t given : {5, 8, 40, 64, 256}) {
    const int64_t dim = fitting(given);
    for (const int groups : {1, 3, 4}) {
      for (const auto& [start, queries] :
           {std::pair<int64_t, int64_t>{0, 1}, {0, 5}, {0, 70}, {3, 16}, {62, 7}, {130, 33}}) {
        const Rows keys(GetParam().form, start + queries, dim, random);
        const Rows values(GetParam().form, start + queries, dim, random);
        const int64_t stride = groups * dim + 3;
        const auto q = random_values(random, queries * stride);
        std::vector<float> out(q.size(), kPoison);
        const Scratch scratch(attend_scratch_floats(queries * groups, dim));
        const Pages pages(GetParam().form, keys, values, start + queries, dim);
        const Sight& sight = kSights[case_of++ % std::size(kSights)];
        GetParam().kernels->attend_prefill({q.data(), stride, pages.get(), start, queries, sight.window, sight.chunk,
                                            groups, scale_of(dim), sight.cap, out.data(), stride, scratch.data});
        for (int64_t t = 0; t < queries; ++t) {
          for (int g = 0; g < groups; ++g) {
            const int64_t at = t * stride + g * dim;
            const auto want =
                attend(q.data() + at, keys.values, values.values, start + t + 1, dim, scale_of(dim), sight);
            for (int64_t d = 0; d < dim; ++d) {
              ASSERT_NEAR(out[at + d], want[d], 2e-5)
                  << "dim " << dim << " groups " << groups << " start " << start << " query " << t << " window "
                  << sight.window << " chunk " << sight.chunk << " cap " << sight.cap << " head " << g << " at " << d;
            }
          }
          for (int64_t i = groups * dim; i < stride; ++i) ASSERT_TRUE(std::isnan(out[t * stride + i]));
        }
      }
    }
  }
}

std::string case_name(const testing::TestParamInfo<AttentionCase>& item) {
  constexpr const char* kForms[] = {"f16", "bf16", "q8_0", "q4_0"};
  return test_name(std::string(item.param.kernels->name) + "_" + kForms[static_cast<size_t>(item.param.form)]);
}
INSTANTIATE_TEST_SUITE_P(Sets, Attention, testing::ValuesIn(attention_cases()), case_name);

}  // namespace
}  // namespace baton::host
