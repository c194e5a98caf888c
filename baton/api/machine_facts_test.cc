// What is said of a machine.
#include "baton/api/machine_facts.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(MachineFacts, AreWrittenWhole) {
  MachineFacts facts;
  facts.machine = {"A processor", 6, uint64_t{16} << 30, uint64_t{12} << 30};
  facts.hardware.caches = {{1, "data", 48 << 10, 4}, {2, "unified", 1280 << 10, 4}, {3, "unified", 36 << 20, 1}};
  facts.hardware.core_kinds = {{"performance", 4, {0, 1, 2, 3}}, {"efficiency", 2, {4, 5}}};
  facts.physical_cores = 4;
  facts.instruction_sets = {"avx2", "fma"};
  facts.units = {{.name = "ref"}, {.name = "ane", .emulated = true}, {.name = "npu", .missing = "needs one"}};
  EXPECT_EQ(machine_line(facts),
            "A processor, 4 cores (6 processors: 4 performance, 2 efficiency), L2 1280 KiB x4, L3 36 MiB, 16.0 GiB "
            "memory, avx2 fma; units ref, ane (emulated)");
  const auto json = machine_json(facts);
  EXPECT_EQ(json["core_kinds"][1]["processors"], 2);
  EXPECT_EQ(json["core_kinds"][1]["ids"][0], 4);
  EXPECT_EQ(json["caches"][2]["bytes"], 36 << 20);
  EXPECT_EQ(json["instruction_sets"][0], "avx2");
  EXPECT_EQ(json["units"][1]["emulated"], true);
  EXPECT_EQ(json["units"][2]["available"], false);
  EXPECT_EQ(json["units"][2]["reason"], "needs one");
  facts.hardware = {};
  EXPECT_EQ(machine_line(facts).find("A processor, 4 cores (6 processors), 16.0 GiB"), 0u);
}

TEST(MachineFacts, OfThisMachine) {
  const MachineFacts facts = machine_facts();
  EXPECT_GT(facts.machine.cores, 0u);
  EXPECT_GT(facts.physical_cores, 0u);
  EXPECT_GT(facts.machine.memory_bytes, 0u);
  EXPECT_GE(facts.units.size(), 2u);
  EXPECT_TRUE(facts.units.front().missing.empty());
}

}  // namespace
}  // namespace baton
