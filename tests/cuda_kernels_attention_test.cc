// Attention of rows that decode, and their heads before it, on the host, thread by thread: kernels against their
// bodies, and that a row's bits are its own.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "baton/base/random.h"
#include "baton/unit/cuda/kernels/attention.cuh"
#include "baton/unit/cuda/kernels/heads.cuh"
#include "baton/unit/cuda/reference.h"
#include "tests/fiber/fiber.h"

namespace baton::cuda::test {
namespace {

using fiber::Order;

struct Attention {
  Form form;
  int32_t heads, kv_heads, width;
  int32_t window = 0, chunk = 0;
  float cap = 0, scale = 0.3f;
  bool parts = true;
};

// Rows that decode at these positions, each with pages of its own, in which all that it does not see is no number.
class Scene {
 public:
  Scene(const Attention& of, const std::vector<int32_t>& positions) : random_(5) {
    Op& op = in.op;
    op.heads = of.heads, op.kv_heads = of.kv_heads, op.width = of.width;
    op.window = of.window, op.chunk = of.chunk, op.cap = of.cap, op.scale = of.scale;
    in.what = Do::kAttend;
    in.splits = attend_splits(op);
    const int32_t bytes = of.width * (of.form == Form::kF32 ? 4 : 2);
    in.slot = {64, bytes, of.form};
    in.slot2 = {64 + uint64_t{kPageTokens} * static_cast<uint64_t>(of.kv_heads * bytes), bytes, of.form};
    in.x_width = in.out_width = of.heads * of.width;
    pass.rows = pass.runs = static_cast<int32_t>(positions.size());
    in.x = values(pass.rows * pitch_of(in.x_width));
    in.out = values(pass.rows * pitch_of(in.out_width));
    in.scratch = values(pass.runs * of.heads * in.splits * static_cast<int32_t>(part_values(op)));
    if (!of.parts) in.scratch = 0;
    for (int32_t r = 0; r < pass.runs; ++r) add(r, positions[static_cast<size_t>(r)]);
  }

  // Of `blocks` blocks: the rows' outputs.
  std::vector<std::vector<float>> run(uint32_t blocks, Order order) {
    std::memset(host_at<void>(in.out), 0xff, static_cast<size_t>(pass.rows * pitch_of(in.out_width)) * sizeof(float));
    const auto go = [&](auto what) {
      fiber::launch({.blocks = blocks, .threads = kThreads, .shared_bytes = kAttendShared, .order = order},
                    [&] { what(in, pass, blockIdx.x, gridDim.x, shared); });
    };
    go([](auto&&... all) { do_attend<true>(all...); });
    go([](auto&&... all) { do_attend_join(all...); });
    return outputs();
  }
  std::vector<std::vector<float>> reference() {
    reference_attend(in, pass);
    return outputs();
  }

  Instruction in;
  Pass pass;

 private:
  Address values(int32_t count) {
    kept_.push_back(std::make_unique<uint64_t[]>(static_cast<size_t>(count + 8)));
    auto* const to = reinterpret_cast<float*>((reinterpret_cast<uintptr_t>(kept_.back().get()) + 15) / 16 * 16);
    for (int32_t i = 0; i < count; ++i) to[i] = random_.normal();
    return reinterpret_cast<Address>(to);
  }
  void add(int32_t r, int32_t position) {
    Run& run = pass.run[r];
    run.start = position, run.first_row = r, run.rows = run.decodes = 1;
    const int32_t pages = position / kPageTokens + 1, row_bytes = in.slot.row_bytes;
    const int32_t page_bytes = 64 + 2 * kPageTokens * in.op.kv_heads * row_bytes;
    run.pages = values(2 * pages + 4);
    for (int32_t p = 0; p < pages; ++p) {
      const Address page = values(page_bytes / 4);
      host_at<Address>(run.pages)[p] = page;
      std::memset(host_at<void>(page), 0xff, static_cast<size_t>(page_bytes));
    }
    for (int32_t p = first_seen(in.op.window, in.op.chunk, position); p <= position; ++p) {
      for (int32_t head = 0; head < in.op.kv_heads; ++head) {
        for (const Place* place : {&in.slot, &in.slot2}) {
          auto* const row = reinterpret_cast<unsigned char*>(host_kv_row(run, *place, head, p));
          for (int32_t i = 0; i < in.op.width; ++i) heads::put_value(place->form, row, i, random_.normal());
        }
      }
    }
  }
  std::vector<std::vector<float>> outputs() const {
    std::vector<std::vector<float>> all;
    for (int32_t r = 0; r < pass.rows; ++r) {
      const float* const row = host_row(in.out, in.out_width, r);
      all.emplace_back(row, row + in.out_width);
    }
    return all;
  }

  Random random_;
  std::vector<std::unique_ptr<uint64_t[]>> kept_;
};

void check(const Attention& of, const std::vector<int32_t>& positions) {
  SCOPED_TRACE(testing::Message() << "form " << static_cast<int>(of.form) << ", " << of.heads << "/" << of.kv_heads
                                  << " heads of " << of.width << ", window " << of.window);
  Scene scene(of, positions);
  const auto got = scene.run(5, Order::kForward);
  EXPECT_EQ(got, scene.run(3, Order::kRandom)) << "bits by blocks";
  const auto want = scene.reference();
  for (size_t r = 0; r < got.size(); ++r) {
    double error = 0, energy = 0;
    for (size_t i = 0; i < got[r].size(); ++i) {
      const double off = double{got[r][i]} - want[r][i];
      error += off * off;
      energy += double{want[r][i]} * want[r][i];
    }
    EXPECT_LT(std::sqrt(error / energy), of.form == Form::kBF16 ? 1e-4 : 2e-6) << "row " << r;
  }
  // Alone.
  for (size_t r = 0; r < got.size(); ++r) {
    Pass all = scene.pass;
    scene.pass.runs = 1;
    scene.pass.run[0] = all.run[r];
    EXPECT_EQ(got[r], scene.run(2, Order::kBackward)[r]) << "bits beside others, row " << r;
    scene.pass = all;
  }
}

TEST(CudaAttentionKernels, EveryWidthAndForm) {
  for (const Form form : {Form::kF16, Form::kBF16, Form::kF32}) {
    for (const int32_t width : {64, 128, 256}) check({form, 8, 2, width}, {0, 63, 64, 300});
  }
}

// In plain arithmetic: of odd widths, with one query head to a kv head, and with several.
TEST(CudaAttentionKernels, WhatTensorCoresDoNotDo) {
  for (const Form form : {Form::kF16, Form::kBF16, Form::kF32}) {
    for (const int32_t width : {80, 200}) {
      check({form, 4, 2, width}, {130});
      check({form, 2, 2, width}, {70});
    }
  }
  check({Form::kF32, 2, 2, 256}, {63, 300});
}

TEST(CudaAttentionKernels, HeadsThatShareKeys) {
  for (const int32_t shared : {1, 2, 3, 5, 8}) check({Form::kF16, 2 * shared, 2, 128}, {5, 200});
}

TEST(CudaAttentionKernels, WindowsChunksAndCaps) {
  check({Form::kF16, 4, 1, 256, 100, 0, 0}, {20, 99, 100, 450});
  check({Form::kBF16, 4, 1, 64, 0, 300, 0}, {299, 300, 450});
  check({Form::kF16, 4, 1, 128, 0, 0, 2.0f}, {70});
}

TEST(CudaAttentionKernels, ManyParts) {
  check({Form::kF16, 4, 1, 256}, {255, 256, 1500, 2700});  // more parts than lanes, too
  check({Form::kF16, 16, 16, 64}, {3000});
  check({Form::kF16, 2, 1, 64}, {4500});
}

// Pages that a group of warps has one after the other.
TEST(CudaAttentionKernels, ManyPagesOfAPart) {
  for (const int32_t width : {64, 128, 256}) {
    for (const Form form : {Form::kF16, Form::kBF16}) check({form, 4, 1, width, 0, 0, 0, 1.0f, false}, {70, 640, 2100});
  }
}

// Queries that f16 has no numbers for, or none of their bits.
TEST(CudaAttentionKernels, QueriesOfAnySize) {
  for (const float size : {1e-3f, 1e5f}) {
    Scene scene({Form::kF16, 4, 1, 256, 0, 0, 0, 1 / size}, {150});
    float* const x = host_row(scene.in.x, scene.in.x_width, 0);
    for (int32_t i = 0; i < scene.in.x_width; ++i) x[i] *= size;
    const auto got = scene.run(2, Order::kForward), want = scene.reference();
    for (size_t i = 0; i < got[0].size(); ++i) ASSERT_NEAR(got[0][i], want[0][i], 1e-4) << size;
  }
}

// What kHeads made of one row: queries, gates, and the row's page.
std::vector<float> heads_of(const Instruction& in, const Pass& pass, bool kernel) {
  const size_t page_bytes = 2 * static_cast<size_t>(in.op.kv_heads * kPageTokens * in.slot.row_bytes);
  const auto page = static_cast<size_t>(pass.run[0].pages);
  std::memset(reinterpret_cast<void*>(*reinterpret_cast<Address*>(page)), 0, page_bytes);
  if (kernel) {
    fiber::launch({.blocks = 2, .threads = kThreads, .shared_bytes = kAttendShared, .order = Order::kRandom},
                  [&] { do_heads(in, pass, blockIdx.x, gridDim.x, shared); });
  } else {
    reference_heads(in, pass);
  }
  std::vector<float> all;
  const auto add = [&](const float* from, size_t count) { all.insert(all.end(), from, from + count); };
  add(host_row(in.out, in.out_width, 0), static_cast<size_t>(in.out_width));
  add(host_row(in.out2, in.out2_width, 0), static_cast<size_t>(in.out2_width));
  add(host_at<const float>(*reinterpret_cast<Address*>(page)), page_bytes / sizeof(float));
  return all;
}

TEST(CudaHeadKernels, AreWhatTheirBodyIs) {
  for (const auto& [width, rotary] :
       {std::pair{256, 64}, {128, 128}, {256, 256}, {64, 64}, {96, 32}, {80, 64}, {64, 0}}) {
    for (const RopePairing pairing : {RopePairing::kHalf, RopePairing::kAdjacent}) {
      for (const auto& [norm, made] : {std::pair{false, false}, {true, false}, {false, true}, {true, true}}) {
        const int32_t heads = 4, kv_heads = 2;
        Random random(3);
        const auto values = [&](int32_t count) {
          std::vector<float> made(static_cast<size_t>(count));
          for (float& value : made) value = random.normal();
          return made;
        };
        const auto address = [](std::vector<float>& of) { return reinterpret_cast<Address>(of.data()); };
        const int32_t x_width = 2 * heads * width, y_width = kv_heads * width, out_width = heads * width;
        std::vector<float> x = values(pitch_of(x_width)), y = values(pitch_of(y_width)), z = values(pitch_of(y_width));
        std::vector<float> out = values(pitch_of(out_width)), gates = out, scale = values(width), other = values(width);
        std::vector<float> page = values(2 * kv_heads * kPageTokens * width);
        Address pages[1] = {address(page)};
        int32_t run_of_row = 0;
        Instruction in;
        in.what = Do::kHeads;
        in.op.heads = heads, in.op.kv_heads = kv_heads, in.op.width = width, in.op.eps = 1e-6f;
        in.rope.rotary = rotary, in.rope.pairing = pairing, in.rope.rope_theta = 1e4f, in.rope.rope_magnitude = 1.1f;
        in.x = address(x), in.x_width = x_width, in.x_stride = 2 * width;
        in.y = address(y), in.z = address(z), in.y_width = in.z_width = y_width;
        in.out = address(out), in.out2 = address(gates), in.out_width = in.out2_width = out_width;
        if (norm) in.vectors[0] = address(scale), in.vectors[1] = address(other);
        std::vector<float> frequencies(static_cast<size_t>(rotary / 2 + 1));
        for (int i = 0; i < rotary / 2; ++i)
          frequencies[static_cast<size_t>(i)] =
              std::pow(1e-4f, 2.0f * static_cast<float>(i) / static_cast<float>(rotary));
        if (made) in.vectors[3] = address(frequencies);
        in.slot = {0, 4 * width, Form::kF32};
        in.slot2 = {static_cast<uint64_t>(kv_heads * kPageTokens * 4 * width), 4 * width, Form::kF32};
        Pass pass;
        pass.rows = pass.runs = 1;
        pass.run_of_row = reinterpret_cast<Address>(&run_of_row);
        pass.run[0].pages = reinterpret_cast<Address>(pages);
        pass.run[0].start = 37, pass.run[0].rows = pass.run[0].decodes = 1;
        const std::vector<float> want = heads_of(in, pass, false), got = heads_of(in, pass, true);
        ASSERT_EQ(want.size(), got.size());
        for (size_t i = 0; i < want.size(); ++i)
          ASSERT_NEAR(got[i], want[i], 1e-5) << width << " " << rotary << " " << norm << " at " << i;
      }
    }
  }
}

}  // namespace
}  // namespace baton::cuda::test
