// Steps that fail half-way on an emulated card: nothing that was asked for is left to be done.
#include "baton/unit/cuda/executor.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <memory>
#include <new>
#include <vector>

#include "baton/base/clock.h"
#include "baton/sample/sampler.h"
#include "baton/unit/cuda/driver_emulated.h"
#include "tests/support/attending_model.h"

namespace baton::cuda {
namespace {

constexpr int32_t kTinyVocab = 8;

// Throws when it is asked for the nth time.
class ThrowingClock final : public Clock {
 public:
  explicit ThrowingClock(int nth) : left_(nth) {}
  int64_t now_ns() const override {
    if (--left_ == 0) throw std::bad_alloc();
    return 1;
  }
  bool threw() const { return left_ <= 0; }

 private:
  mutable int left_;
};

class CudaSteps : public testing::Test {
 protected:
  void SetUp() override {
    emulated_reset();
    auto card = Card::open(emulated_driver(), 0);
    ASSERT_TRUE(card);
    ExecutorOptions options;
    options.times = times_;
    options.together = together_;
    auto executor = CudaExecutor::load(*card, fake::attending_model(kTinyVocab, 1, dtype_), options);
    ASSERT_TRUE(executor) << executor.error().message;
    executor_ = std::move(*executor);
  }
  void TearDown() override {
    states_.clear();
    executor_.reset();
    EXPECT_EQ(emulated_use(), EmulatedUse());
    EXPECT_EQ(emulated_misuse(), "");
    emulated_reset();
  }
  // Given back at the end: what waits to be zeroed is work of the card's, too.
  SequenceState& state() {
    states_.push_back(std::move(*executor_->new_state(200)));
    return *states_.back();
  }
  Status prefill(SequenceState& to, size_t count) {
    std::vector<int32_t> ids(count);
    for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * i) % kTinyVocab;
    rows_.assign(ids.size() * kTinyVocab, 0);
    return executor_->prefill(to, ids, rows_);
  }
  Status decode(SequenceState& to) {
    rows_.assign(kTinyVocab, 0);
    return executor_->decode(to, 3, rows_);
  }
  Status draw(SequenceState& to, const Clock* clock = nullptr, const SamplerParams& params = {}) {
    Sampler sampler = *Sampler::create(params, kTinyVocab);
    Draws draws{.sampler = &sampler};
    const int32_t fed = 5;
    const Seat seat{&to, {&fed, 1}, 1, true, false, &draws};
    rows_.assign(kTinyVocab, 0);
    Status status = executor_->step_on({&seat, 1}, rows_, {.steps_max = 6, .clock = clock}, {});
    if (status) {
      EXPECT_EQ(draws.ids.size(), 6u);
    }
    return status;
  }
  // Each call of each function fails once, with its own error or by the next call; how many did. Steps begin at
  // position 70 and end before 128: what they need of pages is there.
  uint64_t fail_each(const std::function<Status(SequenceState&)>& step) {
    uint64_t failures = 0;
    for (const char* function : {"launch", "launch_together", "copy_in", "copy_out", "event_record", "event_wait"}) {
      for (const bool later : {false, true}) {
        for (uint64_t nth = 1;; ++nth) {
          SequenceState& to = state();
          EXPECT_TRUE(prefill(to, 70));
          EXPECT_EQ(emulated_waiting(), 0u);
          emulated_fail({.function = function, .nth = nth, .code = kInvalidValue, .later = later});
          const Status status = step(to);
          EXPECT_EQ(emulated_waiting(), 0u) << function << " " << nth << (later ? " later" : "");
          emulated_reset();
          if (status) break;
          ++failures;
        }
      }
    }
    return failures;
  }

  bool times_ = false, together_ = false;
  DType dtype_ = DType::kF32;
  std::unique_ptr<Executor> executor_;
  std::vector<std::unique_ptr<SequenceState>> states_;
  std::vector<float> rows_;
};
class CudaTogether : public CudaSteps {
 protected:
  CudaTogether() { together_ = true; }
};
// Has a list of one row with kernels of its own.
class CudaOfOne : public CudaSteps {
 protected:
  CudaOfOne() { dtype_ = DType::kBF16; }
};
class CudaTimes : public CudaSteps {
 protected:
  CudaTimes() { times_ = true; }
};

// Of batches on tensor cores: who does not ask for them has no memory for them.
// Of as many launches as one of them; more than a pass takes are several passes.
TEST_F(CudaSteps, PromptsShareAPass) {
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5};
  const auto calls_of = [&](size_t count) {
    std::vector<Seat> seats;
    for (size_t i = 0; i < count; ++i) {
      seats.push_back({&state(), ids, 1});
      EXPECT_TRUE(executor_->prefill(*seats.back().state, ids, {}));  // takes its memory
    }
    rows_.assign(count * kTinyVocab, 0);
    const uint64_t before = emulated_calls();
    EXPECT_TRUE(executor_->step(seats, rows_, {}));
    for (size_t i = 1; i < count; ++i)
      EXPECT_TRUE(std::equal(rows_.begin(), rows_.begin() + kTinyVocab,
                             rows_.begin() + static_cast<ptrdiff_t>(i * kTinyVocab)));
    return emulated_calls() - before;
  };
  static_cast<void>(calls_of(1));
  const uint64_t one = calls_of(1), four = calls_of(4), ten = calls_of(10);
  EXPECT_EQ(four, one);
  EXPECT_EQ(ten, 2 * one) << "five at a time: of what an emulated card holds between kernels";
}

TEST_F(CudaSteps, TellsWhatItHoldsOfTheCard) {
  const uint64_t idle = executor_->device_bytes();
  EXPECT_EQ(idle, emulated_use().device_bytes);
  EXPECT_GT(idle, 0u);
  ASSERT_TRUE(prefill(state(), 100));
  EXPECT_GT(executor_->device_bytes(), idle) << "states lie there";
  EXPECT_EQ(executor_->device_bytes(), emulated_use().device_bytes);
}

TEST_F(CudaSteps, ListsOfBatchesOnlyWhereAskedFor) {
  const uint64_t exact = emulated_use().device_bytes;
  ExecutorOptions options;
  options.together = true;
  const auto other = CudaExecutor::load(*Card::open(emulated_driver(), 1), fake::attending_model(kTinyVocab), options);
  ASSERT_TRUE(other) << other.error().message;
  EXPECT_GT(emulated_use().device_bytes, 2 * exact);
}

// The caller may drop states and rows then, which are memory that the card would still write.
TEST_F(CudaSteps, AFailedPromptLeavesNothingToBeDone) {
  ASSERT_TRUE(prefill(state(), 100));
  const std::vector<float> rows = rows_;
  EXPECT_GE(fail_each([this](SequenceState& to) { return prefill(to, 50); }), 14u);
  ASSERT_TRUE(prefill(state(), 100));
  EXPECT_EQ(rows_, rows);
}

TEST_F(CudaSteps, AFailedAnswerLeavesNothingToBeDone) {
  EXPECT_GE(fail_each([this](SequenceState& to) { return decode(to); }), 4u);
}

// Several steps are under way when one fails.
TEST_F(CudaSteps, FailedDrawsLeaveNothingToBeDone) {
  EXPECT_GT(fail_each([this](SequenceState& to) { return draw(to); }), 20u);
  const SamplerParams params{.temperature = 1, .top_k = 3, .presence_penalty = 1, .banned_ids = {2}};
  EXPECT_GT(fail_each([&](SequenceState& to) { return draw(to, nullptr, params); }), 26u);
}

// No memory for an id that was drawn, say.
TEST_F(CudaSteps, DrawsThatThrowLeaveNothingToBeDone) {
  int thrown = 0;
  for (bool threw = true; threw; thrown += threw ? 1 : 0) {
    const ThrowingClock clock(thrown + 1);
    SequenceState& to = state();
    ASSERT_TRUE(prefill(to, 70));
    try {
      EXPECT_TRUE(draw(to, &clock));
    } catch (const std::bad_alloc&) {
    }
    threw = clock.threw();
    ASSERT_EQ(emulated_waiting(), 0u) << thrown;
  }
  EXPECT_GE(thrown, 6);
}

TEST_F(CudaTimes, OfInstructionsAreInTheEvidence) {
  SequenceState& to = state();
  ASSERT_TRUE(prefill(to, 70));
  EXPECT_EQ(executor_->placement().notes.find("a step"), std::string::npos) << "none was made";
  ASSERT_TRUE(decode(to));
  ASSERT_TRUE(draw(to));
  const std::string notes = executor_->placement().notes;
  EXPECT_NE(notes.find(" us behind its first instruction:"), std::string::npos) << notes;
  EXPECT_NE(notes.find(" multiply 8x64 1 x "), std::string::npos) << notes;
  EXPECT_NE(notes.find(" attend_join 1 x "), std::string::npos) << notes;
  EXPECT_NE(notes.find(" pick 1 x "), std::string::npos) << "what attends is picked from: " << notes;
  EXPECT_NE(notes.find(" argmax "), std::string::npos) << "of the draw: " << notes;
  EXPECT_EQ(notes.find(" draw "), std::string::npos) << "the largest is all that is drawn: " << notes;
  EXPECT_EQ(notes.find(" embed "), std::string::npos) << "nothing is before it: " << notes;
  SequenceState& other = state();
  ASSERT_TRUE(prefill(other, 70));
  ASSERT_TRUE(draw(other, nullptr, {.temperature = 1, .top_k = 4}));
  EXPECT_NE(executor_->placement().notes.find(" draw "), std::string::npos) << executor_->placement().notes;
}

// Five sequences and more where that was asked for, four do not.
TEST_F(CudaTogether, ManySequencesShareTensorCores) {
  for (const size_t count : {4, 5, 9}) {
    std::vector<SequenceState*> states(count);
    for (size_t i = 0; i < count; ++i) {
      states[i] = &state();
      ASSERT_TRUE(prefill(*states[i], 5 + i));
    }
    ASSERT_TRUE(decode(*states[0]));
    const std::vector<float> alone = rows_;
    SequenceState& again = state();
    ASSERT_TRUE(prefill(again, 5));
    states[0] = &again;
    std::vector<Seat> seats;
    const int32_t fed = 3;
    for (SequenceState* of : states) seats.push_back({of, {&fed, 1}, 1, true});
    std::vector<float> rows(count * kTinyVocab);
    {
      emulated_fail({.function = "launch_together", .code = kInvalidValue});
      const Status failed = executor_->step(seats, rows, {});
      emulated_reset();
      ASSERT_FALSE(failed);
      EXPECT_EQ(failed.error().message.find("baton_list_together") != std::string::npos, count > 4)
          << failed.error().message;
    }
    ASSERT_TRUE(executor_->step(seats, rows, {}));
    EXPECT_EQ(std::vector<float>(rows.begin(), rows.begin() + kTinyVocab), alone);
  }
  EXPECT_NE(executor_->placement().notes.find("batches on tensor cores"), std::string::npos);
  EXPECT_NE(executor_->arithmetic().find("-together"), std::string::npos);
}

// A prompt that asks for few outputs has them by a list, whoever is beside it; more are made as tiles.
TEST_F(CudaOfOne, FewOutputsOfAPromptAreThoseOfRowsThatDecode) {
  std::vector<int32_t> ids(70);
  for (size_t i = 0; i < ids.size(); ++i) ids[i] = static_cast<int32_t>(i * i) % kTinyVocab;
  const auto outputs = [&](const std::vector<uint32_t>& counts) {
    std::vector<Seat> seats;
    uint32_t all = 0;
    for (const uint32_t rows : counts) {
      seats.push_back({&state(), ids, rows});
      all += rows;
    }
    std::vector<float> rows(size_t{all} * kTinyVocab, -1);
    EXPECT_TRUE(executor_->step(seats, rows, {}));
    return rows;
  };
  const auto last = [](const std::vector<float>& rows, uint32_t count) {
    return std::vector<float>(rows.end() - ptrdiff_t{count} * kTinyVocab, rows.end());
  };
  const std::vector<float> one = outputs({1}), few = outputs({kFewOut}), more = outputs({kFewOut + 1}),
                           all = outputs({70});
  EXPECT_EQ(last(few, 1), one);
  EXPECT_EQ(last(all, kFewOut + 1), more);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_NEAR(last(more, 1)[i], one[i], 0.05f) << i;
  EXPECT_NE(last(more, 1), one) << "rounded to bf16 before it is multiplied";
  std::vector<float> want = few;
  for (const auto* part : {&all, &one, &more}) want.insert(want.end(), part->begin(), part->end());
  EXPECT_EQ(outputs({kFewOut, 70, 1, kFewOut + 1}), want) << "in one pass, of which outputs are made by both";
  std::vector<float> two = few;
  two.insert(two.end(), one.begin(), one.end());
  EXPECT_EQ(outputs({kFewOut, 0, 1}), two);
  emulated_fail({.function = "launch_together", .code = kInvalidValue});
  std::vector<float> rows(size_t{kFewOut + 1} * kTinyVocab);
  const Seat many{&state(), ids, kFewOut + 1}, few_again{&state(), ids, kFewOut};
  EXPECT_TRUE(executor_->step({&many, 1}, rows, {}));
  const Status failed = executor_->step({&few_again, 1}, std::span(rows).first(size_t{kFewOut} * kTinyVocab), {});
  emulated_reset();
  EXPECT_FALSE(failed);
}

// Of batches on tensor cores no output of a prompt goes by a list.
TEST_F(CudaTogether, OutputsOfPromptsAreTiles) {
  emulated_fail({.function = "launch_together", .code = kInvalidValue});
  const std::vector<int32_t> ids = {3, 1, 4, 1, 5};
  const Seat seat{&state(), ids, 1};
  rows_.assign(kTinyVocab, 0);
  EXPECT_TRUE(executor_->step({&seat, 1}, rows_, {}));
  emulated_reset();
}

// First each has a step of its own, then all share one, as often; then whatever is faster.
TEST_F(CudaOfOne, BothWaysAreTried) {
  const int32_t fed = 3;
  for (const bool draws : {false, true}) {
    // The launch that is the n-th fails, and so the step that it is of.
    const auto launches = [&](uint32_t steps) {
      for (uint64_t nth = 1; nth < 100; ++nth) {
        TearDown();
        SetUp();
        std::vector<Sampler> samplers(2, *Sampler::create({}, kTinyVocab));
        std::vector<Draws> drawn(2);
        std::vector<Seat> seats;
        for (size_t i = 0; i < 2; ++i) {
          EXPECT_TRUE(prefill(state(), 5));
          drawn[i].sampler = &samplers[i];
          seats.push_back({states_.back().get(), {&fed, 1}, 1, true, false, draws ? &drawn[i] : nullptr});
        }
        std::vector<float> rows(2 * kTinyVocab);
        emulated_fail({.function = "launch_together", .nth = nth, .code = kInvalidValue});
        Status done;
        for (uint32_t step = 0; done && step < (draws ? 1 : steps); ++step)
          done = draws ? executor_->step_on(seats, rows, {.steps_max = steps}, {}) : executor_->step(seats, rows, {});
        emulated_reset();
        if (done) return nth - 1;
      }
      return uint64_t{0};
    };
    for (uint32_t steps = 1; steps <= 2 * Sharing::kTries; ++steps)
      EXPECT_EQ(launches(steps), steps + std::min(steps, Sharing::kTries)) << steps << (draws ? " draws" : " steps");
  }
}

TEST_F(CudaOfOne, SeveralStepAsEachAlone) {
  for (const size_t count : {2, 3, 8, 9}) {
    std::vector<Seat> seats;
    const int32_t fed = 3;
    std::vector<SequenceState*> own;
    size_t wanted = 0;
    for (size_t i = 0; i < count; ++i) {
      own.push_back(&state());
      SequenceState& of = state();
      for (SequenceState* each : {own.back(), &of}) ASSERT_TRUE(prefill(*each, 5 + 3 * i));
      seats.push_back({&of, {&fed, 1}, i % 3 == 1 ? 0u : 1u, true});  // some give no row
      wanted += seats.back().rows_out;
    }
    for (uint32_t step = 0; step < 2 * Sharing::kTries + 2; ++step) {
      std::vector<float> rows(wanted * kTinyVocab);
      ASSERT_TRUE(executor_->step(seats, rows, {}));
      for (size_t i = 0, row = 0; i < count; ++i) {
        ASSERT_TRUE(decode(*own[i]));
        EXPECT_EQ(seats[i].state->position(), own[i]->position());
        if (seats[i].rows_out == 0) continue;
        EXPECT_TRUE(std::equal(rows_.begin(), rows_.end(), rows.begin() + static_cast<ptrdiff_t>(row++ * kTinyVocab)))
            << i << " of " << count << ", step " << step;
      }
    }
  }
}

TEST_F(CudaOfOne, SeveralDrawWhatEachDrawsAlone) {
  constexpr size_t kSteps = 24;
  const int32_t fed = 3;
  const auto run = [&](size_t first, size_t count, std::span<const int32_t> stops, std::vector<float>& rows) {
    std::vector<Sampler> samplers;
    std::vector<Draws> draws(count);
    std::vector<Seat> seats;
    samplers.reserve(count);
    for (size_t i = 0; i < count; ++i) {
      SequenceState& of = state();
      EXPECT_TRUE(prefill(of, 5 + 3 * (first + i)));
      const SamplerParams params{.temperature = (first + i) % 2 == 0 ? 0.0f : 1.0f, .top_k = 4, .seed = first + i};
      samplers.push_back(*Sampler::create(params, kTinyVocab));
      draws[i].sampler = &samplers.back();
      if (first + i == 1) draws[i].stop_ids = stops;
      seats.push_back({&of, {&fed, 1}, 1, true, false, &draws[i]});
    }
    rows.assign(count * kTinyVocab, 0);
    EXPECT_TRUE(executor_->step_on(seats, rows, {.steps_max = kSteps}, {}));
    std::vector<std::vector<int32_t>> ids(count);
    for (size_t i = 0; i < count; ++i) {
      for (const DrawnId& id : draws[i].ids) ids[i].push_back(id.id);
      EXPECT_EQ(seats[i].state->position(), 5 + 3 * (first + i) + ids[i].size());
    }
    return ids;
  };
  for (const size_t count : {2, 3, 8, 9}) {
    std::vector<float> rows, own;
    const auto all = run(0, count, {}, rows);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_EQ(all[i].size(), kSteps);
      EXPECT_EQ(all[i], run(i, 1, {}, own)[0]) << i << " of " << count;
      EXPECT_TRUE(std::equal(own.begin(), own.end(), rows.begin() + static_cast<ptrdiff_t>(i * kTinyVocab))) << i;
    }
    // One of them ends: all have as many.
    const int32_t stop = all[1][7];
    const auto first = static_cast<size_t>(std::find(all[1].begin(), all[1].end(), stop) - all[1].begin());
    const auto stopped = run(0, count, {&stop, 1}, rows);
    for (size_t i = 0; i < count; ++i)
      EXPECT_EQ(stopped[i], std::vector<int32_t>(all[i].begin(), all[i].begin() + static_cast<ptrdiff_t>(first) + 1));
  }
}

TEST_F(CudaSteps, NoTimesAreNotedWhereNobodyAsked) {
  SequenceState& to = state();
  ASSERT_TRUE(prefill(to, 70));
  ASSERT_TRUE(decode(to));
  EXPECT_EQ(executor_->placement().notes.find("a step"), std::string::npos);
}

}  // namespace
}  // namespace baton::cuda
