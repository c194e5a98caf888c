// Experts beyond what conformance_test asks of every op: each kernel set, passes of many rows (several batches of
// experts), bits that nothing else in a pass shows in, choices among equals, and the count of loads.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "baton/api/units.h"
#include "baton/unit/host/experts.h"
#include "baton/unit/host/kernel_sets.h"
#include "baton/unit/ref/ops.h"
#include "tests/support/op_models.h"
#include "tests/support/seats.h"
#include "tests/support/smoke.h"
#include "tests/support/test_names.h"

namespace baton::test {
namespace {

constexpr size_t kVocab = 37;

std::vector<int32_t> text(size_t tokens, Random& random) {
  std::vector<int32_t> ids(tokens);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(kVocab));
  return ids;
}

std::unique_ptr<Executor> load(const std::string& unit, const OpModel& op, uint32_t threads) {
  auto made = create_unit(unit);
  EXPECT_TRUE(made) << unit << ": " << made.error().message;
  auto executor = (*made)->load(op.model, threads);
  EXPECT_TRUE(executor) << unit << ": " << executor.error().message;
  return executor ? std::move(*executor) : nullptr;
}

// Rows of all tokens, prefilled in pieces; what no row wrote stays no number.
std::vector<float> rows_of(Executor& executor, std::span<const int32_t> ids, std::span<const size_t> pieces) {
  const auto width = static_cast<size_t>(executor.model().program.output_width);
  std::vector<float> rows(ids.size() * width, std::numeric_limits<float>::quiet_NaN());
  auto state = executor.new_state(ids.size());
  size_t done = 0;
  for (const size_t piece : pieces) {
    const auto status =
        executor.prefill(**state, ids.subspan(done, piece), std::span(rows).subspan(done * width, piece * width));
    EXPECT_TRUE(status) << status.error().message;
    done += piece;
  }
  EXPECT_EQ(done, ids.size());
  return rows;
}

double error_of(std::span<const float> got, std::span<const float> wanted) {
  double error = 0, energy = 1e-12;
  for (size_t i = 0; i < got.size(); ++i) {
    error += (static_cast<double>(got[i]) - wanted[i]) * (static_cast<double>(got[i]) - wanted[i]);
    energy += static_cast<double>(wanted[i]) * wanted[i];
  }
  return error / energy;
}

class Experts : public testing::TestWithParam<std::string> {};
std::vector<std::string> sets() {
  std::vector<std::string> names;
  for (const host::Kernels* kernels : host::kernel_sets()) names.emplace_back(kernels->name);
  return names;
}
INSTANTIATE_TEST_SUITE_P(Sets, Experts, testing::ValuesIn(sets()),
                         [](const auto& item) { return test_name(item.param); });

// Rows that each choose nine, 256 at once: more than the buffers of a batch hold.
TEST_P(Experts, AsRefInPassesOfManyRows) {
  const int rounds = scaled(6, 2);
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kQ8_0, DType::kQ4_K, DType::kQ6_K}) {
    for (int round = 0; round < rounds; ++round) {
      Random random(static_cast<uint64_t>(round) * 100 + static_cast<uint64_t>(dtype));
      const OpModel op = make_experts_model(round < 2 ? 9 : 1, dtype, round % 2 != 0, random);
      const std::vector<int32_t> ids = text(700, random);
      const size_t whole[] = {700}, pieces[] = {1, 256, 128, 315};
      const std::vector<float> wanted = rows_of(*load("ref", op, 1), ids, whole);
      const double allowed = format_of(dtype).block_elements > 1 ? 1e-4 : dtype == DType::kF32 ? 1e-9 : 1e-5;
      for (const char* place : {"memory", "file"}) {
        const auto executor = load(fmt::format("cpu:kernels={},experts={}", GetParam(), place), op, 2);
        EXPECT_LE(error_of(rows_of(*executor, ids, pieces), wanted), allowed) << op.description << " " << place;
      }
    }
  }
}

// Nor do threads, where experts are, or whether they are packed yet.
TEST_P(Experts, NeitherCutsNorPlacesShowInBits) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ8_0, DType::kQ4_K}) {
    Random random(7 + static_cast<uint64_t>(dtype));
    const OpModel op = make_op_model(OpKind::kExperts, dtype, random);
    SCOPED_TRACE(op.description);
    const std::vector<int32_t> ids = text(330, random);
    const size_t whole[] = {330}, cut[] = {64, 192, 74};
    const auto memory = load(fmt::format("cpu:kernels={},experts=memory", GetParam()), op, 1);
    const std::vector<float> first = rows_of(*memory, ids, whole);
    EXPECT_EQ(rows_of(*memory, ids, cut), first);
    ASSERT_TRUE(memory->settle());
    EXPECT_EQ(rows_of(*memory, ids, whole), first);
    const auto file = load(fmt::format("cpu:kernels={},experts=file", GetParam()), op, 3);
    EXPECT_EQ(rows_of(*file, ids, cut), first);
    const auto used = load(fmt::format("cpu:kernels={},experts=used", GetParam()), op, 2);
    EXPECT_EQ(rows_of(*used, ids, cut), first);
    EXPECT_EQ(rows_of(*used, ids, whole), first);
  }
}

// What is packed for good ends at the bound; what is beyond it is multiplied all the same.
TEST(ExpertRoom, KeepsWhatFitsAndNoMore) {
  Random random(5);
  const OpModel op = make_op_model(OpKind::kExperts, DType::kQ8_0, random);
  const auto experts = std::find_if(op.model->program.ops.begin(), op.model->program.ops.end(),
                                    [](const Op& one) { return one.kind == OpKind::kExperts; });
  ASSERT_NE(experts, op.model->program.ops.end());
  std::vector<WeightId> gates(static_cast<size_t>(experts->experts));
  std::iota(gates.begin(), gates.end(), experts->weights[Op::kGates]);
  const host::Kernels& kernels = *host::kernel_sets().front();
  const std::vector<bool> all(op.model->weights.size(), true);
  ThreadPool pool(2);
  const auto kept = [&](uint64_t bytes_max) {
    auto weights = host::Weights::load(op.model, kernels, all, "cpu", {host::ExpertPlace::kUsed, bytes_max});
    EXPECT_TRUE(weights) << weights.error().message;
    EXPECT_EQ((*weights)->kept_expert_bytes(), 0);
    (*weights)->keep(gates, pool);
    const int64_t once = (*weights)->kept_expert_bytes();
    (*weights)->keep(gates, pool);
    EXPECT_EQ((*weights)->kept_expert_bytes(), once);
    return once;
  };
  const int64_t whole = kept(uint64_t{1} << 30), one = whole / experts->experts;
  EXPECT_GT(one, 0);
  EXPECT_EQ(kept(static_cast<uint64_t>(2 * one)), 2 * one);
  EXPECT_EQ(kept(static_cast<uint64_t>(one - 1)), 0);
}

TEST_P(Experts, AnAnswerHasItsBitsWhateverSharesItsStep) {
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kQ4_K}) {
    Random random(11 + static_cast<uint64_t>(dtype));
    const OpModel op = make_op_model(OpKind::kExperts, dtype, random);
    SCOPED_TRACE(op.description);
    const auto executor = load(fmt::format("cpu:kernels={}", GetParam()), op, 2);
    const auto width = static_cast<size_t>(op.model->program.output_width);
    constexpr size_t kSeats = 20;
    const std::vector<int32_t> prompt = text(90, random), answers = text(kSeats, random);
    std::vector<std::vector<float>> together(kSeats + 1, std::vector<float>(width)), alone = together;
    std::vector<std::unique_ptr<SequenceState>> states;
    std::vector<SeatRows> seats;
    for (size_t i = 0; i <= kSeats; ++i) states.push_back(std::move(*executor->new_state(100)));
    for (size_t i = 0; i < kSeats; ++i) seats.emplace_back(states[i].get(), answers[i], together[i]);
    seats.emplace_back(states[kSeats].get(), prompt, together[kSeats]);
    ASSERT_TRUE(step_together(*executor, seats));
    for (size_t i = 0; i < kSeats; ++i) {
      auto state = executor->new_state(4);
      ASSERT_TRUE(executor->decode(**state, answers[i], alone[i]));
    }
    auto state = executor->new_state(100);
    ASSERT_TRUE(executor->prefill(**state, prompt, alone[kSeats]));
    EXPECT_EQ(together, alone);
  }
}

TEST(ExpertChoice, IsTheFirstOfEqualsAndTheSameOnBoth) {
  Random random(3);
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  const float spoilt[] = {std::numeric_limits<float>::quiet_NaN(), kInfinity, -kInfinity};
  for (int round = 0; round < 300; ++round) {
    const size_t n = 1 + random.below(20);
    const auto count = static_cast<int64_t>(1 + random.below(n));
    std::vector<float> logits(n);
    for (float& logit : logits) logit = static_cast<float>(random.below(6)) - 2;  // many are equal
    if (round % 5 == 0) logits[random.below(n)] = spoilt[random.below(3)];
    for (const Routing routing : {Routing::kSoftmaxOfAll, Routing::kSoftmaxOfChosen, Routing::kSigmoidOfInput}) {
      const auto wanted = ref::choose_experts(logits, count, routing);
      std::vector<int32_t> chosen(static_cast<size_t>(count), -1);
      std::vector<float> weights(chosen.size());
      host::choose_experts(logits.data(), static_cast<int64_t>(n), count, routing, chosen.data(), weights.data());
      for (size_t i = 0; i < chosen.size(); ++i) {
        EXPECT_EQ(chosen[i], wanted[i].expert) << "round " << round;
        ASSERT_EQ(std::isnan(weights[i]), round % 5 == 0) << "chosen or not, it spoils what is chosen";
        ASSERT_EQ(std::isnan(wanted[i].weight), round % 5 == 0);
        if (round % 5 == 0) continue;
        EXPECT_NEAR(weights[i], wanted[i].weight, 1e-6f);
      }
    }
  }
  const std::vector<float> equal = {1, 2, 2, 0, 2};
  const auto chosen = ref::choose_experts(equal, 2, Routing::kSoftmaxOfChosen);
  EXPECT_EQ(chosen[0].expert, 1);
  EXPECT_EQ(chosen[1].expert, 2);
  EXPECT_FLOAT_EQ(chosen[0].weight, 0.5f);
  const float sum = std::exp(-1.0f) + 3 + std::exp(-2.0f);
  EXPECT_FLOAT_EQ(ref::choose_experts(equal, 2, Routing::kSoftmaxOfAll)[0].weight, 1 / sum);
  EXPECT_FLOAT_EQ(ref::choose_experts(equal, 2, Routing::kSigmoidOfInput)[0].weight, 1 / (1 + std::exp(-2.0f)));
}

// A damaged row of a router shows in each token's values, as a damaged expert does.
TEST_P(Experts, ARouterWithoutNumbersShows) {
  for (const OpTrait trait : {OpTrait::kWindow, OpTrait::kGatedInput}) {
    for (const float value : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
      Random random(21);
      const OpModel op = trait == OpTrait::kGatedInput ? make_trait_model(trait, random, DType::kF32)
                                                       : make_op_model(OpKind::kExperts, DType::kF32, random);
      const Weight& router = op.model->weights[static_cast<size_t>(op.model->program.ops[1].weights[Op::kRouter])];
      const size_t row = router.bytes / static_cast<size_t>(router.rows);
      std::byte* const last = const_cast<std::byte*>(router.data) + router.bytes - row;  // the model's own memory
      for (size_t at = 0; at < row; at += sizeof(float)) std::memcpy(last + at, &value, sizeof(float));
      const std::vector<int32_t> ids = text(70, random);
      const size_t whole[] = {70};
      for (const std::string& unit : {std::string("ref"), fmt::format("cpu:kernels={}", GetParam())}) {
        const std::vector<float> rows = rows_of(*load(unit, op, 2), ids, whole);
        EXPECT_TRUE(std::all_of(rows.begin(), rows.end(), [](float each) { return std::isnan(each); }))
            << unit << " " << value << " " << op.description;
      }
    }
  }
}

TEST(ExpertLoads, CountWhatWasChosen) {
  Random random(5);
  const OpModel op = make_op_model(OpKind::kExperts, DType::kF32, random);
  const Op& experts = op.model->program.ops[1];
  const std::vector<int32_t> ids = text(200, random);
  const size_t pieces[] = {150, 50};
  std::vector<std::vector<ExpertLoad>> all;
  for (const char* unit : {"ref", "cpu"}) {
    const auto executor = load(unit, op, 2);
    EXPECT_TRUE(executor->expert_loads().empty() || executor->expert_loads()[0].tokens == 0);
    rows_of(*executor, ids, pieces);
    all.push_back(executor->expert_loads());
    ASSERT_EQ(all.back().size(), 1u);
    const ExpertLoad& load = all.back()[0];
    EXPECT_EQ(load.layer, 0);
    EXPECT_EQ(load.tokens, 200u);
    EXPECT_EQ(load.rows.size(), static_cast<size_t>(experts.experts));
    EXPECT_EQ(std::accumulate(load.rows.begin(), load.rows.end(), uint64_t{0}),
              200u * static_cast<uint64_t>(experts.experts_used));
    for (size_t e = 0; e < load.rows.size(); ++e) {
      EXPECT_LE(load.steps[e], load.rows[e]);
      EXPECT_EQ(load.steps[e] == 0, load.rows[e] == 0);
    }
  }
  EXPECT_EQ(all[0][0].rows, all[1][0].rows);
  Random other(6);
  EXPECT_TRUE(load("cpu", make_op_model(OpKind::kLinear, DType::kF32, other), 1)->expert_loads().empty());
}

}  // namespace
}  // namespace baton::test
