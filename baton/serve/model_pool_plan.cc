// Which model is loaded next, and which is given up for it.
#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "baton/base/memory_reserve.h"
#include "baton/serve/model_pool.h"

namespace baton::serve {
namespace {

constexpr std::chrono::milliseconds kLook{50};  // while somebody waits
constexpr std::chrono::hours kLongLook{1};

double ms_since(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - from).count();
}

}  // namespace

void ModelPool::refuse_all(PooledModel& model, const Error& error, std::vector<Due>& due) {
  due.reserve(due.size() + model.waiting_.size());
  for (auto& [number, waiting] : model.waiting_) due.push_back({std::move(waiting.waiter), fail(error)});
  model.waiting_.clear();
}

std::vector<PooledModel*> ModelPool::wanted() const {
  std::vector<PooledModel*> made;
  for (const auto& model : models_) {
    if (model->state_ == State::kAbsent && !model->waiting_.empty()) made.push_back(model.get());
  }
  std::sort(made.begin(), made.end(), [](const PooledModel* a, const PooledModel* b) {
    return a->waiting_.begin()->first < b->waiting_.begin()->first;
  });
  return made;
}

void ModelPool::plan(Clock::time_point now, std::vector<Due>& due) {
  for (const auto& model : models_) model->gives_way_ = false;
  if (stopping_) {
    const Error ends{Code::kCancelled, "the server is shutting down: ask another one, or later"};
    for (const auto& model : models_) refuse_all(*model, ends, due);
    return;
  }
  for (PooledModel* const model : wanted()) {
    const ModelFacts& facts = model->facts();
    if (model->failure_ && now - model->failed_at_ < options_.retry) {
      refuse_all(*model, *model->failure_, due);
    } else if (facts.bytes() > options_.budget) {
      refuse_all(*model,
                 {Code::kOutOfMemory,
                  fmt::format("the model '{}' takes {} bytes of weights and {} of states; the server's budget is {}: "
                              "give it more (--memory-budget), or a smaller model",
                              facts.name, facts.loaded_bytes(), facts.state_bytes_max, options_.budget)},
                 due);
    } else if (place(*model, now)) {
      return;
    }
  }
}

// False: the next in turn may be looked at.
bool ModelPool::place(PooledModel& model, Clock::time_point now) {
  const uint64_t bytes = model.facts().bytes();
  // What is there already may exceed the budget.
  const uint64_t room = options_.budget - std::min(options_.budget, bytes_);
  if (bytes > room) return make_room(model, bytes - room, now);
  begin({model});
  return true;
}

bool ModelPool::make_room(PooledModel& model, uint64_t bytes, Clock::time_point now) {
  const auto since = model.waiting_.begin()->second.since;
  std::vector<PooledModel*> others;
  uint64_t coming = 0;
  for (const auto& other : models_) {
    if (other->state_ == State::kUnloading) coming += other->facts().bytes();
    if (other->state_ == State::kLoaded && other->source_.open) others.push_back(other.get());
  }
  std::sort(others.begin(), others.end(), [](const auto* a, const auto* b) { return a->used_ < b->used_; });
  // One that is used has its turn first; what is asked of it behind that waits.
  const auto turn_ended = [&](const PooledModel& other) {
    return now - std::max(since, other.loaded_at_) >= options_.turn;
  };
  PooledModel* first = nullptr;
  for (PooledModel* const other : others) {
    if (coming >= bytes) break;
    if (other->leases_ > 0 || (!other->waiting_.empty() && !turn_ended(*other))) continue;
    coming += other->facts().bytes();
    if (first == nullptr) first = other;
    if (!other->waiting_.empty()) other->gives_way_ = true;
  }
  if (coming >= bytes) {
    if (first != nullptr) begin({*first, false, UnloadReason::kRoom});
    return true;
  }
  for (PooledModel* const other : others) {
    if (coming >= bytes) break;
    if (other->leases_ == 0 || !turn_ended(*other)) continue;
    other->gives_way_ = true;
    coming += other->facts().bytes();
  }
  return now - since >= options_.turn;
}

void ModelPool::begin(Operation operation) {
  if (operation_) return;
  PooledModel& model = operation.model;
  model.state_ = operation.loads ? State::kLoading : State::kUnloading;
  if (operation.loads) bytes_ += model.facts().bytes();
  operation_.emplace(operation);
  work_came_.notify_one();
}

void ModelPool::give_leases(std::vector<Due>& due) {
  for (const auto& model : models_) {
    if (model->state_ != State::kLoaded || model->gives_way_) continue;
    due.reserve(due.size() + model->waiting_.size());
    for (auto& [number, waiting] : model->waiting_) due.push_back({std::move(waiting.waiter), lease_now(*model)});
    model->waiting_.clear();
  }
}

void ModelPool::let_go_of_idle(Clock::time_point now) {
  if (stopping_) return;
  for (const auto& model : models_) {
    if (operation_) return;
    const bool idle = model->state_ == State::kLoaded && model->leases_ == 0 && model->source_.open;
    if (idle && model->keep_.count() >= 0 && now - model->idle_since_ >= model->keep_)
      begin({*model, false, UnloadReason::kIdle});
  }
}

ModelPool::Clock::time_point ModelPool::next_look(Clock::time_point now) const {
  auto next = now + kLongLook;
  for (const auto& model : models_) {
    if (!model->waiting_.empty()) return now + kLook;
    const bool idle = model->state_ == State::kLoaded && model->leases_ == 0 && !stopping_;
    if (!idle || model->keep_.count() < 0) continue;
    const auto left = model->keep_ - (now - model->idle_since_);
    if (left < kLongLook) next = std::min(next, now + left);
  }
  return next;
}

void ModelPool::keeper_loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    std::vector<Due> due;
    const auto now = Clock::now();
    try {
      plan(now, due);
      give_leases(due);
      let_go_of_idle(now);
    } catch (const std::bad_alloc&) {
      refill_memory_reserve();  // those that are not due yet are looked at again
    }
    if (!due.empty()) {
      telling_ = true;
      lock.unlock();
      for (Due& each : due) {
        ModelWaiter& waiter = *each.waiter;
        waiter.got(std::move(each.waiter), std::move(each.lease));
      }
      due.clear();
      lock.lock();
      telling_ = false;
      continue;
    }
    tell_slow(lock);
    if (settled()) settled_.notify_all();
    if (closing_) return;
    // Behind an operation that ends, the porter says so.
    changed_.wait_until(lock, operation_ ? Clock::now() + kLook : next_look(Clock::now()));
  }
}

// Each is out of the list while it is told: who takes it back then finds out later.
void ModelPool::tell_slow(std::unique_lock<std::mutex>& lock) {
  for (const auto& model : models_) {
    auto& list = model->waiting_;
    for (auto at = list.begin(); at != list.end();) {
      const uint64_t number = at->first;
      if (at->second.told || Clock::now() - at->second.since < options_.slow) {
        ++at;
        continue;
      }
      PooledModel::Waiting waiting = std::move(at->second);
      list.erase(at);
      telling_ = true;
      lock.unlock();
      waiting.told = true;
      const bool waits = waiting.waiter->slow();
      if (!waits) waiting.waiter.reset();
      lock.lock();
      telling_ = false;
      if (waits) list.emplace(number, std::move(waiting));
      at = list.upper_bound(number);
    }
  }
}

void ModelPool::porter_loop() {
  std::unique_lock lock(mutex_);
  for (;;) {
    work_came_.wait(lock, [this] { return closing_ || operation_; });
    if (!operation_) return;
    carry_out(lock, *operation_);
    operation_.reset();
    changed_.notify_all();
  }
}

void ModelPool::carry_out(std::unique_lock<std::mutex>& lock, const Operation& operation) {
  if (operation.loads) return load_now(lock, operation.model);
  if (operation.why == UnloadReason::kRoom) ++operation.model.evictions_;
  unload_now(lock, operation.model, operation.why, true);
}

void ModelPool::load_now(std::unique_lock<std::mutex>& lock, PooledModel& model) {
  lock.unlock();
  const auto began = Clock::now();
  tell({.kind = PoolEvent::Kind::kLoading, .model = model});
  Result<std::unique_ptr<Served>> opened;
  try {
    opened = model.source_.open();
  } catch (const std::bad_alloc&) {
    refill_memory_reserve();
    opened = fail(Code::kOutOfMemory, "out of memory");
  }
  const Error* const error = opened ? nullptr : &opened.error();
  const double ms = ms_since(began);
  tell({.kind = error == nullptr ? PoolEvent::Kind::kLoaded : PoolEvent::Kind::kFailed,
        .model = model,
        .ms = ms,
        .error = error});
  lock.lock();
  model.failure_.reset();
  if (error != nullptr) {
    model.failure_ = *error;
    model.failed_at_ = Clock::now();
    model.state_ = State::kAbsent;
    bytes_ -= model.facts().bytes();
    return;
  }
  model.served_ = *std::move(opened);
  model.state_ = State::kLoaded;
  model.keep_ = model.source_.keep_alive;
  model.loaded_at_ = model.idle_since_ = Clock::now();
  model.used_ = ++uses_;
  ++model.loads_;
  model.load_ms_ = ms;
}

void ModelPool::unload_now(std::unique_lock<std::mutex>& lock, PooledModel& model, UnloadReason why, bool saves) {
  std::unique_ptr<Served> served = std::move(model.served_);
  lock.unlock();
  const auto began = Clock::now();
  Status saved;
  try {
    if (saves) saved = served->save();
  } catch (const std::bad_alloc&) {
    refill_memory_reserve();
    saved = fail(Code::kOutOfMemory, "out of memory");
  }
  served.reset();
  tell({.kind = PoolEvent::Kind::kUnloaded,
        .model = model,
        .why = why,
        .ms = ms_since(began),
        .error = saved ? nullptr : &saved.error()});
  lock.lock();
  model.state_ = State::kAbsent;
  bytes_ -= model.facts().bytes();
}

}  // namespace baton::serve
