// Kernels that measure a card, on the host, thread by thread: that they do all of the work that is counted. The path of
// wgmma has no twin here.
#include <gtest/gtest.h>

#include <cstring>
#include <vector>

#include "baton/unit/cuda/kernels/limits.cu"
#include "tests/fiber/fiber.h"

namespace baton::cuda::test {
namespace {

constexpr uint32_t kBlocks = 2;
struct alignas(16) Vector {
  uint32_t x, y, z, w;
};
Address address(const void* of) { return reinterpret_cast<Address>(of); }

class LimitKernels : public testing::Test {
 protected:
  LimitKernels() : from_(2 * kBlocks * kLimitChunk), to_(from_.size()), sums_(kBlocks * 16) {
    work_.from = address(from_.data());
    work_.to = address(to_.data());
    work_.sums = address(sums_.data());
    work_.path = address(&path_);
    work_.vectors = from_.size();
    LimitWork fill = work_;
    fill.to = work_.from;
    fiber::launch({.blocks = 3, .threads = kLimitThreads}, [&] { baton_limit_fill(fill); });
  }
  uint32_t read(uint32_t rounds) {
    work_.rounds = rounds;
    fiber::launch({.blocks = kBlocks, .threads = kLimitThreads}, [&] { baton_limit_read(work_); });
    uint32_t all = 0;
    for (const uint32_t sum : sums_) all ^= sum;
    return all;
  }
  double floats(size_t warps) const {
    double all = 0;
    for (size_t i = 0; i < warps; ++i) {
      float sum = 0;
      std::memcpy(&sum, &sums_[i], sizeof(sum));
      all += sum;
    }
    return all;
  }

  std::vector<Vector> from_, to_;
  std::vector<uint32_t> sums_;
  uint32_t path_ = 0;
  LimitWork work_;
};

TEST_F(LimitKernels, AReadTouchesEveryWordInEveryRound) {
  for (const uint32_t rounds : {1u, 2u, 3u}) EXPECT_EQ(read(rounds), expected_read(work_.vectors, rounds));
  for (const size_t i : {size_t{0}, size_t{4097}, from_.size() / 2, from_.size() - 1}) {
    for (uint32_t Vector::*word : {&Vector::x, &Vector::y, &Vector::z, &Vector::w}) {
      from_[i].*word ^= 0x40;
      EXPECT_EQ(read(1), expected_read(work_.vectors, 1) ^ 0x40) << "vector " << i;
      from_[i].*word ^= 0x40;
    }
  }
}

TEST_F(LimitKernels, ACopyIsWhole) {
  work_.rounds = 1;
  fiber::launch({.blocks = kBlocks, .threads = kLimitThreads}, [&] { baton_limit_copy(work_); });
  EXPECT_EQ(std::memcmp(from_.data(), to_.data(), from_.size() * sizeof(Vector)), 0);
}

TEST_F(LimitKernels, ProductsAreThoseThatAreCounted) {
  double values = 0;
  for (uint32_t i = 0; i < 128; ++i) values += limit_number(i, 0) + limit_number(i, 1);
  for (const uint32_t rounds : {1u, 5u}) {
    work_.rounds = rounds;
    fiber::launch({.blocks = kBlocks, .threads = kLimitProductThreads, .shared_bytes = kLimitProductShared},
                  [&] { baton_limit_products(work_); });
    const double each = values * 8 * limit_number(0, 0) * kLimitMmas;  // of a warp in a round
    EXPECT_NEAR(floats(kBlocks * 8) / (each * kBlocks * 8 * rounds), 1, 1e-4);
    EXPECT_EQ(path_, static_cast<uint32_t>(LimitPath::kMma));
  }
}

TEST_F(LimitKernels, FloatsAreThoseThatAreCounted) {
  work_.rounds = 7;
  fiber::launch({.blocks = kBlocks, .threads = kLimitThreads}, [&] { baton_limit_f32(work_); });
  EXPECT_EQ(floats(kBlocks * 16), (7.0 + 7.5) * kLimitSums * kLimitThreads * kBlocks);
}

TEST(LimitValues, AreOfAHalfToOne) {
  for (uint32_t row = 0; row < 384; ++row) {
    for (uint32_t place = 0; place < 8; ++place) {
      const uint32_t bits = limit_value(row, place) << 16;
      float value = 0;
      std::memcpy(&value, &bits, sizeof(value));
      EXPECT_EQ(value, limit_number(row, place));
      EXPECT_GE(value, 0.5f);
      EXPECT_LT(value, 1.0f);
    }
  }
}

}  // namespace
}  // namespace baton::cuda::test
