// Executor::step_on: what a unit draws is what the host's samplers draw, and it ends where it must.
#include <gtest/gtest.h>

#include <cmath>

#include "baton/api/units.h"
#include "baton/base/clock.h"
#include "baton/sample/sampler.h"
#include "tests/support/fake_constraint.h"
#include "tests/support/golden.h"
#include "tests/support/state_values.h"
#include "tests/support/test_names.h"
#include "tests/support/test_units.h"

namespace baton::test {
namespace {

// A clock that every reading moves on.
class TickingClock final : public Clock {
 public:
  int64_t now_ns() const override { return ++ticks_; }

 private:
  mutable std::atomic<int64_t> ticks_{0};
};

std::vector<SamplerParams> settings(int32_t vocab) {
  SamplerParams top_k{.temperature = 0.8f, .top_k = 9, .seed = 3}, top_p{.temperature = 1.3f, .top_p = 0.8f, .seed = 4};
  SamplerParams min_p{.temperature = 1.0f, .min_p = 0.05f, .seed = 5}, all{.temperature = 2.0f, .seed = 6};
  SamplerParams repeat{.repeat_penalty = 1.3f, .repeat_last_n = 4}, presence{.presence_penalty = 1.5f};
  SamplerParams banned{.temperature = 0.9f, .seed = 7, .frequency_penalty = 0.5f, .banned_ids = {1, 2, 3}};
  SamplerParams usual{.temperature = 0.8f, .top_k = 40, .top_p = 0.95f, .min_p = 0.05f, .seed = 8}, likely;
  for (int32_t id = 0; id < vocab; id += 2) usual.banned_ids.push_back(id), likely.banned_ids.push_back(id);
  SamplerParams bound = top_p, greedy, biased = all;
  bound.constraint = std::make_shared<fake::Constraint>(5, vocab, 7);
  greedy.constraint = std::make_shared<fake::Constraint>(6, vocab, 40);
  greedy.logprobs = 3;
  biased.logit_bias = {{9, 3.5f}, {11, -100.0f}};
  biased.logprobs = 0;
  return {{}, top_k, top_p, min_p, usual, likely, all, repeat, presence, banned, bound, greedy, biased};
}

class StepOn : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto unit = create_test_unit(GetParam());
    if (!unit && unit.error().code == Code::kUnsupported) GTEST_SKIP() << unit.error().message;
    ASSERT_TRUE(unit) << unit.error().message;
    if ((*unit)->caps().decode_seats_max == 0) GTEST_SKIP() << GetParam() << " only prefills";
    unit_ = std::move(*unit);
    auto model = load_model(data_folder() / "golden" / "tiny-qwen3.5");
    ASSERT_TRUE(model) << model.error().message;
    auto executor = unit_->load(*model, 3);
    ASSERT_TRUE(executor) << executor.error().message;
    executor_ = std::move(*executor);
    width_ = static_cast<size_t>((*model)->program.output_width);
  }

  int32_t vocab() const { return static_cast<int32_t>(width_); }
  // Sequences of different prompts, each with its sampler, and what became of them.
  struct Batch {
    std::vector<std::unique_ptr<SequenceState>> states;
    std::vector<Sampler> samplers;
    std::vector<Draws> draws;
    std::vector<Seat> seats;
    std::vector<int32_t> fed;
    std::vector<float> out;
    Status status;

    std::vector<int32_t> ids(size_t i) const {
      std::vector<int32_t> all;
      for (const DrawnId& each : draws[i].ids) all.push_back(each.id);
      return all;
    }
  };
  std::unique_ptr<Batch> make(const std::vector<SamplerParams>& params, std::vector<int32_t> stop_ids = {}) {
    auto batch = std::make_unique<Batch>();
    stops_ = std::move(stop_ids);
    for (size_t i = 0; i < params.size(); ++i) {
      batch->states.push_back(std::move(*executor_->new_state(64)));
      const std::vector<int32_t> prompt(i % 40 + 2, static_cast<int32_t>((3 * i + 5) % width_));
      EXPECT_TRUE(executor_->prefill(*batch->states.back(), prompt, {}));
      SamplerParams own = params[i];
      if (own.constraint) own.constraint = static_cast<const fake::Constraint&>(*own.constraint).again();
      batch->samplers.push_back(std::move(*Sampler::create(own, vocab())));
      batch->fed.push_back(static_cast<int32_t>((11 + i) % width_));
    }
    batch->draws.resize(params.size());
    for (size_t i = 0; i < params.size(); ++i) {
      batch->draws[i].sampler = &batch->samplers[i];
      batch->draws[i].stop_ids = stops_;
      batch->seats.push_back({batch->states[i].get(), {&batch->fed[i], 1}, 0, true, false, &batch->draws[i]});
    }
    return batch;
  }
  // The unit's own way, or the one for units without.
  void go(Batch& batch, uint32_t steps, bool own) {
    const StepLimits limits{.steps_max = steps};
    batch.status = own ? executor_->step_on(batch.seats, batch.out, limits, {})
                       : executor_->Executor::step_on(batch.seats, batch.out, limits, {});
  }

  std::unique_ptr<Unit> unit_;
  std::unique_ptr<Executor> executor_;
  size_t width_ = 0;
  std::vector<int32_t> stops_;
};

std::vector<std::string> all_units() {
  std::vector<std::string> names;
  for (const UnitEntry* entry : unit_entries()) names.emplace_back(entry->name);
  for (const std::string& unit : kv_units()) names.push_back(unit);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Units, StepOn, testing::ValuesIn(all_units()),
                         [](const auto& item) { return test_name(item.param); });

TEST_P(StepOn, DrawsWhatTheHostWould) {
  for (const size_t together : {size_t{1}, size_t{3}, settings(vocab()).size()}) {
    const auto all = settings(vocab());
    for (size_t first = 0; first + together <= all.size(); first += together) {
      const std::vector params(all.begin() + static_cast<ptrdiff_t>(first),
                               all.begin() + static_cast<ptrdiff_t>(first + together));
      const auto own = make(params), shared = make(params), by_hand = make(params);
      go(*own, 20, true);
      go(*shared, 20, false);
      ASSERT_TRUE(own->status && shared->status);
      for (size_t i = 0; i < together; ++i) {
        int32_t token = by_hand->fed[i];
        std::vector<int32_t> ids;
        for (size_t step = 0; step < 20; ++step) {
          std::vector<float> row(width_);
          ASSERT_TRUE(executor_->decode(*by_hand->states[i], token, row));
          std::optional<Logprobs> logprobs;
          ids.push_back(token = *by_hand->samplers[i].sample(row, &logprobs));
          EXPECT_EQ(own->draws[i].ids[step].logprobs, logprobs);
          EXPECT_EQ(shared->draws[i].ids[step].logprobs, logprobs);
          EXPECT_EQ(logprobs.has_value(), params[i].logprobs.has_value());
        }
        EXPECT_EQ(own->ids(i), ids) << "setting " << first + i;
        EXPECT_EQ(shared->ids(i), ids) << "setting " << first + i;
        EXPECT_EQ(state_bytes(*own->states[i]), state_bytes(*by_hand->states[i]));
      }
    }
  }
}

TEST_P(StepOn, EndsWithTheFirstStopIdOfAny) {
  const auto all = settings(vocab());
  const std::vector<SamplerParams> params = {all[1], all[4], all[2]};  // which a card draws
  const auto free = make(params);
  go(*free, 12, true);
  for (size_t i = 0; i < params.size(); ++i) {
    for (const size_t at : {0, 3, 7, 11}) {
      const int32_t stop = free->ids(i)[at];
      size_t first = 12;
      for (size_t other = 0; other < params.size(); ++other) {
        const auto ids = free->ids(other);
        first = std::min(first, static_cast<size_t>(std::find(ids.begin(), ids.end(), stop) - ids.begin()));
      }
      for (const bool own : {true, false}) {
        const auto batch = make(params, {-1, stop});
        go(*batch, 12, own);
        ASSERT_TRUE(batch->status);
        bool ended = false;
        for (size_t other = 0; other < params.size(); ++other) {
          auto wanted = free->ids(other);
          wanted.resize(first + 1);
          EXPECT_EQ(batch->ids(other), wanted);
          EXPECT_EQ(batch->states[other]->position(), other + 2 + first + 1);
          ended = ended || batch->draws[other].ended();
        }
        EXPECT_TRUE(ended);
      }
    }
  }
}

TEST_P(StepOn, EndsByTheClockAndWhenCancelled) {
  const TickingClock clock;
  const auto all = settings(vocab());
  auto batch = make({all[0], all[4]});
  // Two draws and a look at the clock for each step.
  const StepLimits limits{.steps_max = 30, .until_ns = 9, .clock = &clock};
  ASSERT_TRUE(executor_->step_on(batch->seats, {}, limits, {}));
  // A unit that draws by itself may have asked for one more before the clock was looked at.
  EXPECT_GE(batch->ids(0).size(), 3u);
  EXPECT_LE(batch->ids(0).size(), 4u);
  EXPECT_GT(batch->draws[0].ids[2].time_ns, 6);
  EXPECT_LT(batch->draws[0].ids[2].time_ns, 9);
  const std::atomic<bool> cancelled = true;
  batch = make({all[4]});
  const Status status = executor_->step_on(batch->seats, {}, {.steps_max = 30}, {.cancelled = &cancelled});
  ASSERT_FALSE(status);
  EXPECT_EQ(status.error().code, Code::kCancelled);
  EXPECT_TRUE(batch->ids(0).empty());
}

TEST_P(StepOn, RunsOnUntilAStopIdHoweverFarThatIs) {
  const auto twenty = make({{}});
  go(*twenty, 20, true);
  const std::vector<int32_t> drawn = twenty->ids(0);
  ASSERT_EQ(drawn.size(), 20u);
  const auto first = std::find(drawn.begin(), drawn.end(), drawn.back()) - drawn.begin() + 1;
  const auto batch = make({{}}, {drawn.back()});
  go(*batch, UINT32_MAX, true);
  ASSERT_TRUE(batch->status) << batch->status.error().message;
  EXPECT_EQ(batch->ids(0), std::vector<int32_t>(drawn.begin(), drawn.begin() + first));
}

TEST_P(StepOn, HandsOutTheRowsOfTheFirstStep) {
  const std::vector<int32_t> prompt = {7, 8, 9};
  const auto batch = make({{}, {}}), other = make({{}});
  batch->seats[1].rows_out = 1;
  batch->out.resize(width_);
  go(*batch, 5, true);
  ASSERT_TRUE(batch->status);
  auto alone = make({{}, {}});
  std::vector<float> row(width_);
  ASSERT_TRUE(executor_->decode(*alone->states[1], alone->fed[1], row));
  EXPECT_EQ(batch->out, row);
  EXPECT_EQ(batch->ids(1).size(), 5u);
  // With one that prefills beside it there is one step, whatever the limit.
  if (!unit_->caps().mixes) return;
  auto state = std::move(*executor_->new_state(16));
  const Seat seats[] = {{state.get(), prompt, 1}, other->seats[0]};
  ASSERT_TRUE(executor_->step_on(seats, row, {.steps_max = 9}, {}));
  EXPECT_EQ(other->ids(0).size(), 1u);
  EXPECT_EQ(state->position(), 3u);
}

// Many sequences on tensor cores.
class StepOnTogether : public StepOn {
 protected:
  // So many sequences, by settings that a card draws by, or by all.
  std::unique_ptr<Batch> many(size_t count, size_t kinds) {
    const auto all = settings(vocab());
    std::vector<SamplerParams> params;
    for (size_t i = 0; i < count; ++i) params.push_back(all[i % kinds]);
    return make(params);
  }
  std::vector<float> step(Batch& batch) {
    for (Seat& seat : batch.seats) seat.rows_out = 1, seat.draws = nullptr;
    std::vector<float> rows(batch.seats.size() * width_);
    EXPECT_TRUE(executor_->step(batch.seats, rows, {}));
    return rows;
  }
  // |together - alone| of the rows, by their size.
  double difference(std::span<const float> together, std::span<const float> alone) {
    double off = 0, all = 0;
    for (size_t i = 0; i < alone.size(); ++i) {
      off += std::pow(static_cast<double>(together[i]) - alone[i], 2);
      all += std::pow(static_cast<double>(alone[i]), 2);
    }
    return std::sqrt(off / all);
  }
};
INSTANTIATE_TEST_SUITE_P(Units, StepOnTogether, testing::Values("cuda:batch=tensor"),
                         [](const auto& item) { return test_name(item.param); });

TEST_P(StepOnTogether, DrawsWhatTheHostWould) {
  for (const size_t count : {5, 13, 40, 64}) {
    for (const size_t kinds : {size_t{10}, settings(vocab()).size()}) {
      const auto own = many(count, kinds), shared = many(count, kinds);
      go(*own, 12, true);
      go(*shared, 12, false);
      ASSERT_TRUE(own->status && shared->status);
      for (size_t i = 0; i < count; ++i) {
        EXPECT_EQ(own->ids(i).size(), 12u);
        EXPECT_EQ(own->ids(i), shared->ids(i)) << "sequence " << i << " of " << count;
        EXPECT_EQ(state_bytes(*own->states[i]), state_bytes(*shared->states[i]));
      }
    }
  }
}

TEST_P(StepOnTogether, IsNearWhatEachIsAlone) {
  for (const size_t count : {5, 33, 64}) {
    const auto together = many(count, 1), alone = many(count, 1);
    const std::vector<float> rows = step(*together);
    std::vector<float> row(width_);
    for (size_t i = 0; i < count; ++i) {
      ASSERT_TRUE(executor_->decode(*alone->states[i], alone->fed[i], row));
      EXPECT_LT(difference(std::span(rows).subspan(i * width_, width_), row), 1e-3) << "sequence " << i;
    }
  }
}

TEST_P(StepOnTogether, RowsAreTheSameBesideAnyOthers) {
  const auto all = many(64, 1), some = many(64, 1);
  const std::vector<float> rows = step(*all);
  for (const size_t count : {5, 9, 20, 30}) {
    const auto first = static_cast<ptrdiff_t>(64 - some->seats.size());
    Batch part;
    part.seats.assign(some->seats.begin(), some->seats.begin() + static_cast<ptrdiff_t>(count));
    some->seats.erase(some->seats.begin(), some->seats.begin() + static_cast<ptrdiff_t>(count));
    const std::vector<float> own = step(part);
    EXPECT_TRUE(std::equal(own.begin(), own.end(), rows.begin() + first * static_cast<ptrdiff_t>(width_)))
        << count << " from " << first;
  }
}

}  // namespace
}  // namespace baton::test
