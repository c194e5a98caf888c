// An open-addressing table of token texts.
#include "baton/text/token_index.h"

#include <algorithm>
#include <bit>

#include "baton/text/hash.h"

namespace baton {

TokenIndex::TokenIndex(const char* texts, std::span<const uint32_t> offsets)
    : texts_(texts),
      offsets_(offsets),
      seed_(table_seed()),
      slots_(std::bit_ceil(std::max<size_t>(16, offsets.size() * 2))) {
  const size_t mask = slots_.size() - 1;
  for (int32_t id = 0; id < size(); ++id) {
    const std::string_view added = text(id);
    if (added.empty()) continue;
    const uint64_t hash = hash_bytes(added, seed_);
    for (size_t i = (hash >> 32) & mask;; i = (i + 1) & mask) {
      Slot& slot = slots_[i];
      if (slot.id < 0) {
        slot = {static_cast<uint32_t>(hash), id};
        break;
      }
      if (slot.hash == static_cast<uint32_t>(hash) && text(slot.id) == added) break;
    }
  }
}

int32_t TokenIndex::find(std::string_view wanted) const {
  const uint64_t hash = hash_bytes(wanted, seed_);
  const size_t mask = slots_.size() - 1;
  for (size_t i = (hash >> 32) & mask;; i = (i + 1) & mask) {
    const Slot& slot = slots_[i];
    if (slot.id < 0) return -1;
    if (slot.hash == static_cast<uint32_t>(hash) && text(slot.id) == wanted) return slot.id;
  }
}

}  // namespace baton
