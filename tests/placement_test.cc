// The unit asked for is the unit that ran, and it says how that is known.
#include <gtest/gtest.h>

#include "baton/api/units.h"
#include "tests/support/golden.h"
#include "tests/support/op_models.h"

namespace baton::test {
namespace {

TEST(Placement, EveryUnitRanItselfAndSaysHow) {
  Random random(3);
  const OpModel op = make_op_model(OpKind::kLinear, DType::kQ8_0, random);
  size_t available = 0;
  for (const UnitEntry* entry : unit_entries()) {
    auto unit = entry->create();
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
    EXPECT_FALSE(placement.evidence.empty()) << entry->name;
    const Estimate estimate = (*executor)->estimate({.prefill_tokens = 16});
    EXPECT_GT(estimate.ms, 0) << entry->name;
    EXPECT_TRUE(estimate.basis == "measured" || estimate.basis == "estimated" || estimate.basis == "emulated")
        << estimate.basis;
  }
  EXPECT_GE(available, 2u);  // ref and cpu run everywhere
}

TEST(Placement, UnknownUnitNamesTheOthers) {
  const auto unit = create_unit("tpu");
  ASSERT_FALSE(unit);
  EXPECT_EQ(unit.error().code, Code::kNotFound);
  EXPECT_NE(unit.error().message.find("ref"), std::string::npos);
}

}  // namespace
}  // namespace baton::test
