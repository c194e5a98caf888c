// How rows of a state come from the card and go there: pinned blocks, and a stream of its own, made before they are
// needed. Rows are fetched a window at a time, the next ones while the last are looked at; rows that follow each other
// are gathered and go together.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "baton/unit/cuda/state_pages.h"
#include "baton/unit/sequence_state.h"

namespace baton::cuda {

inline constexpr uint64_t kFerryBytes = uint64_t{1} << 20;  // of a block, unless a row is longer

// Rows [row, row + rows) of each of some heads of a segment, dense in this order.
struct Window {
  size_t segment = 0;
  uint64_t head = 0, heads = 0, row = 0, rows = 0;
  uint64_t begin = 0;  // the row that the first window of this segment began with

  // Rows of `range`, canonical rows of a segment of `each` rows a head, that lie in it one after the other from
  // `*place` on: so many of its first.
  uint64_t dense(size_t of, uint64_t each, RowRange range, uint64_t* place) const;
};

// The memory of a state that a ferry goes to.
struct FerryPlace {
  const Places& places;
  Address parts = 0;
  std::span<Page* const> pages = {};
  uint64_t position = 0;  // that the rows are of

  // Canonical dim 1.
  uint64_t rows(size_t segment) const;
};

// Used by one thread at a time. What failed leaves rows that are not where they were to go: all that follows on a state
// fails alike.
class Ferry {
 public:
  static constexpr uint32_t kKept = 4;              // windows, the last that were looked at, whose rows stay
  static constexpr uint32_t kBlocks = 24;           // those, and as many as may be on their way
  static constexpr uint32_t kAheadMiss = 4;         // on their way behind one that was not foreseen; one more each time
  static constexpr uint32_t kStages = kBlocks / 2;  // a block to go from, and one to come back to

  // For states of such places.
  static Result<std::unique_ptr<Ferry>> make(Card& card, const Places& places);
  ~Ferry();
  Ferry(const Ferry&) = delete;
  Ferry& operator=(const Ferry&) = delete;

  // What may be fetched before it is asked for: nothing, the layer of what was asked for, all.
  enum class Ahead : uint8_t { kNo, kLayer, kAll };
  // Rows of `range` from the card: as many of its first as lie in one window. They stay until as many other windows as
  // are kept were fetched. What seems to be wanted next is on its way then.
  Result<std::span<const std::byte>> fetch(const FerryPlace& from, std::span<const Segment> segments, size_t segment,
                                           RowRange range, Ahead ahead);
  // Rows for the card, which may stay here until the next call but `put`.
  Status put(const FerryPlace& to, size_t segment, RowRange range, const std::byte* in);
  // As SequenceState::stage, send and sent_back: there and back on a stream each, so that both ways of the link are
  // busy.
  Result<std::byte*> stage(const FerryPlace& to, size_t segment, RowRange range);
  // The same of rows that come from another state's memory of such places, on `card`, from `first` of them on.
  Status stage_copy(const FerryPlace& to, size_t segment, RowRange range, const FerryPlace& from, const Card& card,
                    uint64_t first);
  Status send(const FerryPlace& to);
  Result<std::span<const std::byte>> sent_back(const FerryPlace& to);
  // What was put.
  Status flush(const FerryPlace& to);
  // The state has changed: what was fetched is of no use.
  void forget();
  // Until the card is done with the blocks; before it goes to another state.
  Status rest();

 private:
  Ferry() = default;
  Result<std::span<const std::byte>> look(const FerryPlace& from, std::span<const Segment> segments, size_t segment,
                                          RowRange range, Ahead ahead);
  Status gather(const FerryPlace& to, size_t segment, RowRange range, const std::byte* in);
  Status deliver(const FerryPlace& to);
  // Notes the first failure.
  Status noted(Status status);
  // The next in the ring of blocks.
  Status issue_out(const FerryPlace& from, const Window& window);
  // Rows that follow each other, one way or the other.
  static Status issue_rows(Stream& stream, bool to_card, const FerryPlace& at, size_t segment, RowRange range,
                           std::byte* dense);
  Status issue_sent(const FerryPlace& to);
  Status send_put(const FerryPlace& to);
  std::optional<Window> following(const FerryPlace& from, std::span<const Segment> segments, const Window& window,
                                  Ahead ahead) const;
  Status wait();

  struct Load {
    Window window;
    Event came;
  };
  struct Stage {
    size_t segment = 0;
    RowRange rows;
    Event there;
    std::optional<FerryPlace> from;  // whose rows they are, from `first` on, on `card`; none: those in the block
    const Card* card = nullptr;
    uint64_t first = 0;
  };
  // Rows of so many bytes, `pitch` bytes apart on both cards.
  struct RowsBetween {
    Address to = 0, from = 0;
    uint64_t bytes = 0, pitch = 0, rows = 0;
  };
  static uint64_t next_copy(const FerryPlace& to, const Stage& stage, uint64_t done, RowsBetween& copy);
  Status issue_copy(const FerryPlace& to, const Stage& stage);
  Load& load(uint64_t number) { return loads_[number % kBlocks]; }
  std::byte* block(uint64_t number) { return blocks_.data() + number % kBlocks * block_bytes_; }

  Card* card_ = nullptr;
  bool busy_ = false;  // the streams may have something to do
  Status failed_;
  uint64_t block_bytes_ = 0;
  PinnedMemory blocks_;  // a ring, and one for what is put
  std::array<Load, kBlocks> loads_;
  uint64_t shown_ = 0, issued_ = 0;   // windows so far; those issued and not shown are coming
  uint32_t ahead_ = kBlocks - kKept;  // so many may be coming
  bool here_ = false;                 // what was shown last is what the card holds
  std::optional<size_t> last_segment_;
  bool in_order_ = false;  // the segments of the last two windows followed each other
  std::byte* put_block_ = nullptr;
  size_t put_segment_ = 0;
  RowRange put_;
  std::array<Stage, kStages> stages_;
  uint64_t staged_ = 0, sent_ = 0, back_ = 0;  // pieces so far
  Stream stream_, back_stream_;                // they go first: what they still do names what is above
};

// Ferries that wait for the next state. Any thread.
class FerryDock {
 public:
  FerryDock(Card& card, const Places& places) : card_(card), places_(places) { idle_.reserve(kIdleMax); }
  // One, where there is none: who takes it has not to wait for pinned memory.
  Status stock();
  Result<std::unique_ptr<Ferry>> take();
  void give(std::unique_ptr<Ferry> ferry);

 private:
  static constexpr size_t kIdleMax = 4;
  Card& card_;
  const Places& places_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Ferry>> idle_;
};

}  // namespace baton::cuda
