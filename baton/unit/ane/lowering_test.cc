// Lowering of plans made by hand, of forms that no architecture has today: what must not be joined stays apart.
#include "baton/unit/ane/lowering.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

namespace baton::ane {
namespace {

using host::LinearPart;
using host::Row;
using host::Step;
using host::Work;

Weight matrix(const char* name, int64_t rows, int64_t columns) {
  return {name, DType::kF16, rows, columns, nullptr, 0, ""};
}

Step linears(RegisterId x, std::vector<LinearPart> parts, bool only_for_logits = false) {
  Step step;
  step.work = Work::kLinears;
  step.x = x;
  step.linears = std::move(parts);
  step.only_for_logits = only_for_logits;
  return step;
}

// A sum into rows that the step before is not for would be added twice.
TEST(Lowering, SumsForOtherRowsStayApart) {
  const std::vector<Weight> weights = {matrix("a", 32, 32), matrix("b", 32, 32)};
  const auto layers = [&](bool first_adds, bool second_adds, bool first_logits, bool second_logits) {
    host::Plan plan;
    plan.steps = {linears(0, {{0, 1, first_adds}}, first_logits), linears(0, {{1, 2, second_adds}}, second_logits)};
    return lower(weights, plan, {false, false}, {})->layers.size();
  };
  EXPECT_EQ(layers(false, false, false, true), 1u);
  EXPECT_EQ(layers(false, true, false, true), 2u);
  EXPECT_EQ(layers(true, false, false, true), 2u);
  EXPECT_EQ(layers(false, true, true, false), 2u);
  EXPECT_EQ(layers(true, true, false, false), 1u);
}

// gate, up, silu(gate) * up, down as one layer only when nothing reads what lies between afterwards.
TEST(Lowering, SwigluReadLaterIsNotFused) {
  const std::vector<Weight> weights = {matrix("gate", 64, 32), matrix("up", 64, 32), matrix("down", 32, 64),
                                       matrix("more", 32, 64)};
  const auto layers = [&](RegisterId read_later) {
    Step middle;
    middle.rows.resize(1);
    middle.rows[0].kind = Row::kSwiGlu;
    middle.rows[0].op.x = 1;
    middle.rows[0].op.y = 2;
    middle.rows[0].op.out = 3;
    host::Plan plan;
    plan.steps = {linears(0, {{0, 1, false}, {1, 2, false}}), middle, linears(3, {{2, 4, false}})};
    plan.steps.emplace_back();  // work on rows between them, so that nothing is joined across it
    if (read_later >= 0) plan.steps.push_back(linears(read_later, {{3, 5, false}}));
    return lower(weights, plan, std::vector<bool>(4), {})->layers.size();
  };
  EXPECT_EQ(layers(-1), 1u);
  for (const RegisterId id : {1, 2, 3}) EXPECT_EQ(layers(id), 3u) << id;
  EXPECT_EQ(layers(4), 2u);
}

// A matrix that two layers share goes to the host with both.
TEST(Lowering, ASharedMatrixTakesBothLayersToTheHost) {
  auto loaded = load_model(std::filesystem::path(BATON_SOURCE_DIR) / "tests/data/golden/tiny-llama");
  ASSERT_TRUE(loaded) << loaded.error().message;
  const Model& model = **loaded;
  Program program = model.program;
  // The output projection of every layer becomes that of the first.
  std::vector<size_t> outs;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const std::string& name =
        op.weights[Op::kMatrix] >= 0 ? model.weights[static_cast<size_t>(op.weights[Op::kMatrix])].name : "";
    if (op.kind == OpKind::kLinear && (name.ends_with(".o") || name.find("attn.o") != std::string::npos))
      outs.push_back(i);
  }
  ASSERT_GE(outs.size(), 2u);
  program.ops[outs[1]].weights = program.ops[outs[0]].weights;
  const host::Plan plan = host::make_plan(program);
  const Lowering all = *lower(model.weights, plan, std::vector<bool>(model.weights.size()), {});
  for (uint32_t most = 1; most <= all.kernel_count(); ++most) {
    AneOptions options;
    options.kernels_max = most;
    const auto split = split_program(program, model.weights, options);
    ASSERT_TRUE(split);
    const Lowering left = *lower(model.weights, plan, split->on_host, split->limits);
    EXPECT_LE(left.kernel_count(), most);
    // What is said to be on the host is what the device does not have.
    EXPECT_EQ(split->host_layers.size(), all.layers.size() - left.layers.size()) << most;
    EXPECT_EQ(split->host_layers.empty(), most >= all.kernel_count());
  }
}

}  // namespace
}  // namespace baton::ane
