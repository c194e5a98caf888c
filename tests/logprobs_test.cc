// Every unit: what its draws are told to be, and the logprobs of a prompt, are those that `ref`'s logits give, within
// the unit's tolerance; and a constraint is kept.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "baton/api/runtime.h"
#include "baton/api/units.h"
#include "tests/support/fake_constraint.h"
#include "tests/support/golden.h"
#include "tests/support/test_names.h"
#include "tests/support/test_units.h"

namespace baton::test {
namespace {

constexpr uint32_t kTop = 3;

class UnitLogprobs : public testing::TestWithParam<std::string> {
 protected:
  // The logits behind each token of `ids`, in one go.
  std::vector<float> rows_on_ref(std::span<const int32_t> ids) {
    auto unit = create_unit("ref");
    auto executor = (*unit)->load(model_, 0);
    auto state = (*executor)->new_state(ids.size());
    std::vector<float> rows(ids.size() * width_);
    EXPECT_TRUE((*executor)->prefill(**state, ids, rows));
    return rows;
  }
  void expect_near(const Logprobs& told, int32_t id, std::span<const float> row, const std::string& what) {
    const auto expected = logprobs_of(row, id, 0);
    ASSERT_TRUE(expected);
    EXPECT_NEAR(told.logprob, expected->logprob, tolerance_) << what;
    ASSERT_EQ(told.top.size(), kTop);
    for (size_t i = 0; i < told.top.size(); ++i) {
      EXPECT_NEAR(told.top[i].logprob, logprobs_of(row, told.top[i].id, 0)->logprob, tolerance_) << what;
      EXPECT_LE(told.top[i].logprob, told.top[i - (i > 0 ? 1 : 0)].logprob) << what;
    }
    EXPECT_LE(logprobs_of(row, argmax(row), 0)->logprob - told.top[0].logprob, tolerance_) << what;
  }

  std::shared_ptr<const Model> model_;
  size_t width_ = 0;
  double tolerance_ = 0;
};

std::vector<std::string> all_units() {
  std::vector<std::string> names;
  for (const UnitEntry* entry : unit_entries()) names.emplace_back(entry->name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Units, UnitLogprobs, testing::ValuesIn(all_units()),
                         [](const auto& item) { return test_name(item.param); });

TEST_P(UnitLogprobs, AreThoseOfRef) {
  auto unit = create_test_unit(GetParam());
  if (!unit && unit.error().code == Code::kUnsupported) GTEST_SKIP() << unit.error().message;
  ASSERT_TRUE(unit) << unit.error().message;
  const auto folder = data_folder() / "golden" / "tiny-qwen3.5";
  model_ = *load_model(folder);
  width_ = static_cast<size_t>(model_->program.output_width);
  RuntimeOptions options;
  options.model = folder;
  options.units = {on_this_machine(GetParam())};
  if ((*unit)->caps().decode_seats_max == 0) options.units.push_back("ref");
  auto runtime = Runtime::open(options);
  ASSERT_TRUE(runtime) << runtime.error().message;
  // Of a logit, and of the sum.
  tolerance_ = 2 * (*unit)->caps().logit_tolerance(main_type(*model_)) + 1e-5;

  std::vector<int32_t> prompt;
  Random random(7);
  for (int i = 0; i < 150; ++i) prompt.push_back(static_cast<int32_t>(random.below(width_)));
  CompletionRequest request;
  request.request = (*runtime)->make_request(prompt);
  request.request.max_new_tokens = 12;
  request.request.ignore_eos = true;
  const auto constraint = std::make_shared<fake::Constraint>(3, static_cast<int32_t>(width_), 10);
  request.request.sampler.constraint = constraint;
  request.request.sampler.logprobs = request.request.prompt_logprobs = kTop;
  const auto completion = (*runtime)->complete(std::move(request), {}, {});
  ASSERT_TRUE(completion) << completion.error().message;
  ASSERT_EQ(completion->ids.size(), 12u);
  EXPECT_EQ(constraint->accepted, completion->ids);
  const auto replay = constraint->again();
  for (const int32_t id : completion->ids) EXPECT_TRUE(replay->accept(id)) << "drawn, and not allowed";

  ASSERT_EQ(completion->prompt_logprobs.size(), prompt.size() - 1);
  ASSERT_EQ(completion->logprobs.size(), completion->ids.size());
  std::vector<int32_t> all = prompt;
  all.insert(all.end(), completion->ids.begin(), completion->ids.end());
  const std::vector<float> rows = rows_on_ref(all);
  for (size_t i = 1; i < all.size(); ++i) {
    const auto& told = i < prompt.size() ? completion->prompt_logprobs[i - 1] : completion->logprobs[i - prompt.size()];
    expect_near(told, all[i], std::span(rows).subspan((i - 1) * width_, width_), fmt::format("token {}", i));
  }
}

}  // namespace
}  // namespace baton::test
