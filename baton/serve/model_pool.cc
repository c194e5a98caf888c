// Names, leases, and who waits.
#include "baton/serve/model_pool.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <system_error>
#include <utility>

namespace baton::serve {

std::chrono::milliseconds keep_alive_ms(double seconds) {
  constexpr double kYear = 366 * 86400;
  if (!(seconds >= 0 && seconds <= kYear)) return std::chrono::milliseconds(-1);
  return std::chrono::milliseconds(static_cast<int64_t>(std::ceil(seconds * 1000)));
}

void ModelLease::reset() {
  if (ModelPool* const pool = std::exchange(pool_, nullptr)) pool->release(*model_);
}

PooledModel& ModelPool::add(ModelSource source) {
  const auto index = static_cast<uint32_t>(models_.size());
  models_.emplace_back(new PooledModel(std::move(source), index));
  return *models_.back();
}

PooledModel& ModelPool::add(std::unique_ptr<ServedModel> model) {
  const ModelSetup& setup = model->setup();
  ModelSource source{.facts = facts_of(model->runtime().text(), model->runtime().context_tokens()), .open = {}};
  source.facts.name = setup.name;
  source.facts.aliases = setup.aliases;
  source.facts.stops = setup.stops;
  source.facts.state_bytes_max = setup.state_bytes_max;
  source.facts.prefill_unit = model->defaults().prefill_unit;
  source.facts.decode_unit = model->defaults().decode_unit;
  source.facts.strategy = model->defaults().strategy;
  source.facts.emulated_units = model->runtime().emulated_units();
  PooledModel& added = add(std::move(source));
  added.served_ = std::move(model);
  added.state_ = State::kLoaded;
  added.keep_ = std::chrono::milliseconds(-1);
  bytes_ += added.facts().bytes();
  return added;
}

Status ModelPool::load(PooledModel& model) {
  const uint64_t bytes = model.facts().bytes();
  std::unique_lock lock(mutex_);
  if (model.state_ == State::kLoaded) return {};
  if (bytes > options_.budget || bytes_ > options_.budget - bytes) {
    return fail(Code::kOutOfMemory,
                fmt::format("{}: {} bytes of weights and {} of states, beside {} that are loaded, are more than the "
                            "budget of {}: give more with --memory-budget, or load it on demand",
                            model.name(), model.facts().loaded_bytes(), model.facts().state_bytes_max, bytes_,
                            options_.budget));
  }
  model.state_ = State::kLoading;
  bytes_ += bytes;
  load_now(lock, model);
  return model.failure_ ? Status(fail(*model.failure_)) : Status();
}

PooledModel* ModelPool::find(std::string_view name, bool vectors) const {
  for (const auto& model : models_) {
    if (model->facts().vectors == vectors && (name.empty() || model->facts().is_called(name))) return model.get();
  }
  return nullptr;
}

ModelLease ModelPool::lease_now(PooledModel& model) {
  ++model.leases_;
  model.used_ = ++uses_;
  return {*this, model, *model.served_};
}

ModelLease ModelPool::lease(PooledModel& model) {
  const std::lock_guard lock(mutex_);
  if (model.state_ != State::kLoaded || model.gives_way_) return {};
  return lease_now(model);
}

void ModelPool::release(PooledModel& model) {
  {
    const std::lock_guard lock(mutex_);
    model.used_ = ++uses_;
    if (--model.leases_ > 0) return;
    model.idle_since_ = Clock::now();
  }
  changed_.notify_all();
}

void ModelPool::want(PooledModel& model, uint64_t number, std::unique_ptr<ModelWaiter> waiter) {
  {
    const std::lock_guard lock(mutex_);
    model.waiting_.emplace(number, PooledModel::Waiting{std::move(waiter), Clock::now()});
  }
  changed_.notify_all();
}

std::unique_ptr<ModelWaiter> ModelPool::take_back(uint64_t number) {
  const std::lock_guard lock(mutex_);
  for (const auto& model : models_) {
    const auto found = model->waiting_.find(number);
    if (found == model->waiting_.end()) continue;
    auto waiter = std::move(found->second.waiter);
    model->waiting_.erase(found);
    return waiter;
  }
  return nullptr;
}

void ModelPool::keep(PooledModel& model, std::chrono::milliseconds keep_alive) {
  {
    const std::lock_guard lock(mutex_);
    if (!model.source_.open) return;
    model.keep_ = keep_alive;
  }
  changed_.notify_all();
}

std::vector<ModelStatus> ModelPool::status() const {
  std::vector<ModelStatus> all;
  const std::lock_guard lock(mutex_);
  const auto now = Clock::now();
  for (const auto& model : models_) {
    ModelStatus& status = all.emplace_back(ModelStatus{*model});
    status.loaded = model->state_ == State::kLoaded;
    status.loading = model->state_ == State::kLoading;
    status.leases = model->leases_;
    status.waiting = model->waiting_.size();
    status.loads = model->loads_;
    status.evictions = model->evictions_;
    status.load_ms = model->load_ms_;
    if (status.loaded) status.device_bytes = model->served_->device_bytes();
    if (!status.loaded || model->keep_.count() < 0) continue;
    const auto end = (model->leases_ > 0 ? now : model->idle_since_) + model->keep_;
    status.unloads_in =
        std::max(std::chrono::duration_cast<std::chrono::milliseconds>(end - now), std::chrono::milliseconds(0));
  }
  return all;
}

uint64_t ModelPool::waiting() const {
  const std::lock_guard lock(mutex_);
  uint64_t count = 0;
  for (const auto& model : models_) count += model->waiting_.size();
  return count;
}

uint64_t ModelPool::bytes() const {
  const std::lock_guard lock(mutex_);
  return bytes_;
}

void ModelPool::visit(const std::function<void(const PooledModel& model, const ServedModel& served)>& look) const {
  const std::lock_guard lock(mutex_);
  for (const auto& model : models_) {
    if (model->state_ != State::kLoaded || model->facts().vectors) continue;
    look(*model, static_cast<const ServedModel&>(*model->served_));
  }
}

Status ModelPool::start() try {
  if (porter_.joinable()) return {};
  porter_ = std::thread([this] { porter_loop(); });
  keeper_ = std::thread([this] { keeper_loop(); });
  return {};
} catch (const std::system_error& error) {
  return fail(Code::kOutOfMemory, fmt::format("cannot start the threads of the models: {}: allow more processes "
                                              "(ulimit -u)",
                                              error.code().message()));
}

bool ModelPool::settled() const {
  return !telling_ && std::all_of(models_.begin(), models_.end(), [](const auto& m) { return m->waiting_.empty(); });
}

void ModelPool::stop() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  if (!keeper_.joinable()) return;
  changed_.notify_all();
  settled_.wait(lock, [this] { return settled(); });
}

void ModelPool::close(bool saves) {
  stop();
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  changed_.notify_all();
  work_came_.notify_all();
  if (keeper_.joinable()) keeper_.join();
  if (porter_.joinable()) porter_.join();
  std::unique_lock lock(mutex_);
  for (const auto& model : models_) {
    if (model->state_ != State::kLoaded) continue;
    BATON_CHECK(model->leases_ == 0 || model->facts().vectors);  // its line of requests is dropped with it
    model->state_ = State::kUnloading;
    unload_now(lock, *model, UnloadReason::kEnd, saves);
  }
}

void ModelPool::listen(Watch listener) {
  const std::lock_guard lock(listener_mutex_);
  listener_ = std::move(listener);
}

void ModelPool::tell(const PoolEvent& event) {
  if (watch_) watch_(event);
  const std::lock_guard lock(listener_mutex_);
  if (listener_) listener_(event);
}

}  // namespace baton::serve
