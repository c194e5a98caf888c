// Sequence states in host memory, and where an executor gets them from: the states of every unit whose arithmetic runs
// on the host, or takes its inputs from there.
#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "baton/unit/host/memory.h"
#include "baton/unit/sequence_state.h"

namespace baton::host {

class StatePool;

inline constexpr uint32_t kKeptMax = 16;  // tokens that a state with recurrent parts can be taken back over

// Where the slots of a state of so many tokens lie in its memory.
struct Places {
  struct Place {
    uint64_t offset;  // bytes
    int64_t slab;     // values of one index of the outermost dim
    uint64_t kept;    // of a slot without a tokens dim: bytes from the beginning of what is kept for a token
  };
  std::vector<Place> slots;
  uint64_t bytes = 0;       // of the memory, as size_class makes it
  uint64_t kept_bytes = 0;  // for a token; 0: keys and values are all there is
  Pages pages = Pages::kHuge;

  // Of all segments; none when the sizes overflow.
  static std::optional<Places> of(const StateShape& shape, uint64_t tokens_max);
};

// What is asked of the system for `bytes`: the next of eight sizes between a power of two and the next, so that the
// memory of one sequence does for others of about its length, and is never more than was said of them. False: overflow.
bool size_class(uint64_t bytes, uint64_t* size);

// Each segment is one dense array in canonical order with room for tokens_max() tokens.
class HostState final : public SequenceState {
 public:
  ~HostState() override;
  const StateShape& shape() const override;
  uint64_t bytes() const override { return memory_.bytes() + kept_memory_.bytes(); }

  // Dims of a slot's array: the tokens dim is tokens_max().
  Dims dims(SlotId slot) const { return dims_at(shape().segments[static_cast<size_t>(slot)], tokens_max()); }
  std::byte* data(SlotId slot) const {
    return reinterpret_cast<std::byte*>(memory_.data() + places_.slots[static_cast<size_t>(slot)].offset);
  }
  float* floats(SlotId slot) const { return reinterpret_cast<float*>(data(slot)); }
  // f16 keys or values of one kv head: [tokens_max, head_dim].
  uint16_t* halves(SlotId slot, int64_t head) const {
    return reinterpret_cast<uint16_t*>(data(slot)) + head * places_.slots[static_cast<size_t>(slot)].slab;
  }

  // Before keys and values of up to `tokens` tokens are written: what is zeroed before the memory goes to another
  // sequence.
  void will_hold(uint64_t tokens) { touched_ = std::max(touched_, tokens); }
  // Before a step that keeps what the slots without a tokens dim hold before each of its last kKeptMax tokens.
  // kOutOfMemory.
  Status keep();
  // Where a slot's values before the token at `position` go, in canonical order: a ring of kKeptMax.
  float* kept(SlotId slot, uint64_t position) const {
    return reinterpret_cast<float*>(kept_memory_.data() + position % kKeptMax * places_.kept_bytes +
                                    places_.slots[static_cast<size_t>(slot)].kept);
  }
  // After a step that kept those before its last `kept` tokens.
  void advance(uint64_t tokens, uint64_t kept = 0) {
    kept_count_ = std::min<uint64_t>(kept < tokens ? kept : kept_count_ + kept, kKeptMax);
    set_position(position() + tokens);
  }
  // Within a step that tells of its layers.
  void show(uint64_t coming) { show_coming(coming); }
  // As Executor::rewind.
  Status rewind(uint64_t position);
  // As Executor::fork: at any position that rewind could go to. What was kept stays here.
  Result<std::unique_ptr<SequenceState>> fork(uint64_t position) const;

 private:
  friend class StatePool;
  HostState(StatePool& pool, uint64_t tokens_max);
  // Memory for all segments, zero.
  Status place();
  // kUnsupported when it cannot be told what the state was at `to`.
  Status check_back(uint64_t to) const;
  void zero_touched() const;
  Status read_rows(size_t segment, const Dims& dims, RowRange rows, std::byte* out) const override;
  Status write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) override;
  const std::byte* view_rows(size_t segment, const Dims& dims, RowRange rows) const override;
  // Calls copy(where the rows lie here, bytes done before, bytes) for each run of rows that is dense here too.
  template <class Copy>
  void for_runs(size_t segment, const Dims& dims, RowRange rows, Copy copy) const;

  StatePool& pool_;
  Places places_;
  Memory memory_;
  uint64_t touched_ = 0;
  Memory kept_memory_;
  uint64_t kept_count_ = 0;  // of the last tokens
};

// Makes an executor's states, and keeps the memory of those that are gone for the next ones: where a virtual machine
// must find each page first, the pages of a new state took a third of the prefill of 128 tokens. It is zeroed in
// between. States are made by one thread at a time, and freed by any.
class StatePool {
 public:
  // `unit` begins the messages. `kv_type`: kF16 or kF32.
  StatePool(const Program& program, DType kv_type, std::string unit, LiveStates& live)
      : shape_(state_shape(program, kv_type)), unit_(std::move(unit)), live_(live) {}

  const StateShape& shape() const { return shape_; }
  // What a state made for so many tokens takes: Executor::state_bytes. UINT64_MAX where that overflows. Any thread.
  uint64_t bytes_for(uint64_t tokens_max) const;
  // kOutOfMemory.
  Result<std::unique_ptr<SequenceState>> make(uint64_t tokens_max);

 private:
  friend class HostState;
  static constexpr size_t kKeptBytes = size_t{256} << 20;
  static constexpr size_t kKeptCount = 8;

  // Of just this size, which size_class made. Zeroed.
  Result<Memory> take(size_t bytes, std::string_view what, Pages pages);
  // `memory` was zeroed where it had been written.
  void give(Memory memory);
  bool keeps(size_t bytes) const { return bytes > 0 && bytes <= kKeptBytes; }

  const StateShape shape_;
  const std::string unit_;
  LiveStates& live_;
  std::mutex mutex_;
  std::vector<Memory> kept_;  // the last one given comes last
};

}  // namespace baton::host
