// Executor::rewind and fork on every unit that can: a state that was taken back, or a copy of what it was, is the one
// that never went further, to the bit.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "baton/api/units.h"
#include "baton/base/random.h"
#include "tests/support/golden.h"
#include "tests/support/state_values.h"
#include "tests/support/test_names.h"
#include "tests/support/test_units.h"

namespace baton::test {
namespace {

struct RewindCase {
  std::string unit, model;
};
void PrintTo(const RewindCase& item, std::ostream* out) { *out << item.model << " on " << item.unit; }

class Rewind : public testing::TestWithParam<RewindCase> {
 protected:
  void SetUp() override {
    auto unit = create_test_unit(GetParam().unit);
    if (!unit && unit.error().code == Code::kUnsupported) GTEST_SKIP() << unit.error().message;
    ASSERT_TRUE(unit) << unit.error().message;
    unit_ = std::move(*unit);
    most_ = unit_->caps().rewind_tokens_max;
    if (most_ == 0) GTEST_SKIP() << GetParam().unit << " takes no state back";
    auto model = load_model(data_folder() / "golden" / GetParam().model);
    ASSERT_TRUE(model) << model.error().message;
    auto executor = unit_->load(*model, 2);
    ASSERT_TRUE(executor) << executor.error().message;
    executor_ = std::move(*executor);
    Random random(11);
    for (int i = 0; i < 400; ++i)
      ids_.push_back(static_cast<int32_t>(random.below(static_cast<uint64_t>((*model)->program.vocab))));
    for (const Segment& segment : executor_->shape().segments) hybrid_ = hybrid_ || !has_tokens_dim(segment.kind);
  }

  std::unique_ptr<SequenceState> new_state() {
    auto state = executor_->new_state(ids_.size());
    EXPECT_TRUE(state);
    return std::move(*state);
  }
  // The next `count` of ids_ in one step.
  void go(SequenceState& state, size_t count, bool keeps, bool decodes = false) {
    if (count == 0) return;
    const Seat seat{&state, std::span(ids_).subspan(state.position(), count), 0, decodes, keeps};
    const Status status = executor_->step({&seat, 1}, {}, {});
    EXPECT_TRUE(status) << status.error().message;
  }
  // Both hold the same, and go on alike.
  void expect_same(SequenceState& a, SequenceState& b) {
    ASSERT_EQ(a.position(), b.position());
    EXPECT_EQ(state_bytes(a), state_bytes(b));
    std::vector<float> rows[2];
    for (int i = 0; i < 2; ++i) {
      SequenceState& state = i == 0 ? a : b;
      for (int step = 0; step < 3; ++step) {
        std::vector<float> row(static_cast<size_t>(executor_->model().program.output_width), std::nanf(""));
        const Status status = executor_->decode(state, ids_[state.position()], row);
        ASSERT_TRUE(status) << status.error().message;
        rows[i].insert(rows[i].end(), row.begin(), row.end());
      }
    }
    EXPECT_EQ(std::memcmp(rows[0].data(), rows[1].data(), rows[0].size() * sizeof(float)), 0);
    EXPECT_EQ(state_bytes(a), state_bytes(b));
  }

  std::unique_ptr<Unit> unit_;
  std::unique_ptr<Executor> executor_;
  std::vector<int32_t> ids_;
  uint32_t most_ = 0;
  bool hybrid_ = false;
};

std::vector<RewindCase> rewind_cases() {
  std::vector<RewindCase> all = {{"cpu:kernels=scalar", "tiny-qwen3.5"}};
  for (const UnitEntry* entry : unit_entries()) {
    for (const char* model : {"tiny-qwen3.5", "tiny-llama"}) all.push_back({std::string(entry->name), model});
  }
  for (const std::string& unit : kv_units()) all.push_back({unit, "tiny-qwen3.5"});
  return all;
}
INSTANTIATE_TEST_SUITE_P(All, Rewind, testing::ValuesIn(rewind_cases()),
                         [](const auto& item) { return test_name(item.param.unit + "_" + item.param.model); });

// One step of as many tokens as are kept, behind prompts that fill one pass or end in a second, shorter one.
TEST_P(Rewind, ToEachTokenOfAStep) {
  for (const size_t before : {size_t{0}, size_t{37}}) {
    for (uint32_t back = 0; back <= most_; ++back) {
      SCOPED_TRACE(fmt::format("{} tokens, then {} and {} back", before, most_, back));
      const auto far = new_state(), never = new_state();
      go(*far, before, false);
      go(*far, most_, true);
      ASSERT_TRUE(executor_->rewind(*far, before + most_ - back));
      go(*never, before, false);
      go(*never, most_ - back, true);
      expect_same(*far, *never);
    }
  }
}

// The copy is of then, the state stays as it is; and goes on alike when the copy has gone another way.
TEST_P(Rewind, AForkIsOfAnEarlierPosition) {
  const auto far = new_state(), same = new_state();
  for (SequenceState* state : {far.get(), same.get()}) {
    go(*state, 37, false);
    go(*state, most_, true);
  }
  for (uint32_t back = 0; back <= most_; ++back) {
    SCOPED_TRACE(fmt::format("{} back", back));
    auto copy = executor_->fork(*far, far->position() - back);
    ASSERT_TRUE(copy) << copy.error().message;
    const auto never = new_state();
    go(*never, 37, false);
    go(*never, most_ - back, true);
    if (hybrid_) {
      const auto further = executor_->fork(**copy, (*copy)->position() - 1);
      ASSERT_FALSE(further) << "what was kept stays with the state";
      EXPECT_EQ(further.error().code, Code::kUnsupported);
    }
    expect_same(**copy, *never);
    EXPECT_EQ(state_bytes(*far), state_bytes(*same));
  }
  if (hybrid_) {
    const auto before = executor_->fork(*far, 36);
    ASSERT_FALSE(before);
    EXPECT_EQ(before.error().code, Code::kUnsupported);
  }
  ASSERT_TRUE(executor_->rewind(*far, 40));
  ASSERT_TRUE(executor_->rewind(*same, 40));
  expect_same(*far, *same);
}

TEST_P(Rewind, OverTheEndOfALongStep) {
  for (const size_t tokens : {258, 300}) {
    const auto far = new_state(), never = new_state();
    go(*far, tokens, true);
    ASSERT_TRUE(executor_->rewind(*far, tokens - 5));
    go(*never, tokens - most_, false);
    go(*never, most_ - 5, true);
    expect_same(*far, *never);
  }
}

// Again and again from where it was taken back to, over steps of several kinds.
TEST_P(Rewind, AgainAndAgain) {
  const auto far = new_state(), never = new_state();
  for (SequenceState* state : {far.get(), never.get()}) go(*state, 20, false);
  for (const size_t taken : {3, 1, 4, 1}) {
    go(*far, 2 + taken, true);
    go(*far, 1, true, true);
    ASSERT_TRUE(executor_->rewind(*far, far->position() - 3));
    go(*never, taken, true);
  }
  ASSERT_TRUE(executor_->rewind(*far, 20));
  ASSERT_TRUE(executor_->rewind(*never, 20));
  const auto fresh = new_state();
  go(*fresh, 20, false);
  EXPECT_EQ(state_bytes(*far), state_bytes(*fresh));
  expect_same(*far, *never);
}

// What both hold is not written over by the one that goes back and another way.
TEST_P(Rewind, AForkStaysWhenItsOriginGoesBack) {
  const auto far = new_state(), never = new_state();
  for (SequenceState* state : {far.get(), never.get()}) {
    go(*state, 70, false);
    go(*state, most_, true);
  }
  auto copy = executor_->fork(*far, far->position());
  ASSERT_TRUE(copy) << copy.error().message;
  ASSERT_TRUE(executor_->rewind(*far, far->position() - most_));
  const std::vector<int32_t> other(most_, 1);
  ASSERT_TRUE(executor_->prefill(*far, other, {}));
  EXPECT_NE(state_bytes(*far), state_bytes(*never));
  expect_same(**copy, *never);
}

TEST_P(Rewind, FurtherThanWasKeptIsRefused) {
  const auto state = new_state();
  const uint64_t bytes = state->bytes();
  go(*state, hybrid_ ? 30 : 300, false);
  if (!hybrid_) {
    ASSERT_TRUE(executor_->rewind(*state, 3));
    const auto fresh = new_state();
    go(*fresh, 3, false);
    EXPECT_EQ(state->bytes(), fresh->bytes());
    return expect_same(*state, *fresh);
  }
  const auto refused = [&](uint64_t back, uint64_t kept) {
    const Status status = executor_->rewind(*state, state->position() - back);
    ASSERT_FALSE(status);
    EXPECT_EQ(status.error().code, Code::kUnsupported);
    EXPECT_NE(status.error().message.find(fmt::format("position {} cannot go back {} tokens to {}", state->position(),
                                                      back, state->position() - back)),
              std::string::npos)
        << status.error().message;
    EXPECT_NE(status.error().message.find(fmt::format("the last {}", kept)), std::string::npos);
  };
  refused(1, 0);
  const auto before = state_bytes(*state);
  EXPECT_TRUE(executor_->rewind(*state, state->position()));
  EXPECT_EQ(state_bytes(*state), before);
  for (int i = 0; i < 20; ++i) go(*state, 1, true, true);
  const uint64_t kept = most_ * section_bytes(executor_->shape(), 0);
  const uint64_t grown = executor_->state_bytes(state->position()) - executor_->state_bytes(0);
  EXPECT_GE(state->bytes(), bytes + kept);
  EXPECT_LT(state->bytes(), bytes + grown + 2 * kept);  // whole pages
  refused(most_ + 1, most_);
  ASSERT_TRUE(executor_->rewind(*state, state->position() - 10));
  refused(most_ - 9, most_ - 10);
  go(*state, 1, false);
  refused(1, 0);
}

// What it kept does not come back in another sequence, whichever piece of memory that gets.
TEST_P(Rewind, WhatWasKeptIsGoneWithItsState) {
  go(*new_state(), 40, true);
  for (const uint64_t tokens : {4, 40, 150, 400}) {
    const auto state = executor_->new_state(tokens);
    ASSERT_TRUE(state);
    (*state)->begin_write(tokens);
    for (size_t i = 0; i < executor_->shape().segments.size(); ++i) {
      const Segment& segment = executor_->shape().segments[i];
      const Dims dims = dims_at(segment, tokens);
      std::vector<std::byte> bytes(dims[0] * dims[1] * row_bytes_of(segment.dtype, dims[2]), std::byte{1});
      ASSERT_TRUE((*state)->read(i, {0, dims[0] * dims[1]}, bytes.data()));
      for (const std::byte each : bytes) ASSERT_EQ(each, std::byte{0}) << segment_name(segment.kind, segment.layer);
    }
  }
}

}  // namespace
}  // namespace baton::test
