// Sequence states in a card's memory, and where an executor gets them from.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baton/unit/cuda/state_ferry.h"
#include "baton/unit/cuda/state_pages.h"
#include "baton/unit/unit.h"

namespace baton::cuda {

class StatePool;

inline constexpr uint64_t kIdleBytesMax = uint64_t{256} << 20;
inline constexpr uint32_t kKeptMax = 16;  // tokens that a state with parts can be taken back over

// Keys and values lie in pages of kPageTokens tokens, which come as the state grows and may be other states' too; the
// rest is one block, the parts (instruction.h, Place), and once a step has kept them a ring of such blocks. A list of
// the pages' addresses lies on the card.
//
// What steps do to it the executor waits for before it says `advance`: reads go on a stream of their own.
class CudaState final : public SequenceState {
 public:
  ~CudaState() override;
  const StateShape& shape() const override;
  // Of all its pages, shared or not.
  uint64_t bytes() const override;
  uint64_t piece_bytes() const override { return kFerryBytes; }
  uint32_t views_kept() const override { return Ferry::kKept; }
  uint32_t stages() const override { return Ferry::kStages; }
  bool reaches(const SequenceState& from) override;

  // Before a step writes keys and values of the tokens from position() to `tokens`: pages for them, its own alone, and
  // the list of all on the card. kOutOfMemory, and all is as before.
  Status make_room(uint64_t tokens);
  // Where kernels find the slots of it, for rows from `ahead` of its position on; `room` was made for them.
  Run run(int32_t first_row, int32_t rows, bool decodes, uint64_t ahead = 0) const;
  // Within a step that tells of its layers.
  void show(uint64_t coming);
  bool has_parts() const { return parts_.bytes() > 0; }
  // Before a step that keeps its parts: memory for what they are before each of the last kKeptMax tokens.
  // kOutOfMemory, and all is as before.
  Status keep();
  // The parts as they are before the token at position(), kept behind all that `stream` has to do; a slot of them as it
  // is before the token that is `ahead` of there.
  Status keep_parts(Stream& stream);
  Status keep_part(Stream& stream, const Place& place, uint64_t ahead);
  // After a step, of so many tokens, that kept the parts before its last `kept`; unless there are `more` to come, room
  // for more is given back.
  void advance(uint64_t tokens, uint64_t kept = 0, bool more = false);
  // As Executor::rewind. Pages behind are given back.
  Status rewind(uint64_t position);
  // As Executor::fork: at any position that rewind could go to. Pages are shared until one of both writes to them; what
  // was kept stays here.
  Result<std::unique_ptr<SequenceState>> fork(uint64_t position) const;

 private:
  friend class StatePool;
  CudaState(StatePool& pool, uint64_t tokens_max);
  bool has_room(uint64_t tokens) const;
  Status own_page(uint64_t index);
  // A list of so many pages on the card.
  Status fit_table(uint64_t count);
  void drop_pages(uint64_t left);
  // What is of no use at its position.
  void drop_behind();
  // kUnsupported when it cannot be told what the parts were at `to`.
  Status check_back(uint64_t to) const;
  // Where the parts are as they were at a position that check_back allows; where they are kept.
  Address parts_at(uint64_t position) const;
  Address kept_at(uint64_t position) const;
  FerryPlace ferry_place() const;
  // Its own from the first look until it changes.
  Result<Ferry*> ferry() const;
  void leave_ferry() const;
  bool is_missing(size_t segment, const Dims& dims) const;
  Result<std::span<const std::byte>> fetch(size_t segment, RowRange rows) const;
  Status read_rows(size_t segment, const Dims& dims, RowRange rows, std::byte* out) const override;
  Status write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) override;
  std::span<const std::byte> view_rows(size_t segment, const Dims& dims, RowRange rows) const override;
  Result<std::byte*> stage_rows(size_t segment, const Dims& dims, RowRange rows) override;
  Status stage_row_copy(size_t segment, const Dims& dims, RowRange rows, const SequenceState& from,
                        uint64_t first) override;
  Status send_rows() override;
  Result<std::span<const std::byte>> back_rows() override;
  Status finish_rows() override;

  StatePool& pool_;
  const Places& places_;
  DeviceMemory parts_, table_;
  DeviceMemory kept_;        // parts before the token at p, at p mod kKeptMax
  uint64_t kept_count_ = 0;  // of the last tokens
  std::vector<Page*> pages_;
  mutable uint64_t shared_ = 0;  // pages, the first, that others may hold too
  uint64_t listed_ = 0;          // pages, the first, that the list on the card has right
  mutable std::unique_ptr<Ferry> ferry_;
  mutable bool failed_ = false;  // it goes when rows are asked for again
  bool fills_ = false;           // rows were written
  bool shows_ = false;           // a step tells of its layers
};

// Makes an executor's states, and counts what they hold. Each function may be called by any thread.
class StatePool {
 public:
  // `card` outlives it; `unit` begins the messages. `kv_type`: kF16, kBF16 or kF32.
  static Result<std::unique_ptr<StatePool>> make(Card& card, const Program& program, DType kv_type, std::string unit,
                                                 LiveStates& live, uint64_t idle_bytes_max = kIdleBytesMax);

  const StateShape& shape() const { return shape_; }
  // Where a slot lies in every state.
  const Place& place(SlotId slot) const { return places_->slots[static_cast<size_t>(slot)].at; }
  // Executor::state_bytes: what a state takes that holds so many tokens, whatever it was made for.
  uint64_t bytes_for(uint64_t tokens) const;
  // Executor::state_memory.
  StateMemory memory() const { return arena_->memory(); }
  // kOutOfMemory: also what the card could not hold if there were no other states of this executor.
  Result<std::unique_ptr<SequenceState>> state(uint64_t tokens_max);

 private:
  friend class CudaState;
  StatePool(const Program& program, DType kv_type, LiveStates& live);
  // Of the list of so many pages.
  static uint64_t table_bytes(uint64_t pages);

  const StateShape shape_;
  LiveStates& live_;
  std::optional<Places> places_;
  std::unique_ptr<PageArena> arena_;
  std::unique_ptr<FerryDock> dock_;
};

}  // namespace baton::cuda
