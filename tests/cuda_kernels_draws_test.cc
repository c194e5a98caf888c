// Kernels that draw, on the host, thread by thread: they draw what their bodies and the sampler do.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <vector>

#include "baton/sample/draw_weight.h"
#include "baton/sample/sampler.h"
#include "baton/unit/cuda/feed_layout.h"
#include "baton/unit/cuda/kernels/list.cu"
#include "baton/unit/cuda/launch.h"
#include "baton/unit/cuda/reference.h"
#include "tests/fiber/fiber.h"
#include "tests/fiber/products.h"

namespace baton::cuda::test {
namespace {

using fiber::Order;
constexpr float kNone = std::numeric_limits<float>::quiet_NaN();
constexpr int kSteps = 2;

enum class Logits { kPlain, kSteep, kFlat, kTied, kEqual, kZeros, kHuge, kCrowded };
constexpr Logits kAllLogits[] = {Logits::kPlain, Logits::kSteep, Logits::kFlat, Logits::kTied,
                                 Logits::kEqual, Logits::kZeros, Logits::kHuge};

float logit_of(Logits kind, int id, Random& random) {
  switch (kind) {
    case Logits::kSteep:
      return 8 * random.normal();
    case Logits::kFlat:
      return 0.01f * random.normal();
    case Logits::kTied:
      return std::round(3 * random.normal()) / 2;
    case Logits::kCrowded:  // the likeliest are of few threads
      return (id / 4 % kThreads < 250 ? 5.0f : -5.0f) + 0.01f * random.normal();
    case Logits::kEqual:
      return -2;
    case Logits::kZeros:
      return random.below(2) == 0 ? 0.0f : -0.0f;
    case Logits::kHuge:
      return random.below(2) == 0 ? 3e38f : -3e38f;
    default:
      return 3 * random.normal();
  }
}

std::vector<SamplerParams> settings() {
  return {{},
          {.temperature = 1e-4f, .top_k = 1},
          {.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f},
          {.temperature = 1, .top_k = 7},
          {.temperature = 50, .top_k = kDrawTopMax},
          {.temperature = 1.5f, .top_k = 100, .top_p = 0.5f},
          {.temperature = 2, .top_k = 64, .min_p = 0.2f},
          {.temperature = 0.7f, .top_p = 0.9f},
          {.temperature = 3, .top_p = 0.3f, .min_p = 0.01f},
          {.temperature = 9, .top_p = 1e-9f},
          {.temperature = 1.2f, .min_p = 0.1f},
          {.temperature = 40, .min_p = 1},
          {.repeat_penalty = 1.3f},
          {.temperature = 0.8f, .top_k = 20, .top_p = 0.8f, .presence_penalty = 1.5f, .repeat_last_n = kWindowMax},
          {.temperature = 1, .min_p = 0.1f, .repeat_penalty = 0.7f, .frequency_penalty = 0.3f, .repeat_last_n = 9}};
}

// Rows of logits, each with a rule; what the kernels, their bodies and samplers draw.
struct Drawing {
  Drawing(int rows, int width, Logits kind, uint64_t seed) : desk(seed), random(seed), width_(width), rows_(rows) {
    const size_t pitch = static_cast<size_t>(pitch_of(width));
    x = put<float>(rows * pitch);
    for (size_t i = 0; i < rows * pitch; ++i)
      x[i] = static_cast<int>(i % pitch) < width ? logit_of(kind, static_cast<int>(i % pitch), random) : kNone;
    rules = put<DrawRule>(static_cast<size_t>(rows));
    numbers = put<uint64_t>(static_cast<size_t>(rows) * kSteps);
    drawn = put<int32_t>(static_cast<size_t>(rows) * (kSteps + 1));
    draws[0].what = Do::kPenalise, draws[1].what = Do::kArgmax, draws[2].what = Do::kDraw;
    for (Instruction& draw : draws) {
      draw.wanted_only = true;
      draw.x = reinterpret_cast<Address>(x), draw.x_width = width;
    }
    pass.rows = pass.rows_out = rows;
    pass.rules = reinterpret_cast<Address>(rules), pass.numbers = reinterpret_cast<Address>(numbers);
    pass.drawn = reinterpret_cast<Address>(drawn);
    windows = put<DrawWindow>(static_cast<size_t>(rows));
    pass.windows = reinterpret_cast<Address>(windows);
    std::fill_n(drawn, rows * (kSteps + 1), 77);
    const auto all = settings();
    for (int r = 0; r < rows; ++r) {
      SamplerParams params = all[static_cast<size_t>(seed + static_cast<uint64_t>(r)) % all.size()];
      params.seed = random.next();
      DrawRule rule;
      if (params.temperature > 0) {
        rule = {.scale = draw_scale(params.temperature), .min_weight = least_weight(params.min_p)};
        rule.top_p = params.top_p, rule.top_k = params.top_k;
      }
      rule.repeat = params.repeat_penalty;
      rule.presence = params.presence_penalty, rule.frequency = params.frequency_penalty;
      if (random.below(2) == 0) rule.banned = ban(params, r);
      samplers.push_back(std::move(*Sampler::create(params, width)));
      Sampler& sampler = samplers.back();
      if (sampler.has_penalties()) rule.window = params.repeat_last_n;
      for (uint64_t i = random.below(3) * 40; i > 0; --i) sampler.drew(likely(r));
      std::uninitialized_copy_n(&rule, 1, rules + r);
      uint64_t next[kSteps];
      sampler.show_numbers(next);
      for (int step = 0; step < kSteps; ++step) numbers[step * rows + r] = next[step];
    }
  }

  template <class T>
  T* put(size_t count) {
    return reinterpret_cast<T*>(desk.raw(count * sizeof(T)));
  }
  // Some ids at random, and the likeliest.
  Address ban(SamplerParams& params, int r) {
    const size_t words = (static_cast<size_t>(width_) + 31) / 32;
    auto* const bits = put<uint32_t>(words);
    std::fill_n(bits, words, 0);
    const float* const row = x + static_cast<size_t>(r) * static_cast<size_t>(pitch_of(width_));
    const auto add = [&](int32_t id) {
      params.banned_ids.push_back(id);
      bits[id / 32] |= 1u << (id % 32);
    };
    for (int32_t id = 1; id < width_; id += 1 + static_cast<int32_t>(random.below(7))) add(id);
    const auto largest = static_cast<int32_t>(std::max_element(row, row + width_) - row);
    if (largest > 0) add(largest);
    return reinterpret_cast<Address>(bits);
  }

  // The likeliest of a few.
  int32_t likely(int r) {
    const float* const row = x + static_cast<size_t>(r) * static_cast<size_t>(pitch_of(width_));
    auto best = static_cast<int32_t>(random.below(static_cast<uint64_t>(width_)));
    for (int i = 0; i < 40; ++i) {
      const auto other = static_cast<int32_t>(random.below(static_cast<uint64_t>(width_)));
      if (row[other] > row[best]) best = other;
    }
    return best;
  }
  void open_windows() {
    for (int r = 0; r < rows_; ++r) {
      DrawWindow window;
      const std::vector<int32_t> ids = samplers[static_cast<size_t>(r)].window();
      std::copy(ids.begin(), ids.end(), window.ids);
      window.drawn = static_cast<int32_t>(ids.size());
      std::uninitialized_copy_n(&window, 1, windows + r);
    }
  }
  // Of a row, the oldest first.
  std::vector<int32_t> window_of(int r) const {
    std::vector<int32_t> ids;
    const DrawWindow& window = windows[r];
    for (int32_t i = std::max(0, window.drawn - rules[r].window); i < window.drawn && rules[r].window > 0; ++i)
      ids.push_back(window.ids[i % rules[r].window]);
    return ids;
  }

  // What `step` draws.
  std::vector<int32_t> by_kernels(int step, uint32_t blocks, bool together, Order order) {
    pass.step = step;
    open_windows();
    uint64_t scratch[1 + kRunsMax] = {};
    draws[1].scratch = together ? reinterpret_cast<Address>(scratch) : 0;
    fiber::launch({.blocks = blocks, .shared_bytes = shared_bytes_of(draws[0]), .order = order},
                  [&] { do_penalise(draws[0], pass, blockIdx.x, gridDim.x, shared); });
    penalised = logits();
    fiber::launch({.blocks = blocks, .shared_bytes = shared_bytes_of(draws[1]), .order = order},
                  [&] { do_argmax(draws[1], pass, blockIdx.x, gridDim.x, shared); });
    fiber::launch({.blocks = blocks, .shared_bytes = shared_bytes_of(draws[2]), .order = order},
                  [&] { do_draw(draws[2], pass, blockIdx.x, gridDim.x, shared); });
    return take();
  }
  std::vector<int32_t> by_bodies(int step) {
    pass.step = step;
    open_windows();
    reference(draws[0], pass);
    penalised = logits();
    reference(draws[1], pass);
    reference(draws[2], pass);
    return take();
  }
  std::vector<int32_t> by_samplers() {
    std::vector<int32_t> ids;
    for (int r = 0; r < rows_; ++r) {
      const size_t pitch = static_cast<size_t>(pitch_of(width_));
      ids.push_back(
          *samplers[static_cast<size_t>(r)].sample({x + static_cast<size_t>(r) * pitch, static_cast<size_t>(width_)}));
    }
    return ids;
  }

  std::vector<float> logits() const { return {x, x + rows_ * pitch_of(width_)}; }

  // Of the step, and nothing else was written.
  std::vector<int32_t> take() {
    std::vector<int32_t> ids;
    for (int i = 0; i < rows_ * (kSteps + 1); ++i) {
      if (i / rows_ == pass.step) {
        ids.push_back(drawn[i]);
      } else {
        EXPECT_EQ(drawn[i], 77);
      }
      drawn[i] = 77;
    }
    return ids;
  }

  Desk desk;
  Random random;
  int width_, rows_;
  float* x;
  DrawRule* rules;
  uint64_t* numbers;
  int32_t* drawn;
  Pass pass;
  DrawWindow* windows;
  Instruction draws[3];
  std::vector<Sampler> samplers;
  std::vector<float> penalised;  // the rows of the last step, while they were drawn from
};

// How many draws were left to the host.
int check(int rows, int width, Logits kind, uint64_t seed) {
  SCOPED_TRACE(testing::Message() << rows << " rows of " << width << ", kind " << static_cast<int>(kind) << ", seed "
                                  << seed);
  Drawing all(rows, width, kind, seed);
  int undecided = 0;
  for (int step = 0; step < kSteps; ++step) {
    const Order order = seed % 3 == 0 ? Order::kRandom : seed % 3 == 1 ? Order::kForward : Order::kBackward;
    const std::vector<float> before = all.logits();
    const auto kernels = all.by_kernels(step, 1 + static_cast<uint32_t>(seed % 4), seed % 2 == 0, order);
    EXPECT_TRUE(same_bits(all.logits(), before));
    std::vector<std::vector<int32_t>> windows;
    for (int r = 0; r < rows; ++r) windows.push_back(all.window_of(r));
    const std::vector<float> penalised = all.penalised;
    EXPECT_EQ(kernels, all.by_bodies(step));
    EXPECT_TRUE(same_bits(all.penalised, penalised));
    EXPECT_TRUE(same_bits(all.logits(), before));
    const auto samplers = all.by_samplers();
    for (size_t r = 0; r < samplers.size(); ++r) {
      if (kernels[r] >= 0) {
        EXPECT_EQ(windows[r], all.samplers[r].window());
        EXPECT_EQ(all.window_of(static_cast<int>(r)), windows[r]);
      }
      undecided += kernels[r] == kUndecided ? 1 : 0;
      if (kernels[r] != kUndecided) {
        EXPECT_EQ(kernels[r], samplers[r]) << "step " << step << ", row " << r;
      }
    }
  }
  return undecided;
}

TEST(CudaDrawKernels, DrawWhatTheSamplerDoes) {
  uint64_t seed = 1;
  for (const int width : {1, 3, 64, 250, 1001}) {
    for (const Logits kind : kAllLogits) {
      for (int rows = 1; rows < 4; ++rows) EXPECT_EQ(check(rows, width, kind, seed++), 0);
    }
  }
}

// The likeliest of them; what needs more is left to the host.
TEST(CudaDrawKernels, OfManyIds) {
  uint64_t seed = 100;
  for (const int width : {2049, 5003, 17000}) {
    for (int i = 0; i < 12; ++i) EXPECT_EQ(check(1, width, Logits::kSteep, seed++), 0);
    int undecided = 0;
    for (const Logits kind : {Logits::kPlain, Logits::kFlat, Logits::kEqual, Logits::kZeros, Logits::kCrowded}) {
      for (int i = 0; i < 12; ++i) undecided += check(1, width, kind, seed++);
    }
    EXPECT_GT(undecided, 8);
    EXPECT_LT(undecided, 90);
  }
}

// Wherever a logit is no number, and whatever the rule.
TEST(CudaDrawKernels, NoNumbersAreTheHosts) {
  for (const float none : {kNone, HUGE_VALF, -HUGE_VALF}) {
    for (uint64_t seed = 0; seed < 15; ++seed) {
      Drawing all(2, 700, Logits::kPlain, seed);
      const auto bad = static_cast<int32_t>(seed * 46);
      all.x[bad] = none;
      all.samplers[0].drew(bad);  // penalties leave it what it is
      const auto kernels = all.by_kernels(1, 2, seed % 2 == 0, Order::kForward);
      EXPECT_EQ(kernels[0], -1);
      EXPECT_GE(kernels[1], 0);
      EXPECT_EQ(kernels, all.by_bodies(1));
    }
  }
}

// As a step has them: behind a product, and the next step behind it.
TEST(CudaDrawKernels, InAList) {
  constexpr int kRows = 3, kWidth = 300;
  for (const uint64_t seed : {2, 7, 12}) {
    Drawing all(kRows, kWidth, Logits::kPlain, seed);
    Instruction list[5];
    list[0].what = Do::kMultiply;
    list[0].x = all.desk.values(kRows, 64), list[0].x_width = 64, list[0].matrices = 1;
    list[0].matrix[0] = all.desk.matrix({Form::kBF16}, kWidth, 64);
    list[0].outs[0] = all.desk.out(kRows, kWidth);
    for (Instruction& draw : all.draws) draw.x = list[0].outs[0];
    all.open_windows();
    uint64_t scratch[1 + kRunsMax] = {};
    all.draws[1].scratch = reinterpret_cast<Address>(scratch);
    std::copy_n(all.draws, 3, list + 1);
    list[4].what = Do::kAdvance;
    int32_t rows[kRows] = {0, 1, 2}, tokens[kRows] = {};
    all.pass.runs = kRows;
    all.pass.out_rows = all.pass.run_of_row = reinterpret_cast<Address>(rows);
    all.pass.tokens = reinterpret_cast<Address>(tokens);
    uint32_t barrier[64] = {};
    ListWork work;
    work.list = reinterpret_cast<Address>(list), work.count = 5;
    work.pass = reinterpret_cast<Address>(&all.pass), work.barrier = reinterpret_cast<Address>(barrier);
    work.feed = plan_feed({list, 5}, 227 * 1024);
    ASSERT_NE(work.feed.set, 0u);
    for (Instruction& in : list) share_out(in, work.feed, 4);
    work.first_product = chain_products(list);
    for (int step = 0; step < kSteps; ++step) {
      fiber::launch({.blocks = 4,
                     .threads = kThreads + kFeederThreads,
                     .shared_bytes = feed_bytes(work.feed),
                     .order = Order::kRandom,
                     .hop = true},
                    [&] { baton_list(work); });
      EXPECT_EQ(all.pass.step, step + 1);
      EXPECT_EQ(all.pass.stopped, 0);
    }
    const std::vector<int32_t> got(all.drawn, all.drawn + kRows * kSteps);
    EXPECT_EQ(std::vector<int32_t>(tokens, tokens + kRows), std::vector<int32_t>(got.end() - kRows, got.end()));
    std::fill_n(all.drawn, kRows * kSteps, 77);
    for (int step = 0; step < kSteps; ++step) {
      const std::vector<int32_t> ids(got.begin() + step * kRows, got.begin() + (step + 1) * kRows);
      EXPECT_EQ(all.by_bodies(step), ids);
      for (size_t r = 0; r < kRows; ++r) all.samplers[r].drew(ids[r]);
    }
  }
}

}  // namespace
}  // namespace baton::cuda::test
