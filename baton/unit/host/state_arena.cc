// Pieces that were given back.
#include "baton/unit/host/state_arena.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace baton::host {

Result<Memory> StateArena::take(size_t bytes, std::string_view what, const PagePool::Taker& taker) {
  const std::lock_guard lock(mutex_);
  const auto fits = [&](const Memory& memory) { return memory.bytes() == bytes; };
  const auto found = std::find_if(kept_.rbegin(), kept_.rend(), fits);
  Memory memory;
  if (found != kept_.rend()) {
    memory = std::move(*found);
    kept_.erase(std::next(found).base());
    waiting_.take(bytes);
  } else {
    kept_.reserve(whole_ + 1);  // giving back takes no memory
    BATON_TRY(memory, Memory::allocate(bytes, what, taker.unit));
    ++whole_;
  }
  taker.held.add(bytes);
  return memory;
}

void StateArena::give(Memory memory, HeldBytes& held) {
  held.subtract(memory.bytes());
  const bool keeps = waiting_.keep(memory.bytes());
  const std::lock_guard lock(mutex_);
  if (keeps) return kept_.push_back(std::move(memory));
  --whole_;
}

}  // namespace baton::host
