// Threads that work off batches of pieces in the order of the batches, while one thread adds more behind them and uses
// those that are done. Nobody waits for the slowest at the end of a batch.
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <utility>

#include "baton/base/status.h"
#include "baton/base/thread_pool.h"

namespace baton::cuda {

// Batch n is in slot n % kSlots until the next one there is added.
template <size_t kSlots>
class PieceRing {
 public:
  static constexpr uint32_t kPiecesMax = 0xffff;  // of a batch
  // By any thread of the pool; must not throw.
  using Work = std::function<void(size_t slot, uint32_t piece, uint32_t thread)>;

  explicit PieceRing(Work work) : work_(std::move(work)) {}
  PieceRing(const PieceRing&) = delete;
  PieceRing& operator=(const PieceRing&) = delete;

  // Calls `feed` here, which adds and waits, and has the pool's other threads work until it returns. Pieces that
  // nobody waited for may be left. Once.
  template <class Feed>
  void run(ThreadPool& pool, Feed&& feed) {
    std::exception_ptr thrown;
    pool.run([&](uint32_t thread) {
      if (thread != 0) return stay(thread);
      try {
        feed();
      } catch (...) {
        thrown = std::current_exception();
      }
      closed_.store(true, std::memory_order_relaxed);
      added_.fetch_add(1);
      added_.notify_all();
    });
    if (thrown) std::rethrow_exception(thrown);
  }

  // For `feed`. What pieces read was written before.
  uint32_t added() const { return added_.load(std::memory_order_relaxed); }
  void add(uint32_t pieces) {
    const uint32_t batch = added();
    Slot& slot = slots_[batch % kSlots];
    BATON_CHECK(pieces > 0 && pieces <= kPiecesMax && slot.left.load(std::memory_order_relaxed) == 0);
    slot.left.store(pieces, std::memory_order_relaxed);
    slot.turn.store(uint64_t{batch} << 32 | pieces, std::memory_order_release);
    added_.fetch_add(1);
    added_.notify_all();
  }
  // Of the last kSlots.
  bool done(uint32_t batch) const { return slots_[batch % kSlots].left.load(std::memory_order_acquire) == 0; }
  // Works until it is.
  void wait(uint32_t batch) {
    std::atomic<uint32_t>& left = slots_[batch % kSlots].left;
    while (!done(batch)) {
      while (first_ != added() && !help(first_, 0)) ++first_;
      if (const uint32_t now = left.load(std::memory_order_acquire); first_ == added() && now != 0) left.wait(now);
    }
  }

 private:
  struct alignas(64) Slot {
    std::atomic<uint64_t> turn{0};  // batch, pieces taken, all pieces: 32, 16 and 16 bits
    std::atomic<uint32_t> left{0};
  };

  // One piece of a batch; false: all are taken. The slot is the batch's for as long as a piece is not done.
  bool help(uint32_t batch, uint32_t thread) {
    Slot& slot = slots_[batch % kSlots];
    uint64_t turn = slot.turn.load(std::memory_order_acquire);
    for (;;) {
      const auto taken = static_cast<uint32_t>(turn >> 16 & kPiecesMax), all = static_cast<uint32_t>(turn & kPiecesMax);
      if (turn >> 32 != batch || taken == all) return false;
      if (!slot.turn.compare_exchange_weak(turn, turn + (1 << 16), std::memory_order_acquire)) continue;
      work_(batch % kSlots, taken, thread);
      if (slot.left.fetch_sub(1, std::memory_order_acq_rel) == 1) slot.left.notify_all();
      return true;
    }
  }
  void stay(uint32_t thread) {
    for (uint32_t batch = 0; !closed_.load(std::memory_order_relaxed);) {
      const uint32_t added = added_.load(std::memory_order_acquire);
      if (batch == added) {
        added_.wait(added, std::memory_order_acquire);
      } else if (!help(batch, thread)) {
        ++batch;
      }
    }
  }

  const Work work_;
  std::array<Slot, kSlots> slots_;
  alignas(64) std::atomic<uint32_t> added_{0};
  std::atomic<bool> closed_{false};
  uint32_t first_ = 0;  // of those before it all pieces are taken
};

}  // namespace baton::cuda
