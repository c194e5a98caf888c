// The engine: requests in, events out, over loaded units. One thread per unit (its lane), one for the bridge, one for
// the scheduler; they share only bounded channels. Everything that waits has a bound fixed at create.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/clock.h"
#include "baton/base/status.h"
#include "baton/engine/limits.h"
#include "baton/engine/request.h"
#include "baton/state/stored_states.h"
#include "baton/unit/unit.h"

namespace baton {

// A loaded unit as the engine uses it. Caps and executor are borrowed and must outlive the engine; from create on the
// executor is called only from its lane, but for what any thread may call.
struct EngineUnit {
  // What requests call it. A state names its makers by what stands before the first ':', the unit without its options.
  std::string name;
  const Caps* caps = nullptr;
  Executor* executor = nullptr;
  // The model that it serves, by a name of the caller's; empty: the main one. Units of equal names have loaded models
  // of equal fingerprints. The units of a request serve one model: its context, ids and seals are that model's.
  std::string model = {};
  std::string asked = {};  // what it was asked for, with its options, for what answers say; empty: `name`
};

struct EngineOptions {
  std::vector<EngineUnit> units = {};  // of one model or several; names distinct over all
  uint64_t tokenizer_fingerprint = 0;  // of the seals, whichever model's; 0 when no text is involved
  const Clock* clock = nullptr;        // null: a steady clock; else borrowed, thread-safe
  EngineLimits limits = {};
  // Requests that reuse checkpoints begin from its states too, where they name no tenant. Of the main model; borrowed.
  StoredStates* cache = nullptr;
};

struct EngineUsage {
  uint64_t requests = 0;  // submitted and not finished
  uint64_t states = 0;
  uint64_t state_bytes = 0;
  uint64_t prefilled = 0;         // tokens of all prefill steps since create: for a display of progress
  uint64_t checkpoints = 0;       // that requests may begin from
  uint64_t checkpoint_bytes = 0;  // of these, and of those that running requests hold
  uint64_t stored = 0;            // checkpoints written into the cache's folder before the engine's end
  uint64_t bytes_peak = 0;        // the most that states and checkpoints took together
};

class Engine;
struct EventOutlet;

// One submitted request. Move-only; used from one thread at a time. Destroying it before the FinishedEvent cancels the
// request. Must not outlive the engine.
class Ticket {
 public:
  Ticket() = default;
  Ticket(Ticket&& other) noexcept;
  Ticket& operator=(Ticket&& other) noexcept;
  ~Ticket();

  RequestId id() const;
  // Waits for the next event, in order: tokens, then one FinishedEvent. Empty when none came in time, or all were read.
  // When the engine itself can go on no longer (no memory for its books), a FinishedEvent with kError ends every
  // ticket.
  std::optional<Event> next_event(std::chrono::nanoseconds timeout);
  // Asks for the end; the FinishedEvent still comes, and no token behind it. It comes at once: a step that others share
  // goes on, and what it makes for this request is dropped. But with Request::want_answer_state behind the step that is
  // under way. Any number of times, from any thread.
  void cancel();
  // As cancel, but the answer is complete: it ends with kStop, and the state that was asked for is still made. Before
  // the first token it is a cancel.
  void stop();

 private:
  friend class Engine;
  void end_early(bool answered);
  Ticket(Engine* engine, EventOutlet* outlet) : engine_(engine), outlet_(outlet) {}
  void release();

  Engine* engine_ = nullptr;
  EventOutlet* outlet_ = nullptr;
  bool finished_ = false;  // its FinishedEvent was read
};

struct LostUnit {
  std::string name, why;
};

class Engine {
 public:
  // kInvalidInput for missing or repeated units and for limits that are zero, kMismatch for executors of different
  // models under one model's name, kUnsupported for a model that sees its text as a whole, kOutOfMemory when there is
  // no memory for a lane or the system refuses a thread; errors of Model::fingerprints.
  static Result<std::unique_ptr<Engine>> create(EngineOptions options);
  // As `close`. All tickets must be gone.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  // Any thread. kInvalidInput or kNotFound for a request that cannot run (the message names the field or the units),
  // kUnsupported when it would decode on a unit that only prefills, kOutOfMemory when the queue is full or the request
  // cannot fit, kUnavailable when it names a unit that is lost, kCancelled when the engine is shutting down; what
  // `health` says. Throws std::bad_alloc: then nothing was submitted.
  Result<Ticket> submit(Request request);

  // The error that every ticket ended with when the engine could go on no longer, and that `submit` gives from then on.
  // Any thread.
  Status health() const;
  // The same, and takes no memory.
  bool goes_on() const;
  // Whether one is there that has not been destroyed. Any thread.
  bool has_tickets() const;

  // Refuses new requests and cancels all others; their FinishedEvents come. Returns at once. Any thread.
  void shutdown();

  // Cancels what runs, waits for the steps in flight, ends all threads. A step that was given up (limits.h) is not
  // waited for: the units that hang in one are returned, by name. Their threads go on, with their executors, what these
  // use and the options' clock, all of which must then live as long as the process; the engine's own is kept for them.
  // Without step_timeout_ms this waits for as long as the longest step takes.
  std::vector<std::string> close();

  // Ends the engine as its destructor does, but that it stays to be asked for its usage; then writes the checkpoints
  // that no tenant has, and the options' cache has not, into that cache, the most valuable where it has not room for
  // all. `on_progress` (may be empty) is asked before each; false: no more, with kCancelled. Once. One that
  // cannot be written is left out, and the others are written: the error of the first, with how many.
  Status save_checkpoints(const std::function<bool(uint64_t done, uint64_t total)>& on_progress = {});

  // Units that take no work any more. Any thread.
  std::vector<LostUnit> lost_units() const;

  // As of the last step. Any thread. Requests are back to zero when every one has finished, states when the steps that
  // were under way then are back too.
  EngineUsage usage() const;

 private:
  friend class Ticket;
  struct Core;
  // Of the engine and of the lanes' threads, which may outlive it: the last to leave destroys it.
  struct LeaveCore {
    void operator()(Core* core) const;
  };
  explicit Engine(std::unique_ptr<Core, LeaveCore> core);
  std::unique_ptr<Core, LeaveCore> core_;
};

// Names for --strategy, in the order of strategy_list.inc.
std::vector<std::string_view> strategy_names();

}  // namespace baton
