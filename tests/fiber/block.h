// A block of a launch: its threads, who of them can go on, and where the others wait.
#pragma once

#include <array>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "baton/base/random.h"
#include "tests/fiber/fiber.h"

namespace baton::fiber {

[[noreturn]] void die(const char* what, const char* more = "", const char* and_more = "");

// Of the blocks of a launch one has its turn, and everything that is here.
class Turns {
 public:
  explicit Turns(uint32_t blocks) : over_(blocks) {}

  void wait(uint32_t block);
  // To the next block that is not over; returns when it is this block's turn again, or at once when it is over.
  void pass_on(uint32_t block, bool over);

  uint32_t idle = 0;  // looks at other blocks' memory since anybody came to go on

 private:
  std::mutex mutex_;
  std::condition_variable change_;
  uint32_t turn_ = 0;
  std::vector<bool> over_;
};

struct Copy {
  unsigned char* to;
  const void* from;
  uint32_t bytes;

  void come() const {
    if (from != nullptr) {
      std::memcpy(to, from, bytes);
    } else {
      std::memset(to, 0, bytes);
    }
  }
};

// A barrier in shared memory, 8 bytes, which nobody may write to as to other memory while the block lives.
struct Phase {
  static constexpr uint64_t kBytes = 0xba44'1e44'0f0f'4e11;

  uint32_t arrivals = 0, missing = 0;
  uint32_t ended = 0;     // phases
  uint32_t expected = 0;  // bytes that copies in bulk have not been asked for yet
  std::vector<Copy> copies;
  unsigned char* memory = nullptr;

  void check() const {
    if (std::memcmp(memory, &kBytes, sizeof(kBytes)) != 0) die("writes values where a barrier is");
  }
};

struct Thread {
  void* stack_pointer = nullptr;
  uint32_t index = 0;
  bool over = false;
  const char* waits = "";    // at what
  std::vector<Copy> copies;  // nobody waited for
  std::vector<size_t> ends;  // of groups, in `copies`
};

class Block {
 public:
  Block(const Options& of, Turns& turns, const std::function<void()>& body)
      : options(of), turns_(turns), body_(body), random_(of.seed * 7919 + blockIdx.x) {}

  void run();

  int meet_block(const char* kind, int value);
  int meet_some(const char* kind, uint32_t barrier, uint32_t count, int value);
  void make_barrier(uint32_t at, uint32_t arrivals, unsigned char* memory);
  void arrive(uint32_t at, uint32_t count, std::vector<Copy> copies, uint32_t bytes = 0);
  void copy_in_bulk(uint32_t at, const Copy& copy);
  bool has_ended(uint32_t at, uint32_t parity);
  void look_aside();
  void meet_lanes(const char* kind, uint32_t mask, void* own, const Combine& combine);
  void look_again();

  const Options& options;

 private:
  // Lanes of a warp at a collective.
  struct Gather {
    uint32_t mask = 0, arrived = 0;
    const char* kind = nullptr;
    void* owns[32] = {};
  };
  struct Barrier {
    const char* kind = nullptr;
    std::vector<uint32_t> waiting;
    int value = 0, result = 0;
  };

  static void begin();
  Phase& phase_at(uint32_t at, const char* what);
  void leave(const char* waits);
  uint32_t next();
  void wake(uint32_t index);
  Gather& gather_of(const char* kind, uint32_t mask);
  [[noreturn]] void stuck() const;

  Turns& turns_;
  const std::function<void()>& body_;
  Random random_;
  std::vector<Thread> threads_;
  std::deque<uint32_t> ready_;
  std::vector<std::array<Gather, 8>> warps_;
  std::array<Barrier, 16> barriers_;  // the first is of all
  std::map<uint32_t, Phase> phases_;  // by address
  uint64_t aside_ = 0;                // looks at barriers in vain since anybody came to go on
  uint64_t looks_ = 0;                // at the memory of others
  uint32_t alive_ = 0;
  void* scheduler_ = nullptr;
};

inline thread_local constinit Block* current_block = nullptr;
inline thread_local constinit Thread* current_thread = nullptr;

}  // namespace baton::fiber
