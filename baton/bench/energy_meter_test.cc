// Energy counters: a folder as the kernel's, a table of NVML functions, and what is said when there is none.
#include "baton/bench/energy_meter.h"

#include <gtest/gtest.h>

#include <fstream>

namespace baton {
namespace {

class Powercap : public testing::Test {
 protected:
  Powercap() {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("baton_powercap_") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
  }
  ~Powercap() override { std::filesystem::remove_all(folder_); }

  void put(const char* domain, const char* file, const std::string& value) const {
    std::filesystem::create_directories(folder_ / domain);
    std::ofstream(folder_ / domain / file) << value << '\n';
  }
  void put_domain(const char* domain, const char* name, uint64_t energy_uj) const {
    put(domain, "name", name);
    put(domain, "max_energy_range_uj", "262143328850");
    put(domain, "energy_uj", std::to_string(energy_uj));
  }
  EnergyMeter open() const { return EnergyMeter({folder_, "libbaton-no-such-nvml.so"}); }

  std::filesystem::path folder_;
};

TEST_F(Powercap, PackagesAreSummedWithoutTheirPartsAndThePlatform) {
  put_domain("intel-rapl:0", "package-0", 9'000'000);
  put_domain("intel-rapl:1", "package-1", 1'000'000);
  put_domain("intel-rapl:2", "psys", 50'000'000);
  put_domain("intel-rapl:0:0", "core", 5'000'000);
  put_domain("intel-rapl-mmio:0", "package-0", 9'000'000);
  EnergyMeter meter = open();
  ASSERT_TRUE(meter.available());
  EXPECT_EQ(meter.sources(), (std::vector<std::string>{"RAPL package-0", "RAPL package-1"}));
  meter.start();
  put("intel-rapl:0", "energy_uj", "11000000");
  put("intel-rapl:1", "energy_uj", "1500000");
  put("intel-rapl:2", "energy_uj", "90000000");
  put("intel-rapl:0:0", "energy_uj", "90000000");
  put("intel-rapl-mmio:0", "energy_uj", "90000000");
  const auto readings = meter.readings();
  ASSERT_EQ(readings.size(), 2u);
  EXPECT_NEAR(readings[0].joules, 2.0, 1e-9);
  EXPECT_NEAR(readings[1].joules, 0.5, 1e-9);
  EXPECT_NEAR(meter.joules().value(), 2.5, 1e-9);
  meter.start();
  EXPECT_NEAR(meter.joules().value(), 0, 1e-9);
}

TEST_F(Powercap, WrapsAreMadeUpForEachTime) {
  put("intel-rapl:0", "name", "package-0");
  put("intel-rapl:0", "max_energy_range_uj", "10000000");
  put("intel-rapl:0", "energy_uj", "9000000");
  EnergyMeter meter = open();
  meter.start();
  put("intel-rapl:0", "energy_uj", "2000000");
  EXPECT_NEAR(meter.joules().value(), 3, 1e-9);
  put("intel-rapl:0", "energy_uj", "9500000");
  EXPECT_NEAR(meter.joules().value(), 10.5, 1e-9);
  put("intel-rapl:0", "energy_uj", "500000");
  EXPECT_NEAR(meter.joules().value(), 11.5, 1e-9);
}

TEST_F(Powercap, FallWithoutKnownRangeIsNoFigure) {
  put("intel-rapl:0", "name", "package-0");
  put("intel-rapl:0", "energy_uj", "9000000");
  EnergyMeter meter = open();
  meter.start();
  put("intel-rapl:0", "energy_uj", "2000000");
  EXPECT_FALSE(meter.joules().has_value());
  EXPECT_NE(meter.reason().find("energy_uj fell"), std::string::npos) << meter.reason();
}

TEST_F(Powercap, CounterThatGoesAwayIsNoFigure) {
  put_domain("intel-rapl:0", "package-0", 9'000'000);
  EnergyMeter meter = open();
  meter.start();
  std::filesystem::remove_all(folder_);
  EXPECT_FALSE(meter.joules().has_value());
  EXPECT_NE(meter.reason().find("energy_uj is not there"), std::string::npos) << meter.reason();
}

TEST_F(Powercap, NoFolderIsSaid) {
  EnergyMeter meter = open();
  meter.start();
  EXPECT_FALSE(meter.available());
  EXPECT_FALSE(meter.joules().has_value());
  EXPECT_TRUE(meter.readings().empty());
  ASSERT_EQ(meter.missing().size(), 2u);
  EXPECT_EQ(meter.missing()[0], "no RAPL: " + folder_.string() + " is not there");
  EXPECT_EQ(meter.missing()[1], "no NVML: libbaton-no-such-nvml.so is not there");
}

TEST_F(Powercap, PackageThatCannotBeReadIsSaidAndTheOthersAreNoAnswer) {
  put_domain("intel-rapl:0", "package-0", 9'000'000);
  put("intel-rapl:1", "name", "package-1");
  put("intel-rapl:1", "energy_uj", "not a number");
  EnergyMeter meter = open();
  EXPECT_FALSE(meter.available());
  EXPECT_NE(meter.reason().find("intel-rapl:1/energy_uj is not readable"), std::string::npos) << meter.reason();
}

TEST_F(Powercap, FolderWithoutPackagesIsSaid) {
  put_domain("intel-rapl:0", "psys", 9'000'000);
  EXPECT_NE(open().reason().find("no package below"), std::string::npos);
}

// Two boards; the second has no counter when `second_has_none`.
unsigned long long fake_millijoules[2];
int fake_sessions = 0;
bool second_has_none = false;

NvmlCalls fake_nvml() {
  NvmlCalls calls;
  calls.init = [] { return ++fake_sessions, 0; };
  calls.shutdown = [] { return --fake_sessions, 0; };
  calls.error_string = [](int code) -> const char* { return code == 3 ? "Not Supported" : "Other"; };
  calls.count = [](unsigned* count) { return *count = 2, 0; };
  calls.handle = [](unsigned index, void** device) { return *device = &fake_millijoules[index], 0; };
  calls.name = [](void*, char* to, unsigned size) {
    const std::string_view name = "Board";
    name.copy(to, size);
    to[name.size()] = '\0';
    return 0;
  };
  calls.energy_millijoules = [](void* device, unsigned long long* to) {
    if (second_has_none && device == &fake_millijoules[1]) return 3;
    *to = *static_cast<unsigned long long*>(device);
    return 0;
  };
  return calls;
}

TEST(Nvml, BoardsAreSummedAndTheLibraryIsShutDown) {
  second_has_none = false;
  fake_millijoules[0] = 1'000'000;
  fake_millijoules[1] = 5;
  {
    auto counters = open_nvml(fake_nvml());
    ASSERT_TRUE(counters) << counters.error().message;
    EnergyMeter meter(*std::move(counters));
    EXPECT_EQ(meter.sources(), (std::vector<std::string>{"NVML Board #0", "NVML Board #1"}));
    meter.start();
    fake_millijoules[0] += 2500;
    fake_millijoules[1] += 500;
    EXPECT_NEAR(meter.joules().value(), 3, 1e-9);
    EXPECT_GT(fake_sessions, 0);
  }
  EXPECT_EQ(fake_sessions, 0);
}

TEST(Nvml, BoardWithoutCounterIsSaid) {
  second_has_none = true;
  const auto counters = open_nvml(fake_nvml());
  ASSERT_FALSE(counters);
  EXPECT_EQ(counters.error().message, "no NVML: NVML Board #1: no energy counter: Not Supported");
  EXPECT_EQ(fake_sessions, 0);
}

// Whatever this machine has: a figure that does not fall, or a reason.
TEST(EnergyMeter, ThisMachineGivesReadingsOrReasons) {
  EnergyMeter meter;
  meter.start();
  const auto joules = meter.joules();
  EXPECT_EQ(joules.has_value(), meter.available());
  if (joules) {
    EXPECT_GE(*joules, 0);
    EXPECT_FALSE(meter.sources().empty());
  } else {
    EXPECT_EQ(meter.missing().size(), 2u);
    EXPECT_FALSE(meter.reason().empty());
  }
}

}  // namespace
}  // namespace baton
