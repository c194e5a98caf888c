// Clocks of boards that this page makes up.
#include "baton/bench/clock_watch.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <thread>

namespace baton {
namespace {

struct FakeBoard {
  std::atomic<unsigned> mhz{1980};
  std::atomic<unsigned long long> reasons{0};
  std::atomic<uint64_t> looks{0};
};
FakeBoard fake_boards[2];
std::atomic<int> open_watches{0};

NvmlCalls fake_clocks() {
  NvmlCalls calls;
  calls.init = [] { return ++open_watches, 0; };
  calls.shutdown = [] { return --open_watches, 0; };
  calls.count = [](unsigned* count) { return *count = 2, 0; };
  calls.handle = [](unsigned index, void** device) { return *device = &fake_boards[index], 0; };
  calls.name = [](void*, char* to, unsigned) { return to[0] = 'B', to[1] = 0, 0; };
  calls.clock_mhz = [](void* device, int which, unsigned* mhz) {
    auto& board = *static_cast<FakeBoard*>(device);
    ++board.looks;
    return *mhz = board.mhz, which == 1 ? 0 : 2;
  };
  calls.clock_mhz_max = [](void*, int which, unsigned* mhz) { return *mhz = 1980, which == 1 ? 0 : 2; };
  calls.clock_reasons = [](void* device, unsigned long long* reasons) {
    return *reasons = static_cast<FakeBoard*>(device)->reasons, 0;
  };
  return calls;
}

class ClockWatchTest : public testing::Test {
 protected:
  ClockWatchTest() {
    for (FakeBoard& board : fake_boards) board.mhz = 1980, board.reasons = 0, board.looks = 0;
  }
  ~ClockWatchTest() override { EXPECT_EQ(open_watches, 0); }
  static void set(unsigned mhz, unsigned long long reasons) {
    fake_boards[1].mhz = mhz, fake_boards[1].reasons = reasons;
  }
  // Until the watch has seen what was set.
  static void seen() {
    const uint64_t before = fake_boards[1].looks;
    for (int i = 0; i < 2000 && fake_boards[1].looks < before + 2; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
};

TEST_F(ClockWatchTest, AFallIsSeenWhileItLasts) {
  ClockWatch watch(fake_clocks(), 1);
  ASSERT_TRUE(watch.available());
  watch.start();
  set(1410, 0x4);
  seen();
  set(1700, 0x24);
  seen();
  set(1980, 0);
  const auto falls = watch.stop();
  ASSERT_EQ(falls.size(), 1u);
  EXPECT_EQ(falls[0].mhz_lowest, 1410u);
  EXPECT_EQ(falls[0].reasons, 0x24u);
  EXPECT_EQ(falls[0].text(), "NVML B #1: clocks fell: 1,980 -> 1,410 MHz, power cap, heat");
  watch.start();
  EXPECT_TRUE(watch.stop().empty());  // forgotten
}

TEST_F(ClockWatchTest, TheEndIsLookedAtHoweverShort) {
  ClockWatch watch(fake_clocks(), 60'000);
  watch.start();
  set(900, 0x80);
  const auto falls = watch.stop();
  ASSERT_EQ(falls.size(), 1u);
  EXPECT_EQ(falls[0].text(), "NVML B #1: clocks fell: 1,980 -> 900 MHz, power brake");
}

TEST_F(ClockWatchTest, LowClocksOfAnIdleBoardAreNoFall) {
  ClockWatch watch(fake_clocks(), 60'000);
  watch.start();
  set(345, 0x1);
  EXPECT_TRUE(watch.stop().empty());
  watch.start();
  set(1200, 0);  // no reason: it is on its way up
  EXPECT_TRUE(watch.stop().empty());
  watch.start();
  set(1980, 0x4);  // capped, and as fast as it can be
  EXPECT_TRUE(watch.stop().empty());
}

TEST_F(ClockWatchTest, UnknownReasonsAreNamedByTheirBits) {
  ClockFall fall;
  fall.reasons = 0x1000 | 0x4;
  EXPECT_EQ(fall.reasons_text(), "power cap, bits 0x1000");
}

TEST_F(ClockWatchTest, WithoutClocksNothingIsSeen) {
  NvmlCalls calls = fake_clocks();
  calls.clock_reasons = nullptr;
  ClockWatch watch(calls);
  EXPECT_FALSE(watch.available());
  watch.start();
  EXPECT_TRUE(watch.stop().empty());
  ClockWatch none("libbaton-no-such-nvml.so");
  EXPECT_FALSE(none.available());
}

}  // namespace
}  // namespace baton
