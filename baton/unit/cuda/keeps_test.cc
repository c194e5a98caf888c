// Seats that keep, on the emulated card: drafts that are refused leave nothing behind, what is kept has its memory, and
// no call that fails on the way leaves work to be done.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <functional>

#include "baton/base/random.h"
#include "baton/sample/sampler.h"
#include "baton/unit/cuda/driver_emulated.h"
#include "baton/unit/cuda/executor.h"

namespace baton::cuda {
namespace {

int32_t largest_of(std::span<const float> row) {
  return static_cast<int32_t>(std::max_element(row.begin(), row.end()) - row.begin());
}

class CudaKeeps : public testing::TestWithParam<const char*> {
 protected:
  CudaKeeps() {
    emulated_reset();
    model_ = *load_model(std::filesystem::path(BATON_SOURCE_DIR) / "tests" / "data" / "golden" / GetParam());
    card_ = *Card::open(emulated_driver(), 0);
    executor_ = *CudaExecutor::load(card_, model_, {});
    for (size_t i = 0; i < 100; ++i) prompt_.push_back(static_cast<int32_t>(3 + i * 7) % model_->program.vocab);
    width_ = static_cast<size_t>(model_->program.output_width);
  }
  ~CudaKeeps() override {
    executor_.reset();
    EXPECT_EQ(card_->held_bytes(), 0u);
    EXPECT_EQ(emulated_misuse(), "");
    emulated_reset();
  }

  std::unique_ptr<SequenceState> state(size_t held = 70) const {
    auto made = *executor_->new_state(300);
    const Status status = executor_->prefill(*made, std::span(prompt_).first(held), {});
    EXPECT_TRUE(status) << status.error().message;
    return made;
  }
  // All rows.
  std::vector<float> keep(SequenceState& state, std::span<const int32_t> tokens) const {
    std::vector<float> rows(tokens.size() * width_, std::nanf(""));
    const Seat seat{&state, tokens, static_cast<uint32_t>(tokens.size()), false, true};
    const Status status = executor_->step({&seat, 1}, rows, {});
    EXPECT_TRUE(status) << status.error().message;
    return rows;
  }
  std::vector<float> decode(SequenceState& state, int32_t token) const {
    std::vector<float> row(width_, std::nanf(""));
    const Status status = executor_->decode(state, token, row);
    EXPECT_TRUE(status) << status.error().message;
    return row;
  }
  // All that it holds.
  static std::vector<std::byte> values(const SequenceState& state) {
    std::vector<std::byte> all;
    for (size_t i = 0; i < state.shape().segments.size(); ++i) {
      const Segment& of = state.shape().segments[i];
      const Dims dims = dims_at(of, state.position());
      std::vector<std::byte> rows(dims[0] * dims[1] * row_bytes_of(of.dtype, dims[2]));
      EXPECT_TRUE(state.read(i, {0, dims[0] * dims[1]}, rows.data()));
      all.insert(all.end(), rows.begin(), rows.end());
    }
    return all;
  }
  bool has_parts() const { return section_bytes(executor_->shape(), 0) > 0; }

  std::shared_ptr<const Model> model_;
  std::shared_ptr<Card> card_;
  std::unique_ptr<Executor> executor_;
  std::vector<int32_t> prompt_;
  size_t width_ = 0;
};

INSTANTIATE_TEST_SUITE_P(All, CudaKeeps,
                         testing::Values("tiny-qwen3.5", "tiny-llama", "families/lfm2", "families/qwen3_5_moe"),
                         [](const auto& item) {
                           std::string name = item.param;
                           std::replace_if(
                               name.begin(), name.end(),
                               [](char c) { return !std::isalnum(static_cast<unsigned char>(c)); }, '_');
                           return name;
                         });

// What drafts are judged by is what decoding would have said, to the bit.
TEST_P(CudaKeeps, RowsAreThoseOfDecoding) {
  const auto kept = state(), decoded = state();
  const std::vector<float> rows = keep(*kept, std::span(prompt_).subspan(70, 12));
  for (size_t i = 0; i < 12; ++i) {
    const std::vector<float> row = decode(*decoded, prompt_[70 + i]);
    ASSERT_EQ(std::memcmp(row.data(), rows.data() + i * width_, width_ * sizeof(float)), 0) << i;
  }
  EXPECT_EQ(values(*kept), values(*decoded));
  keep(*kept, std::span(prompt_).first(1));
  ASSERT_TRUE(executor_->rewind(*kept, 82));
  EXPECT_EQ(values(*kept), values(*decoded)) << "of one token, too";
}

// Greedy, with drafts of which some are wrong: each round takes what was right and the id behind it.
TEST_P(CudaKeeps, DraftsDoNotShow) {
  constexpr size_t kIds = 60;
  std::vector<int32_t> wanted = {9};
  const auto plain = state();
  while (wanted.size() < kIds) wanted.push_back(largest_of(decode(*plain, wanted.back())));
  Random random(5);
  std::vector<int32_t> ids = {9};
  const auto drafted = state();
  size_t refused = 0, rounds = 0;
  for (; ids.size() < kIds; ++rounds) {
    std::vector<int32_t> fed = {ids.back()};
    for (size_t i = 0; i < 7 && ids.size() + i < kIds; ++i)
      fed.push_back(random.below(4) == 0 ? (wanted[ids.size() + i] + 1) % model_->program.vocab
                                         : wanted[ids.size() + i]);
    const uint64_t begin = drafted->position();
    const std::vector<float> rows = keep(*drafted, fed);
    size_t taken = 0;
    for (bool right = true; right && taken < fed.size(); ++taken) {
      ids.push_back(largest_of(std::span(rows).subspan(taken * width_, width_)));
      right = taken + 1 < fed.size() && ids.back() == fed[taken + 1];
    }
    refused += fed.size() - taken;
    ASSERT_TRUE(executor_->rewind(*drafted, begin + taken));
  }
  ids.resize(kIds);
  EXPECT_EQ(ids, wanted);
  EXPECT_GT(refused, 5u);
  EXPECT_LT(rounds, kIds / 2);
}

// Several that decode, of which some keep; and by step_on.
TEST_P(CudaKeeps, SeatsThatDecodeKeepToo) {
  std::vector<std::unique_ptr<SequenceState>> states;
  for (const size_t held : {3, 66, 70}) states.push_back(state(held));
  const uint64_t bytes = states[1]->bytes();
  for (int round = 0; round < 5; ++round) {
    std::vector<Seat> seats;
    for (const auto& each : states)
      seats.push_back({each.get(), {&prompt_[static_cast<size_t>(round)], 1}, 0, true, each != states[1]});
    ASSERT_TRUE(executor_->step(seats, {}, {}));
  }
  if (has_parts()) {
    EXPECT_EQ(states[1]->bytes(), bytes) << "page and parts, as before";
    EXPECT_FALSE(executor_->rewind(*states[1], 70));
  }
  SamplerParams params;
  params.temperature = 0;
  Sampler sampler = *Sampler::create(params, model_->program.vocab);
  Draws draws;
  draws.sampler = &sampler;
  const Seat seat{states[2].get(), {&prompt_[5], 1}, 1, true, true, &draws};
  std::vector<float> row(width_);
  ASSERT_TRUE(executor_->step_on({&seat, 1}, row, {.steps_max = 6}, {}));
  ASSERT_EQ(states[2]->position(), 81u);
  ASSERT_TRUE(executor_->rewind(*states[0], 5));
  ASSERT_TRUE(executor_->rewind(*states[2], 72));
  for (const size_t which : {0, 2}) {
    const auto never = state(which == 0 ? 3 : 70);
    for (size_t i = 0; i < 2; ++i) decode(*never, prompt_[i]);
    EXPECT_EQ(values(*states[which]), values(*never)) << which;
  }
}

// Neither calls nor memory.
TEST_P(CudaKeeps, WhoDoesNotKeepPaysNothing) {
  const auto calls = [&](SequenceState& state, bool keeps) {
    const Seat seat{&state, {prompt_.data(), 1}, 0, true, keeps};
    const uint64_t before = emulated_calls();
    EXPECT_TRUE(executor_->step({&seat, 1}, {}, {}));
    return emulated_calls() - before;
  };
  const auto one = state();
  auto other = state();
  static_cast<void>(calls(*one, false)), static_cast<void>(calls(*other, true));
  const uint64_t kept = has_parts() ? kKeptMax * executor_->state_bytes(0) : 0;
  EXPECT_EQ(other->bytes(), one->bytes() + kept);
  EXPECT_EQ(executor_->state_memory()->bytes, one->bytes() + other->bytes());
  EXPECT_EQ(calls(*other, true), calls(*one, false) + (has_parts() ? 2 : 0)) << "a copy, in its context";
  auto fork = executor_->fork(*other, other->position());
  ASSERT_TRUE(fork);
  EXPECT_LE((*fork)->bytes(), one->bytes());
  fork->reset();
  other.reset();
  EXPECT_EQ(executor_->state_memory()->bytes, one->bytes());
}

// A step that finds no memory to keep has changed nothing, of other seats either.
TEST_P(CudaKeeps, OutOfMemoryChangesNothing) {
  if (!has_parts()) GTEST_SKIP() << "takes none";
  const auto first = state(), second = state(), never = state();
  const auto before = values(*second);
  const uint64_t bytes = second->bytes();
  const Seat seats[] = {{first.get(), std::span(prompt_).first(4)},
                        {second.get(), std::span(prompt_).first(4), 0, false, true}};
  emulated_set_memory(1);
  const Status status = executor_->step(seats, {}, {});
  emulated_reset();
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kOutOfMemory);
  EXPECT_EQ(status.error().message.find("sequence 1: cuda: "), 0u) << status.error().message;
  EXPECT_NE(status.error().message.find("states to go back to"), std::string::npos) << status.error().message;
  EXPECT_EQ(first->position(), 70u);
  EXPECT_EQ(second->position(), 70u);
  EXPECT_EQ(second->bytes(), bytes);
  EXPECT_EQ(values(*second), before);
  EXPECT_EQ(keep(*second, std::span(prompt_).first(4)), keep(*never, std::span(prompt_).first(4)));
  ASSERT_TRUE(executor_->rewind(*second, 71) && executor_->rewind(*never, 71));
  EXPECT_EQ(values(*second), values(*never));
}

// A rewind that fails has moved nothing; again, it goes well.
TEST_P(CudaKeeps, ARewindFails) {
  if (!has_parts()) GTEST_SKIP() << "asks nothing of the card";
  const auto back = state(), never = state();
  keep(*back, std::span(prompt_).first(9));
  keep(*never, std::span(prompt_).first(5));
  for (const char* function : {"copy", "stream_wait"}) {
    emulated_fail({.function = function, .code = 701});
    const Status status = executor_->rewind(*back, 75);
    ASSERT_FALSE(status) << function;
    EXPECT_EQ(status.error().code, Code::kDevice);
    EXPECT_EQ(back->position(), 79u);
    EXPECT_TRUE(executor_->fork(*back, 74));
  }
  ASSERT_TRUE(executor_->rewind(*back, 75));
  EXPECT_EQ(values(*back), values(*never));
}

TEST_P(CudaKeeps, EachCallFailsInTurn) {
  for (const std::string_view function : {"copy", "copy_in", "copy_out", "launch", "launch_together", "stream_wait"}) {
    for (uint64_t nth = 1;; nth += 1 + nth / 4) {
      SCOPED_TRACE(fmt::format("{} {}", function, nth));
      ASSERT_LT(nth, 4000u);
      const auto made = state();
      keep(*made, std::span(prompt_).first(2));
      std::vector<float> rows(3 * width_);
      const Seat seat{made.get(), std::span(prompt_).first(20), 3, false, true};
      emulated_fail({.function = function, .nth = nth, .code = 701});
      const Status stepped = executor_->step({&seat, 1}, rows, {});
      ASSERT_EQ(emulated_waiting(), 0u);
      emulated_reset();
      if (stepped) break;
      EXPECT_EQ(stepped.error().code, Code::kDevice);
    }
  }
  const auto after = state(), never = state();
  EXPECT_EQ(keep(*after, std::span(prompt_).first(20)).size(), 20 * width_);
  keep(*never, std::span(prompt_).first(20));
  EXPECT_EQ(values(*after), values(*never));
}

// Each layer is told of once, when the last token has passed it.
TEST_P(CudaKeeps, LayersAreToldOfAtTheEnd) {
  class Told final : public LayerWatch {
   public:
    explicit Told(const SequenceState& state) : state_(state) {}
    void layer_done(size_t seat, int32_t layer) override {
      EXPECT_EQ(seat, 0u);
      layers.push_back(layer);
      if (layers.size() == 1) seen = state_.view(0, {0, 1}) != nullptr || state_.shape().segments.empty();
    }
    std::vector<int32_t> layers;
    bool seen = false;

   private:
    const SequenceState& state_;
  };
  std::vector<int32_t> all;
  for (const Segment& segment : executor_->shape().segments) {
    if (all.empty() || all.back() != segment.layer) all.push_back(segment.layer);
  }
  for (const size_t count : {1, 5, 30}) {
    const auto made = state();
    Told told(*made);
    const Seat seat{made.get(), std::span(prompt_).first(count), 0, false, true};
    StepContext context;
    context.watch = &told;
    ASSERT_TRUE(executor_->step({&seat, 1}, {}, context));
    EXPECT_EQ(told.layers, all) << count;
    EXPECT_TRUE(told.seen);
    EXPECT_EQ(made->position(), 70 + count);
  }
}

}  // namespace
}  // namespace baton::cuda
