// Pages of keys and values, which states take as they grow, share, and give back; and the count of all memory that the
// states of an executor have. What one sequence wrote is zeroed before another gets it.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string_view>
#include <vector>

#include "baton/unit/host/memory.h"
#include "baton/unit/host/mixing.h"
#include "baton/unit/unit.h"

namespace baton::host {

// What an executor's states hold. Any thread.
class HeldBytes {
 public:
  void add(uint64_t bytes);
  void subtract(uint64_t bytes) { now_ -= bytes; }
  StateMemory now() const { return {now_, most_}; }

 private:
  std::atomic<uint64_t> now_{0}, most_{0};
};

// What was given back and waits for the next. Any thread.
class WaitingBytes {
 public:
  // Whether that much more may wait: else it goes back to the system.
  bool keep(uint64_t bytes);
  void take(uint64_t bytes) { bytes_ -= bytes; }

 private:
  std::atomic<uint64_t> bytes_{0};
};

// Keys and values of kPageTokens tokens: a stripe of rows for each layer, kind and kv head.
struct Page {
  unsigned char* data = nullptr;
  uint32_t holders = 0;  // states, of one executor; under the pool's lock
  uint32_t rows = 0;     // of each stripe, that may be written; those behind are zero. For who holds it alone
  Page* next = nullptr;  // of the pool's lists
};

// Each function may be called by any thread. Takes no memory from the system but by the slab, and none to give back.
class PagePool {
 public:
  struct Stripe {
    uint64_t offset, row_bytes;
  };
  // Who takes: whose messages begin so, and who counts it.
  struct Taker {
    std::string_view unit;
    HeldBytes& held;
  };
  // `waiting` outlives the pool. `page_bytes`: a multiple of 4 KiB.
  PagePool(std::vector<Stripe> stripes, uint64_t page_bytes, WaitingBytes& waiting)
      : stripes_(std::move(stripes)), page_bytes_(page_bytes), waiting_(waiting) {}

  // Zero, of one holder. kOutOfMemory.
  Result<Page*> take(const Taker& taker);
  // Of those that nobody holds.
  uint64_t idle_bytes();
  // Each gets another holder.
  void share(std::span<Page* const> pages);
  // A page like `page` in its first `rows` rows that its holder holds alone: itself, or a copy in its place.
  // kOutOfMemory.
  Result<Page*> own(Page* page, uint32_t rows, const Taker& taker);
  // Each loses a holder; `held` counts what nobody holds any more.
  void give(std::span<Page* const> pages, HeldBytes& held);

 private:
  struct Slab {
    Memory memory;
    std::unique_ptr<Page[]> pages;
  };

  Result<Page*> take_locked(const Taker& taker);
  // A smaller one, where the system has not so much.
  Status add_slab(std::string_view unit);
  Status add_slab(std::string_view unit, uint64_t count);
  void clear(Page& page) const;

  const std::vector<Stripe> stripes_;
  const uint64_t page_bytes_;
  WaitingBytes& waiting_;
  std::mutex mutex_;
  std::vector<Slab> slabs_;
  Page* warm_ = nullptr;  // that nobody holds: in memory
  Page* cold_ = nullptr;  // and those that the system has
  uint64_t idle_ = 0;     // in both lists
};

}  // namespace baton::host
