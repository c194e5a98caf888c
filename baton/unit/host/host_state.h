// Sequence states in host memory, and where an executor gets them from: the states of every unit whose arithmetic runs
// on the host, or takes its inputs from there.
#pragma once

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "baton/unit/host/memory.h"
#include "baton/unit/host/page_pool.h"
#include "baton/unit/host/state_arena.h"
#include "baton/unit/unit.h"

namespace baton::host {

class StatePool;

inline constexpr uint32_t kKeptMax = 16;  // tokens that a state with recurrent parts can be taken back over

// Where the slots of a state lie: keys and values in pages, the others together in one piece, the parts.
struct Places {
  struct Place {
    bool grows;       // has a tokens dim: lies in pages
    uint64_t offset;  // bytes in a page or in the parts
    uint64_t slab;    // bytes of one index of the outermost dim, there
    uint64_t row;     // bytes
    uint64_t kept;    // of one that does not grow: bytes from the beginning of what is kept for a token
  };
  std::vector<Place> slots;
  uint64_t page_bytes = 0, parts_bytes = 0;  // multiples of 4 KiB
  uint64_t kept_bytes = 0;                   // for a token; 0: keys and values are all there is

  // None when the sizes overflow.
  static std::optional<Places> of(const StateShape& shape);

  uint64_t pages(uint64_t tokens) const {
    return page_bytes == 0 ? 0 : tokens / kPageTokens + (tokens % kPageTokens != 0);
  }
};

// Keys and values lie in pages of kPageTokens tokens, which come as the state grows and may be other states' too; what
// has no tokens dim is one dense array each.
class HostState final : public SequenceState {
 public:
  ~HostState() override;
  const StateShape& shape() const override;
  uint32_t views_kept() const override { return kAllViews; }
  // Of all its pages, shared or not.
  uint64_t bytes() const override { return parts_.bytes() + pages_.size() * places_.page_bytes + kept_memory_.bytes(); }

  // Of a slot without a tokens dim: all its values.
  float* floats(SlotId slot) const { return reinterpret_cast<float*>(parts_.data() + place(slot).offset); }
  // Row [first, second] of a slot. Of keys and values, [kv head, token], it is one that there is room for, and those
  // behind it are dense to the end of the page.
  std::byte* row(SlotId slot, uint64_t first, uint64_t second) const {
    const Places::Place& at = place(slot);
    unsigned char* const from = at.grows ? table_[second / kPageTokens] : parts_.data();
    return reinterpret_cast<std::byte*>(from + at.offset + first * at.slab +
                                        (at.grows ? second % kPageTokens : second) * at.row);
  }
  // Of keys and values for kernels: the pages, and the bytes in each before the rows of a head.
  const unsigned char* const* pages() const { return table_.data(); }
  uint64_t in_page(SlotId slot, uint64_t head) const { return place(slot).offset + head * place(slot).slab; }

  // Before keys and values of the tokens from position() to `tokens` are written: pages for them, its own alone.
  // kOutOfMemory, and all is as before.
  Status make_room(uint64_t tokens);
  bool has_room(uint64_t tokens) const {
    return places_.pages(tokens) <= pages_.size() && position() / kPageTokens >= shared_;
  }
  // Before a step that keeps what the slots without a tokens dim hold before each of its last kKeptMax tokens.
  // kOutOfMemory.
  Status keep();
  // Where a slot's values before the token at `position` go, in canonical order: a ring of kKeptMax.
  float* kept(SlotId slot, uint64_t position) const {
    return reinterpret_cast<float*>(kept_memory_.data() + position % kKeptMax * places_.kept_bytes + place(slot).kept);
  }
  // Within a step, any of its threads: one of the values that it wrote is no number.
  void found_bad() { bad_.store(true, std::memory_order_relaxed); }
  // After a step that kept those before its last `kept` tokens. `searched`: it looked at all that it wrote.
  void advance(uint64_t tokens, uint64_t kept = 0, bool searched = false) {
    kept_count_ = std::min<uint64_t>(kept < tokens ? kept : kept_count_ + kept, kKeptMax);
    set_position(position() + tokens, searched && this->searched() && !bad_.load(std::memory_order_relaxed));
  }
  // Within a step that tells of its layers.
  void show(uint64_t coming) { show_coming(coming); }
  // As Executor::rewind. Pages behind are given back.
  Status rewind(uint64_t position);
  // As Executor::fork: at any position that rewind could go to. Pages are shared until one of both writes to them; what
  // was kept stays here.
  Result<std::unique_ptr<SequenceState>> fork(uint64_t position) const;

 private:
  friend class StatePool;
  HostState(StatePool& pool, std::shared_ptr<StateArena> arena, uint64_t tokens_max);
  const Places::Place& place(SlotId slot) const { return places_.slots[static_cast<size_t>(slot)]; }
  // Memory for what does not grow, zero.
  Status take_parts();
  Status add_pages(uint64_t count);
  void drop_pages(uint64_t left);
  // kUnsupported when it cannot be told what the state was at `to`.
  Status check_back(uint64_t to) const;
  // The slots that do not grow, as they were at a position that check_back allows, to another's or its own.
  void copy_parts(uint64_t at, const HostState& to) const;
  Status read_rows(size_t segment, const Dims& dims, RowRange rows, std::byte* out) const override;
  Status write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) override;
  std::span<const std::byte> view_rows(size_t segment, const Dims& dims, RowRange rows) const override;
  Result<bool> share_row_writes(uint64_t tokens) override;
  bool fits_memory(const SequenceState& from) const override;
  bool exchange_memory(SequenceState& from) override;
  // Of a state that is to be filled, and was not yet: zeros.
  bool is_missing(size_t segment, const Dims& dims) const {
    return place(static_cast<SlotId>(segment)).grows && places_.pages(dims[1]) > pages_.size();
  }
  // Calls copy(where the rows lie here, bytes done before, bytes) for each run of rows that is dense here too.
  template <class Copy>
  void for_runs(size_t segment, const Dims& dims, RowRange rows, Copy copy) const;

  StatePool& pool_;
  std::shared_ptr<StateArena> arena_;  // that all its memory is of
  const Places& places_;
  Memory parts_;
  std::vector<Page*> pages_;
  std::vector<unsigned char*> table_;  // where each lies
  mutable uint64_t shared_ = 0;        // pages, the first, that others may hold too
  Memory kept_memory_;
  uint64_t kept_count_ = 0;  // of the last tokens
  std::atomic<bool> bad_{false};
};

// Before a step of an executor whose states are HostStates: room for the tokens of all. kOutOfMemory begins with the
// sequence when there are several.
Status make_room(std::span<const Seat> seats);

// Makes an executor's states, and counts what they hold. States are made by one thread at a time, and freed by any.
class StatePool {
 public:
  // `unit` begins the messages. `kv_type`: kF16 or kF32.
  StatePool(const Program& program, DType kv_type, std::string unit, LiveStates& live);

  const StateShape& shape() const { return shape_; }
  // Executor::state_bytes: what a state takes that holds so many tokens, whatever it was made for. Any thread.
  uint64_t bytes_for(uint64_t tokens) const;
  // Executor::state_memory. Any thread.
  StateMemory memory() const { return held_.now(); }
  // kOutOfMemory.
  Result<std::unique_ptr<SequenceState>> make(uint64_t tokens_max) { return make_in(arena_, tokens_max); }

 private:
  friend class HostState;
  Result<std::unique_ptr<SequenceState>> make_in(std::shared_ptr<StateArena> arena, uint64_t tokens_max);
  PagePool::Taker taker() { return {unit_, held_}; }

  const StateShape shape_;
  const std::string unit_;
  LiveStates& live_;
  const std::optional<Places> places_;
  HeldBytes held_;
  const std::shared_ptr<StateArena> arena_;
};

}  // namespace baton::host
