// Rates of this machine: they exist, repeat, and their loops do all of the work they count.
#include "baton/bench/limits.h"

#include <gtest/gtest.h>

#include "baton/base/clock.h"
#include "baton/base/random.h"
#include "baton/bench/limits_loops.h"
#include "baton/unit/host/kernel_sets.h"

namespace baton {
namespace {

TEST(ReadLoop, TouchesEveryWord) {
  alignas(64) static unsigned char data[512 * 5];
  std::fill(std::begin(data), std::end(data), static_cast<unsigned char>(1));
  const ReadLoop loop = best_read_loop();
  EXPECT_EQ(loop(data, sizeof(data)), 0u);
  for (size_t i = 0; i < sizeof(data); i += 8) {
    data[i] ^= 0x40;
    EXPECT_EQ(loop(data, sizeof(data)), 0x40u) << "byte " << i;
    data[i] ^= 0x40;
  }
}

TEST(Limits, ReadOfASmallBufferIsFasterOrEqualAndMeasuredOnce) {
  Limits limits(1);
  const auto small = limits.read(16 << 10);
  ASSERT_TRUE(small) << small.error().message;
  EXPECT_GT(small->median, 1e8);
  EXPECT_LE(small->low, small->median);
  EXPECT_LE(small->median, small->high);
  EXPECT_EQ(small->what, "read of 0 MiB, 1 thread");
  const SteadyClock clock;
  const int64_t start = clock.now_ns();
  const auto again = limits.read(16 << 10);
  EXPECT_LT(ms_between(start, clock.now_ns()), 5);
  EXPECT_EQ(again->median, small->median);
}

// No buffer is larger than memory_bytes().
TEST(Limits, ReadsAreCapped) {
  EXPECT_GE(Limits::memory_bytes(), uint64_t{16} << 20);
  EXPECT_LE(Limits::memory_bytes(), uint64_t{1} << 30);
  EXPECT_GE(Limits::memory_bytes(), std::min(Limits::cache_bytes(), uint64_t{1} << 30) / 4);
}

TEST(Limits, ArithmeticOfEveryKernelSetHereHasARate) {
  Limits limits(1);
  for (const host::Kernels* set : host::kernel_sets()) {
    for (const host::Packing packing : {host::Packing::kF32, host::Packing::kQ8_0}) {
      const auto rate = limits.arithmetic(arithmetic_of(*set, packing));
      if (std::string_view(set->name) == "scalar") {
        ASSERT_FALSE(rate);
        EXPECT_EQ(rate.error().message, "the peak of what a compiler chooses is not known");
        continue;
      }
      ASSERT_TRUE(rate) << set->name;
      EXPECT_GT(rate->median, 1e8) << rate->what;
      EXPECT_LT(rate->median, 1e14) << rate->what;
      EXPECT_EQ(limits.arithmetic(arithmetic_of(*set, packing))->median, rate->median);
    }
  }
}

TEST(Limits, WhatAProcessorHasNotGotIsAnError) {
#if defined(__x86_64__)
  EXPECT_FALSE(Limits(1).arithmetic(Arithmetic::kInt8Neon));
#else
  EXPECT_FALSE(Limits(1).arithmetic(Arithmetic::kInt8Avx512));
#endif
}

}  // namespace
}  // namespace baton
