// Batches of pieces: each piece once, in slots that are used again only when nobody is there any more.
#include "baton/unit/cuda/piece_ring.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>
#include <stdexcept>
#include <vector>

namespace baton::cuda {
namespace {

constexpr size_t kSlots = 3;

TEST(CudaPieceRing, EachPieceOnceWhoeverIsQuicker) {
  for (const uint32_t threads : {1, 2, 4}) {
    ThreadPool pool(threads);
    constexpr uint32_t kBatches = 200;
    std::array<uint32_t, kSlots> batch_of{};  // what a piece reads
    std::vector<std::atomic<uint32_t>> done(kBatches * 8);
    PieceRing<kSlots> ring([&](size_t slot, uint32_t piece, uint32_t thread) {
      EXPECT_LT(thread, threads);
      ++done[batch_of[slot] * 8 + piece];
    });
    ring.run(pool, [&] {
      for (uint32_t batch = 0; batch < kBatches; ++batch) {
        if (batch >= kSlots) ring.wait(batch - kSlots);
        batch_of[batch % kSlots] = batch;
        ring.add(1 + batch % 8);
        if (batch % 5 != 0) continue;
        ring.wait(batch);
        EXPECT_TRUE(ring.done(batch));
      }
      for (uint32_t batch = kBatches - kSlots; batch < kBatches; ++batch) ring.wait(batch);
    });
    for (uint32_t batch = 0; batch < kBatches; ++batch) {
      for (uint32_t piece = 0; piece < 8; ++piece)
        ASSERT_EQ(done[batch * 8 + piece], piece <= batch % 8 ? 1u : 0u) << batch << " " << piece;
    }
  }
}

// What nobody waited for may be left: a load that failed does not go on.
TEST(CudaPieceRing, EndsWithWhoFeedsIt) {
  ThreadPool pool(3);
  std::atomic<uint32_t> done{0};
  {
    PieceRing<kSlots> ring([&](size_t, uint32_t, uint32_t) { ++done; });
    EXPECT_THROW(ring.run(pool,
                          [&] {
                            ring.add(100);
                            throw std::runtime_error("no memory");
                          }),
                 std::runtime_error);
  }
  EXPECT_LE(done, 100u);
  PieceRing<kSlots> empty([&](size_t, uint32_t, uint32_t) { ++done; });
  empty.run(pool, [] {});
}

}  // namespace
}  // namespace baton::cuda
