// Waking, helping, and leaving.
#include "baton/bridge/crew.h"

#include <algorithm>
#include <chrono>
#include <system_error>

#include "baton/base/status.h"
#include "baton/base/thread_pool.h"

namespace baton {
namespace {

using Time = std::chrono::steady_clock;
constexpr auto kSpinTime = std::chrono::microseconds(60);
constexpr auto kLinger = std::chrono::milliseconds(2);

// Calls ready() until it says yes, or `most` have passed: at once, then giving way to others.
template <class Ready>
bool wait_until(Time::duration most, Ready ready) {
  const auto start = Time::now();
  for (;;) {
    for (int i = 0; i < 64; ++i) {
      if (ready()) return true;
#if defined(__x86_64__)
      __builtin_ia32_pause();
#elif defined(__aarch64__)
      __asm__ volatile("yield");
#endif
    }
    const auto waited = Time::now() - start;
    if (waited >= most) return false;
    if (waited >= kSpinTime) std::this_thread::yield();
  }
}

constexpr uint64_t turn_of(uint64_t batch, uint64_t taken, uint64_t pieces) {
  return (batch & 0xffffffff) << 32 | taken << 16 | pieces;
}

}  // namespace

Crew::Crew(uint32_t threads) : threads_(threads > 0 ? threads : std::min(physical_cores(), kThreadsMax)) {
  shifts_.reserve(16);
}

Crew::~Crew() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  called_.notify_all();
  for (std::thread& helper : helpers_) helper.join();
}

void Crew::start() {
  const std::lock_guard lock(mutex_);
  start_locked();
}

void Crew::start_locked() try {
  while (helpers_.size() + 1 < threads_) helpers_.emplace_back([this] { work(); });
} catch (const std::exception&) {
  // No memory, or no more threads: callers and those that there are do it.
}

void Crew::open(Shift& shift) {
  {
    const std::lock_guard lock(mutex_);
    start_locked();
    shifts_.push_back(&shift);
    calls_.fetch_add(1, std::memory_order_relaxed);
    if (sleeping_ == 0) return;
  }
  wake(2);
}

void Crew::wake(uint32_t most) {
  for (; most > 0; --most) called_.notify_one();
}

void Crew::close(Shift& shift) {
  std::unique_lock lock(mutex_);
  std::erase(shifts_, &shift);
  left_.wait(lock, [&] { return shift.inside_ == 0; });
}

Shift* Crew::wanting() {
  const auto found =
      std::find_if(shifts_.begin(), shifts_.end(), [](const Shift* shift) { return shift->joined_ < shift->wanted_; });
  return found == shifts_.end() ? nullptr : *found;
}

void Crew::work() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (Shift* const shift = wanting()) {
      const uint32_t thread = ++shift->joined_;
      ++shift->inside_;
      const bool more = sleeping_ > 0 && wanting() != nullptr;
      lock.unlock();
      if (more) wake(2);
      shift->stay(thread);
      lock.lock();
      if (--shift->inside_ == 0) left_.notify_all();
      continue;
    }
    const uint64_t seen = calls_.load(std::memory_order_relaxed);
    lock.unlock();
    wait_until(kLinger, [&] { return calls_.load(std::memory_order_relaxed) != seen; });
    lock.lock();
    ++sleeping_;
    called_.wait(lock, [&] { return stopping_ || wanting() != nullptr; });
    --sleeping_;
  }
}

Shift::Shift(Crew* crew, ShiftWork& work, uint32_t helpers)
    : crew_(crew), work_(work), wanted_(crew == nullptr ? 0 : std::min(helpers, crew->threads() - 1)) {
  if (wanted_ > 0) crew_->open(*this);
}

Shift::~Shift() {
  finish();
  if (wanted_ == 0) return;
  closed_.store(true, std::memory_order_release);
  crew_->close(*this);
}

uint32_t Shift::next_batch(uint32_t others) {
  const uint64_t added = this->added();
  if (added > others) wait(added - others);
  return static_cast<uint32_t>(added % kBatches);
}

void Shift::wait(uint64_t batches) {
  BATON_CHECK(batches <= added());
  while (done_ < batches) {
    if (batches_[done_ % kBatches].left.load(std::memory_order_acquire) == 0) {
      ++done_;
    } else if (!help(0)) {
      std::this_thread::yield();
    }
  }
}

void Shift::add(uint32_t pieces) {
  const uint64_t added = added_.load(std::memory_order_relaxed);
  Batch& batch = batches_[added % kBatches];
  batch.left.store(pieces, std::memory_order_relaxed);
  batch.turn.store(turn_of(added, 0, pieces), std::memory_order_release);
  added_.store(added + 1, std::memory_order_release);
}

bool Shift::help(uint32_t thread) {
  const uint64_t added = added_.load(std::memory_order_acquire);
  for (uint64_t at = first_.load(std::memory_order_relaxed); at < added; ++at) {
    Batch& batch = batches_[at % kBatches];
    for (uint64_t turn = batch.turn.load(std::memory_order_acquire);;) {
      const uint64_t taken = turn >> 16 & 0xffff, pieces = turn & 0xffff;
      if (turn >> 32 != (at & 0xffffffff) || taken == pieces) {
        uint64_t first = at;
        first_.compare_exchange_strong(first, at + 1, std::memory_order_relaxed);
        break;
      }
      if (!batch.turn.compare_exchange_weak(turn, turn_of(at, taken + 1, pieces), std::memory_order_acquire)) continue;
      work_.piece(static_cast<uint32_t>(at % kBatches), static_cast<uint32_t>(taken), thread);
      batch.left.fetch_sub(1, std::memory_order_release);
      return true;
    }
  }
  return false;
}

void Shift::stay(uint32_t thread) {
  const auto ready = [&] { return help(thread) || closed_.load(std::memory_order_acquire); };
  while (!closed_.load(std::memory_order_acquire)) {
    // Of a sender that takes its time: others need the processor more.
    if (!wait_until(kLinger, ready)) std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

}  // namespace baton
