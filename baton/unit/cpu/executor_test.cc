// The executor on a small hybrid model made here: prefill in any pieces equals token by token, results do not depend on
// threads or on who shares a decode step, no allocation in decode, states copied whole, kernel sets agree.
#include "baton/unit/cpu/executor.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>

#include "baton/base/random.h"
#include "baton/quant/samples_test.h"
#include "baton/unit/host/kernel_sets.h"

namespace {
std::atomic<bool> counting{false};
std::atomic<int64_t> allocations{0};

void* counted(std::size_t bytes) {
  if (counting.load(std::memory_order_relaxed)) allocations.fetch_add(1, std::memory_order_relaxed);
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}
}  // namespace

// Not inlined: seen together with its caller, GCC 12 takes a replaced delete for one that does not fit its new.
[[gnu::noinline]] void* operator new(std::size_t bytes) { return counted(bytes); }
[[gnu::noinline]] void* operator new[](std::size_t bytes) { return counted(bytes); }
[[gnu::noinline]] void operator delete(void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
[[gnu::noinline]] void operator delete[](void* memory, std::size_t) noexcept { std::free(memory); }

namespace baton {
extern const UnitEntry k_unit_cpu;
}

namespace baton::cpu {
namespace {

using host::kernel_sets;
using host::Kernels;

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

// Two blocks: delta rule (2 key heads, 4 value heads, dims 32 and 48) and gated attention (4 heads on 2, dim 24), each
// with a SwiGLU network; tied head.
class SmallModel {
 public:
  explicit SmallModel(DType matrices, HeadMap map = HeadMap::kGrouped) : dtype_(matrices), random_(5) {
    Program& p = model_->program;
    p.vocab = 77;
    p.hidden = 256;
    const RegisterId x = reg("x", 256), n = reg("n", 256), o = reg("o", 256), gate = reg("gate", 512),
                     up = reg("up", 512);
    const WeightId embed = matrix(77, 256);
    op({.kind = OpKind::kEmbed, .out = x, .weight = embed});
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
        .weight = vector(320, 4),
        .slot = slot(SlotKind::kConv, 1, 3, 320),
        .taps = 4});
    op({.kind = OpKind::kDeltaRule,
        .out = delta,
        .x = conv,
        .y = b,
        .z = a,
        .weight = decay(4),
        .weight2 = vector(1, 4),
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
        .weight = vector(1, 48),
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
    linear(n, v);
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
    op({.kind = OpKind::kHead, .x = n, .weight = embed});
  }
  std::shared_ptr<const Model> model() const { return model_; }

 private:
  void op(const Op& op) { model_->program.ops.push_back(op); }
  RegisterId reg(const char* name, int32_t width) {
    model_->program.registers.push_back({name, width});
    return static_cast<RegisterId>(model_->program.registers.size()) - 1;
  }
  SlotId slot(SlotKind kind, int32_t heads, int32_t rows, int32_t columns) {
    model_->program.slots.push_back({kind, 0, heads, rows, columns});
    return static_cast<SlotId>(model_->program.slots.size()) - 1;
  }
  // At an odd address.
  WeightId add(DType dtype, int64_t rows, int64_t columns, std::span<const float> values) {
    const Format& format = format_of(dtype);
    Weight weight;
    weight.name = "w" + std::to_string(model_->weights.size());
    weight.dtype = dtype;
    weight.rows = rows;
    weight.columns = columns;
    weight.bytes = values.size() / format.block_elements * format.block_bytes;
    model_->owned.push_back(std::make_unique<std::byte[]>(weight.bytes + 1));
    weight.data = model_->owned.back().get() + 1;
    const std::vector<std::byte> blocks = blocks_like(format, values, random_);
    std::copy(blocks.begin(), blocks.end(), model_->owned.back().get() + 1);
    model_->weights.push_back(std::move(weight));
    return static_cast<WeightId>(model_->weights.size()) - 1;
  }
  WeightId matrix(int64_t rows, int64_t columns, DType dtype) {
    std::vector<float> values(static_cast<size_t>(rows * columns));
    for (float& value : values) value = random_.normal() / std::sqrt(static_cast<float>(columns));
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
    const auto width = [&](RegisterId id) { return model_->program.registers[static_cast<size_t>(id)].width; };
    op({.kind = OpKind::kLinear, .out = out, .x = in, .weight = matrix(width(out), width(in), dtype)});
  }
  void linear(RegisterId in, RegisterId out) { linear(in, out, dtype_); }
  void norm(RegisterId in, RegisterId out, int32_t width) {
    op({.kind = OpKind::kRmsNorm, .out = out, .x = in, .weight = vector(1, width), .width = width, .eps = 1e-6f});
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
  Random random_;
  std::shared_ptr<Model> model_ = std::make_shared<Model>();
};

std::unique_ptr<Executor> load(const SmallModel& small, const Kernels& kernels, uint32_t threads = 2) {
  auto executor = CpuExecutor::load(small.model(), kernels, threads);
  EXPECT_TRUE(executor) << executor.error().message;
  return *std::move(executor);
}
const Kernels& best() { return *kernel_sets().front(); }

std::vector<int32_t> prompt(size_t tokens) {
  Random random(8);
  std::vector<int32_t> ids(tokens);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(77));
  return ids;
}

// Logits of every token when `ids` come in pieces of `piece` tokens (1: by decode).
std::vector<float> all_logits(Executor& executor, SequenceState& state, std::span<const int32_t> ids, size_t piece) {
  std::vector<float> logits(ids.size() * 77, kPoison);
  for (size_t done = 0; done < ids.size();) {
    const size_t count = std::min(piece, ids.size() - done);
    const std::span<float> to(logits.data() + done * 77, count * 77);
    const DecodeSlot slot{&state, ids[done], to};
    const Status status =
        piece == 1 ? executor.decode({&slot, 1}) : executor.prefill(state, ids.subspan(done, count), to);
    EXPECT_TRUE(status) << status.error().message;
    done += count;
  }
  return logits;
}
std::vector<float> all_logits(Executor& executor, std::span<const int32_t> ids, size_t piece) {
  auto state = executor.new_state(ids.size());
  EXPECT_TRUE(state);
  return all_logits(executor, **state, ids, piece);
}

void expect_near(std::span<const float> got, std::span<const float> want, float tolerance) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i)
    ASSERT_NEAR(got[i], want[i], tolerance) << "token " << i / 77 << " id " << i % 77;
}

// Energy of the difference over that of `want`.
double normalized_error(std::span<const float> got, std::span<const float> want) {
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
constexpr double kRounding = 2e-4;
// Tiles round to bf16 where the others round to 8 bits by blocks: each is half a percent off at most.
constexpr double kTileRounding = 5e-3;

std::vector<std::byte> bytes_of(const SequenceState& state) {
  std::vector<std::byte> all;
  for (const Segment& segment : state.segments()) {
    const Dims dims = dims_at(*segment.layout, state.position());
    const uint64_t size = segment.layout->dtype == DType::kF32 ? 4 : 2;
    for (uint64_t i = 0; i < dims[0]; ++i) {
      const std::byte* from = segment.data + i * segment.layout->strides[0] * size;
      all.insert(all.end(), from, from + dims[1] * segment.layout->strides[1] * size);
    }
  }
  return all;
}

TEST(CpuExecutor, AnyPiecesGiveTheSameLogits) {
  const std::vector<int32_t> ids = prompt(150);
  for (const HeadMap map : {HeadMap::kGrouped, HeadMap::kTiled}) {
    const auto executor = load(SmallModel(DType::kF32, map), best());
    const std::vector<float> whole = all_logits(*executor, ids, ids.size());
    for (const size_t piece : {1, 7, 64, 65}) {
      SCOPED_TRACE(piece);
      expect_near(all_logits(*executor, ids, piece), whole, 1e-3f);
    }
  }
}

TEST(CpuExecutor, LongPromptsGoThroughInChunks) {
  const std::vector<int32_t> ids = prompt(static_cast<size_t>(2 * chunk_tokens(best()) + 5));
  const auto executor = load(SmallModel(DType::kQ8_0), best());
  const std::vector<float> whole = all_logits(*executor, ids, ids.size());
  const double error = normalized_error(all_logits(*executor, ids, 100), whole);
  EXPECT_LE(error, best().tile_tokens_min > 0 ? kTileRounding : kRounding);
  // The logits of the last tokens alone are those rows.
  auto state = executor->new_state(ids.size());
  std::vector<float> last(3 * 77, kPoison);
  ASSERT_TRUE(executor->prefill(**state, ids, last));
  expect_near(last, std::span(whole).last(3 * 77), 1e-4f);
  EXPECT_EQ((*state)->position(), ids.size());
}

TEST(CpuExecutor, LogitsNotWantedLeaveTheSameState) {
  const std::vector<int32_t> ids = prompt(40);
  const auto executor = load(SmallModel(DType::kQ4_K), best());
  auto with = executor->new_state(64), without = executor->new_state(64);
  std::vector<float> logits(ids.size() * 77);
  ASSERT_TRUE(executor->prefill(**with, ids, logits));
  ASSERT_TRUE(executor->prefill(**without, ids, {}));
  EXPECT_EQ(bytes_of(**with), bytes_of(**without));
  const DecodeSlot silent{with->get(), 3, {}}, loud{without->get(), 3, std::span(logits).first(77)};
  ASSERT_TRUE(executor->decode({&silent, 1}));
  ASSERT_TRUE(executor->decode({&loud, 1}));
  EXPECT_EQ(bytes_of(**with), bytes_of(**without));
}

TEST(CpuExecutor, ThreadsDoNotChangeABit) {
  const std::vector<int32_t> ids = prompt(40);
  for (const DType dtype : {DType::kBF16, DType::kQ6_K}) {
    const SmallModel small(dtype);
    const auto one = load(small, best(), 1);
    for (const uint32_t threads : {2u, 3u}) {
      const auto many = load(small, best(), threads);
      for (const size_t piece : {1, 40}) {
        const std::vector<float> a = all_logits(*one, ids, piece), b = all_logits(*many, ids, piece);
        EXPECT_EQ(0, std::memcmp(a.data(), b.data(), a.size() * sizeof(float)))
            << threads << " threads, pieces of " << piece;
      }
    }
  }
}

TEST(CpuExecutor, DecodeSlotsDoNotTouchEachOther) {
  const auto executor = load(SmallModel(DType::kQ8_0), best());
  const std::vector<int32_t> ids = prompt(30);
  std::vector<std::unique_ptr<SequenceState>> alone, together;
  for (size_t i = 0; i < 5; ++i) {
    alone.push_back(*executor->new_state(600));
    together.push_back(*executor->new_state(600));
    const auto part = std::span(ids).first(1 + 7 * i);
    ASSERT_TRUE(executor->prefill(*alone[i], part, {}));
    ASSERT_TRUE(executor->prefill(*together[i], part, {}));
  }
  std::vector<float> apart(5 * 77, kPoison), joined(5 * 100, kPoison);
  for (int step = 0; step < 3; ++step) {
    std::vector<DecodeSlot> slots;
    for (size_t i = 0; i < 5; ++i) {
      const auto token = static_cast<int32_t>(10 * step + static_cast<int>(i));
      const DecodeSlot slot{alone[i].get(), token, std::span(apart).subspan(77 * i, 77)};
      ASSERT_TRUE(executor->decode({&slot, 1}));
      // One wants no logits; the others' rows are unevenly spaced in memory.
      const std::span<float> to =
          i == 2 ? std::span<float>() : std::span(joined).subspan((i == 4 ? 23 : 0) + 77 * i, 77);
      slots.push_back({together[i].get(), token, to});
    }
    ASSERT_TRUE(executor->decode(slots));
    for (const size_t i : {0, 1, 3, 4}) {
      EXPECT_EQ(0, std::memcmp(apart.data() + 77 * i, slots[i].logits.data(), 77 * sizeof(float))) << "slot " << i;
    }
    for (size_t i = 0; i < 5; ++i) EXPECT_EQ(bytes_of(*alone[i]), bytes_of(*together[i]));
  }
}

TEST(CpuExecutor, DecodeDoesNotAllocate) {
  for (const DType dtype : {DType::kQ8_0, DType::kBF16, DType::kQ4_K}) {
    const auto executor = load(SmallModel(dtype), best());
    std::vector<std::unique_ptr<SequenceState>> states;
    std::vector<DecodeSlot> slots;
    std::vector<float> logits(8 * 80);
    for (size_t i = 0; i < 8; ++i) {
      states.push_back(*executor->new_state(64));
      slots.push_back({states[i].get(), 5, std::span(logits).subspan(80 * i, 77)});
    }
    ASSERT_TRUE(executor->settle());
    ASSERT_TRUE(executor->decode(slots));
    allocations = 0;
    counting = true;
    bool ok = true;
    for (int step = 0; step < 20; ++step) {
      ok = ok && executor->decode({slots.data(), 1}).has_value() && executor->decode(slots).has_value();
    }
    counting = false;
    EXPECT_TRUE(ok);
    EXPECT_EQ(allocations, 0) << to_string(dtype);
  }
}

TEST(CpuExecutor, CloneIsDeepAndWhole) {
  const auto executor = load(SmallModel(DType::kQ5_K), best());
  const std::vector<int32_t> ids = prompt(50);
  auto state = executor->new_state(110);
  ASSERT_TRUE(executor->prefill(**state, ids, {}));
  auto copy = executor->clone(**state);
  ASSERT_TRUE(copy);
  EXPECT_EQ((*copy)->position(), 50u);
  EXPECT_EQ((*copy)->layout(), (*state)->layout());
  const auto before = bytes_of(**copy);
  EXPECT_EQ(before, bytes_of(**state));
  const std::vector<float> first = all_logits(*executor, **state, ids, 10);
  EXPECT_EQ(before, bytes_of(**copy));
  EXPECT_EQ(first, all_logits(*executor, **copy, ids, 10));
}

TEST(CpuExecutor, KernelSetsAgree) {
  const std::vector<int32_t> ids = prompt(80);
  for (const Format& format : formats()) {
    const SmallModel small(format.dtype);
    const std::vector<float> want = all_logits(*load(small, *kernel_sets().back()), ids, ids.size());
    for (const Kernels* set : kernel_sets()) {
      SCOPED_TRACE(testing::Message() << set->name << " " << format.name);
      const std::vector<float> got = all_logits(*load(small, *set), ids, ids.size());
      const double error = normalized_error(got, want);
      EXPECT_LE(error, set->tile_tokens_min > 0 ? kTileRounding : kRounding);
    }
  }
}

TEST(CpuExecutor, RefusesWhatDoesNotFit) {
  const auto executor = load(SmallModel(DType::kF32), best());
  auto state = executor->new_state(4);
  const std::vector<int32_t> ids = prompt(5), bad{1, 77};
  EXPECT_EQ(executor->prefill(**state, ids, {}).error().code, Code::kOutOfMemory);
  EXPECT_EQ(executor->prefill(**state, bad, {}).error().code, Code::kInvalidInput);
  EXPECT_EQ((*state)->position(), 0u);
  std::vector<DecodeSlot> slots(kDecodeSlotsMax + 1, DecodeSlot{state->get(), 1, {}});
  EXPECT_EQ(executor->decode(slots).error().code, Code::kInvalidInput);
  EXPECT_EQ(executor->new_state(uint64_t{1} << 60).error().code, Code::kOutOfMemory);
}

// Steps of the scheduler are multiples of 64 tokens: how they fall does not show in an answer.
TEST(CpuExecutor, CutAtMultiplesOf64GivesTheSameBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_K}) {
    const auto executor = load(SmallModel(dtype), best());
    for (const size_t tokens : {65, 70, 128 + 20, 192 + 50, 300, 512 + 65}) {
      const std::vector<int32_t> ids = prompt(tokens);
      const std::vector<float> whole = all_logits(*executor, ids, ids.size());
      for (const size_t piece : {64, 128, 256}) {
        const std::vector<float> cut = all_logits(*executor, ids, piece);
        EXPECT_EQ(0, std::memcmp(whole.data(), cut.data(), whole.size() * sizeof(float)))
            << to_string(dtype) << " " << tokens << " tokens in pieces of " << piece;
      }
    }
  }
}

// The first pass packs into scratch, later ones use more and more that is packed: the same bits.
TEST(CpuExecutor, PackingDoesNotChangeABit) {
  const std::vector<int32_t> ids = prompt(40);
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    const SmallModel small(dtype);
    const auto executor = load(small, best());
    const auto settled = load(small, best());
    ASSERT_TRUE(settled->settle());
    const std::vector<float> want = all_logits(*settled, ids, ids.size());
    for (int pass = 0; pass < 3; ++pass) {
      const std::vector<float> got = all_logits(*executor, ids, ids.size());
      EXPECT_EQ(0, std::memcmp(got.data(), want.data(), want.size() * sizeof(float)))
          << to_string(dtype) << " pass " << pass;
    }
  }
}

TEST(CpuExecutor, EstimatesComeFromEarlierCalls) {
  const auto executor = load(SmallModel(DType::kQ8_0), best());
  ASSERT_TRUE(executor->settle());
  EXPECT_EQ(executor->estimate({.prefill_tokens = 100}).basis, "estimated");
  EXPECT_EQ(executor->estimate({.decode_slots = 1}).basis, "estimated");
  const std::vector<int32_t> ids = prompt(100);
  all_logits(*executor, ids, 100);
  all_logits(*executor, ids, 1);
  const Estimate prefill = executor->estimate({.prefill_tokens = 100});
  const Estimate decode = executor->estimate({.decode_slots = 1});
  EXPECT_EQ(prefill.basis, "measured");
  EXPECT_EQ(decode.basis, "measured");
  EXPECT_GT(prefill.ms, 0);
  EXPECT_GT(decode.ms, 0);
}

TEST(CpuUnit, ForcedKernelsRunAndUnknownOnesAreRefused) {
  const char* before = std::getenv("BATON_CPU_KERNELS");
  const std::string kept = before == nullptr ? "" : before;
  for (const Kernels* set : kernel_sets()) {
    setenv("BATON_CPU_KERNELS", set->name, 1);
    auto unit = k_unit_cpu.create();
    ASSERT_TRUE(unit);
    auto executor = (*unit)->load(SmallModel(DType::kF32).model(), 1);
    ASSERT_TRUE(executor);
    EXPECT_EQ((*executor)->placement().ran, "cpu");
    EXPECT_NE((*executor)->placement().evidence.find(set->name), std::string::npos);
  }
  setenv("BATON_CPU_KERNELS", "abacus", 1);
  EXPECT_EQ(k_unit_cpu.create().error().code, Code::kUnsupported);
  kept.empty() ? unsetenv("BATON_CPU_KERNELS") : setenv("BATON_CPU_KERNELS", kept.c_str(), 1);
}

}  // namespace
}  // namespace baton::cpu
