// Stride scheduling over lines of waiting jobs.
#include "baton/serve/job_queue.h"

#include <algorithm>

namespace baton::serve {

JobQueue::Pushed JobQueue::push(std::unique_ptr<Job>& job, const std::function<void(Job&)>& taken) {
  {
    const std::lock_guard lock(mutex_);
    if (closed_) return Pushed::kClosed;
    // Who is taken at once does not wait, though no worker may have come for it yet.
    const uint64_t free = running_max_ - std::min<uint64_t>(running_, running_max_);
    if (waiting_ >= waiting_max_ + free) return Pushed::kFull;
    Key& key = keys_[job->caller.key];
    key.running_max = std::max(job->caller.running_max, 1u);
    const uint64_t free_of_key = std::min(free, key.running_max - std::min<uint64_t>(key.running, key.running_max));
    if (key.waiting >= job->caller.waiting_max + free_of_key) return Pushed::kKeyFull;
    Model& model = models_[job->pooled != nullptr ? job->pooled->index() : 0];
    Line& line = model.lines[job->caller.key];
    if (line.jobs.empty()) line.passed = std::max(line.passed, model.passed);
    line.weight = std::max(job->caller.weight, 1u);
    if (taken) taken(*job);
    const uint64_t number = job->number;
    line.jobs.emplace(number, std::move(job));
    ++key.waiting;
    ++model.waiting;
    ++waiting_;
  }
  came_.notify_one();
  return Pushed::kYes;
}

JobQueue::Line* JobQueue::next_line(Model& model) {
  Line* next = nullptr;
  if (model.waiting == 0) return next;
  for (auto& [key, line] : model.lines) {
    if (line.jobs.empty() || keys_[key].running >= keys_[key].running_max) continue;
    if (next == nullptr || line.passed < next->passed) next = &line;
  }
  return next;
}

JobQueue::Model* JobQueue::next_model() {
  Model* next = nullptr;
  for (auto& [index, model] : models_) {
    if (model.waiting == 0 || (running_ >= running_max_ && model.running > 0)) continue;
    const bool before =
        next == nullptr || model.running < next->running || (model.running == next->running && model.turn < next->turn);
    if (before && next_line(model) != nullptr) next = &model;
  }
  return next;
}

std::unique_ptr<Job> JobQueue::take(Model& model) {
  Line* const next = next_line(model);
  auto job = std::move(next->jobs.begin()->second);
  next->jobs.erase(next->jobs.begin());
  model.passed = next->passed;
  next->passed += 1.0 / next->weight;
  left(model, job->caller.key);
  ++keys_[job->caller.key].running;
  return job;
}

void JobQueue::left(Model& model, uint32_t key) {
  --model.waiting;
  --keys_[key].waiting;
  --waiting_;
}

std::unique_ptr<Job> JobQueue::pop() {
  std::unique_lock lock(mutex_);
  Model* model = nullptr;
  came_.wait(lock, [&] { return (model = next_model()) != nullptr || (closed_ && waiting_ == 0); });
  if (model == nullptr) return nullptr;
  model->turn = ++turns_;
  ++model->running;
  ++running_;
  return take(*model);
}

void JobQueue::done(uint32_t model, uint32_t key) {
  {
    const std::lock_guard lock(mutex_);
    --models_[model].running;
    --keys_[key].running;
    --running_;
  }
  // One may wait for the key, another for the model.
  came_.notify_all();
}

bool JobQueue::waits_for_its_key(const Job& job) const {
  const std::lock_guard lock(mutex_);
  const auto key = keys_.find(job.caller.key);
  return key != keys_.end() && key->second.running + key->second.waiting >= job.caller.running_max;
}

std::unique_ptr<Job> JobQueue::remove(uint64_t number) {
  const std::lock_guard lock(mutex_);
  for (auto& [index, model] : models_) {
    for (auto& [key, line] : model.lines) {
      const auto found = line.jobs.find(number);
      if (found == line.jobs.end()) continue;
      auto job = std::move(found->second);
      line.jobs.erase(found);
      left(model, key);
      return job;
    }
  }
  return nullptr;
}

std::vector<std::unique_ptr<Job>> JobQueue::close() {
  std::vector<std::unique_ptr<Job>> left;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (auto& [index, model] : models_) {
      for (auto& [key, line] : model.lines) {
        for (auto& [number, job] : line.jobs) left.push_back(std::move(job));
        line.jobs.clear();
      }
      model.waiting = 0;
    }
    for (auto& [key, of] : keys_) of.waiting = 0;
    waiting_ = 0;
  }
  came_.notify_all();
  return left;
}

uint64_t JobQueue::waiting() const {
  const std::lock_guard lock(mutex_);
  return waiting_;
}

JobQueue::Counts JobQueue::counts_of(uint32_t model) const {
  const std::lock_guard lock(mutex_);
  const auto found = models_.find(model);
  return found == models_.end() ? Counts() : Counts{found->second.running, found->second.waiting};
}

}  // namespace baton::serve
