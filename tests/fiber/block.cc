// Fibers: how they begin, change places and wait for each other.
#include "tests/fiber/block.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <utility>

// Pushes what a callee keeps, leaves its stack pointer at *save, and goes on where `to` was left.
extern "C" void baton_fiber_switch(void** save, void* to);
asm(R"(
.text
.globl baton_fiber_switch
.type baton_fiber_switch,@function
baton_fiber_switch:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size baton_fiber_switch,.-baton_fiber_switch
)");

namespace baton::fiber {
namespace {

constexpr uint32_t kThreadsMax = 1024;
constexpr uint32_t kIdleMax = 100'000;
constexpr size_t kPage = 4096, kStack = 128 * 1024;

// Stacks of a block's threads, each behind a page that nobody may touch. They are kept for the next block: only who has
// a turn takes and gives.
std::vector<unsigned char*>& free_stacks() {
  static std::vector<unsigned char*> stacks;
  return stacks;
}
unsigned char* take_stacks() {
  std::vector<unsigned char*>& free = free_stacks();
  if (!free.empty()) {
    unsigned char* const stacks = free.back();
    free.pop_back();
    return stacks;
  }
  void* const memory = mmap(nullptr, kThreadsMax * (kStack + kPage), PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) die("has no memory for stacks");
  auto* const stacks = static_cast<unsigned char*>(memory);
  for (uint32_t i = 0; i < kThreadsMax; ++i) mprotect(stacks + i * (kStack + kPage), kPage, PROT_NONE);
  return stacks;
}

}  // namespace

void die(const char* what, const char* more, const char* and_more) {
  std::fprintf(stderr, "fiber: block %u thread %u: %s %s %s\n", blockIdx.x,
               current_thread != nullptr ? current_thread->index : 0, what, more, and_more);
  std::abort();
}

void Turns::wait(uint32_t block) {
  std::unique_lock lock(mutex_);
  change_.wait(lock, [&] { return turn_ == block; });
}
void Turns::pass_on(uint32_t block, bool over) {
  std::unique_lock lock(mutex_);
  over_[block] = over;
  if (over) idle = 0;
  const auto blocks = static_cast<uint32_t>(over_.size());
  uint32_t next = (block + 1) % blocks;
  while (next != block && over_[next]) next = (next + 1) % blocks;
  if (next == block) return;
  turn_ = next;
  change_.notify_all();
  if (!over) change_.wait(lock, [&] { return turn_ == block; });
}

void Block::begin() {
  Block& block = *current_block;
  block.body_();
  Thread& self = *current_thread;
  if (!self.copies.empty() || !self.ends.empty()) die("ends with copies that nobody waited for");
  if (const Barrier& all = block.barriers_[0]; !all.waiting.empty()) die("ends while others are at", all.kind);
  self.over = true;
  --block.alive_;
  block.leave("");
  std::abort();
}

void Block::run() {
  if (options.threads > kThreadsMax || options.threads % 32 != 0) die("has a wrong number of threads");
  current_block = this;
  threads_.resize(options.threads);
  warps_.resize(options.threads / 32);
  unsigned char* const stacks = take_stacks();
  alive_ = options.threads;
  for (uint32_t i = 0; i < options.threads; ++i) {
    threads_[i].index = i;
    auto* top = reinterpret_cast<uint64_t*>(stacks + (i + 1) * (kStack + kPage)) - 2;
    *--top = 0;  // begin() finds the stack aligned as behind a call
    *--top = reinterpret_cast<uint64_t>(&Block::begin);
    top -= 6;
    std::fill(top, top + 6, 0);
    threads_[i].stack_pointer = top;
    ready_.push_back(i);
  }
  while (alive_ > 0) {
    if (ready_.empty()) stuck();
    Thread& thread = threads_[next()];
    current_thread = &thread;
    threadIdx = {thread.index, 0, 0};
    baton_fiber_switch(&scheduler_, thread.stack_pointer);
    current_thread = nullptr;
  }
  for (const auto& [at, phase] : phases_) phase.check();
  free_stacks().push_back(stacks);
  current_block = nullptr;
}

void Block::leave(const char* waits) {
  Thread& self = *current_thread;
  self.waits = waits;
  baton_fiber_switch(&self.stack_pointer, scheduler_);
  self.waits = "";
}

uint32_t Block::next() {
  if (options.order == Order::kRandom) std::swap(ready_[random_.below(ready_.size())], ready_.back());
  const bool first = options.order == Order::kForward;
  const uint32_t index = first ? ready_.front() : ready_.back();
  first ? ready_.pop_front() : ready_.pop_back();
  return index;
}

void Block::wake(uint32_t index) {
  ready_.push_back(index);
  turns_.idle = 0;
  aside_ = 0;
}

void Block::stuck() const {
  std::fprintf(stderr, "fiber: block %u: nobody can go on:\n", blockIdx.x);
  for (size_t i = 0; i < threads_.size();) {
    size_t to = i;
    while (to < threads_.size() && threads_[i].over == threads_[to].over &&
           std::strcmp(threads_[i].waits, threads_[to].waits) == 0)
      ++to;
    std::fprintf(stderr, "  threads %zu to %zu %s%s\n", i, to - 1, threads_[i].over ? "are over" : "wait at ",
                 threads_[i].waits);
    i = to;
  }
  std::abort();
}

Block::Gather& Block::gather_of(const char* kind, uint32_t mask) {
  Gather* free = nullptr;
  for (Gather& one : warps_[current_thread->index / 32]) {
    if (one.arrived == 0) {
      free = &one;
    } else if (one.mask == mask) {
      if (std::strcmp(one.kind, kind) != 0) die("lanes diverge:", kind, one.kind);
      return one;
    } else if ((one.mask & mask) != 0) {
      die("masks overlap:", kind, one.kind);
    }
  }
  if (free == nullptr) die("too many collectives at once:", kind);
  free->mask = mask, free->kind = kind;
  return *free;
}

void Block::meet_lanes(const char* kind, uint32_t mask, void* own, const Combine& combine) {
  const uint32_t lane = current_thread->index % 32, first = current_thread->index - lane;
  if ((mask >> lane & 1) == 0) die("is not in its own mask at", kind);
  Gather& gather = gather_of(kind, mask);
  gather.owns[lane] = own;
  gather.arrived |= 1u << lane;
  if (gather.arrived != mask) return leave(kind);
  combine(gather.owns, mask);
  gather.arrived = 0;
  for (uint32_t i = 0; i < 32; ++i) {
    if (i != lane && (mask >> i & 1) != 0) wake(first + i);
  }
  if (options.order == Order::kForward) return;
  wake(current_thread->index);  // the last to come need not be the first to go
  leave(kind);
}

int Block::meet_block(const char* kind, int value) {
  if (alive_ != options.threads) die("is at a barrier of all while some are over:", kind);
  return meet_some(kind, 0, options.threads, value);
}

int Block::meet_some(const char* kind, uint32_t barrier, uint32_t count, int value) {
  Barrier& at = barriers_[barrier];
  if (at.waiting.empty()) at.kind = kind, at.value = 0;
  if (std::strcmp(at.kind, kind) != 0) die("threads diverge:", kind, at.kind);
  at.value |= value;
  at.waiting.push_back(current_thread->index);
  if (at.waiting.size() == count) {
    at.result = at.value;
    for (const uint32_t index : std::exchange(at.waiting, {})) wake(index);
    if (options.hop && random_.below(8) == 0) turns_.pass_on(blockIdx.x, false);
  }
  leave(kind);
  return at.result;
}

void Block::make_barrier(uint32_t at, uint32_t arrivals, unsigned char* memory) {
  if (phases_.contains(at)) die("makes a barrier where there is one");
  std::memcpy(memory, &Phase::kBytes, sizeof(Phase::kBytes));
  Phase& phase = phases_[at];
  phase.arrivals = phase.missing = arrivals;
  phase.memory = memory;
}

Phase& Block::phase_at(uint32_t at, const char* what) {
  const auto found = phases_.find(at);
  if (found == phases_.end()) die(what, "where no barrier was made");
  found->second.check();
  return found->second;
}

void Block::copy_in_bulk(uint32_t at, const Copy& copy) {
  Phase& phase = phase_at(at, "copies in bulk");
  if (phase.expected < copy.bytes) die("copies in bulk what no barrier expects");
  phase.expected -= copy.bytes;
  phase.copies.push_back(copy);
  aside_ = 0;
}

void Block::arrive(uint32_t at, uint32_t count, std::vector<Copy> copies, uint32_t bytes) {
  Phase& phase = phase_at(at, "arrives");
  if (count > phase.missing) die("arrives at a barrier that expects nobody more");
  phase.missing -= count;
  phase.expected += bytes;
  phase.copies.insert(phase.copies.end(), copies.begin(), copies.end());
  aside_ = 0;
  if (phase.missing > 0 || phase.expected > 0 || !phase.copies.empty()) return;
  phase.missing = phase.arrivals;
  ++phase.ended;
}

bool Block::has_ended(uint32_t at, uint32_t parity) {
  Phase& phase = phase_at(at, "waits");
  if (phase.missing == 0 && phase.expected == 0 && phase.ended % 2 == parity) {
    for (const Copy& copy : phase.copies) copy.come();
    phase.copies.clear();
    phase.missing = phase.arrivals;
    ++phase.ended;
  }
  return phase.ended % 2 != parity;
}

void Block::look_aside() {
  if (++aside_ > uint64_t{kIdleMax} * options.threads) die("waits at a barrier where nobody arrives");
  const bool forward = options.order == Order::kForward;
  forward ? ready_.push_back(current_thread->index) : ready_.push_front(current_thread->index);
  leave("a barrier in shared memory");
}

void Block::look_again() {
  if (++turns_.idle > kIdleMax) die("waits for other blocks, of which none goes on");
  const bool forward = options.order == Order::kForward;
  forward ? ready_.push_back(current_thread->index) : ready_.push_front(current_thread->index);
  // Where several look, they keep each other ready.
  if (!forward || ready_.size() == 1 || aside_ > 0 || ++looks_ % 32 == 0) turns_.pass_on(blockIdx.x, false);
  leave("others' memory");
}

}  // namespace baton::fiber
