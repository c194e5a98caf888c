// Where the memory of states comes from and goes back to: pages of keys and values, and pieces for what does not grow.
// Kept for the next states: where a virtual machine must find each page first, the pages of a new state took a third of
// the prefill of 128 tokens.
//
// An executor makes its states in an arena of its own, but a state may go on in another's (SequenceState::adopt): each
// holds the arena that its memory is of, which so outlives the executor that began it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <string_view>
#include <vector>

#include "baton/unit/host/memory.h"
#include "baton/unit/host/page_pool.h"

namespace baton::host {

class StateArena {
 public:
  StateArena(std::vector<PagePool::Stripe> stripes, uint64_t page_bytes)
      : pages_(std::move(stripes), page_bytes, waiting_) {}

  PagePool& pages() { return pages_; }
  // A piece for a state's parts, or what it keeps. Zero. kOutOfMemory. By one thread at a time.
  Result<Memory> take(size_t bytes, std::string_view what, const PagePool::Taker& taker);
  // `memory` is zero. Any thread; takes no memory.
  void give(Memory memory, HeldBytes& held);

 private:
  WaitingBytes waiting_;
  PagePool pages_;
  std::mutex mutex_;
  std::vector<Memory> kept_;
  size_t whole_ = 0;  // pieces, kept or lent
};

}  // namespace baton::host
