// The unit asked for is the unit that ran, and it says how that is known.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>
#include <set>

#include "baton/api/units.h"
#include "tests/support/golden.h"
#include "tests/support/op_models.h"
#include "tests/support/seats.h"
#include "tests/support/state_values.h"

namespace baton::test {
namespace {

TEST(Placement, EveryUnitRanItselfAndSaysHow) {
  Random random(3);
  const OpModel op = make_op_model(OpKind::kLinear, DType::kQ8_0, random);
  size_t available = 0;
  for (const UnitEntry* entry : unit_entries()) {
    auto unit = entry->create({});
    if (!unit) {
      EXPECT_FALSE(unit.error().message.empty()) << entry->name;  // a reason for people
      continue;
    }
    ++available;
    EXPECT_EQ((*unit)->name(), entry->name);
    auto executor = (*unit)->load(op.model, 1);
    ASSERT_TRUE(executor) << executor.error().message;
    auto state = (*executor)->new_state(8);
    ASSERT_TRUE(state);
    const std::vector<int32_t> ids = {1, 2, 3};
    ASSERT_TRUE((*executor)->prefill(**state, ids, {}));
    const Placement placement = (*executor)->placement();
    EXPECT_EQ(placement.ran, entry->name);
    EXPECT_FALSE(placement.arithmetic.empty()) << entry->name;
    EXPECT_EQ(placement.text().find(placement.arithmetic), 0u) << placement.text();
    EXPECT_EQ(placement.emulated, placement.text().find("emulated") != std::string::npos) << placement.text();
    EXPECT_EQ(placement.emulated, (*unit)->caps().emulated) << entry->name;
    EXPECT_EQ(entry->only_prefills, (*unit)->caps().decode_seats_max == 0) << entry->name;
  }
  EXPECT_GE(available, 2u);  // ref and cpu run everywhere
}

// An op that a unit does not list is refused before anything is converted, whichever unit it is.
TEST(Placement, AnOpThatAUnitLacksIsNamedAtLoad) {
  Random random(3);
  const OpModel op = make_op_model(OpKind::kLinear, DType::kF32, random);
  const auto forged = std::const_pointer_cast<Model>(op.model);
  const size_t at = forged->program.ops.size() - 2;
  forged->program.ops[at].kind = static_cast<OpKind>(200);
  forged->program.ops[at].layer = 7;
  for (const UnitEntry* entry : unit_entries()) {
    auto unit = entry->create({});
    if (!unit) continue;
    const auto executor = (*unit)->load(op.model, 1);
    ASSERT_FALSE(executor) << entry->name;
    EXPECT_EQ(executor.error().code, Code::kUnsupported);
    const std::string wanted = fmt::format("no op unknown (op {} of the model, layer 7)", at);
    EXPECT_NE(executor.error().message.find(wanted), std::string::npos) << executor.error().message;
  }
}

// A Program that must see a sequence as a whole is for units that need not cut prompts.
TEST(Placement, AProgramThatMustNotBeCutIsRefusedAtLoad) {
  Random random(3);
  const OpModel op = make_op_model(OpKind::kLinear, DType::kF32, random);
  std::const_pointer_cast<Model>(op.model)->program.whole_sequence = true;
  for (const UnitEntry* entry : unit_entries()) {
    auto unit = entry->create({});
    if (!unit) continue;
    Caps caps = (*unit)->caps();
    if (caps.cuts_prompts) {
      const auto executor = (*unit)->load(op.model, 1);
      ASSERT_FALSE(executor) << entry->name;
      EXPECT_EQ(executor.error().code, Code::kUnsupported);
      EXPECT_NE(executor.error().message.find("as a whole"), std::string::npos) << executor.error().message;
    }
    caps.cuts_prompts = true;
    EXPECT_FALSE(check_program(entry->name, caps, op.model->program));
    caps.cuts_prompts = false;
    EXPECT_TRUE(check_program(entry->name, caps, op.model->program));
  }
}

TEST(Placement, UnknownUnitNamesTheOthers) {
  const auto unit = create_unit("tpu");
  ASSERT_FALSE(unit);
  EXPECT_EQ(unit.error().code, Code::kNotFound);
  EXPECT_NE(unit.error().message.find("ref"), std::string::npos);
}

struct Made {
  std::string arithmetic;
  std::vector<float> values, logits;
};

// The same steps: prefills of 70 and 3, two decodes where the unit decodes. `company`: other sequences in them, in the
// prefill where that changes nothing.
Made make(Unit& unit, const std::shared_ptr<const Model>& model, uint32_t threads, uint64_t room, bool settled,
          bool company) {
  auto executor = unit.load(model, threads);
  BATON_CHECK(executor);
  if (settled) BATON_CHECK((*executor)->settle());
  const auto vocab = static_cast<size_t>(model->program.vocab);
  std::vector<int32_t> ids, other = {5, 9, 2, 40};
  for (int32_t i = 0; i < 75; ++i) ids.push_back((i * 37 + 11) % model->program.vocab);
  Made made{(*executor)->arithmetic(), {}, std::vector<float>(vocab)};
  auto state = (*executor)->new_state(room);
  BATON_CHECK(state);
  std::vector<std::unique_ptr<SequenceState>> others;
  for (size_t i = 0; company && i < 3; ++i) others.push_back(*(*executor)->new_state(20));
  std::vector<SeatRows> seats = {{state->get(), std::span(ids).first(70), {}}};
  for (const auto& neighbour : others) {
    if (unit.caps().shared_prefills_exact) seats.insert(seats.begin(), {neighbour.get(), other, {}});
  }
  BATON_CHECK(step_together(**executor, seats));
  BATON_CHECK((*executor)->prefill(**state, std::span(ids).subspan(70, 3), made.logits));
  const size_t rows = std::min<size_t>(unit.caps().decode_seats_max, others.size() + 1);
  for (size_t step = 0; step < 2 && rows > 0; ++step) {
    std::vector<SeatRows> decoded;
    for (size_t i = 0; i + 1 < rows; ++i) decoded.push_back({others[i].get(), other[step], {}});
    decoded.push_back({state->get(), ids[73 + step], made.logits});
    BATON_CHECK(step_together(**executor, decoded));
  }
  made.values = state_values(**state);
  return made;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// What Executor::arithmetic() promises, for every unit: bound 0 of the bridge proof rests on it.
TEST(Placement, EqualArithmeticGivesEqualBits) {
  for (const auto& file : {data_folder() / "golden" / "tiny-qwen3.5", data_folder() / "golden" / "tiny-llama"}) {
    const auto model = load_model(file);
    ASSERT_TRUE(model) << model.error().message;
    std::set<std::string> names;
    for (const UnitEntry* entry : unit_entries()) {
      auto unit = entry->create({});
      if (!unit) continue;
      const Made one = make(**unit, *model, 1, 80, false, false);
      EXPECT_EQ(one.arithmetic.find(std::string(entry->name) + "/"), 0u) << one.arithmetic;
      EXPECT_LE(one.arithmetic.size(), kArithmeticNameMax);
      EXPECT_EQ(one.arithmetic.find(' '), std::string::npos);
      EXPECT_TRUE(names.insert(one.arithmetic).second) << one.arithmetic;
      const Made three = make(**unit, *model, 3, 200, true, true);
      EXPECT_EQ(one.arithmetic, three.arithmetic);
      EXPECT_TRUE(same_bits(one.values, three.values)) << entry->name;
      EXPECT_TRUE(same_bits(one.logits, three.logits)) << entry->name;
    }
    EXPECT_GE(names.size(), 2u);
  }
}

// Whatever changes bits has another name.
TEST(Placement, OtherArithmeticHasAnotherName) {
  const auto model = load_model(data_folder() / "golden" / "tiny-llama");
  ASSERT_TRUE(model);
  const auto name_with = [&](const std::string& unit_name) -> std::string {
    auto unit = create_unit(unit_name);
    return unit ? (*(*unit)->load(*model, 1))->arithmetic() : "";
  };
  std::set<std::string> names;
  size_t sets = 0;
  for (const char* set : {"scalar", "avx2", "avx512", "avx512bf16", "amx", "neon"}) {
    const std::string name = name_with(std::string("cpu:kernels=") + set);
    if (name.empty()) continue;  // not on this machine
    ++sets;
    names.insert(name);
  }
  EXPECT_EQ(names.size(), sets);
  names.clear();
  const std::vector<const char*> different = {"profile=m1,device=emulator",
                                              "profile=modern,device=emulator",
                                              "tables=perturbed",
                                              "dispatch=sequential",
                                              "columns=64",
                                              "kernels=40"};
  for (const char* options : different) names.insert(name_with(std::string("ane:") + options));
  EXPECT_EQ(names.size(), different.size());
  EXPECT_EQ(name_with("ane:pipeline=off"), name_with("ane:pipeline=on"));
}

}  // namespace
}  // namespace baton::test
