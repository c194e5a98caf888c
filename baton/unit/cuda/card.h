// A card with what this unit asks of it: memory, copies, kernels, in order on one stream or another. Above the table of
// the driver's functions (driver.h), whose codes become Status here. docs/cuda.md.
//
// Threads: functions may be called from any thread; a Stream from one at a time.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "baton/base/status.h"
#include "baton/unit/cuda/driver.h"
#include "baton/unit/cuda/instruction.h"

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

// Memory of the host that the card copies from and to by itself.
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
  Status zero(Address at, uint64_t bytes);
  // `grid` blocks (in x; at least 1) of `threads`; `argument` is copied.
  Status launch(std::string_view kernel, uint32_t grid, uint32_t threads, uint32_t shared_bytes, const void* argument);
  // As many blocks as run at once (Card::facts().processors), which may wait for each other.
  Status launch_together(std::string_view kernel, uint32_t threads, uint32_t shared_bytes, const void* argument);
  // Until all that was asked before is done. Errors of that work come here, or at any function behind it: kDevice, and
  // kUnavailable when the card is lost.
  Status wait();

 private:
  friend class Card;
  Card* card_ = nullptr;
  void* handle_ = nullptr;
};

// What is known of a card without running anything.
struct CardFacts {
  uint32_t index = 0;
  std::string name;  // "NVIDIA H100 80GB HBM3"
  uint64_t memory_bytes = 0;
  uint32_t capability = 0;    // 90: 9.0
  uint32_t processors = 0;    // streaming multiprocessors
  uint32_t shared_bytes = 0;  // that a block may have at most
  std::string driver;         // "CUDA 13.0"
  bool emulated = false;
};

class Card {
 public:
  // kUnsupported with the reason: no driver, no such card, built without kernels, a card too old for them. `driver`
  // outlives the card.
  static Result<std::shared_ptr<Card>> open(const Driver& driver, uint32_t index);
  ~Card();
  Card(const Card&) = delete;
  Card& operator=(const Card&) = delete;

  const CardFacts& facts() const { return facts_; }
  // Of the card: free now, by the driver.
  Result<uint64_t> free_bytes() const;
  // kOutOfMemory with both numbers; zero bytes are none.
  Result<DeviceMemory> allocate(uint64_t bytes, std::string_view what);
  Result<PinnedMemory> allocate_pinned(uint64_t bytes);
  Result<Stream> stream();
  // All of DeviceMemory, now.
  uint64_t held_bytes() const { return held_; }

 private:
  friend class DeviceMemory;
  friend class PinnedMemory;
  friend class Stream;
  Card() = default;
  struct Parts;  // card.cc: context, module, functions by name
  CardFacts facts_;
  std::atomic<uint64_t> held_{0};
  std::unique_ptr<Parts> parts_;
};

}  // namespace baton::cuda
