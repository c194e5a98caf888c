// A state at rest: what a sequence held at one position, in host memory, for sequences that begin with the same tokens.
// Keys and values lie in pages of 16 tokens; a checkpoint that goes on from another one shares its pages by reference,
// and holds recurrent and convolution parts of its own. It never changes once it is made, so that any number of
// sequences may begin from it, on any unit of the model: it is a SequenceState, and the bridge moves or seals it like
// others.
//
// Threads: a checkpoint may be read and dropped by any thread; each function of CheckpointMemory may be called by any.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "baton/bridge/bridge.h"
#include "baton/state/provenance.h"
#include "baton/unit/sequence_state.h"

namespace baton {

class Checkpoint;
class SegmentFill;
struct CheckpointBytes;  // of a page, or of the parts; counted

inline constexpr uint64_t kPageTokens = 16;

// How parts without a tokens dim lie in a checkpoint: as the state has them, or those of f32 rounded to bf16, half of
// their bytes. Keys and values are as the state has them.
enum class AtRest : uint8_t { kAsIs, kBf16 };

// What rounding made of the values of a state: the largest |rounded - value|, and the largest of it / |value| where
// that is not zero.
struct RoundingError {
  double max_abs = 0, max_rel = 0;
  bool measured = true;  // false: of a state from a file, which does not say
  void add(const RoundingError& other) {
    max_abs = max_abs < other.max_abs ? other.max_abs : max_abs;
    max_rel = max_rel < other.max_rel ? other.max_rel : max_rel;
  }
};

// Counts what checkpoints take, exactly: bytes of the pages and parts that are alive, each once however many share it.
// Outlives its checkpoints (checked).
class CheckpointMemory {
 public:
  uint64_t bytes() const { return bytes_; }
  int64_t count() const { return live_.count(); }

  // What `keep` takes for these.
  static uint64_t bytes_for(const SequenceState& state, const Checkpoint* before, AtRest at_rest = AtRest::kAsIs);
  // Whether kBf16 rounds anything of such a state.
  static bool rounds(const StateShape& shape);

  // The state as it is now. `before`: what this very state was restored from or kept as earlier, or null; its whole
  // pages are shared, not read again, where the types of keys and values are the same. kCorrupt for values that are no
  // numbers, naming the segment; kOutOfMemory; errors of the state's read.
  Result<std::shared_ptr<const Checkpoint>> keep(const SequenceState& state,
                                                 const std::shared_ptr<const Checkpoint>& before,
                                                 AtRest at_rest = AtRest::kAsIs);

 private:
  friend class Checkpoint;

  LiveStates live_;
  std::atomic<uint64_t> bytes_{0};
};

class Checkpoint final : public SequenceState {
 public:
  ~Checkpoint() override;
  const StateShape& shape() const override { return shape_; }
  // Of all its pages, shared or not, and its own parts.
  uint64_t bytes() const override;
  // Bytes of it that `other` does not hold too.
  uint64_t bytes_beside(const Checkpoint& other) const;

  // Measured over all values as it was made; empty: nothing was rounded, and it is the state.
  const std::optional<RoundingError>& rounding() const { return rounding_; }

  // That its bytes are what was kept: pages and parts carry checksums. kCorrupt.
  Status check() const;
  // The checkpoint at an earlier position, which shares all pages. Null where there are parts without a tokens dim:
  // those cannot go back. kOutOfMemory.
  Result<std::shared_ptr<const Checkpoint>> at(uint64_t position) const;

 private:
  friend class CheckpointMemory;
  friend Result<MoveReport> restore_state(const Checkpoint& from, SequenceState& to);
  Checkpoint(CheckpointMemory& memory, StateShape shape, uint64_t tokens);
  Status copy_parts(const SequenceState& state, std::byte* to);
  // Pages from `first` on, segment by segment.
  Status copy_pages(const SequenceState& state, uint64_t first, std::span<CheckpointBytes* const> pages) const;
  Status fill_parts(std::span<SegmentFill> fills) const;
  Status fill_pages(std::span<SegmentFill> fills, uint64_t first, uint64_t count) const;
  // Where a row lies: its page (null: the parts), the place in it, and how many follow it there, `count` at most.
  struct Place {
    const CheckpointBytes* bytes;
    uint64_t offset, rows;
  };
  Place place_of(size_t segment, const Dims& dims, uint64_t row, uint64_t count) const;
  Status read_rows(size_t segment, const Dims& dims, RowRange rows, std::byte* out) const override;
  Status write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) override;
  std::span<const std::byte> view_rows(size_t segment, const Dims& dims, RowRange rows) const override;

  CheckpointMemory& memory_;
  const StateShape shape_;
  // By segment: of keys and values the bytes in a page, per token of it, before theirs; of the others the offset in
  // parts_.
  std::vector<uint64_t> offsets_;
  uint64_t token_bytes_ = 0, parts_bytes_ = 0;
  std::vector<std::shared_ptr<const CheckpointBytes>> pages_;  // of tokens [16 i, 16 i + its rows)
  std::shared_ptr<const CheckpointBytes> parts_;
  std::optional<RoundingError> rounding_;
};

// A checkpoint and who made what it holds; of a rounded one Provenance::rounded.
struct KeptState {
  std::shared_ptr<const Checkpoint> state;
  Provenance provenance;
};

// Fills `to`, at position 0 and of the same model, with a checkpoint whose checksums hold: they were searched when they
// were kept. Errors of check() and of move_state; then drop `to`.
Result<MoveReport> restore_state(const Checkpoint& from, SequenceState& to);

}  // namespace baton
