// The options of unit ane.
#include "baton/unit/ane/options.h"

#include <gtest/gtest.h>

namespace baton::ane {
namespace {

TEST(AneOptions, DefaultsAreStrictAndTimeNothing) {
  const auto options = parse_options("");
  ASSERT_TRUE(options);
  EXPECT_EQ(options->columns, 32);
  EXPECT_EQ(options->dispatch, Dispatch::kBatch);
  EXPECT_EQ(options->mode, apple::Mode::kStrict);
  EXPECT_EQ(options->numerics.profile, apple::Profile::kM1);
  EXPECT_EQ(options->chip, nullptr);
  EXPECT_EQ(options->kernels_max, 118u);  // and one of the start-up check
}

TEST(AneOptions, EveryWord) {
  const auto options = parse_options(
      "device=emulator,dispatch=sequential,columns=64,pipeline=off,head=lazy,mode=lenient,profile=modern,"
      "tables=perturbed,range=clamp,donors=on,chip=m2-ultra,cache=/x/y,kernels=7,kernel_bytes=1000");
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->device, Device::kEmulator);
  EXPECT_EQ(options->dispatch, Dispatch::kSequential);
  EXPECT_EQ(options->columns, 64);
  EXPECT_FALSE(options->pipeline);
  EXPECT_TRUE(options->lazy_head);
  EXPECT_EQ(options->mode, apple::Mode::kLenient);
  EXPECT_EQ(options->numerics.profile, apple::Profile::kModern);
  EXPECT_TRUE(options->numerics.perturbed_tables);
  EXPECT_EQ(options->out_of_range, apple::OutOfRange::kClamp);
  EXPECT_TRUE(options->donors);
  ASSERT_NE(options->chip, nullptr);
  EXPECT_EQ(options->chip->name, "m2-ultra");
  EXPECT_EQ(options->cache_folder, "/x/y");
  EXPECT_EQ(options->kernels_max, 7u);
  EXPECT_EQ(options->weight_bytes_max, 1000u);
}

TEST(AneOptions, NumericsAndLimits) {
  const auto options = parse_options("profile=m3,compiles=119,cache=off");
  ASSERT_TRUE(options) << options.error().message;
  EXPECT_EQ(options->numerics.profile, apple::Profile::kM3);
  EXPECT_EQ(options->compiles_max, 119u);
  EXPECT_FALSE(options->cache);
}

// What a Mac owner gets: the driver's reason, and never an emulation that was not asked for.
TEST(AneOptions, OnAMacTheEmulatorRunsOnlyWhenNamed) {
  const auto failing = []() -> Status { return fail(Code::kUnsupported, "start-up check: channel 0 column 0 is 1"); };
  const auto working = []() -> Status { return {}; };
  const auto not_called = []() -> Status {
    ADD_FAILURE() << "the driver is not to be opened";
    return {};
  };
  for (const Device device : {Device::kAuto, Device::kHardware}) {
    EXPECT_TRUE(*choose_hardware(device, true, working));
    const auto refused = choose_hardware(device, true, failing);
    ASSERT_FALSE(refused);
    EXPECT_EQ(refused.error().code, Code::kUnsupported);
    EXPECT_NE(refused.error().message.find("channel 0 column 0"), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find("ane:device=emulator"), std::string::npos);
  }
  EXPECT_FALSE(*choose_hardware(Device::kEmulator, true, not_called));
  EXPECT_FALSE(*choose_hardware(Device::kEmulator, false, not_called));
  EXPECT_FALSE(*choose_hardware(Device::kAuto, false, failing));
  EXPECT_FALSE(choose_hardware(Device::kHardware, false, failing));
}

TEST(AneOptions, TheCacheIsOnWhereCompilingCosts) {
  AneOptions options;
  EXPECT_TRUE(cache_folder(options, false).empty());
  EXPECT_TRUE(cache_folder(options, true).string().ends_with("Library/Caches/baton/ane"));
  options.cache_folder = "/x";
  EXPECT_EQ(cache_folder(options, false), "/x");
  EXPECT_EQ(cache_folder(options, true), "/x");
  options.cache = false;
  EXPECT_TRUE(cache_folder(options, true).empty());
}

TEST(AneOptions, WhatIsWrongIsNamedWithItsChoices) {
  const struct {
    const char *text, *message;
  } cases[] = {{"columns=48", "32|64|128"},       {"chip=m9", "m2-ultra"},       {"kernels=0", "kernels=1.."},
               {"kernels=9x", "kernels=1.."},     {"speed=1", "dispatch="},      {"columns", "write columns="},
               {"donors=on,donors=off", "twice"}, {"cache=", "cache=FOLDER|off"}};
  for (const auto& item : cases) {
    const auto options = parse_options(item.text);
    ASSERT_FALSE(options) << item.text;
    EXPECT_EQ(options.error().code, Code::kInvalidInput);
    EXPECT_NE(options.error().message.find(item.message), std::string::npos) << options.error().message;
  }
}

}  // namespace
}  // namespace baton::ane
