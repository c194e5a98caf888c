// Stride scheduling over lines of waiting jobs.
#include "baton/serve/job_queue.h"

#include <algorithm>

namespace baton::serve {

JobQueue::Pushed JobQueue::push(std::unique_ptr<Job>& job) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Pushed::kClosed;
    if (waiting_ >= waiting_max_) return Pushed::kFull;
    Line& line = lines_[job->caller.key];
    if (line.jobs.size() >= job->caller.waiting_max) return Pushed::kKeyFull;
    if (line.jobs.empty()) line.passed = std::max(line.passed, passed_);
    line.weight = std::max(job->caller.weight, 1u);
    line.running_max = std::max(job->caller.running_max, 1u);
    const uint64_t number = job->number;
    line.jobs.emplace(number, std::move(job));
    ++waiting_;
  }
  came_.notify_one();
  return Pushed::kYes;
}

JobQueue::Line* JobQueue::next_line() {
  Line* next = nullptr;
  if (waiting_ == 0) return next;
  for (auto& [key, line] : lines_) {
    if (line.ready() && (next == nullptr || line.passed < next->passed)) next = &line;
  }
  return next;
}

std::unique_ptr<Job> JobQueue::pop() {
  std::unique_lock lock(mutex_);
  Line* next = nullptr;
  came_.wait(lock, [&] { return (next = next_line()) != nullptr || closed_; });
  if (next == nullptr) return nullptr;
  auto job = std::move(next->jobs.begin()->second);
  next->jobs.erase(next->jobs.begin());
  passed_ = next->passed;
  next->passed += 1.0 / next->weight;
  ++next->running;
  --waiting_;
  return job;
}

void JobQueue::ended(uint32_t key) {
  {
    const std::lock_guard lock(mutex_);
    if (uint32_t& running = lines_[key].running; running > 0) --running;
  }
  came_.notify_one();
}

std::unique_ptr<Job> JobQueue::remove(uint64_t number) {
  const std::lock_guard lock(mutex_);
  for (auto& [key, line] : lines_) {
    const auto found = line.jobs.find(number);
    if (found == line.jobs.end()) continue;
    auto job = std::move(found->second);
    line.jobs.erase(found);
    --waiting_;
    return job;
  }
  return nullptr;
}

std::vector<std::unique_ptr<Job>> JobQueue::close() {
  std::vector<std::unique_ptr<Job>> left;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (auto& [key, line] : lines_) {
      for (auto& [number, job] : line.jobs) left.push_back(std::move(job));
      line.jobs.clear();
    }
    waiting_ = 0;
  }
  came_.notify_all();
  return left;
}

uint64_t JobQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

}  // namespace baton::serve
