// When armed points fire, and what is said of words that arm nothing. BATON_FAULT is read where they are compiled in.
#include "baton/base/fault.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

class FaultTest : public testing::Test {
 protected:
  ~FaultTest() override { disarm_faults(); }
  static std::string fires(FaultPoint point, int times) {
    std::string text;
    for (int i = 0; i < times; ++i) text += fault_fires(point) ? 'x' : '.';
    return text;
  }
};

TEST_F(FaultTest, FiresWhenItIsArmed) {
  EXPECT_EQ(fires(FaultPoint::kStepFails, 4), "....");
  ASSERT_TRUE(arm_faults("step.fails:every=3,move.write:once,move.read,file.read:at=2"));
  EXPECT_EQ(fires(FaultPoint::kStepFails, 7), "..x..x.");
  EXPECT_EQ(fires(FaultPoint::kMoveWrite, 3), "x..");
  EXPECT_EQ(fires(FaultPoint::kMoveRead, 3), "x..");
  EXPECT_EQ(fires(FaultPoint::kFileRead, 3), ".x.");
  EXPECT_EQ(faults_reached(FaultPoint::kStepFails), 7u);
  EXPECT_EQ(faults_fired(FaultPoint::kStepFails), 2u);
  disarm_faults();
  EXPECT_EQ(fires(FaultPoint::kStepFails, 4), "....");
}

TEST_F(FaultTest, WrongWordsArmNothing) {
  for (const char* text : {"step.fails:once,nothing:once", "step.fails:every=0", "step.fails:every=", "step.fails:3",
                           "step.fails:at=1x", ":once"}) {
    EXPECT_FALSE(arm_faults(text)) << text;
    EXPECT_EQ(fires(FaultPoint::kStepFails, 1), ".") << text;
  }
}

TEST_F(FaultTest, IsCompiledInWhereItIsAskedFor) {
  arm_fault(FaultPoint::kStepFails, {.at = 1});
#if defined(BATON_FAULTS)
  EXPECT_TRUE(BATON_FAULT(kStepFails));
#else
  EXPECT_FALSE(BATON_FAULT(kStepFails));
  EXPECT_EQ(faults_reached(FaultPoint::kStepFails), 0u);
#endif
}

}  // namespace
}  // namespace baton
