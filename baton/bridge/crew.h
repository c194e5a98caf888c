// Threads that help with a hand-over: who has one calls them to a Shift, puts batches of pieces there, and works with
// them. Pieces are taken in the order in which they were put.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>
#include <vector>

namespace baton {

class Shift;

// Any thread may call it to a shift; several shifts at a time share it. Its threads begin with the first shift, look
// for the next one for two milliseconds behind each, then sleep. To wake a thread takes the caller
// 45 us on a virtual machine (engine/step_streams.h), so that it wakes two, and each of them two more.
class Crew {
 public:
  // `threads` counts a caller; 0: as many as there are cores, kThreadsMax at most. More than a handful keep memory
  // busy.
  explicit Crew(uint32_t threads = 0);
  ~Crew();
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;

  static constexpr uint32_t kThreadsMax = 12;
  uint32_t threads() const { return threads_; }
  // Begins its threads now, so that no shift waits for it.
  void start();

 private:
  friend class Shift;
  void open(Shift& shift);
  void close(Shift& shift);
  void start_locked();
  void work();
  // The first shift that wants one more; the lock is held.
  Shift* wanting();
  void wake(uint32_t most);

  const uint32_t threads_;
  std::mutex mutex_;
  std::condition_variable called_, left_;
  std::vector<Shift*> shifts_;  // guarded by mutex_, as are the next two
  uint32_t sleeping_ = 0;
  bool stopping_ = false;
  std::atomic<uint64_t> calls_{0};    // shifts that were opened
  std::vector<std::thread> helpers_;  // guarded by mutex_
};

// What is to be done: `piece` of a batch, by the caller (thread 0) or a helper. Must not throw.
class ShiftWork {
 public:
  virtual void piece(uint32_t batch, uint32_t piece, uint32_t thread) = 0;

 protected:
  ~ShiftWork() = default;
};

// From one thread. What `piece` reads may be written before `add`.
class Shift {
 public:
  static constexpr uint32_t kBatches = 32;

  // `crew`: null: the caller alone. `helpers`: at most. Borrowed all.
  Shift(Crew* crew, ShiftWork& work, uint32_t helpers);
  // finish, and nobody is here any more.
  ~Shift();
  Shift(const Shift&) = delete;
  Shift& operator=(const Shift&) = delete;

  // Works until no more than `others` batches, kBatches - 1 at most, are not done. The number, below kBatches, for the
  // next one.
  uint32_t next_batch(uint32_t others);
  // Of that number, with so many pieces, 65,535 at most.
  void add(uint32_t pieces);
  // How many were added; works until so many, the first, are done.
  uint64_t added() const { return added_.load(std::memory_order_relaxed); }
  void wait(uint64_t batches);
  void finish() { wait(added()); }

 private:
  friend class Crew;
  // A batch by the count of those before it. `turn`: that count, the pieces taken, and all of them: 32, 16 and 16 bits.
  struct Batch {
    std::atomic<uint64_t> turn{~uint64_t{0}};
    std::atomic<uint32_t> left{0};
  };
  // One piece, of the first batch that has one; false: none has.
  bool help(uint32_t thread);
  // A helper's part, to the end of the shift.
  void stay(uint32_t thread);

  Crew* const crew_;
  ShiftWork& work_;
  const uint32_t wanted_;
  std::array<Batch, kBatches> batches_;
  uint64_t done_ = 0;               // batches, the first
  std::atomic<uint64_t> added_{0};  // batches
  std::atomic<uint64_t> first_{0};  // of those before it all pieces are taken
  std::atomic<bool> closed_{false};
  uint32_t joined_ = 0, inside_ = 0;  // guarded by the crew's mutex
};

}  // namespace baton
