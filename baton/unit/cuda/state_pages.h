// Where the memory of states on a card comes from and goes back to: pages of keys and values, which states take as they
// grow, share and give back, and blocks for what does not grow and for lists of pages. What one sequence wrote is
// zeroed before another gets it. Kept for the next states within a bound; all of it is the card's again when the arena
// goes.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baton/state/shape.h"
#include "baton/unit/cuda/card.h"
#include "baton/unit/host/page_pool.h"

namespace baton::cuda {

// Where the slots of a state lie: keys and values in pages, the others together in one block, the parts.
struct Places {
  struct Slot {
    SlotKind kind = SlotKind::kKeys;
    Place at;  // in a page or in the parts
    uint64_t dense_row =
        0;              // bytes of a row in canonical form; of keys and values at.row_bytes is that in multiples of 16
    uint64_t rows = 0;  // of the parts: of the canonical dim 1; columns of a convolution are one less than its ring

    bool grows() const { return has_tokens_dim(kind); }
    // Bytes of one index of the outermost dim.
    uint64_t slab() const { return (grows() ? kPageTokens : rows) * static_cast<uint64_t>(at.row_bytes); }
  };
  std::vector<Slot> slots;
  std::vector<uint64_t> heads;               // by slot: outermost dim
  uint64_t page_bytes = 0, parts_bytes = 0;  // multiples of 512

  // None when the sizes overflow, or values are of a type that the card's kernels do not read.
  static std::optional<Places> of(const StateShape& shape);

  // Of a slot that lies in the parts.
  uint64_t part_bytes(const Place& at) const;
  uint64_t pages(uint64_t tokens) const {
    return page_bytes == 0 ? 0 : tokens / kPageTokens + (tokens % kPageTokens != 0);
  }
};

// Keys and values of kPageTokens tokens.
struct Page {
  Address address = 0;
  uint32_t slab = 0, index = 0;  // the index'th of slab number `slab`
  uint32_t holders = 0;          // states; under the arena's lock
};

// Each function may be called by any thread. What it asks of the card is done when it comes back, but for giving back,
// which takes no memory and waits for nothing unless more is idle than is kept.
class PageArena {
 public:
  // `card` and `places` outlive it; `unit` begins the messages. So much of slabs, and of blocks, waits for the next
  // states.
  static Result<std::unique_ptr<PageArena>> make(Card& card, const Places& places, std::string unit,
                                                 uint64_t idle_bytes_max);
  ~PageArena();
  PageArena(const PageArena&) = delete;
  PageArena& operator=(const PageArena&) = delete;

  // Appends `count` pages, zero and of one holder, one behind the other where there are such. `pages` has room for
  // them. kOutOfMemory, and none was taken.
  Status take(std::vector<Page*>& pages, uint64_t count);
  // Each gets another holder.
  void share(std::span<Page* const> pages);
  // A page like `page` in the first `rows` rows of each head, zero behind them, that its holder holds alone: itself, or
  // a copy in its place. kOutOfMemory.
  Result<Page*> own(Page* page, uint32_t rows);
  // Each loses a holder.
  void give(std::span<Page* const> pages);

  // Zero.
  Result<DeviceMemory> take_block(uint64_t bytes, std::string_view what, std::string_view remedy);
  void give_block(DeviceMemory block);

  // Copies addresses of pages, or a block, to a block.
  Status send(Address to, std::span<Page* const> pages);
  Status copy(Address to, Address from, uint64_t bytes);

  // What states hold, and what the card gave for them, held or not.
  StateMemory memory() const { return held_.now(); }
  uint64_t owned_bytes();
  Card& card() { return card_; }
  const std::string& unit() const { return unit_; }

 private:
  struct Slab {
    DeviceMemory memory;
    std::unique_ptr<Page[]> pages;
    uint32_t count = 0;
    uint64_t idle = 0;   // a bit for each page that nobody holds
    uint64_t dirty = 0;  // of these: not zero
  };

  PageArena(Card& card, const Places& places, std::string unit, uint64_t idle_bytes_max);
  // All that follow are for who holds the lock.
  // That behind `before`, else the first of so many that are wanted.
  Result<Page*> take_one(const Page* before, uint64_t wanted);
  Status copy_rows(const Page& from, const Page& to, uint32_t rows);
  Slab* slab_with_idle(uint64_t wanted);
  Status add_slab();
  Result<DeviceMemory> allocate(uint64_t bytes, std::string_view what, std::string_view remedy);
  Status zero(Address at, uint64_t bytes);
  void give_one(Page& page);
  void clear(Slab& slab, uint64_t pages);
  // Gives idle memory back to the card until no more than `kept` is left of slabs, and of blocks.
  void trim(uint64_t kept);
  // Until the stream has done all.
  Status wait();

  Card& card_;
  const Places& places_;
  const std::string unit_;
  const uint64_t idle_bytes_max_;
  host::HeldBytes held_;
  std::mutex mutex_;
  Stream stream_;
  PinnedMemory lists_;                        // addresses on their way
  uint64_t lists_used_ = 0;                   // bytes
  bool pending_ = false;                      // the stream has something to do
  std::vector<std::unique_ptr<Slab>> slabs_;  // by number; null: given back
  std::vector<DeviceMemory> blocks_;          // idle, zero
  uint64_t whole_blocks_ = 0;                 // idle or not
  uint64_t idle_blocks_ = 0, slab_bytes_ = 0, block_bytes_ = 0;
};

}  // namespace baton::cuda
