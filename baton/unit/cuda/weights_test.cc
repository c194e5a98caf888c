// A model's weights on the emulated card: where they lie, what they are there, what a load that fails leaves.
#include "baton/unit/cuda/weights.h"

#include <gtest/gtest.h>

#include <unistd.h>

#include <bit>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "baton/base/file.h"
#include "baton/base/random.h"
#include "baton/model/container.h"
#include "baton/quant/samples_test.h"
#include "baton/unit/cuda/codes.h"
#include "baton/unit/cuda/driver_emulated.h"

namespace baton::cuda {
namespace {

// Weights of random blocks, and ops that name them: nothing runs.
class Maker {
 public:
  Maker() : model_(std::make_shared<Model>()) { model_->spec.name = "made"; }
  WeightId add(DType dtype, int64_t rows, int64_t columns) {
    const Format& format = format_of(dtype);
    const std::vector<std::byte> bytes =
        random_blocks(format, static_cast<size_t>(rows * columns) / format.block_elements, random_);
    model_->owned.push_back(std::make_unique<std::byte[]>(bytes.size()));
    std::memcpy(model_->owned.back().get(), bytes.data(), bytes.size());
    const auto id = static_cast<WeightId>(model_->weights.size());
    model_->weights.push_back({.name = "w" + std::to_string(id),
                               .dtype = dtype,
                               .rows = rows,
                               .columns = columns,
                               .data = model_->owned.back().get(),
                               .bytes = bytes.size(),
                               .source = {}});
    return id;
  }
  void op(OpKind kind, OpWeights weights) {
    Op op{.kind = kind};
    op.weights = weights;
    model_->program.ops.push_back(op);
  }
  // Four experts of 64 values inside; `odd`: the type of one of the ups.
  Op& experts(DType dtype, DType odd) {
    const WeightId router = add(DType::kBF16, 4, 256), gates = add(dtype, 64, 256);
    for (int i = 1; i < 4; ++i) add(dtype, 64, 256);
    const WeightId ups = add(dtype, 64, 256);
    for (int i = 1; i < 4; ++i) add(i == 2 ? odd : dtype, 64, 256);
    const WeightId downs = add(DType::kQ8_0, 256, 64);
    for (int i = 1; i < 4; ++i) add(DType::kQ8_0, 256, 64);
    op(OpKind::kExperts, {router, gates, ups, downs});
    Op& made = model_->program.ops.back();
    made.experts = 4;
    made.experts_used = 2;
    return made;
  }
  std::shared_ptr<Model> model() { return model_; }

 private:
  std::shared_ptr<Model> model_;
  Random random_{3};
};

// A bit of everything: a tied head, vectors, taps, a table of positions, experts, and a weight that no op uses.
std::shared_ptr<Model> small_model(DType odd = DType::kQ4_K) {
  Maker maker;
  const WeightId embed = maker.add(DType::kQ6_K, 77, 256), norm = maker.add(DType::kF32, 1, 256);
  maker.op(OpKind::kEmbed, {embed});
  maker.op(OpKind::kPosition, {maker.add(DType::kF16, 32, 256)});
  maker.op(OpKind::kRmsNorm, {norm});
  maker.op(OpKind::kRmsNorm, {norm});
  maker.op(OpKind::kLinear, {maker.add(DType::kBF16, 100, 45)});
  maker.op(OpKind::kCausalConv, {maker.add(DType::kF32, 20, 4)});
  maker.op(OpKind::kLinear, {maker.add(DType::kMXFP4, 5, 96)});
  maker.op(OpKind::kLinear, {maker.add(DType::kF8_G32, 5, 96)});
  maker.add(DType::kF32, 9, 9);
  maker.experts(DType::kQ4_K, odd);
  maker.op(OpKind::kLayerNorm, {maker.add(DType::kF32, 1, 3), maker.add(DType::kF32, 1, 3)});
  maker.op(OpKind::kHead, {embed});
  return maker.model();
}

class CudaWeights : public testing::Test {
 protected:
  CudaWeights() { emulated_reset(); }
  ~CudaWeights() override {
    card_.reset();
    EXPECT_EQ(emulated_use(), EmulatedUse()) << "something is still held";
    EXPECT_EQ(emulated_misuse(), "");
    emulated_reset();
  }
  Card& card() {
    if (card_ == nullptr) card_ = *Card::open(emulated_driver(), 0);
    return *card_;
  }

  // The emulated card's addresses are the host's.
  static void expect_all(const Weights& weights) {
    const WeightPlan& plan = weights.plan();
    for (size_t id = 0; id < plan.weights.size(); ++id) {
      const Weight& weight = weights.model().weights[id];
      std::vector<float> stored(static_cast<size_t>(weight.rows * weight.columns));
      format_of(weight.dtype).decode(weight.data, stored.data(), stored.size());
      if (plan.weights[id].is_vector) {
        const auto* vector = reinterpret_cast<const float*>(weights.vector(static_cast<WeightId>(id)));
        for (size_t i = 0; i < plan.weights[id].vector_bytes / 4; ++i)
          ASSERT_EQ(vector[i], i < stored.size() ? stored[i] : 0) << weight.name << " " << i;
      }
      if (!plan.weights[id].is_matrix) continue;
      const Matrix matrix = weights.matrix(static_cast<WeightId>(id));
      ASSERT_EQ(matrix.rows, weight.rows);
      ASSERT_EQ(matrix.columns, weight.columns);
      for (int64_t row = 0; row < matrix.rows; ++row) {
        for (int32_t column = 0; column < matrix.pitch; ++column) {
          const float value = value_at(matrix, row, column);
          if (column >= matrix.columns) {
            ASSERT_EQ(value, 0) << weight.name;
            continue;
          }
          const float expected = stored[static_cast<size_t>(row * matrix.columns + column)];
          ASSERT_TRUE(std::bit_cast<uint32_t>(value) == std::bit_cast<uint32_t>(expected) ||
                      (value != value && expected != expected))
              << weight.name << " row " << row << " column " << column;
        }
      }
    }
  }

  std::shared_ptr<Card> card_;
};

TEST_F(CudaWeights, PlacesDoNotOverlapAndAddUp) {
  const auto model = small_model();
  const WeightPlan plan = plan_weights(*model);
  std::set<std::pair<uint64_t, uint64_t>> places;
  uint64_t sum = 0;
  for (size_t id = 0; id < plan.weights.size(); ++id) {
    const WeightPlan::Placed& placed = plan.weights[id];
    if (placed.is_matrix) places.insert({placed.matrix_at, placed.shape.bytes()});
    if (placed.is_vector) places.insert({placed.vector_at, placed.vector_bytes});
    sum += plan.bytes_of(static_cast<WeightId>(id));
  }
  EXPECT_EQ(sum, plan.bytes);
  uint64_t end = 0;
  for (const auto& [at, bytes] : places) {
    EXPECT_GE(at, end);
    EXPECT_EQ(at % kWeightAlignment, 0u);
    end = at + bytes;
  }
  EXPECT_LE(end, plan.bytes);
  EXPECT_EQ(plan.bytes_of(7), 0u);  // no op names it
  EXPECT_EQ(plan.form(0), Form::kCodes);
  EXPECT_EQ(plan.form(8), Form::kF32);  // the router, stored as BF16
  ASSERT_EQ(plan.notes.size(), 1u);
  EXPECT_EQ(plan.notes[0], "1 matrix is of a type that is held as F32: F8_G32");
}

TEST_F(CudaWeights, LoadedAsStored) {
  const auto weights = Weights::load(card(), small_model(), {.threads = 3});
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ((*weights)->bytes(), (*weights)->plan().bytes);
  EXPECT_EQ(card().held_bytes(), (*weights)->plan().bytes);
  EXPECT_EQ(card().held_pinned_bytes(), 0u);
  EXPECT_EQ(kept_bytes((*weights)->model()).all, (*weights)->bytes());
  expect_all(**weights);
  EXPECT_EQ((*weights)->vector(0), 0u);
  EXPECT_EQ((*weights)->matrix(1).rows, 0);
}

// Buffers that hold a row or two at a time, some weights, or all of them.
TEST_F(CudaWeights, BuffersOfAnySize) {
  const auto model = small_model();
  for (const uint64_t staging : {1, 3000, 20000, 100000, 1 << 22}) {
    uint64_t last = 0, calls = 0;
    const auto weights = Weights::load(
        card(), model, {.threads = 2, .staging_bytes = staging, .on_progress = [&](uint64_t done, uint64_t all) {
                          EXPECT_GE(done, last);
                          EXPECT_LE(done, all);
                          last = done;
                          ++calls;
                        }});
    ASSERT_TRUE(weights) << weights.error().message;
    expect_all(**weights);
    EXPECT_EQ(last, (*weights)->bytes());
    if (staging == 1 << 22) {
      EXPECT_EQ(calls, 2u);  // one buffer, and the end
    }
  }
}

TEST_F(CudaWeights, ExpertsAreAtEqualDistances) {
  for (const DType odd : {DType::kQ4_K, DType::kQ6_K}) {
    const auto loaded = Weights::load(card(), small_model(odd));
    ASSERT_TRUE(loaded) << loaded.error().message;
    const Weights& weights = **loaded;
    expect_all(weights);
    const Op& op = *std::find_if(weights.model().program.ops.begin(), weights.model().program.ops.end(),
                                 [](const Op& o) { return o.kind == OpKind::kExperts; });
    for (const size_t which : {Op::kGates, Op::kUps, Op::kDowns}) {
      const uint64_t stride = weights.expert_stride(op, which);
      const Matrix first = weights.matrix(op.weights[which]);
      for (int32_t e = 0; e < op.experts; ++e) {
        const Matrix own = weights.matrix(op.weights[which] + e);
        const auto of = static_cast<uint64_t>(e);
        EXPECT_EQ(own.form, first.form);
        EXPECT_EQ(own.values, first.values + of * stride);
      }
    }
    const bool mixed = odd != DType::kQ4_K;
    EXPECT_EQ(weights.plan().form(op.weights[Op::kGates]), Form::kCodes);
    EXPECT_EQ(weights.plan().form(op.weights[Op::kUps]), mixed ? Form::kF32 : Form::kCodes);
    EXPECT_EQ(weights.plan().notes.size(), mixed ? 2u : 1u);
    if (mixed) {
      EXPECT_EQ(weights.plan().notes[0], "experts 'w13' to 'w16' are stored as several types: all are held as F32");
    }
    const KeptBytes kept = kept_bytes(weights.model());
    EXPECT_EQ(kept.experts,
              4 * (weights.plan().of(op.weights[Op::kGates]).stride + weights.plan().of(op.weights[Op::kUps]).stride +
                   weights.plan().of(op.weights[Op::kDowns]).stride));
  }
}

// Two ops with experts in common, and a product with one of them: still one place for each.
TEST_F(CudaWeights, SharedExpertsAreThereOnce) {
  Maker maker;
  Op& first = maker.experts(DType::kQ8_0, DType::kQ8_0);
  const OpWeights weights = first.weights;
  maker.op(OpKind::kExperts, {weights[0], weights[1] + 1, weights[2], weights[3]});
  maker.model()->program.ops.back().experts = 3;
  maker.op(OpKind::kLinear, {weights[2] + 1});
  const auto loaded = Weights::load(card(), maker.model());
  ASSERT_TRUE(loaded) << loaded.error().message;
  expect_all(**loaded);
  uint64_t sum = 0;
  for (const WeightPlan::Placed& placed : (*loaded)->plan().weights) sum += placed.shape.bytes();
  EXPECT_EQ(sum, (*loaded)->bytes());
}

TEST_F(CudaWeights, WhatDoesNotFitIsRefusedBeforeAnythingIsAllocated) {
  const auto model = small_model();
  const uint64_t bytes = plan_weights(*model).bytes;
  emulated_set_memory(bytes - 1);
  const auto refused = Weights::load(card(), model);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, Code::kOutOfMemory);
  EXPECT_EQ(refused.error().message,
            "card 0 (emulated card): the weights of 'made' take 0.2 MiB; 0.2 MiB of its 0.2 MiB are free: use a more "
            "quantised or smaller model, or another unit");
  EXPECT_EQ(emulated_use().allocations, 0u);
  emulated_set_memory(bytes);
  EXPECT_TRUE(Weights::load(card(), model));
  emulated_set_memory(bytes + 1000);
  EXPECT_TRUE(Weights::load(card(), model, {.spared_bytes = 1000}));
  const auto spared = Weights::load(card(), model, {.spared_bytes = 1001});
  ASSERT_FALSE(spared);
  EXPECT_NE(spared.error().message.find("must be left for states"), std::string::npos);
  EXPECT_FALSE(Weights::load(card(), model, {.spared_bytes = UINT64_MAX}));
}

// Whichever call fails, all memory is back.
TEST_F(CudaWeights, EachCallFailingLeavesNothing) {
  const auto model = small_model();
  card();
  uint64_t failures = 0;
  for (uint64_t nth = 1; nth < 500; ++nth) {
    emulated_fail({.nth = nth, .code = nth % 2 == 0 ? kNoMemory : kInvalidValue});
    const auto weights = Weights::load(card(), model, {.threads = 2, .staging_bytes = 50000});
    if (weights) {
      EXPECT_GT(nth, 10u);
      break;
    }
    ++failures;
    EXPECT_EQ(card().held_bytes(), 0u) << nth;
    EXPECT_EQ(card().held_pinned_bytes(), 0u) << nth;
    emulated_reset();
  }
  EXPECT_GT(failures, 10u);
  EXPECT_LT(failures, 400u);
  emulated_reset();
}

// The same weights in a file, but for one that stays in memory.
class FileOfWeights {
 public:
  explicit FileOfWeights(std::shared_ptr<Model> model)
      : path_(std::filesystem::path(testing::TempDir()) / ("baton_weights_" + std::to_string(::getpid()))),
        model_(std::move(model)) {
    std::vector<std::byte> all(7, std::byte{0xee});
    std::vector<size_t> begins;
    for (const Weight& weight : model_->weights) {
      begins.push_back(all.size());
      all.insert(all.end(), weight.data, weight.data + weight.bytes);
    }
    EXPECT_TRUE(write_file(path_, all));
    auto container = std::make_unique<Container>();
    container->files.push_back(*MappedFile::open(path_));
    for (size_t id = 1; id < begins.size(); ++id)
      model_->weights[id].data = container->files[0].bytes().data() + begins[id];
    model_->container = std::move(container);
  }
  ~FileOfWeights() { std::filesystem::remove(path_); }
  const std::filesystem::path& path() const { return path_; }
  const std::shared_ptr<Model>& model() const { return model_; }

 private:
  const std::filesystem::path path_;
  const std::shared_ptr<Model> model_;
};

TEST_F(CudaWeights, AFileIsReadAsItIsMapped) {
  const FileOfWeights file(small_model());
  for (const uint64_t staging : {1, 20000, 1 << 22}) {
    const auto weights = Weights::load(card(), file.model(), {.threads = 2, .staging_bytes = staging});
    ASSERT_TRUE(weights) << weights.error().message;
    expect_all(**weights);
  }
}

TEST_F(CudaWeights, AFileThatBecameShorterIsAnError) {
  Maker maker;
  maker.op(OpKind::kLinear, {maker.add(DType::kBF16, 3, 64)});
  maker.op(OpKind::kLinear, {maker.add(DType::kBF16, 100, 64)});  // as stored: no mapping is touched
  const FileOfWeights file(maker.model());
  card();
  std::filesystem::resize_file(file.path(), 400);
  const auto weights = Weights::load(card(), file.model(), {.threads = 2});
  ASSERT_FALSE(weights);
  EXPECT_EQ(weights.error().code, Code::kCorrupt);
  EXPECT_EQ(weights.error().message, file.path().string() + ": ends at byte 400, more was expected");
  EXPECT_EQ(card().held_bytes(), 0u);
  EXPECT_EQ(card().held_pinned_bytes(), 0u);
}

TEST_F(CudaWeights, ALoadSaysHowLongItTook) {
  const auto begin = std::chrono::steady_clock::now();
  const auto weights = Weights::load(card(), small_model(), {.threads = 2, .staging_bytes = 20000});
  const std::chrono::duration<double> most = std::chrono::steady_clock::now() - begin;
  ASSERT_TRUE(weights);
  const WeightLoad& load = (*weights)->loaded();
  EXPECT_EQ(load.bytes, (*weights)->bytes());
  EXPECT_GT(load.packing_seconds, 0);
  EXPECT_GT(load.waiting_seconds, 0);
  EXPECT_GE(load.seconds, load.packing_seconds + load.waiting_seconds);
  EXPECT_LE(load.seconds, most.count());
  EXPECT_EQ(load.link_bytes_per_second, 0);  // too few bytes to measure it in passing
  EXPECT_EQ(load_text({1'500'000'000, 0.12, 0.04, 0.07, 13.1e9}),
            "weights 1.50 GB in 0.120 s, 12.5 GB/s (packing 0.040 s, waiting for copies 0.070 s; the link: 13.1 GB/s "
            "measured)");
  EXPECT_EQ(load_text({1'500'000'000, 0.12, 0.04, 0.07, 0}),
            "weights 1.50 GB in 0.120 s, 12.5 GB/s (packing 0.040 s, waiting for copies 0.070 s)");
}

TEST_F(CudaWeights, AModelWithoutWeights) {
  const auto weights = Weights::load(card(), std::make_shared<Model>());
  ASSERT_TRUE(weights) << weights.error().message;
  EXPECT_EQ((*weights)->bytes(), 0u);
}

}  // namespace
}  // namespace baton::cuda
