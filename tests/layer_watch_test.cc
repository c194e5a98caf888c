// StepContext::watch: layers are told of when they are done and not before, and a state that is sent layer by layer
// while the step computes has the bytes of one that is sealed behind it.
#include <gtest/gtest.h>

#include <algorithm>

#include "baton/api/units.h"
#include "baton/bridge/bridge.h"
#include "tests/support/golden.h"
#include "tests/support/state_values.h"
#include "tests/support/test_names.h"
#include "tests/support/test_units.h"

namespace baton::test {
namespace {

using Told = std::vector<std::pair<size_t, int32_t>>;

// Notes what it is told, and how many pieces had been sent by then.
class Noting final : public LayerWatch {
 public:
  Noting(LayerWatch* next, const size_t* pieces) : next_(next), pieces_(pieces) {}
  void layer_done(size_t seat, int32_t layer) override {
    told.emplace_back(seat, layer);
    if (next_ != nullptr) next_->layer_done(seat, layer);
    sent.push_back(*pieces_);
  }
  Told told;
  std::vector<size_t> sent;

 private:
  LayerWatch* next_;
  const size_t* pieces_;
};

struct Case {
  std::string unit, model;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const UnitEntry* entry : unit_entries()) {
    for (const char* model : {"tiny-qwen3.5", "tiny-llama"}) all.push_back({std::string(entry->name), model});
  }
  for (const std::string& unit : kv_units()) all.push_back({unit, "tiny-llama"});
  return all;
}

class Layers : public testing::TestWithParam<Case> {
 protected:
  void SetUp() override {
    auto unit = create_test_unit(GetParam().unit);
    if (!unit && unit.error().code == Code::kUnsupported) GTEST_SKIP() << unit.error().message;
    ASSERT_TRUE(unit) << unit.error().message;
    unit_ = std::move(*unit);
    auto model = load_model(data_folder() / "golden" / GetParam().model);
    ASSERT_TRUE(model) << model.error().message;
    auto executor = unit_->load(*model, 2);
    ASSERT_TRUE(executor) << executor.error().message;
    executor_ = std::move(*executor);
  }
  std::unique_ptr<SequenceState> state(uint64_t tokens) { return std::move(*executor_->new_state(tokens)); }
  std::vector<int32_t> tokens(size_t count, int32_t first) const {
    std::vector<int32_t> made(count);
    for (size_t i = 0; i < count; ++i)
      made[i] = (first + static_cast<int32_t>(i * 7)) % executor_->model().program.vocab;
    return made;
  }
  // In order, each once.
  std::vector<int32_t> layers() const {
    std::vector<int32_t> all;
    for (const Segment& segment : executor_->shape().segments) all.push_back(segment.layer);
    std::sort(all.begin(), all.end());
    all.erase(std::unique(all.begin(), all.end()), all.end());
    return all;
  }

  std::unique_ptr<Unit> unit_;
  std::unique_ptr<Executor> executor_;
};

// More tokens than go into one pass of any unit: of all of them only the last pass tells.
TEST_P(Layers, AreSentWhileTheStepComputes) {
  const std::vector<int32_t> prompt = tokens(700, 3);
  const auto made = state(prompt.size());
  std::vector<std::byte> block;
  size_t pieces = 0;
  StateSealer sealer(*made, {1, 2, 3}, prompt, {}, [&](uint64_t offset, std::span<const std::byte> bytes) -> Status {
    block.resize(std::max<size_t>(block.size(), offset + bytes.size()));
    std::copy(bytes.begin(), bytes.end(), block.begin() + static_cast<ptrdiff_t>(offset));
    ++pieces;
    return {};
  });
  ASSERT_TRUE(sealer.begin());
  LayerSealer sender(sealer, executor_->shape());
  Noting watch(&sender, &pieces);
  const Seat seat{made.get(), prompt};
  StepContext context;
  context.watch = &watch;
  const Status stepped = executor_->step({&seat, 1}, {}, context);
  ASSERT_TRUE(stepped) << stepped.error().message;
  const size_t before = pieces;
  const Status finished = sender.finish();
  ASSERT_TRUE(finished) << finished.error().message;
  const auto wanted = seal_state(*made, {1, 2, 3}, prompt);
  ASSERT_TRUE(wanted);
  EXPECT_EQ(block, *wanted);
  if (!unit_->caps().tells_layers) {
    EXPECT_TRUE(watch.told.empty());
    return;
  }
  Told all;
  for (const int32_t layer : layers()) all.emplace_back(0, layer);
  EXPECT_EQ(watch.told, all);
  EXPECT_TRUE(std::is_sorted(watch.sent.begin(), watch.sent.end()) && watch.sent.front() > 0);
  EXPECT_EQ(pieces, before + 1) << "all but the last header went while the step ran";
}

TEST_P(Layers, AreToldOfEachSeatAndOfDecodes) {
  if (!unit_->caps().tells_layers || unit_->caps().decode_seats_max == 0) GTEST_SKIP();
  const std::vector<int32_t> long_prompt = tokens(300, 3), short_prompt = tokens(5, 9), token = tokens(1, 4);
  const auto a = state(300), b = state(5), c = state(8);
  ASSERT_TRUE(executor_->prefill(*c, short_prompt, {}));
  const std::vector<Seat> seats = {{a.get(), long_prompt}, {b.get(), short_prompt}, {c.get(), token, 0, true}};
  size_t none = 0;
  Noting watch(nullptr, &none);
  StepContext context;
  context.watch = &watch;
  ASSERT_TRUE(executor_->step(seats, {}, context));
  for (size_t seat = 0; seat < seats.size(); ++seat) {
    std::vector<int32_t> told;
    for (const auto& [whose, layer] : watch.told) {
      if (whose == seat) told.push_back(layer);
    }
    EXPECT_EQ(told, layers()) << seat;
  }
  EXPECT_EQ(c->position(), 6u);
}

INSTANTIATE_TEST_SUITE_P(Units, Layers, testing::ValuesIn(cases()),
                         [](const auto& item) { return test_name(item.param.unit + "_" + item.param.model); });

}  // namespace
}  // namespace baton::test
