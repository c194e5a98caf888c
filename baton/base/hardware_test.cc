// Caches and kinds of cores, from folders as Linux has them.
#include "baton/base/hardware.h"

#include <gtest/gtest.h>

#include <fstream>

#include "baton/base/temporary_folder.h"

#if !defined(__APPLE__)

namespace baton {
namespace {

class FakeSystem {
 public:
  FakeSystem() : folder_(std::move(*TemporaryFolder::create("hardware"))) {}
  const std::filesystem::path& path() const { return folder_.path(); }
  void put(const std::string& file, const std::string& text) {
    const auto where = path() / "devices" / file;
    std::filesystem::create_directories(where.parent_path());
    std::ofstream(where) << text << "\n";
  }
  void put_cache(int processor, int index, int level, const char* type, const char* size, const char* shared) {
    const std::string folder =
        "system/cpu/cpu" + std::to_string(processor) + "/cache/index" + std::to_string(index) + "/";
    put(folder + "level", std::to_string(level));
    put(folder + "type", type);
    put(folder + "size", size);
    put(folder + "shared_cpu_list", shared);
  }

 private:
  TemporaryFolder folder_;
};

TEST(Hardware, OneKindOfCoresWithSharedCaches) {
  FakeSystem system;
  system.put("system/cpu/online", "0-3");
  for (int i = 0; i < 4; ++i) {
    const char* pair = i < 2 ? "0-1" : "2-3";
    system.put_cache(i, 0, 1, "Data", "48K", pair);
    system.put_cache(i, 1, 1, "Instruction", "32K", pair);
    system.put_cache(i, 2, 2, "Unified", "2048K", pair);
    system.put_cache(i, 3, 3, "Unified", "36M", "0-3");
  }
  const Hardware read = read_hardware(system.path());
  EXPECT_EQ(read.caches, (std::vector<CacheFacts>{{1, "data", 48 << 10, 2},
                                                  {1, "instruction", 32 << 10, 2},
                                                  {2, "unified", 2 << 20, 2},
                                                  {3, "unified", 36 << 20, 1}}));
  EXPECT_EQ(read.core_kinds, (std::vector<CoreKind>{{"all", 4, {0, 1, 2, 3}}}));
}

TEST(Hardware, HybridsOfIntel) {
  FakeSystem system;
  system.put("system/cpu/online", "0-5");
  system.put("cpu_core/cpus", "0-3");
  system.put("cpu_atom/cpus", "4-5");
  for (int i = 0; i < 6; ++i) system.put_cache(i, 0, 1, "Data", i < 4 ? "48K" : "32K", std::to_string(i).c_str());
  const Hardware read = read_hardware(system.path());
  EXPECT_EQ(read.core_kinds, (std::vector<CoreKind>{{"performance", 4, {0, 1, 2, 3}}, {"efficiency", 2, {4, 5}}}));
  EXPECT_EQ(read.caches, (std::vector<CacheFacts>{{1, "data", 32 << 10, 2}, {1, "data", 48 << 10, 4}}));
}

TEST(Hardware, CapacitiesOfArm) {
  FakeSystem system;
  system.put("system/cpu/online", "0-7");
  for (int i = 0; i < 8; ++i) {
    system.put("system/cpu/cpu" + std::to_string(i) + "/cpu_capacity", i < 4 ? "250" : i < 7 ? "700" : "1024");
  }
  const Hardware read = read_hardware(system.path());
  EXPECT_EQ(read.core_kinds, (std::vector<CoreKind>{
                                 {"performance", 1, {7}}, {"middle", 3, {4, 5, 6}}, {"efficiency", 4, {0, 1, 2, 3}}}));
  EXPECT_TRUE(read.caches.empty());
}

TEST(Hardware, WhatIsNotThereOrNonsenseIsLeftOut) {
  FakeSystem system;
  EXPECT_TRUE(read_hardware(system.path()).core_kinds.empty());
  system.put("system/cpu/online", "0-1");
  system.put("cpu_core/cpus", "0-1");  // no second kind
  system.put_cache(0, 0, 1, "Data", "many", "0");
  system.put_cache(0, 1, 0, "Data", "48K", "0");
  system.put_cache(1, 2, 2, "Unified", "99999999999999999999K", "1");
  const Hardware read = read_hardware(system.path());
  EXPECT_TRUE(read.caches.empty());
  EXPECT_EQ(read.core_kinds, (std::vector<CoreKind>{{"all", 2, {0, 1}}}));
}

TEST(Hardware, OfThisMachine) {
  uint32_t count = 0;
  for (const CoreKind& kind : read_hardware().core_kinds) count += kind.count;
  EXPECT_GT(count, 0u);
}

}  // namespace
}  // namespace baton

#endif
