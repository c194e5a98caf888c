// The models of a server, by name, and those of them that are loaded: on demand, within one budget of bytes, the least
// recently used given up first. What a model takes is known before: its file as a whole, and the limit of its states.
#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "baton/serve/embedders.h"
#include "baton/serve/model_facts.h"
#include "baton/serve/model_lease.h"
#include "baton/serve/models.h"

namespace baton::serve {

// A failed model is tried again only behind so much time: what Retry-After says.
inline constexpr int64_t kRetryMs = 3000;
// Of seconds; below 0, or more than a year: for ever, -1.
std::chrono::milliseconds keep_alive_ms(double seconds);

struct PoolOptions {
  uint64_t budget = UINT64_MAX;               // bytes of all that is loaded
  std::chrono::milliseconds turn{2000};       // who waits for room lets the others go on for so long
  std::chrono::milliseconds retry{kRetryMs};  // what could not be loaded is not tried again before
  std::chrono::milliseconds slow{2000};       // ModelWaiter::slow
};

struct ModelSource {
  ModelFacts facts;
  std::chrono::milliseconds keep_alive{-1};  // while nobody asks; below 0: for ever
  // Slow; one at a time. What it gives is what `facts` says.
  std::function<Result<std::unique_ptr<Served>>()> open;
};

// Who waits for a model. Called on a thread of the pool, without its lock; must not wait.
class ModelWaiter {
 public:
  virtual ~ModelWaiter() = default;
  // Once: the model, or why there is none. kOutOfMemory: it does not fit the budget; kCancelled: the server ends.
  virtual void got(std::unique_ptr<ModelWaiter> self, Result<ModelLease> lease) = 0;
  // It takes longer than most: once, before `got`. False: nobody waits for it any more.
  virtual bool slow() = 0;
};

class PooledModel {
 public:
  const ModelFacts& facts() const { return source_.facts; }
  const std::string& name() const { return source_.facts.name; }
  uint32_t index() const { return index_; }  // among all of its pool

 private:
  friend class ModelPool;
  using Clock = std::chrono::steady_clock;
  enum class State : uint8_t { kAbsent, kLoading, kLoaded, kUnloading };
  struct Waiting {
    std::unique_ptr<ModelWaiter> waiter;
    Clock::time_point since;
    bool told = false;  // that it is slow
  };
  PooledModel(ModelSource source, uint32_t index) : source_(std::move(source)), index_(index) {}

  const ModelSource source_;
  const uint32_t index_;
  // By the pool's mutex.
  State state_ = State::kAbsent;
  std::unique_ptr<Served> served_;
  uint64_t leases_ = 0, used_ = 0;    // used_: counts up over all models
  bool gives_way_ = false;            // to one that waits for its room: no new leases
  std::chrono::milliseconds keep_{};  // since it was loaded
  Clock::time_point loaded_at_, idle_since_;
  std::map<uint64_t, Waiting> waiting_;  // by number
  std::optional<Error> failure_;         // of the last try
  Clock::time_point failed_at_;
  uint64_t loads_ = 0, evictions_ = 0;
  double load_ms_ = 0;  // the last time
};

enum class UnloadReason : uint8_t { kIdle, kRoom, kEnd };

struct PoolEvent {
  enum class Kind : uint8_t { kLoading, kLoaded, kFailed, kUnloaded };
  Kind kind = Kind::kLoaded;
  const PooledModel& model;
  UnloadReason why = UnloadReason::kIdle;  // of kUnloaded
  double ms = 0;
  const Error* error = nullptr;  // of kFailed; of kUnloaded when not all of its states were saved
};

// Of one model, now.
struct ModelStatus {
  const PooledModel& model;
  bool loaded = false, loading = false;
  uint64_t leases = 0, waiting = 0;
  uint64_t loads = 0, evictions = 0;
  double load_ms = 0;
  uint64_t device_bytes = 0;  // Served::device_bytes
  // If nobody asks from now on; empty: never, or it is not loaded.
  std::optional<std::chrono::milliseconds> unloads_in = {};
};

// Any thread, but for what comes before `start`.
class ModelPool {
 public:
  using Watch = std::function<void(const PoolEvent& event)>;
  explicit ModelPool(PoolOptions options = {}) : options_(options) {}
  ~ModelPool() { close(false); }
  ModelPool(const ModelPool&) = delete;
  ModelPool& operator=(const ModelPool&) = delete;

  // Before `start`. The first is the one that requests get which name none. `watch`: called by the pool's thread.
  PooledModel& add(ModelSource source);
  // What is loaded already stays so.
  PooledModel& add(std::unique_ptr<ServedModel> model);
  Status load(PooledModel& model);  // at once; kOutOfMemory when it does not fit beside the others
  void watch(Watch watch) { watch_ = std::move(watch); }
  // kOutOfMemory when the system refuses a thread.
  Status start();

  // Null: there is none of that name that writes, or makes vectors. Empty: the first.
  PooledModel* find(std::string_view name) const { return find(name, false); }
  PooledModel* find_embedder(std::string_view name) const { return find(name, true); }
  const std::vector<std::unique_ptr<PooledModel>>& all() const { return models_; }

  // Never waits. None: it is not loaded, or gives way to another: `want` it.
  ModelLease lease(PooledModel& model);
  // Its `got` is called as soon as the model is there. `number`: the caller's own, rising.
  void want(PooledModel& model, uint64_t number, std::unique_ptr<ModelWaiter> waiter);
  // The client left. Null: it has been called, or is being called.
  std::unique_ptr<ModelWaiter> take_back(uint64_t number);
  // From now on, until it is loaded anew, how long it stays while nobody asks; 0: let go of as soon as it is idle.
  void keep(PooledModel& model, std::chrono::milliseconds keep_alive);

  std::vector<ModelStatus> status() const;
  uint64_t waiting() const;
  uint64_t budget() const { return options_.budget; }
  uint64_t bytes() const;  // of what is loaded, and of what is being loaded or let go of
  // Of those that write and are loaded; `look` must not call the pool.
  void visit(const std::function<void(const PooledModel& model, const ServedModel& served)>& look) const;

  // Tells the events to one more, until it is told to nobody: then none runs any more.
  void listen(Watch listener);
  // Who waits is answered kCancelled, and nothing is loaded from now on. Returns when all of them were.
  void stop();
  // Waits for what is loading, lets go of all: no lease may be left. `saves`: their states go where they are kept.
  void close(bool saves);

 private:
  using Clock = PooledModel::Clock;
  using State = PooledModel::State;
  friend class ModelLease;
  struct Operation {
    PooledModel& model;
    bool loads = true;
    UnloadReason why = UnloadReason::kIdle;
  };
  struct Due {
    std::unique_ptr<ModelWaiter> waiter;
    Result<ModelLease> lease;
  };

  PooledModel* find(std::string_view name, bool vectors) const;
  void release(PooledModel& model);
  // All of these under the mutex.
  ModelLease lease_now(PooledModel& model);
  void refuse_all(PooledModel& model, const Error& error, std::vector<Due>& due);
  void plan(Clock::time_point now, std::vector<Due>& due);
  std::vector<PooledModel*> wanted() const;  // absent, and somebody waits: who has waited longest first
  bool place(PooledModel& model, Clock::time_point now);
  bool make_room(PooledModel& model, uint64_t bytes, Clock::time_point now);
  void give_leases(std::vector<Due>& due);
  void let_go_of_idle(Clock::time_point now);
  void begin(Operation operation);
  Clock::time_point next_look(Clock::time_point now) const;
  bool settled() const;

  // Threads: one decides and tells, one loads and lets go, which may take long.
  void keeper_loop();
  void tell_slow(std::unique_lock<std::mutex>& lock);
  void porter_loop();
  void carry_out(std::unique_lock<std::mutex>& lock, const Operation& operation);
  void load_now(std::unique_lock<std::mutex>& lock, PooledModel& model);
  void unload_now(std::unique_lock<std::mutex>& lock, PooledModel& model, UnloadReason why, bool saves);
  void tell(const PoolEvent& event);

  const PoolOptions options_;
  std::vector<std::unique_ptr<PooledModel>> models_;
  Watch watch_;
  mutable std::mutex mutex_;
  std::condition_variable changed_, work_came_, settled_;
  std::optional<Operation> operation_;
  uint64_t bytes_ = 0, uses_ = 0;
  bool telling_ = false, stopping_ = false, closing_ = false;
  std::mutex listener_mutex_;
  Watch listener_;
  std::thread keeper_, porter_;
};

}  // namespace baton::serve
