// Runs device code on the host, so that kernels are tested without a card: each thread of a block is a fiber of one
// thread of the system, and of all blocks of a launch one runs at a time.
//
// What is wrong is seen: shared memory begins as 0xff, which is no number; a copy made ahead is no number until its
// thread waits for the group that it is in. Threads that diverge at a collective or a barrier, that stay away, that end
// with copies nobody waited for or that wait for other blocks in vain end the process, with a line that says who and
// where. A missing barrier shows as no number, or as other bits in another order of threads.
//
// Not seen: conflicts of banks, weak order of memory between blocks, rounding within a multiplication of tensor cores
// (a sum of 16 products is exact and rounded once).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

struct uint3 {
  uint32_t x, y, z;
};
struct dim3 {
  uint32_t x, y, z;
};
inline thread_local constinit uint3 threadIdx = {0, 0, 0};
inline thread_local constinit uint3 blockIdx = {0, 0, 0};
inline thread_local constinit dim3 blockDim = {1, 1, 1};
inline thread_local constinit dim3 gridDim = {1, 1, 1};

namespace baton::fiber {

inline constexpr uint32_t kSharedMax = 232 * 1024;  // bytes of dynamic shared memory

// Which of the threads that can go on does: the first to have come, the last, or any.
enum class Order { kForward, kBackward, kRandom };

struct Options {
  uint32_t blocks = 1, threads = 512;  // threads: a multiple of 32, at most 1,024
  uint32_t shared_bytes = 0;
  Order order = Order::kForward;
  uint32_t seed = 1;
  bool hop = false;  // now and then another block goes on at a barrier
};

// Runs `body` in all threads of all blocks.
void launch(const Options& options, const std::function<void()>& body);

// What follows is for code that runs in a launch.

uint32_t shared_bytes();

// All threads of the block meet; the values of all, by or.
int meet_block(const char* kind, int value);
// `count` of them do, whichever, at one of the block's barriers 1 to 15.
int meet_some(const char* kind, uint32_t barrier, uint32_t count, int value);

// The lanes of `mask` meet; the last to come calls combine(owns, mask), owns[lane] being what that lane brought.
using Combine = std::function<void(void* const* owns, uint32_t mask)>;
void meet_lanes(const char* kind, uint32_t mask, void* own, const Combine& combine);

// Others go on, so that memory may change that this thread waits for.
void look_again();

// Shared memory by 32-bit addresses, aligned as the memory is.
uint32_t shared_address(const void* in);

// `bytes` (4, 8, 16) from `from`, nullptr for zeros, to shared memory when the thread waits for them.
void copy_ahead(uint32_t to, const void* from, uint32_t bytes);
void copies_end_group();
void copies_wait(size_t left);  // for all groups but the last `left`

void put_here(uint32_t to, const void* what, uint32_t bytes);  // at once

// A barrier in shared memory (mbarrier), 8 bytes at `at`. Copies that it waits for come when somebody asks whether the
// phase of a parity has ended; whoever hears no lets others go on.
void make_barrier(uint32_t at, uint32_t arrivals);
void arrive(uint32_t at, uint32_t count = 1);
void arrive_behind_copies(uint32_t at);
void arrive_with_bulk(uint32_t at, uint32_t bytes);  // 32 arrivals, and copies of so many bytes
void copy_in_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier);
bool has_ended(uint32_t at, uint32_t parity);

// ldmatrix, x4, and mma.m16n8k16.
void load_matrices(uint32_t address, uint32_t (&to)[4], bool turned);
void multiply_add(bool bf16, float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);

}  // namespace baton::fiber

namespace baton::cuda {

// The dynamic shared memory of a block: what `extern __shared__ ... shared[]` names.
inline thread_local constinit __attribute__((aligned(1024))) unsigned char shared[fiber::kSharedMax] = {};

// GCC calls this where a template names `shared`.
extern "C" __attribute__((weak)) void baton_fiber_shared_begin() asm("_ZTHN5baton4cuda6sharedE");
extern "C" __attribute__((weak)) void baton_fiber_shared_begin() {}

}  // namespace baton::cuda
