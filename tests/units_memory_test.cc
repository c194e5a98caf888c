// Memory of units: what is known of it before a model is loaded, and what holds requests to it.
#include "baton/api/units.h"

#include <gtest/gtest.h>

#include "baton/api/runtime.h"
#include "baton/base/machine.h"
#include "baton/unit/cuda/driver_emulated.h"
#include "baton/unit/unit.h"

namespace baton {
namespace {

constexpr const char* kCard = "cuda:driver=emulated";
constexpr const char* kModel = BATON_SOURCE_DIR "/tests/data/golden/tiny-llama";

class UnitsMemory : public testing::Test {
 protected:
  void SetUp() override { cuda::emulated_set_memory(kBytes); }
  void TearDown() override { cuda::emulated_reset(); }
  static constexpr uint64_t kBytes = 64 << 20;
};

TEST_F(UnitsMemory, OfDevicesIsTheirOwn) {
  const std::vector<std::string> card = {kCard}, both = {kCard, "cpu"}, host = {"cpu"};
  EXPECT_EQ(memory_of(card), kBytes) << "that lies in the host's, which has more";
  EXPECT_EQ(memory_of(both), kBytes);
  EXPECT_GT(memory_of(host), kBytes);
  const auto unit = create_unit(kCard);
  ASSERT_TRUE(unit);
  const auto room = (*unit)->device_room();
  ASSERT_TRUE(room);
  EXPECT_EQ(room->bytes, kBytes);
  EXPECT_LE(room->free_bytes, kBytes);
  EXPECT_GT(room->free_bytes, kBytes / 2);
  EXPECT_EQ((*create_unit("cpu"))->device_room().error().code, Code::kUnsupported);
}

TEST_F(UnitsMemory, StatesHaveWhatWeightsLeave) {
  RuntimeOptions options;
  options.model = kModel;
  options.units = {"cpu"};
  auto opened = Runtime::open(options);
  ASSERT_TRUE(opened) << opened.error().message;
  const Model& model = (*opened)->model();
  const auto card = create_unit(kCard);
  ASSERT_TRUE(card);
  const uint64_t kept = (*card)->kept_bytes(model).all;
  ASSERT_GT(kept, 0u);
  EXPECT_EQ(state_room(**card, model), kBytes - kBytes / 16 - kept);
  EXPECT_EQ(state_room(**create_unit("cpu"), model), std::nullopt);
  const std::vector<std::string> units = {"cpu", kCard};
  EXPECT_EQ(units_facts(model, units).state_room, kBytes - kBytes / 16 - kept);
  cuda::emulated_set_memory(kept / 2);
  EXPECT_EQ(state_room(**create_unit(kCard), model), 0u);
}

// A request whose state cannot fit is refused at once; one that could waits for others instead of failing.
TEST_F(UnitsMemory, RequestsAreHeldToIt) {
  RuntimeOptions options;
  options.model = kModel;
  options.units = {kCard};
  options.limits.state_bytes_max = uint64_t{1} << 40;
  auto opened = Runtime::open(options);
  ASSERT_TRUE(opened) << opened.error().message;
  const uint64_t room = *state_room(**create_unit(kCard), (*opened)->model());
  EXPECT_EQ((*opened)->limits().state_bytes_max, room);
  options.limits.state_bytes_max = 1000;
  (*opened).reset();
  opened = Runtime::open(options);
  ASSERT_TRUE(opened) << opened.error().message;
  EXPECT_EQ((*opened)->limits().state_bytes_max, 1000u);
}

}  // namespace
}  // namespace baton
