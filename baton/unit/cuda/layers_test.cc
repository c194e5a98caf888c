// Steps that tell of their layers, on the emulated card, whose work is done when it is waited for: what is told of is
// there and the rest is still to come, however a step ends.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <functional>
#include <new>

#include "baton/sample/sampler.h"
#include "baton/unit/cuda/driver_emulated.h"
#include "baton/unit/cuda/executor.h"

namespace baton::cuda {
namespace {

using Acts = std::function<void(int32_t layer)>;

class Watching final : public LayerWatch {
 public:
  explicit Watching(Acts acts = nullptr) : acts_(std::move(acts)) {}
  void layer_done(size_t seat, int32_t layer) override {
    EXPECT_EQ(seat, 0u);
    told.push_back(layer);
    waiting.push_back(emulated_waiting());
    if (acts_) acts_(layer);
  }
  std::vector<int32_t> told;
  std::vector<uint64_t> waiting;  // on the card, by then

 private:
  const Acts acts_;
};

class CudaLayers : public testing::Test {
 protected:
  CudaLayers() {
    emulated_reset();
    model_ = *load_model(std::filesystem::path(BATON_SOURCE_DIR) / "tests" / "data" / "golden" / "tiny-qwen3.5");
    card_ = *Card::open(emulated_driver(), 0);
    executor_ = *CudaExecutor::load(card_, model_, {});
    for (size_t i = 0; i < prompt_.size(); ++i) prompt_[i] = static_cast<int32_t>(3 + i * 7) % model_->program.vocab;
    for (const Segment& segment : executor_->shape().segments) {
      if (all_.empty() || all_.back() != segment.layer) all_.push_back(segment.layer);
    }
  }
  ~CudaLayers() override {
    EXPECT_EQ(emulated_misuse(), "");
    emulated_reset();
  }

  std::unique_ptr<SequenceState> state() const { return *executor_->new_state(prompt_.size() + 8); }
  Status step(SequenceState& state, LayerWatch* watch, const std::atomic<bool>* cancelled = nullptr) const {
    const Seat seat{&state, prompt_};
    StepContext context;
    context.watch = watch;
    context.cancelled = cancelled;
    return executor_->step({&seat, 1}, {}, context);
  }
  // All of a segment, at the position that is shown.
  static std::vector<std::byte> rows(const SequenceState& state, size_t segment, uint64_t tokens) {
    const Segment& of = state.shape().segments[segment];
    const Dims dims = dims_at(of, tokens);
    std::vector<std::byte> bytes(dims[0] * dims[1] * row_bytes_of(of.dtype, dims[2]));
    EXPECT_TRUE(state.read(segment, {0, dims[0] * dims[1]}, bytes.data()));
    return bytes;
  }

  std::shared_ptr<const Model> model_;
  std::shared_ptr<Card> card_;
  std::unique_ptr<Executor> executor_;
  std::vector<int32_t> prompt_ = std::vector<int32_t>(130);
  std::vector<int32_t> all_;  // layers
};

TEST_F(CudaLayers, AreReadWhileTheCardHasLaterOnesToDo) {
  const auto plain = state(), told = state();
  ASSERT_TRUE(step(*plain, nullptr));
  const auto& segments = plain->shape().segments;
  std::vector<std::vector<std::byte>> wanted;
  for (size_t i = 0; i < segments.size(); ++i) wanted.push_back(rows(*plain, i, prompt_.size()));
  Watching watch([&](int32_t layer) {
    const uint64_t before = emulated_waiting();
    for (size_t i = 0; i < segments.size(); ++i) {
      if (segments[i].layer != layer) continue;
      EXPECT_EQ(rows(*told, i, prompt_.size()), wanted[i]) << "segment " << i;
    }
    EXPECT_EQ(emulated_waiting(), before) << "reading waits for no later layer";
  });
  ASSERT_TRUE(step(*told, &watch));
  EXPECT_EQ(watch.told, all_);
  for (size_t i = 1; i < watch.waiting.size(); ++i) EXPECT_LT(watch.waiting[i], watch.waiting[i - 1]) << i;
  EXPECT_GT(watch.waiting.front(), 5 * all_.size()) << "all was asked for before the first wait";
  EXPECT_EQ(told->position(), prompt_.size());
  EXPECT_EQ(emulated_waiting(), 0u);
}

TEST_F(CudaLayers, CostNothingUnlessTheyAreWatched) {
  const auto calls = [&](LayerWatch* watch) {
    const auto made = state();
    const uint64_t before = emulated_calls();
    EXPECT_TRUE(step(*made, watch));
    return emulated_calls() - before;
  };
  Watching watch;
  static_cast<void>(calls(nullptr));  // which takes memory
  const uint64_t plain = calls(nullptr), watched = calls(&watch);
  EXPECT_EQ(watched, plain + 4 * all_.size()) << "an event and a wait for each, in their context";
}

TEST_F(CudaLayers, AreToldOfByDraws) {
  SamplerParams params;
  params.temperature = 0;
  Sampler sampler = *Sampler::create(params, model_->program.vocab);
  Draws draws;
  draws.sampler = &sampler;
  const auto made = state();
  ASSERT_TRUE(step(*made, nullptr));
  const int32_t token = 5;
  Seat seat{made.get(), {&token, 1}, 0, true};
  seat.draws = &draws;
  Watching watch([&](int32_t) { EXPECT_EQ(rows(*made, 0, prompt_.size() + 1).empty(), false); });
  StepContext context;
  context.watch = &watch;
  ASSERT_TRUE(executor_->step_on({&seat, 1}, {}, {.steps_max = 1}, context));
  EXPECT_EQ(watch.told, all_);
  EXPECT_EQ(draws.ids.size(), 1u);
}

// Prompts that share a pass: of each all layers in their order, and what is read is what it would be alone.
TEST_F(CudaLayers, OfSeveralPromptsOfAPass) {
  const std::span<const int32_t> prompt(prompt_);
  const std::vector<std::span<const int32_t>> prompts = {prompt.first(20), prompt.subspan(30, 33),
                                                         prompt.subspan(9, 70)};
  std::vector<std::unique_ptr<SequenceState>> together, alone;
  std::vector<Seat> seats;
  for (const auto& each : prompts) {
    alone.push_back(state());
    together.push_back(state());
    const Seat seat{alone.back().get(), each};
    ASSERT_TRUE(executor_->step({&seat, 1}, {}, {}));
    seats.push_back({together.back().get(), each});
  }
  class Telling final : public LayerWatch {
   public:
    explicit Telling(std::function<void(size_t seat, int32_t layer)> acts) : acts_(std::move(acts)) {}
    void layer_done(size_t seat, int32_t layer) override { acts_(seat, layer); }

   private:
    const std::function<void(size_t seat, int32_t layer)> acts_;
  };
  std::vector<std::vector<int32_t>> told(prompts.size());
  Telling watch([&](size_t seat, int32_t layer) {
    told.at(seat).push_back(layer);
    const auto& segments = together[seat]->shape().segments;
    for (size_t i = 0; i < segments.size(); ++i) {
      if (segments[i].layer != layer) continue;
      EXPECT_EQ(rows(*together[seat], i, prompts[seat].size()), rows(*alone[seat], i, prompts[seat].size()));
    }
  });
  StepContext context;
  context.watch = &watch;
  ASSERT_TRUE(executor_->step(seats, {}, context));
  for (const auto& layers : told) EXPECT_EQ(layers, all_);
  for (size_t i = 0; i < prompts.size(); ++i) EXPECT_EQ(together[i]->position(), prompts[i].size());
}

// A step that ends early has let the card finish first: its states' memory may go.
TEST_F(CudaLayers, ACancelledStepTellsNoMore) {
  std::atomic<bool> cancelled{false};
  Watching watch([&](int32_t) { cancelled = true; });
  const auto made = state();
  const Status stepped = step(*made, &watch, &cancelled);
  ASSERT_FALSE(stepped);
  EXPECT_EQ(stepped.error().code, Code::kCancelled);
  EXPECT_EQ(watch.told, std::vector<int32_t>{all_.front()});
  EXPECT_EQ(emulated_waiting(), 0u);
}

TEST_F(CudaLayers, AWatchThatThrowsLeavesNothingBehind) {
  Watching watch([](int32_t layer) {
    if (layer > 0) throw std::bad_alloc();
  });
  const auto made = state();
  EXPECT_THROW(static_cast<void>(step(*made, &watch)), std::bad_alloc);
  EXPECT_EQ(watch.told.size(), 2u);
  EXPECT_EQ(emulated_waiting(), 0u);
}

TEST_F(CudaLayers, EachCallFailsInTurn) {
  const auto wanted = state();
  ASSERT_TRUE(step(*wanted, nullptr));
  for (const std::string_view function : {"launch", "event_record", "event_wait"}) {
    bool failed = true;
    uint64_t nth = 1;
    for (; failed; ++nth) {
      SCOPED_TRACE(fmt::format("{} {}", function, nth));
      ASSERT_LT(nth, 500u);
      const auto made = state();
      Watching watch;
      emulated_fail({.function = function, .nth = nth, .code = 701});
      const Status stepped = step(*made, &watch);
      failed = !stepped;
      ASSERT_EQ(emulated_waiting(), 0u);
      if (failed) {
        EXPECT_EQ(stepped.error().code, Code::kDevice);
        EXPECT_EQ(watch.told.size(), function == "event_wait" ? nth - 1 : 0u);
      }
      emulated_reset();
    }
    EXPECT_GT(nth, all_.size()) << function;
  }
  const auto made = state();
  ASSERT_TRUE(step(*made, nullptr));
  for (size_t i = 0; i < made->shape().segments.size(); ++i)
    EXPECT_EQ(rows(*made, i, prompt_.size()), rows(*wanted, i, prompt_.size())) << i;
}

}  // namespace
}  // namespace baton::cuda
