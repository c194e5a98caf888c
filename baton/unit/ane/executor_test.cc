// The executor on the bundled and the tiny models, through the emulator in strict mode: columns do not depend on each
// other, so every way of calling the device gives the same bits; limits, caches, ranges and errors.
#include "baton/unit/ane/executor.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>

#include "baton/base/clock.h"
#include "baton/base/random.h"
#include "tests/support/seats.h"
#include "tests/support/smoke.h"
#include "tests/support/state_values.h"

namespace baton::ane {
namespace {

const std::filesystem::path kRoot = BATON_SOURCE_DIR;

std::shared_ptr<const Model> open(const char* path) {
  auto model = load_model(kRoot / path);
  EXPECT_TRUE(model) << model.error().message;
  return model ? *model : nullptr;
}
std::shared_ptr<const Model> bundled() { return open("models/dictionary-3m.Q8_0.gguf"); }
std::shared_ptr<const Model> tiny_qwen() { return open("tests/data/golden/tiny-qwen3.5"); }
std::shared_ptr<const Model> tiny_llama() { return open("tests/data/golden/tiny-llama"); }

std::unique_ptr<AneExecutor> load(const std::shared_ptr<const Model>& model, const AneOptions& options) {
  auto executor = AneExecutor::load(model, options, false, 1);
  EXPECT_TRUE(executor) << executor.error().message;
  return executor ? std::move(*executor) : nullptr;
}

std::vector<int32_t> prompt(const Model& model, size_t count) {
  Random random(17);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(static_cast<uint64_t>(model.program.vocab)));
  return ids;
}

struct Outcome {
  std::vector<float> logits;
  std::vector<std::byte> state;
};

// Prefill in pieces with the logits of the last `wanted` tokens of each, then three tokens decoded.
Outcome run(AneExecutor& executor, std::span<const int32_t> ids, std::span<const size_t> pieces, size_t wanted) {
  Outcome out;
  const auto vocab = static_cast<size_t>(executor.model().program.vocab);
  auto state = executor.new_state(ids.size() + 3);
  EXPECT_TRUE(state) << state.error().message;
  size_t done = 0;
  for (const size_t piece : pieces) {
    std::vector<float> rows(std::min(wanted, piece) * vocab, std::nanf(""));
    const auto status = executor.prefill(**state, ids.subspan(done, piece), rows);
    EXPECT_TRUE(status) << status.error().message;
    done += piece;
    if (done == ids.size()) out.logits = std::move(rows);
  }
  EXPECT_EQ(done, ids.size());
  for (int32_t token = 1; token < 4; ++token) {
    std::vector<float> row(vocab, std::nanf(""));
    const auto status = executor.decode(**state, token, row);
    EXPECT_TRUE(status) << status.error().message;
    out.logits.insert(out.logits.end(), row.begin(), row.end());
  }
  EXPECT_EQ((*state)->position(), ids.size() + 3);
  out.state = test::state_bytes(**state);
  return out;
}

bool same_bits(const Outcome& a, const Outcome& b) {
  return a.logits.size() == b.logits.size() && a.state == b.state &&
         std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)) == 0;
}

float max_difference(std::span<const float> a, std::span<const float> b) {
  EXPECT_EQ(a.size(), b.size());
  float largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    const float difference = std::fabs(a[i] - b[i]);
    if (!(difference <= largest)) largest = difference;  // NaN stays
  }
  return largest;
}

AneOptions with(std::string_view words) {
  auto options = parse_options(words);
  EXPECT_TRUE(options) << options.error().message;
  return *options;
}

TEST(AneExecutor, EveryWayOfCallingTheDeviceGivesTheSameBits) {
  for (const auto& model : {tiny_qwen(), tiny_llama(), bundled()}) {
    ASSERT_NE(model, nullptr);
    if (smoke_run() && model->spec.vocab > 1000) continue;
    SCOPED_TRACE(model->spec.name);
    const std::vector<int32_t> ids = prompt(*model, 101);
    const size_t all[] = {101}, uneven[] = {1, 33, 2, 65};
    const Outcome want = run(*load(model, with("pipeline=off")), ids, all, 40);
    for (const char* words : {"pipeline=on", "dispatch=sequential,pipeline=off", "dispatch=sequential", "columns=64",
                              "columns=128", "head=lazy"}) {
      EXPECT_TRUE(same_bits(run(*load(model, with(words)), ids, all, 40), want)) << words;
    }
    const auto executor = load(model, {});
    EXPECT_TRUE(same_bits(run(*executor, ids, uneven, 40), want)) << "in pieces, from an existing state";
    EXPECT_TRUE(same_bits(run(*executor, ids, all, 40), want)) << "again";
  }
}

// Loaded kernels are counted over the process: a second model that does not fit beside the first is refused at once.
TEST(AneExecutor, KernelsAreCountedPerProcess) {
  const auto model = tiny_llama();
  ASSERT_NE(model, nullptr);
  ASSERT_EQ(apple::process_counts().loaded.load(), 0u);
  auto first = load(model, {});
  const uint32_t kernels = first->report().kernels;
  EXPECT_EQ(apple::process_counts().loaded.load(), kernels);
  AneOptions options;
  options.kernels_max = 2 * kernels - 1;
  const auto refused = AneExecutor::load(model, options, false, 1);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("have " + std::to_string(kernels) + " loaded"), std::string::npos)
      << refused.error().message;
  first.reset();
  EXPECT_EQ(apple::process_counts().loaded.load(), 0u);
  EXPECT_NE(load(model, options), nullptr);
  // Compiles stay counted, where a system counts them.
  options.compiles_max = apple::process_counts().compiles;
  const auto spent = AneExecutor::load(model, options, false, 1);
  ASSERT_FALSE(spent);
  EXPECT_NE(spent.error().message.find("compile-limit"), std::string::npos) << spent.error().message;
}

TEST(AneExecutor, SlotsOfADecodeStepAreColumnsThatDoNotTouch) {
  const auto model = tiny_qwen();
  for (const char* words : {"", "dispatch=sequential"}) {
    const auto executor = load(model, with(words));
    const auto vocab = static_cast<size_t>(model->program.vocab);
    std::vector<std::unique_ptr<SequenceState>> together, alone;
    std::vector<std::vector<float>> rows(kSeatsMax, std::vector<float>(vocab, std::nanf("")));
    std::vector<test::SeatRows> slots;
    for (uint32_t i = 0; i < kSeatsMax; ++i) {
      for (auto* states : {&together, &alone}) {
        states->push_back(*executor->new_state(40));
        ASSERT_TRUE(executor->prefill(*states->back(), prompt(*model, 1 + 2 * i), {}));
      }
      // Every third slot wants no logits.
      slots.push_back(
          {together[i].get(), static_cast<int32_t>(i), i % 3 == 1 ? std::span<float>{} : std::span(rows[i])});
    }
    ASSERT_TRUE(test::step_together(*executor, slots));
    for (uint32_t i = 0; i < kSeatsMax; ++i) {
      std::vector<float> row(vocab);
      ASSERT_TRUE(executor->decode(*alone[i], static_cast<int32_t>(i), row));
      if (i % 3 == 1) {
        EXPECT_TRUE(std::isnan(rows[i][0])) << "not wanted, not written";
      } else {
        EXPECT_EQ(row, rows[i]) << i;
      }
    }
    // More than share a step go one group after the other.
    together.push_back(*executor->new_state(4));
    slots.emplace_back(together.back().get(), 1);
    EXPECT_TRUE(test::step_together(*executor, slots));
  }
}

TEST(AneExecutor, PrefillWithoutLogitsLeavesTheHeadAlone) {
  const auto model = tiny_qwen();
  const auto executor = load(model, with("head=lazy"));
  auto state = executor->new_state(80);
  ASSERT_TRUE(executor->prefill(**state, prompt(*model, 64), {}));
  const AneReport before = executor->report();
  EXPECT_LT(before.loads.compiles, before.kernels) << "the head is not even loaded";
  // Two chunks, and neither the head nor the last block's feed-forward network.
  EXPECT_LT(before.device.evaluations, 2u * (before.kernels - 1));
  std::vector<float> row(static_cast<size_t>(model->program.vocab));
  ASSERT_TRUE(executor->prefill(**state, std::vector<int32_t>{1}, row));
  EXPECT_EQ(executor->report().loads.compiles, before.kernels);
}

// The real plan in small: what does not fit the device's limit is the host's, larger layers are split, and the answers
// stay within fp16's error of the others.
TEST(AneExecutor, TinyLimitsSplitLayersAndSendTheRestToTheHost) {
  for (const auto& model : {tiny_qwen(), bundled()}) {
    ASSERT_NE(model, nullptr);
    if (smoke_run() && model->spec.vocab > 1000) continue;
    SCOPED_TRACE(model->spec.name);
    const std::vector<int32_t> ids = prompt(*model, 40);
    const size_t all[] = {40};
    const Outcome want = run(*load(model, {}), ids, all, 40);
    const auto limited = load(model, with("kernels=5"));
    const AneReport report = limited->report();
    EXPECT_LE(report.kernels, 5u);
    EXPECT_GE(report.kernels, 4u);
    ASSERT_TRUE(report.emulator);
    EXPECT_LE(report.emulator->compiles, 5u);
    EXPECT_FALSE(report.host_layers.empty());
    EXPECT_NE(limited->placement().text().find("the limit is 5 kernels"), std::string::npos);
    EXPECT_LE(max_difference(run(*limited, ids, all, 40).logits, want.logits), 0.05f);

    const auto pieces = load(model, with("kernel_bytes=12000,kernels=4000"));
    const AneReport many = pieces->report();
    EXPECT_GT(many.kernels, 4 * many.loads.donor_loads + 30);
    EXPECT_TRUE(many.host_layers.empty());
    EXPECT_LE(max_difference(run(*pieces, ids, all, 40).logits, want.logits), 0.05f);
  }
}

TEST(AneExecutor, PerturbedTablesMoveLogitsALittle) {
  const auto model = bundled();
  const std::vector<int32_t> ids = prompt(*model, 64);
  const size_t all[] = {64};
  const Outcome exact = run(*load(model, {}), ids, all, 64);
  const Outcome perturbed = run(*load(model, with("tables=perturbed")), ids, all, 64);
  const float difference = max_difference(exact.logits, perturbed.logits);
  RecordProperty("max_abs_dlogit", fmt::format("{:.6f}", difference));
  EXPECT_GT(difference, 0.0f);
  EXPECT_LE(difference, 0.5f);
  const Outcome modern = run(*load(model, with("profile=modern")), ids, all, 64);
  EXPECT_LE(max_difference(exact.logits, modern.logits), 0.05f) << "only subnormals differ";
}

TEST(AneExecutor, TwoChunksInFlightOverlap) {
  const auto model = smoke_run() ? tiny_qwen() : open("models/dictionary-28m.Q8_0.gguf");
  const std::vector<int32_t> ids = prompt(*model, 256);
  for (const char* words : {"pipeline=off", "pipeline=on"}) {
    const auto executor = load(model, with(words));
    auto state = executor->new_state(512);
    ASSERT_TRUE(executor->prefill(**state, ids, {}));
    const int64_t start_ns = SteadyClock().now_ns();
    const AneReport before = executor->report();
    ASSERT_TRUE(executor->prefill(**state, ids, {}));
    const double wall_ms = ms_between(start_ns, SteadyClock().now_ns());
    const AneReport report = executor->report();
    const std::string figures =
        fmt::format("wall {:.1f} ms, device (emulated) {:.1f} ms, host {:.1f} ms, both at once {:.1f} ms", wall_ms,
                    report.device_ms - before.device_ms, report.host_ms - before.host_ms,
                    report.overlapped_ms - before.overlapped_ms);
    RecordProperty(words, figures);
    if (std::string_view(words) == "pipeline=off") {
      EXPECT_EQ(report.turns, 0u);
    } else {
      // How much time that saves depends on the machine's load; that both sides have work at once does not.
      EXPECT_GE(report.shared_turns * 10, report.turns * 9);
      EXPECT_GT(report.turns, 100u);
    }
  }
}

TEST(AneExecutor, BundledModelMeetsNothingUnusual) {
  const auto model = bundled();
  const auto executor = load(model, {});
  const size_t all[] = {100};
  run(*executor, prompt(*model, 100), all, 10);
  const AneReport report = executor->report();
  ASSERT_TRUE(report.emulator);
  for (const apple::Warning& warning : report.emulator->warnings) ADD_FAILURE() << warning.text;
  EXPECT_EQ(report.weight_range.overflows, 0u);
  EXPECT_EQ(report.weight_range.nans, 0u);
  EXPECT_GT(report.weight_range.values, 1000000u);
  EXPECT_GT(report.activation_max, 0.0f);
  EXPECT_LT(report.activation_max, 8192.0f);
  EXPECT_EQ(report.emulator->evaluations, report.device.evaluations);
  EXPECT_LT(report.emulator->emulated_ms, 0) << "no chip, no times";
}

TEST(AneExecutor, SecondProcessLoadsFromTheCacheAndDonorsCompileOncePerShape) {
  const auto model = tiny_qwen();
  const auto cache = std::filesystem::temp_directory_path() / fmt::format("baton-ane-test-{}", ::getpid());
  const std::vector<int32_t> ids = prompt(*model, 20);
  const size_t all[] = {20};
  const AneOptions options = with("cache=" + cache.string());
  const Outcome want = run(*load(model, {}), ids, all, 1);
  {
    const auto first = load(model, options);
    EXPECT_EQ(first->report().loads.compiles, first->report().kernels);
  }
  const auto second = load(model, options);
  EXPECT_EQ(second->report().loads.compiles, 0u);
  EXPECT_EQ(second->report().loads.cache_loads, second->report().kernels);
  EXPECT_TRUE(same_bits(run(*second, ids, all, 1), want));
  std::filesystem::remove_all(cache);
  const auto donated = load(model, with("donors=on"));
  EXPECT_EQ(donated->report().loads.compiles, donated->report().shapes);
  EXPECT_LT(donated->report().shapes, donated->report().kernels);
  EXPECT_TRUE(same_bits(run(*donated, ids, all, 1), want));
}

TEST(AneExecutor, SaysThatItIsEmulated) {
  const auto model = tiny_llama();
  const auto executor = load(model, {});
  EXPECT_EQ(executor->placement().ran, "ane");
  EXPECT_TRUE(executor->placement().emulated);
  EXPECT_NE(executor->placement().text().find("emulated"), std::string::npos);
  EXPECT_NE(executor->placement().text().find("not yet run on Apple hardware"), std::string::npos);
  EXPECT_NE(load(model, with("chip=m1"))->placement().text().find("times emulated as m1"), std::string::npos);
}

// A model of one linear layer whose weights or activations are what the test wants.
std::shared_ptr<const Model> one_layer(float embedding, float weight) {
  auto model = std::make_shared<Model>();
  Program& program = model->program;
  program.vocab = program.output_width = 3;
  program.hidden = 4;
  const auto add = [&](std::string name, int64_t rows, int64_t columns, float value) {
    const size_t count = static_cast<size_t>(rows * columns);
    auto memory = std::make_unique<std::byte[]>(count * sizeof(float));
    for (size_t i = 0; i < count; ++i) std::memcpy(memory.get() + i * sizeof(float), &value, sizeof(float));
    model->weights.push_back({std::move(name), DType::kF32, rows, columns, memory.get(), count * sizeof(float), ""});
    model->owned.push_back(std::move(memory));
    return static_cast<WeightId>(model->weights.size() - 1);
  };
  program.registers = {{"x", 4}, {"y", 4}};
  program.ops.push_back({.kind = OpKind::kEmbed, .out = 0, .weights = {add("embed", 3, 4, embedding)}});
  program.ops.push_back(
      {.kind = OpKind::kLinear, .layer = 0, .out = 1, .x = 0, .weights = {add("layers.0.w", 4, 4, weight)}});
  program.ops.push_back({.kind = OpKind::kHead, .x = 1, .weights = {add("head", 3, 4, 1.0f)}});
  return model;
}

TEST(AneExecutor, WhatFp16CannotHoldIsRefusedByName) {
  const auto refused = AneExecutor::load(one_layer(1, 1e6f), {}, false, 1);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("weight-range"), std::string::npos) << refused.error().message;
  EXPECT_NE(refused.error().message.find("layers.0.w"), std::string::npos) << refused.error().message;
  const auto clamped = load(one_layer(1e-3f, 1e6f), with("range=clamp"));
  EXPECT_EQ(clamped->report().weight_range.overflows, 16u);
  EXPECT_EQ(clamped->report().noteworthy, std::vector<std::string>{"l00_w"});

  const auto model = one_layer(1e5f, 1e-3f);
  const auto executor = load(model, {});
  auto state = executor->new_state(4);
  const auto status = executor->prefill(**state, std::vector<int32_t>{1, 2}, {});
  ASSERT_TRUE(status) << "no logits, nothing to compute";
  std::vector<float> row(3);
  const auto overflow = executor->prefill(**state, std::vector<int32_t>{1}, row);
  ASSERT_FALSE(overflow);
  EXPECT_EQ(overflow.error().code, Code::kDevice);
  EXPECT_NE(overflow.error().message.find("l00_w"), std::string::npos) << overflow.error().message;
}

// Four products of 10000: the sum is past what the first chips' adders hold.
TEST(AneExecutor, SumsOverTheAccumulatorsLimitAreReported) {
  const auto executor = load(one_layer(100, 100), {});
  auto state = executor->new_state(4);
  std::vector<float> row(3);
  ASSERT_FALSE(executor->prefill(**state, std::vector<int32_t>{1}, row)) << "40000 became infinite on the m1 profile";
  bool told = false;
  const AneReport report = executor->report();
  for (const apple::Warning& warning : report.emulator->warnings) {
    told = told || warning.rule == apple::Rule::kAccumulator;
  }
  EXPECT_TRUE(told);
}

TEST(AneExecutor, HardwareIsRefusedWhereThereIsNone) {
#if !defined(__APPLE__)
  const auto executor = AneExecutor::load(tiny_llama(), {}, true, 1);
  ASSERT_FALSE(executor);
  EXPECT_EQ(executor.error().code, Code::kUnsupported);
#endif
}

}  // namespace
}  // namespace baton::ane
