// A small hybrid model made here, and what tests of the executor do with it.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "baton/base/random.h"
#include "baton/quant/samples_test.h"
#include "baton/unit/cpu/executor.h"
#include "baton/unit/host/kernel_sets.h"
#include "baton/unit/host/operands.h"
#include "baton/unit/host/pack.h"

namespace baton::cpu {

inline constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// Two blocks: delta rule (2 key heads, 4 value heads, dims 32 and 48) and gated attention (4 heads on 2, dim 24), each
// with a SwiGLU network; tied head.
class SmallModel {
 public:
  // `values`: what the attention's values are multiplied by.
  explicit SmallModel(DType matrices, HeadMap map = HeadMap::kGrouped, float values = 1)
      : dtype_(matrices), random_(5) {
    auto made = std::make_shared<Model>();
    made_ = made.get();
    model_ = std::move(made);
    Program& p = made_->program;
    p.vocab = p.output_width = 77;
    p.hidden = 256;
    const RegisterId x = reg("x", 256), n = reg("n", 256), o = reg("o", 256), gate = reg("gate", 512),
                     up = reg("up", 512);
    const WeightId embed = matrix(77, 256);
    op({.kind = OpKind::kEmbed, .out = x, .weights = {embed}});
    norm(x, n, 256);
    const RegisterId qkv = reg("qkv", 320), z = reg("z", 192), b = reg("b", 4), a = reg("a", 4),
                     delta = reg("delta", 192), padded = reg("padded", 256);
    linear(n, qkv);
    linear(n, z);
    linear(n, b);
    linear(n, a);
    const RegisterId conv = reg("conv", 320);
    op({.kind = OpKind::kCausalConv,
        .out = conv,
        .x = qkv,
        .weights = {vector(320, 4)},
        .slot = slot(SlotKind::kConv, 1, 3, 320),
        .taps = 4});
    op({.kind = OpKind::kDeltaRule,
        .out = delta,
        .x = conv,
        .y = b,
        .z = a,
        .weights = {decay(4), vector(1, 4)},
        .slot = slot(SlotKind::kRecurrent, 4, 32, 48),
        .heads = 4,
        .kv_heads = 2,
        .key_dim = 32,
        .value_dim = 48,
        .eps = 1e-6f,
        .head_map = map});
    op({.kind = OpKind::kGatedNorm,
        .out = delta,
        .x = delta,
        .y = z,
        .weights = {vector(1, 48)},
        .width = 48,
        .eps = 1e-6f});
    // 192 values are not a multiple of a 256-block: they go through a float matrix.
    linear(delta, padded, DType::kF32);
    linear(padded, o);
    op({.kind = OpKind::kAdd, .out = x, .x = x, .y = o});
    network(x, n, o, gate, up);
    norm(x, n, 256);
    const RegisterId qg = reg("qg", 192), q = reg("q", 96), g = reg("g", 96), k = reg("k", 48), v = reg("v", 48),
                     att = reg("att", 96);
    linear(n, qg);
    linear(n, k);
    scale_ = values;
    linear(n, v);
    scale_ = 1;
    op({.kind = OpKind::kSplitPairs, .out = q, .out2 = g, .x = qg, .width = 24, .heads = 4});
    norm(q, q, 24);
    rope(q, 4, RopePairing::kHalf);
    norm(k, k, 24);
    rope(k, 2, RopePairing::kHalf);
    op({.kind = OpKind::kAttend,
        .out = att,
        .x = q,
        .y = k,
        .z = v,
        .slot = slot(SlotKind::kKeys, 2, 0, 24),
        .slot2 = slot(SlotKind::kValues, 2, 0, 24),
        .width = 24,
        .heads = 4,
        .kv_heads = 2,
        .scale = 0.2f});
    op({.kind = OpKind::kSigmoidGate, .out = att, .x = att, .y = g});
    linear(att, o, DType::kF32);
    op({.kind = OpKind::kAdd, .out = x, .x = x, .y = o});
    network(x, n, o, gate, up);
    norm(x, n, 256);
    op({.kind = OpKind::kHead, .x = n, .weights = {embed}});
  }
  std::shared_ptr<const Model> model() const { return model_; }

 private:
  void op(const Op& op) { made_->program.ops.push_back(op); }
  RegisterId reg(const char* name, int32_t width) {
    made_->program.registers.push_back({name, width});
    return static_cast<RegisterId>(made_->program.registers.size()) - 1;
  }
  SlotId slot(SlotKind kind, int32_t heads, int32_t rows, int32_t columns) {
    made_->program.slots.push_back({kind, 0, heads, rows, columns});
    return static_cast<SlotId>(made_->program.slots.size()) - 1;
  }
  // At an odd address.
  WeightId add(DType dtype, int64_t rows, int64_t columns, std::span<const float> values) {
    const Format& format = format_of(dtype);
    Weight weight;
    weight.name = "w" + std::to_string(made_->weights.size());
    weight.dtype = dtype;
    weight.rows = rows;
    weight.columns = columns;
    weight.bytes = values.size() / format.block_elements * format.block_bytes;
    made_->owned.push_back(std::make_unique<std::byte[]>(weight.bytes + 1));
    weight.data = made_->owned.back().get() + 1;
    const std::vector<std::byte> blocks = blocks_like(format, values, random_);
    std::copy(blocks.begin(), blocks.end(), made_->owned.back().get() + 1);
    made_->weights.push_back(std::move(weight));
    return static_cast<WeightId>(made_->weights.size()) - 1;
  }
  WeightId matrix(int64_t rows, int64_t columns, DType dtype) {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (float& value : values) value = scale_ * random_.normal() / std::sqrt(static_cast<float>(columns));
    return add(dtype, rows, columns, values);
  }
  WeightId matrix(int64_t rows, int64_t columns) { return matrix(rows, columns, dtype_); }
  WeightId vector(int64_t rows, int64_t columns) {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (float& value : values) value = random_.uniform(0.3f, 1.0f);
    return add(DType::kF32, rows, columns, values);
  }
  WeightId decay(int64_t heads) {
    std::vector<float> values(static_cast<size_t>(heads));
    for (float& value : values) value = random_.uniform(-1.0f, -0.05f);
    return add(DType::kF32, 1, heads, values);
  }
  void linear(RegisterId in, RegisterId out, DType dtype) {
    const auto width = [&](RegisterId id) { return made_->program.registers[static_cast<size_t>(id)].width; };
    op({.kind = OpKind::kLinear, .out = out, .x = in, .weights = {matrix(width(out), width(in), dtype)}});
  }
  void linear(RegisterId in, RegisterId out) { linear(in, out, dtype_); }
  void norm(RegisterId in, RegisterId out, int32_t width) {
    op({.kind = OpKind::kRmsNorm, .out = out, .x = in, .weights = {vector(1, width)}, .width = width, .eps = 1e-6f});
  }
  void rope(RegisterId x, int32_t heads, RopePairing pairing) {
    op({.kind = OpKind::kRope,
        .out = x,
        .x = x,
        .width = 24,
        .heads = heads,
        .rotary = 16,
        .rope_theta = 1e4f,
        .pairing = pairing});
  }
  void network(RegisterId x, RegisterId n, RegisterId o, RegisterId gate, RegisterId up) {
    norm(x, n, 256);
    linear(n, gate);
    linear(n, up);
    op({.kind = OpKind::kSwiGlu, .out = gate, .x = gate, .y = up});
    linear(gate, o);
    op({.kind = OpKind::kAdd, .out = x, .x = x, .y = o});
  }

  DType dtype_;
  float scale_ = 1;
  Random random_;
  std::shared_ptr<const Model> model_;
  Model* made_;  // the same, while it is made
};

inline std::unique_ptr<Executor> load(const SmallModel& small, const host::Kernels& kernels, uint32_t threads = 2) {
  auto executor = CpuExecutor::load(small.model(), kernels, threads);
  EXPECT_TRUE(executor) << executor.error().message;
  return *std::move(executor);
}
inline const host::Kernels& best() { return *host::kernel_sets().front(); }

inline std::vector<int32_t> prompt(size_t tokens) {
  Random random(8);
  std::vector<int32_t> ids(tokens);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(77));
  return ids;
}

// Logits of every token when `ids` come in pieces of `piece` tokens (1: by decode).
inline std::vector<float> all_logits(Executor& executor, SequenceState& state, std::span<const int32_t> ids,
                                     size_t piece) {
  std::vector<float> logits(ids.size() * 77, kPoison);
  for (size_t done = 0; done < ids.size();) {
    const size_t count = std::min(piece, ids.size() - done);
    const std::span<float> to(logits.data() + done * 77, count * 77);
    const Status status =
        piece == 1 ? executor.decode(state, ids[done], to) : executor.prefill(state, ids.subspan(done, count), to);
    EXPECT_TRUE(status) << status.error().message;
    done += count;
  }
  return logits;
}
inline std::vector<float> all_logits(Executor& executor, std::span<const int32_t> ids, size_t piece) {
  auto state = executor.new_state(ids.size());
  EXPECT_TRUE(state);
  return all_logits(executor, **state, ids, piece);
}

inline void expect_near(std::span<const float> got, std::span<const float> want, float tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance) << "token " << i / 77 << " id " << i % 77;
}

// Energy of the difference over that of `want`.
inline double normalized_error(std::span<const float> got, std::span<const float> want) {
  EXPECT_EQ(got.size(), want.size());
  double error = 0, energy = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (got[i] - want[i]) * static_cast<double>(got[i] - want[i]);
    energy += want[i] * static_cast<double>(want[i]);
  }
  return error / energy;
}

// Sums in another order now and then round an activation the other way, a step of 8 bits that later layers carry on:
// single logits may be some hundredths off, all of them together far less.
inline constexpr double kRounding = 2e-4;
// Tiles round to bf16 where the others round to 8 bits by blocks: each is half a percent off at most.
inline constexpr double kTileRounding = 5e-3;
inline double rounding_of(const host::Kernels& kernels, DType dtype) {
  return host::has_tiles(kernels, host::packing_of(dtype)) ? kTileRounding : kRounding;
}

}  // namespace baton::cpu
