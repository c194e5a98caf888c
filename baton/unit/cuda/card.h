// A card with what this unit asks of it: memory, copies, kernels, in order on one stream or another. Above the table of
// the driver's functions (driver.h), whose codes become Status here. docs/cuda.md.
//
// Threads: functions may be called from any thread; a Stream from one at a time. What a Card gave is dropped before it.
//
// Errors of a card: kOutOfMemory with the numbers; kUnavailable when it is lost (an illegal address, a failed launch, a
// memory error: the driver gives nothing more to this process), then and ever after; else kDevice.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "baton/base/status.h"
#include "baton/unit/cuda/driver.h"
#include "baton/unit/cuda/instruction.h"

namespace baton {
class ThreadPool;
}

namespace baton::cuda {

class Card;

// Memory of a card; given back when it goes.
class DeviceMemory {
 public:
  DeviceMemory() = default;
  DeviceMemory(DeviceMemory&& other) noexcept;
  DeviceMemory& operator=(DeviceMemory&& other) noexcept;
  ~DeviceMemory();
  Address address() const { return address_; }
  uint64_t bytes() const { return bytes_; }

 private:
  friend class Card;
  Card* card_ = nullptr;
  Address address_ = 0;
  uint64_t bytes_ = 0;
};

// Memory of the host that the card copies from and to by itself. From kHugeBytes on in huge pages where the system has
// them: pinning 32 MiB of small ones takes 10 ms, of huge ones 1, and as long again to clear them.
inline constexpr uint64_t kHugeBytes = uint64_t{2} << 20;
class PinnedMemory {
 public:
  PinnedMemory() = default;
  PinnedMemory(PinnedMemory&& other) noexcept;
  PinnedMemory& operator=(PinnedMemory&& other) noexcept;
  ~PinnedMemory();
  std::byte* data() const { return data_; }
  uint64_t bytes() const { return bytes_; }

 private:
  friend class Card;
  Card* card_ = nullptr;
  std::byte* data_ = nullptr;
  uint64_t bytes_ = 0;
  std::byte* mapped_ = nullptr;  // what was mapped for it; null: the driver's own
  uint64_t mapped_bytes_ = 0;
};

// A point of a stream's work.
class Event {
 public:
  Event() = default;
  Event(Event&& other) noexcept;
  Event& operator=(Event&& other) noexcept;
  ~Event();

  // All that its stream had to do before it was recorded. One that never was is done.
  Status wait() const;
  Result<bool> done() const;
  // Between two that are done and were made to be timed, by the card's clock.
  Result<float> milliseconds_since(const Event& earlier) const;

 private:
  friend class Card;
  friend class Stream;
  Card* card_ = nullptr;
  void* handle_ = nullptr;
};

// Work that was recorded, to be asked for at once. Memory of host and card that it names stays where it was.
class Graph {
 public:
  Graph() = default;
  Graph(Graph&& other) noexcept;
  Graph& operator=(Graph&& other) noexcept;
  ~Graph();
  explicit operator bool() const { return handle_ != nullptr; }

 private:
  friend class Stream;
  Card* card_ = nullptr;
  void* handle_ = nullptr;
};

// Rows of bf16 one behind the other; `at` a multiple of 16, `columns` of 8.
struct Bf16Rows {
  Address at = 0;
  uint64_t rows = 0, columns = 0;
};

// Work of a card in order. Every function but `wait` returns before the work is done.
class Stream {
 public:
  Stream() = default;
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&& other) noexcept;
  ~Stream();

  // `from` and `to` of the host are pinned, and stay until the stream has come so far.
  Status copy_in(Address to, const void* from, uint64_t bytes);
  Status copy_out(void* to, Address from, uint64_t bytes);
  Status copy(Address to, Address from, uint64_t bytes);
  // Rows of `row_bytes` that lie `pitch` bytes apart on both sides; for state rows.
  Status copy_rows_out(void* to, uint64_t to_pitch, Address from, uint64_t from_pitch, uint64_t row_bytes,
                       uint64_t rows);
  Status copy_rows_in(Address to, uint64_t to_pitch, const void* from, uint64_t from_pitch, uint64_t row_bytes,
                      uint64_t rows);
  // Rows of another card's memory to this one's: without the host where this reaches it (Card::reach). Where the other
  // is what is lost, the error is its.
  Status copy_rows_from(const Card& other, Address to, uint64_t to_pitch, Address from, uint64_t from_pitch,
                        uint64_t row_bytes, uint64_t rows);
  Status fill(Address at, uint8_t value, uint64_t bytes);
  Status zero(Address at, uint64_t bytes) { return fill(at, 0, bytes); }
  // `grid` blocks (in x; at least 1) of `threads`; `argument` is copied.
  Status launch(std::string_view kernel, uint32_t grid, uint32_t threads, uint32_t shared_bytes, const void* argument);
  // The same of a kernel that begins with begin_behind (kernels/ptx.cuh): where card and driver can, it begins while
  // the one before it on the stream ends, for which it waits itself.
  Status launch_ahead(std::string_view kernel, uint32_t grid, uint32_t threads, uint32_t shared_bytes,
                      const void* argument);
  // For kernels that copy boxes of so many rows and 64 or 32 columns of it, whose pieces of 16 bytes have their places
  // in shared memory as tile_offset or patch_offset (tile_layout.h) say. Where the card's facts say that there are
  // maps.
  Result<TensorMap> map_of(const Bf16Rows& matrix, uint32_t box_rows, uint32_t box_columns) const;
  // As many blocks as run at once (Card::facts().processors), which may wait for each other.
  Status launch_together(std::string_view kernel, uint32_t threads, uint32_t shared_bytes, const void* argument);
  // Until all that was asked before is done. Errors of that work come here, or at any function behind it: kDevice, and
  // kUnavailable when the card is lost.
  Status wait();

  Status record(Event& event);
  // What comes behind waits for an event, of any card's stream.
  Status wait_for(const Event& event);
  // Between the two, work is not done but recorded, and `wait` is an error. end_capture is called whatever failed
  // between; record_graph sees to it.
  Status begin_capture();
  Result<Graph> end_capture();
  Result<Graph> record_graph(const std::function<Status()>& work);
  Status launch(const Graph& graph);

 private:
  friend class Card;
  Card* card_ = nullptr;
  void* handle_ = nullptr;
};

// What this process holds of all its cards now, the emulated ones among them: for tests, after which it is what it was.
struct CardUse {
  uint64_t device_bytes = 0, pinned_bytes = 0;              // DeviceMemory, PinnedMemory
  uint64_t cards = 0, streams = 0, events = 0, graphs = 0;  // that are open

  bool operator==(const CardUse&) const = default;
};
CardUse card_use();

inline constexpr uint32_t kCapabilityLeast = 80;  // of cards that kernels run on: 8.0
inline constexpr uint32_t kCardsMax = 64;         // that are counted, as many as `device` has numbers

// What is known of a card without running anything.
struct CardFacts {
  uint32_t index = 0;
  std::string name;  // "NVIDIA H100 80GB HBM3"
  uint64_t memory_bytes = 0;
  uint32_t capability = 0;    // 90: 9.0
  uint32_t processors = 0;    // streaming multiprocessors
  uint32_t shared_bytes = 0;  // that a block may have at most
  std::string driver;         // "CUDA 13.0"
  std::string pci;            // "0000:04:00.0"
  bool emulated = false;
  bool maps = false;  // Stream::map_of
};

class Card {
 public:
  // kUnsupported with the reason: no such card, or one that the kernels were not built for. `driver` outlives the card.
  // `only`: kernels of that file alone (KernelImage::name), which is quicker; empty: all.
  static Result<std::shared_ptr<Card>> open(const Driver& driver, uint32_t index, std::string_view only = {});
  // The same without opening it: takes none of its memory, and does not know whether the kernels run there.
  static Result<CardFacts> facts_of(const Driver& driver, uint32_t index);
  // How many there are.
  static Result<uint32_t> count(const Driver& driver);
  ~Card();
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  const CardFacts& facts() const { return facts_; }
  // Of the card: free now, by the driver.
  Result<uint64_t> free_bytes() const;
  // kOutOfMemory with both numbers; zero bytes are none.
  Result<DeviceMemory> allocate(uint64_t bytes, std::string_view what);
  // `pool` helps to clear it.
  Result<PinnedMemory> allocate_pinned(uint64_t bytes, ThreadPool* pool = nullptr);
  Result<Stream> stream();
  // `timed`: for milliseconds_since. 60 of them between the copies of 44 MB took 90 us more than 60 that are not.
  Result<Event> event(bool timed = false);
  // All of DeviceMemory and of PinnedMemory, now.
  uint64_t held_bytes() const { return held_; }
  uint64_t held_pinned_bytes() const { return held_pinned_; }
  // Blocks that a processor can hold of a kernel at once.
  Result<uint32_t> blocks_of(std::string_view kernel, uint32_t threads, uint32_t shared_bytes);
  // Its copies from the other's memory come directly from now on; false: they cannot.
  Result<bool> reach(const Card& other);
  // Nothing more is to be had of it.
  bool lost() const;

 private:
  friend class DeviceMemory;
  friend class PinnedMemory;
  friend class Event;
  friend class Graph;
  friend class Stream;
  Card();
  static Result<std::shared_ptr<Card>> find(const Driver& driver, uint32_t index);
  Status read_facts();
  Result<bool> pin_huge(uint64_t bytes, ThreadPool* pool, PinnedMemory& memory);
  Status load_kernels(std::string_view only);
  struct Parts;  // card.cc: context, module, functions by name
  CardFacts facts_;
  std::atomic<uint64_t> held_{0}, held_pinned_{0};
  std::unique_ptr<Parts> parts_;
};

}  // namespace baton::cuda
