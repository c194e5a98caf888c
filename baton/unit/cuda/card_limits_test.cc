// Limits of the emulated card, whose kernels here are bodies of this page: what is launched, counted and looked at, and
// that an emulated card's speed is nobody's.
#include "baton/unit/cuda/card_limits.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "baton/unit/cuda/driver_emulated.h"
#include "baton/unit/cuda/limit_work.h"
#include "baton/unit/entry.h"

namespace baton {
extern const UnitEntry k_unit_cuda;
}

namespace baton::cuda {
namespace {

// Of the emulated card: four processors with one block each.
constexpr uint32_t kBlocks = 4;
constexpr CardLimitSizes kSmall = {.bytes = 1 << 20, .pinned_bytes = 1 << 16, .runs = 3, .run_ms = 0, .warm_ms = 0};

// How the bodies misbehave, and what they were asked.
uint64_t left_out = 0;        // vectors, or rounds of arithmetic
uint32_t done_at_most = ~0u;  // launches; those that come behind them do nothing
uint32_t copied_over = 0;     // what lay there before the first copy
LimitPath said_path = LimitPath::kMma;
std::vector<LimitWork> asked;
bool does_nothing() { return done_at_most == 0 || (done_at_most != ~0u && done_at_most-- == 0); }

struct Vector {
  uint32_t x, y, z, w;
};
Vector* vectors(Address at) { return reinterpret_cast<Vector*>(at); }
void put_float(const LimitWork& work, uint32_t warps, double all) {
  auto* sums = reinterpret_cast<float*>(work.sums);
  for (uint32_t i = 0; i < warps; ++i) sums[i] = static_cast<float>(all / warps);
}

void fill_body(const void* argument) {
  const auto& work = *static_cast<const LimitWork*>(argument);
  for (uint32_t i = 0; i < work.vectors; ++i) vectors(work.to)[i] = {i, i + 1, ~i, i};
}
void read_body(const void* argument) {
  const auto& work = *static_cast<const LimitWork*>(argument);
  if (does_nothing()) return;
  asked.push_back(work);
  uint32_t sum = 0;
  for (uint32_t round = 0; round < work.rounds; ++round) {
    sum = turned_left(sum);
    for (uint64_t i = left_out; i < work.vectors; ++i) {
      const Vector& v = vectors(work.from)[i];
      sum ^= v.x ^ v.y ^ v.z ^ v.w;
    }
  }
  auto* sums = reinterpret_cast<uint32_t*>(work.sums);
  std::memset(sums, 0, kBlocks * (kLimitThreads / 32) * sizeof(uint32_t));
  sums[kBlocks * (kLimitThreads / 32) - 1] = sum;
}
void copy_body(const void* argument) {
  const auto& work = *static_cast<const LimitWork*>(argument);
  if (does_nothing()) return;
  if (copied_over == 0) copied_over = vectors(work.to)[0].x;
  std::memcpy(vectors(work.to), vectors(work.from), (work.vectors - left_out) * 16);
}
void products_body(const void* argument) {
  const auto& work = *static_cast<const LimitWork*>(argument);
  if (does_nothing()) return;
  *reinterpret_cast<uint32_t*>(work.path) = static_cast<uint32_t>(said_path);
  double round = 0;
  if (said_path == LimitPath::kMma) {
    for (uint32_t i = 0; i < 128; ++i) round += limit_number(i, 0) + limit_number(i, 1);
    round *= 8 * 16 * 8 * limit_number(0, 0);
  } else {
    for (uint32_t i = 0; i < 128; ++i) {
      for (uint32_t j = 128; j < 384; ++j) {
        for (uint32_t k = 0; k < 64; ++k) round += limit_number(i, k % 8) * limit_number(j, k % 8);
      }
    }
  }
  put_float(work, kBlocks * kLimitProductThreads / 32,
            kBlocks * round * static_cast<double>(work.rounds - std::min<uint64_t>(left_out, work.rounds)));
}
void f32_body(const void* argument) {
  const auto& work = *static_cast<const LimitWork*>(argument);
  if (does_nothing()) return;
  put_float(work, kBlocks * kLimitThreads / 32,
            16.0 * kLimitThreads * kBlocks *
                (7.5 + static_cast<double>(work.rounds - std::min<uint64_t>(left_out, work.rounds))));
}

class CardLimits : public testing::Test {
 protected:
  CardLimits() {
    emulated_reset();
    emulate_kernel("baton_limit_fill", sizeof(LimitWork), fill_body);
    emulate_kernel("baton_limit_read", sizeof(LimitWork), read_body);
    emulate_kernel("baton_limit_copy", sizeof(LimitWork), copy_body);
    emulate_kernel("baton_limit_products", sizeof(LimitWork), products_body);
    emulate_kernel("baton_limit_f32", sizeof(LimitWork), f32_body);
    left_out = 0;
    done_at_most = ~0u;
    said_path = LimitPath::kMma;
    asked.clear();
    card_ = *Card::open(emulated_driver(), 0, "limits");
  }
  ~CardLimits() override {
    card_.reset();
    EXPECT_EQ(emulated_use(), EmulatedUse()) << "something is still held";
    EXPECT_EQ(emulated_misuse(), "");
    emulated_reset();
  }
  Result<Rate> measure(DeviceLimit which, const CardLimitSizes& sizes = kSmall) {
    return measure_limit(*card_, which, sizes);
  }
  std::shared_ptr<Card> card_;
};

constexpr DeviceLimit kAllLimits[] = {DeviceLimit::kRead, DeviceLimit::kCopy, DeviceLimit::kFromHost,
                                      DeviceLimit::kBF16Products, DeviceLimit::kF32Products};

TEST_F(CardLimits, EachHasARateAndSaysHow) {
  const char* const kWhat[] = {"read of 1 MiB by kernels, emulated card (cuda:0, emulated)",
                               "copy of 0 MiB by kernels, read and written, emulated card (cuda:0, emulated)",
                               "copies of 0 MiB from pinned memory, emulated card (cuda:0, emulated)",
                               "bf16 mma m16n8k16, sums in f32, emulated card (cuda:0, emulated)",
                               "f32 multiply-adds, emulated card (cuda:0, emulated)"};
  for (size_t i = 0; i < std::size(kAllLimits); ++i) {
    const auto rate = measure(kAllLimits[i]);
    ASSERT_TRUE(rate) << rate.error().message;
    EXPECT_EQ(rate->what, kWhat[i]);
    EXPECT_GT(rate->low, 0);
    EXPECT_LE(rate->low, rate->median);
    EXPECT_LE(rate->median, rate->high);
  }
}

TEST_F(CardLimits, ReadsAreOfWholeChunksForEveryBlock) {
  ASSERT_TRUE(measure(DeviceLimit::kRead, {.bytes = 3'000'000, .runs = 1, .run_ms = 0, .warm_ms = 0}));
  ASSERT_FALSE(asked.empty());
  EXPECT_EQ(asked[0].vectors % (kLimitChunk * kBlocks), 0u);
  EXPECT_LE(asked[0].vectors * 16, 3'000'000u);
  EXPECT_GT(asked[0].vectors * 16, 2'500'000u);
}

TEST_F(CardLimits, AQuarterOfWhatIsFreeIsTheMost) {
  emulated_set_memory(8 << 20);
  ASSERT_TRUE(measure(DeviceLimit::kRead, {.bytes = 1 << 20, .runs = 1, .run_ms = 0, .warm_ms = 0}));
  const auto most = measure(DeviceLimit::kRead, {.bytes = 512 << 20, .runs = 1, .run_ms = 0, .warm_ms = 0});
  ASSERT_FALSE(most);  // fewer than 64 MiB say nothing of memory
  EXPECT_EQ(most.error().code, Code::kOutOfMemory);
  emulated_set_memory(400 << 20);
  asked.clear();
  ASSERT_TRUE(measure(DeviceLimit::kRead, {.bytes = 512 << 20, .runs = 1, .run_ms = 0, .warm_ms = 0}));
  EXPECT_LE(asked.at(0).vectors * 16, 100u << 20);
  EXPECT_GE(asked.at(0).vectors * 16, 99u << 20);
}

TEST_F(CardLimits, WorkThatWasNotDoneHasNoRate) {
  for (const DeviceLimit which : kAllLimits) {
    if (which == DeviceLimit::kFromHost) continue;
    left_out = kLimitChunk;
    const auto rate = measure(which);
    ASSERT_FALSE(rate);
    EXPECT_EQ(rate.error().code, Code::kInternal);
    EXPECT_NE(rate.error().message.find("was not all done"), std::string::npos) << rate.error().message;
  }
}

// Sums of the launch before would do, and so would memory that was copied before.
TEST_F(CardLimits, WorkThatWasDoneBeforeHasNoRate) {
  for (const DeviceLimit which : kAllLimits) {
    if (which == DeviceLimit::kFromHost) continue;
    for (const uint32_t most : {0, 1}) {
      if (which == DeviceLimit::kCopy && most == 1) continue;  // one copy is all that is to be seen
      done_at_most = most;
      const auto rate = measure(which);
      ASSERT_FALSE(rate) << static_cast<int>(which) << " " << most;
      EXPECT_NE(rate.error().message.find("was not all done"), std::string::npos) << rate.error().message;
      done_at_most = ~0u;
      ASSERT_TRUE(measure(which));
    }
  }
}

TEST_F(CardLimits, CopiesGoWhereNothingLikeThemLies) {
  copied_over = 0;
  ASSERT_TRUE(measure(DeviceLimit::kCopy));
  EXPECT_EQ(copied_over, 0xa5a5a5a5u);
}

// The sums of 64 rounds are 0, as if there had been none.
TEST_F(CardLimits, RoundsOfReadsAreOdd) {
  ASSERT_TRUE(measure(DeviceLimit::kRead, {.bytes = 1 << 20, .runs = 2, .run_ms = 5, .warm_ms = 0}));
  EXPECT_EQ(asked.back().rounds % 2, 1u);
}

TEST_F(CardLimits, AClockThatIsNoneIsNotTaken) {
  static float told;
  static Driver driver;
  driver = emulated_driver();
  driver.event_elapsed = [](float* milliseconds, Handle, Handle) {
    *milliseconds = told;
    return DriverCode{kDone};
  };
  card_.reset();
  card_ = *Card::open(driver, 0, "limits");
  CardLimitSizes sizes = kSmall;
  sizes.run_ms = 1;
  for (const auto& [clock, said] : {std::pair(NAN, "nan ms"), std::pair(-1.0f, "-1 ms"), std::pair(INFINITY, "inf ms"),
                                    std::pair(0.0f, " rounds of")}) {
    told = clock;
    for (const DeviceLimit which : {DeviceLimit::kFromHost, DeviceLimit::kF32Products}) {
      if (clock == 0 && which == DeviceLimit::kFromHost) continue;  // a million copies
      const auto rate = measure(which, sizes);
      ASSERT_FALSE(rate) << said;
      EXPECT_NE(rate.error().message.find(said), std::string::npos) << rate.error().message;
    }
  }
}

TEST_F(CardLimits, WgmmaCountsItsOwnWork) {
  const auto runs = [&](LimitPath path) {
    said_path = path;
    const auto rate = measure(DeviceLimit::kBF16Products);
    EXPECT_TRUE(rate) << rate.error().message;
    return rate ? rate->what : "";
  };
  EXPECT_EQ(runs(LimitPath::kMma).substr(0, 8), "bf16 mma");
  EXPECT_EQ(runs(LimitPath::kWgmma).substr(0, 10), "bf16 wgmma");
}

TEST_F(CardLimits, RunsAreLongEnough) {
  const auto begin = std::chrono::steady_clock::now();
  ASSERT_TRUE(measure(DeviceLimit::kRead, {.bytes = 1 << 20, .runs = 2, .run_ms = 5, .warm_ms = 0}));
  EXPECT_GE(std::chrono::steady_clock::now() - begin, std::chrono::milliseconds(10));
  EXPECT_GT(asked.back().rounds, asked.front().rounds);
}

TEST_F(CardLimits, EveryCallMayFail) {
  for (const DeviceLimit which : kAllLimits) {
    emulated_reset();
    ASSERT_TRUE(measure(which));
    const uint64_t calls = emulated_calls();
    for (uint64_t nth = 1; nth <= calls; ++nth) {
      emulated_reset();
      emulated_fail({.nth = nth, .code = kIllegalAddress});
      const auto rate = measure(which);
      if (!rate) {
        EXPECT_EQ(rate.error().code, Code::kUnavailable);
      }
      card_.reset();
      emulated_reset();
      card_ = *Card::open(emulated_driver(), 0, "limits");
    }
  }
}

TEST_F(CardLimits, AnEmulatedUnitTellsNone) {
  const auto options = UnitOptions::parse("cuda", "driver=emulated", k_unit_cuda.options());
  ASSERT_TRUE(options);
  const auto unit = k_unit_cuda.create(*options);
  ASSERT_TRUE(unit);
  for (const DeviceLimit which : kAllLimits) {
    const auto rate = (*unit)->limit(which);
    ASSERT_FALSE(rate);
    EXPECT_EQ(rate.error().code, Code::kUnsupported);
    EXPECT_EQ(rate.error().message, "cuda: an emulated card has no speed of its own");
  }
}

TEST_F(CardLimits, TheLinkIsMeasuredInPassing) {
  auto stream = card_->stream();
  auto memory = card_->allocate(4096, "a test");
  auto pinned = card_->allocate_pinned(4096);
  ASSERT_TRUE(stream && memory && pinned);
  std::memset(pinned->data(), 7, 4096);
  const auto rate = measure_link(*card_, *stream, memory->address(), *pinned, 4096);
  ASSERT_TRUE(rate);
  EXPECT_GT(*rate, 0);
}

}  // namespace
}  // namespace baton::cuda
