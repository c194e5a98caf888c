// How rows of a state come from the card and go there: pinned blocks, and a stream of its own. Rows are fetched a
// window at a time, the next one while the last is looked at; rows that follow each other are gathered and go together.
#pragma once

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

inline constexpr uint64_t kFerryBytes = uint64_t{4} << 20;  // of a block, at most, unless a row is longer

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
  static Result<std::unique_ptr<Ferry>> make(Card& card);
  ~Ferry();
  Ferry(const Ferry&) = delete;
  Ferry& operator=(const Ferry&) = delete;

  // What may be fetched before it is asked for: nothing, the layer of what was asked for, all.
  enum class Ahead : uint8_t { kNo, kLayer, kAll };
  // Rows of `range` from the card: as many of its first as lie in one window. They stay until the next call. What
  // seems to be wanted next is on its way then.
  Result<std::span<const std::byte>> fetch(const FerryPlace& from, std::span<const Segment> segments, size_t segment,
                                           RowRange range, Ahead ahead);
  // Rows for the card, which may stay here until the next call but `put`.
  Status put(const FerryPlace& to, size_t segment, RowRange range, const std::byte* in);
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
  Status grow(PinnedMemory& block, uint64_t bytes);
  Status issue_out(const FerryPlace& from, const Window& window, PinnedMemory& block);
  Status issue_put(const FerryPlace& to);
  Status send_put(const FerryPlace& to);
  std::optional<Window> following(const FerryPlace& from, std::span<const Segment> segments, const Window& window,
                                  Ahead ahead) const;
  Status wait();

  Card* card_ = nullptr;
  Stream stream_;
  bool busy_ = false;
  Status failed_;
  std::optional<Window> here_, coming_;
  std::optional<size_t> last_segment_;
  bool in_order_ = false;  // the segments of the last two windows followed each other
  PinnedMemory here_block_, coming_block_, put_block_;
  size_t put_segment_ = 0;
  RowRange put_;
};

// Ferries that wait for the next state. Any thread.
class FerryDock {
 public:
  explicit FerryDock(Card& card) : card_(card) { idle_.reserve(kIdleMax); }
  Result<std::unique_ptr<Ferry>> take();
  void give(std::unique_ptr<Ferry> ferry);

 private:
  static constexpr size_t kIdleMax = 4;
  Card& card_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Ferry>> idle_;
};

}  // namespace baton::cuda
