// Threads around the scheduler: one per unit, one for the bridge, one for the scheduler; and the tickets.
#include "baton/engine/engine.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <new>
#include <set>
#include <system_error>
#include <thread>
#include <utility>

#include "baton/base/channel.h"
#include "baton/base/fault.h"
#include "baton/base/memory_reserve.h"
#include "baton/bridge/bridge.h"
#include "baton/engine/checkpoint_writer.h"
#include "baton/engine/lane.h"
#include "baton/engine/scheduler.h"

namespace baton {

// A request's events on their way to its ticket. The flags are guarded by Core::mutex.
struct EventOutlet {
  EventOutlet(RequestId request, size_t events_max) : id(request), events(events_max) {}
  const RequestId id;
  Channel<Event> events;
  bool finished = false;
  bool released = false;
  bool cancel_sent = false;
  bool stop_sent = false;
};

namespace {

struct SubmitMessage {
  RequestId id;
  ResolvedRequest request;
};
struct CancelMessage {
  RequestId id;
  bool answered;
};
struct StopMessage {};
struct StoredMessage {
  Status status;
};
using Message = std::variant<SubmitMessage, CancelMessage, StopMessage, StoredMessage, Work>;

// What a state's makers are called: without the options that tell two lanes of one unit apart.
std::string unit_of(const std::string& lane) { return lane.substr(0, lane.find(':')); }

LaneFacts lane_facts_of(const EngineUnit& unit, uint32_t model) {
  LaneFacts facts;
  facts.name = unit.name;
  facts.asked = unit.asked;
  facts.maker = {unit_of(unit.name), unit.executor->arithmetic()};
  facts.model = model;
  facts.prefill_tokens_preferred = std::max(unit.caps->prefill_tokens_preferred, 1u);
  facts.decode_seats_max = std::max(unit.caps->decode_seats_max, 1u);
  facts.prefill_tokens_min = unit.caps->prefill_tokens_min;
  facts.prefill_seats_shared = unit.caps->prefill_seats_shared;
  facts.decodes = unit.caps->decode_seats_max > 0;
  facts.shared_prefills_exact = unit.caps->shared_prefills_exact;
  facts.pieces_exact = unit.caps->pieces_exact;
  facts.mixes = unit.caps->mixes && unit.caps->shared_prefills_exact;
  facts.state_bytes = [executor = unit.executor](uint64_t tokens) { return executor->state_bytes(tokens); };
  return facts;
}

Status check_units(const std::vector<EngineUnit>& units) {
  if (units.empty()) return fail(Code::kInvalidInput, "no unit is loaded: an engine needs at least one");
  std::set<std::string> names;
  for (const EngineUnit& unit : units) {
    if (unit.caps == nullptr || unit.executor == nullptr) {
      return fail(Code::kInvalidInput, "unit '" + unit.name + "': caps and a loaded executor are needed");
    }
    if (unit.executor->model().program.whole_sequence) {
      return fail(Code::kUnsupported, "unit '" + unit.name +
                                          "' has loaded a model that sees its text as a whole: an "
                                          "engine goes through prompts in pieces");
    }
    if (!names.insert(unit.name).second) return fail(Code::kInvalidInput, "unit '" + unit.name + "' is given twice");
    const EngineUnit& first =
        *std::find_if(units.begin(), units.end(), [&](const EngineUnit& other) { return other.model == unit.model; });
    if (&unit.executor->model() == &first.executor->model()) continue;
    BATON_TRY(const Fingerprints firsts, first.executor->model().fingerprints());
    BATON_TRY(const Fingerprints mine, unit.executor->model().fingerprints());
    if (mine != firsts) {
      return fail(Code::kMismatch, "units '" + first.name + "' and '" + unit.name +
                                       "' have loaded different models, and both are to serve " +
                                       model_in_words(unit.model));
    }
  }
  return {};
}

SchedulerFacts facts_of(const std::vector<EngineUnit>& units, const EngineLimits& limits) {
  SchedulerFacts facts;
  facts.limits = limits;
  for (const EngineUnit& unit : units) {
    auto served = std::find_if(facts.models.begin(), facts.models.end(),
                               [&](const ModelFacts& model) { return model.name == unit.model; });
    if (served == facts.models.end()) {
      const Model& model = unit.executor->model();
      const auto context_max = static_cast<uint64_t>(std::max(model.spec.context_max, 1));
      served = facts.models.insert(served, {unit.model, context_max, model.program.vocab});
    }
    facts.lanes.push_back(lane_facts_of(unit, static_cast<uint32_t>(served - facts.models.begin())));
  }
  return facts;
}

}  // namespace

struct Engine::Core {
  Core(EngineOptions given, SchedulerFacts scheduler_facts)
      : options(std::move(given)),
        clock(options.clock != nullptr ? *options.clock : own_clock),
        facts(std::move(scheduler_facts)),
        requests_max(size_t{facts.limits.requests_active_max} + facts.limits.requests_queued_max),
        scheduler(facts),
        // Each request in the engine sends one submit, at most one cancel and one stop; each lane and the bridge one
        // work; the writer one; one end.
        inbox(3 * requests_max + options.units.size() + 3),
        lost(options.units.size()) {}

  Status start();
  // Behind the end of the scheduler's thread; the lanes that hang are left alone, and named. Takes no memory.
  std::vector<std::string> join();
  Result<StateIdentity> identity(LaneIndex lane) const;  // of the states of its model
  Status save_checkpoints(const std::function<bool(uint64_t done, uint64_t total)>& on_progress);
  void close_channels();
  // The end of all requests when a thread of the engine cannot go on, with kError. Any thread; allocates nothing.
  void collapse(Code code, const char* why);
  // Runs `body` to its end; what it throws collapses the engine.
  template <class Body>
  void survive(Body&& body);
  void run_scheduler();
  void run_bridge();
  template <class Runner>
  void serve(Channel<Work>& works, Runner& runner);
  void receive(Message message);
  // Empty when the deadline came first, or now and then before it.
  std::optional<Message> receive_until(int64_t deadline_ns);
  void step();
  void store_next();
  void deliver(Output output);
  bool drained();

  const EngineOptions options;
  const SteadyClock own_clock;
  const Clock& clock;
  const SchedulerFacts facts;
  const size_t requests_max;
  Crew crew;  // of all hand-overs
  Carrier carrier{&crew};

  Scheduler scheduler;  // of the scheduler's thread; before what may hold its checkpoints when the engine collapsed
  Channel<Message> inbox;
  std::vector<std::unique_ptr<Channel<Work>>> works;  // units, then the bridge
  bool stopping = false;                              // of the scheduler's thread
  bool storing = false;                               // of the scheduler's thread: the writer has a checkpoint
  bool stores = false;  // of the scheduler's thread: there is a writer, and no file failed

  std::mutex mutex;
  std::map<RequestId, std::unique_ptr<EventOutlet>> outlets;  // guarded by mutex, as are the next three
  size_t open_requests = 0;
  RequestId next_id = 1;
  bool closed = false;
  std::vector<std::string> lost;  // guarded by mutex: why, of each unit; empty: it is not
  const char* broken = nullptr;   // guarded by mutex: why the engine collapsed
  Code broken_code = Code::kInternal;

  std::vector<std::unique_ptr<Lane>> lanes;
  std::atomic<uint64_t> used_requests{0}, used_states{0}, used_bytes{0}, prefilled{0};
  std::atomic<uint64_t> checkpoints{0}, checkpoint_bytes{0}, stored{0}, bytes_peak{0};
  std::optional<CheckpointWriter> writer;  // where there is a cache
  std::vector<std::thread> threads;        // the scheduler's is the last
  std::vector<std::string> hanging;        // names of all units, until `join`
  std::atomic<int> owners{1};              // the engine, and each lane's thread
};

Status Engine::Core::start() {
  const auto abandon = [&] {
    close_channels();
    join();
  };
  const auto may_start = [] {
    if (BATON_FAULT(kThreadStart))
      throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
  };
  try {
    for (const EngineUnit& unit : options.units) hanging.push_back(unit.name);
    threads.reserve(options.units.size() + 2);
    for (const EngineUnit& unit : options.units)
      lanes.push_back(std::make_unique<Lane>(*unit.executor, unit_of(unit.name), unit.caps->decode_seats_max, clock,
                                             nullptr, &crew));
    for (size_t i = 0; i <= options.units.size(); ++i) works.push_back(std::make_unique<Channel<Work>>(1));
    for (size_t i = 0; i < options.units.size(); ++i) {
      may_start();
      threads.emplace_back([this, i] {
        ++owners;
        survive([&] { serve(*works[i], *lanes[i]); });
        LeaveCore()(this);
      });
    }
    may_start();
    threads.emplace_back([this] { survive([&] { run_bridge(); }); });
    if (options.cache != nullptr) {
      stores = true;
      writer.emplace(
          *options.cache, [this](LaneIndex lane) { return identity(lane); },
          [this](const Status& status) { survive([&] { inbox.send(StoredMessage{status}); }); });
    }
    may_start();
    threads.emplace_back([this] {
      survive([&] { run_scheduler(); });
      close_channels();
    });
    return {};
  } catch (const std::bad_alloc&) {
    abandon();
    return fail(Code::kOutOfMemory, "out of memory for the engine's threads: a smaller model or context needs less");
  } catch (const std::system_error& error) {
    abandon();
    return fail(Code::kOutOfMemory, std::string("cannot start a thread of the engine: ") + error.code().message() +
                                        ": allow more processes or memory (ulimit -u, ulimit -v)");
  }
}

Result<StateIdentity> Engine::Core::identity(LaneIndex lane) const {
  BATON_TRY(const Fingerprints prints, options.units[lane].executor->model().fingerprints());
  return StateIdentity{prints.model, prints.quantization, options.tokenizer_fingerprint};
}

std::vector<std::string> Engine::Core::join() {
  if (threads.empty()) return {};
  threads.back().join();
  threads.pop_back();
  for (size_t i = 0; i < threads.size(); ++i)
    i != scheduler.bridge() && scheduler.hangs(static_cast<LaneIndex>(i)) ? threads[i].detach() : threads[i].join();
  threads.clear();
  writer.reset();  // the scheduler's thread sent to it
  // Whose states they hold is in use as well.
  LaneIndex lane = 0;
  std::erase_if(hanging, [&](const std::string&) {
    const LaneIndex unit = lane++;
    return !scheduler.hangs(unit) && !scheduler.holds_given_up(unit);
  });
  return std::move(hanging);
}

Status Engine::Core::save_checkpoints(const std::function<bool(uint64_t done, uint64_t total)>& on_progress) try {
  const auto of = [this](LaneIndex lane) { return identity(lane); };
  return write_checkpoints(*options.cache, of, scheduler.lasting_checkpoints(), on_progress);
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "no memory to save checkpoints");
}

void Engine::Core::close_channels() {
  inbox.close();
  for (const auto& channel : works) channel->close();
}

void Engine::Core::collapse(Code code, const char* why) {
  {
    const std::scoped_lock lock(mutex);
    closed = true;
    if (broken != nullptr) return;
    broken = why;
    broken_code = code;
    open_requests = 0;
    for (auto entry = outlets.begin(); entry != outlets.end();) {
      entry->second->events.close();
      entry->second->finished = true;
      entry = entry->second->released ? outlets.erase(entry) : std::next(entry);
    }
  }
  close_channels();
}

template <class Body>
void Engine::Core::survive(Body&& body) {
  try {
    body();
  } catch (const std::bad_alloc&) {
    collapse(Code::kOutOfMemory, "out of memory in the engine");
  } catch (...) {
    collapse(Code::kInternal, "a thread of the engine failed");
  }
}

template <class Runner>
void Engine::Core::serve(Channel<Work>& from, Runner& runner) {
  while (std::optional<Work> work = from.receive()) {
    work->started_ns = clock.now_ns();
    runner.run(*work);
    work->ended_ns = clock.now_ns();
    inbox.send(*std::move(work));
  }
}

void Engine::Core::run_bridge() {
  if (options.units.size() > 1) crew.start();
  BridgeLane bridge(carrier, [this](LaneIndex lane) { return identity(lane); });
  serve(*works.back(), bridge);
}

void Engine::Core::run_scheduler() {
  while (!drained()) {
    refill_memory_reserve();
    const int64_t deadline_ns = scheduler.next_deadline_ns();
    std::optional<Message> message = deadline_ns == INT64_MAX ? inbox.receive() : receive_until(deadline_ns);
    if (!message && deadline_ns == INT64_MAX) break;
    if (!message && clock.now_ns() < deadline_ns) continue;
    if (message) receive(*std::move(message));
    // What else has come is taken in before planning, so that sequences that are ready together decode together.
    while ((message = inbox.receive_for(std::chrono::nanoseconds(0)))) receive(*std::move(message));
    step();
  }
}

std::optional<Message> Engine::Core::receive_until(int64_t deadline_ns) {
  // The clock need not be that of the wait: it is looked at now and then.
  const std::chrono::nanoseconds left(deadline_ns - clock.now_ns()), least(1'000'000), most(100'000'000);
  return inbox.receive_for(std::clamp(left, least, most));
}

bool Engine::Core::drained() {
  const std::scoped_lock lock(mutex);
  return broken != nullptr || (stopping && open_requests == 0 && !storing && scheduler.idle());
}

void Engine::Core::receive(Message message) {
  if (auto* work = std::get_if<Work>(&message)) {
    scheduler.done(std::move(*work), clock.now_ns());
  } else if (auto* submit = std::get_if<SubmitMessage>(&message)) {
    BATON_CHECK(scheduler.submit(submit->id, submit->request, clock.now_ns()));
    if (stopping) scheduler.cancel(submit->id);
  } else if (auto* cancel = std::get_if<CancelMessage>(&message)) {
    cancel->answered ? scheduler.stop(cancel->id) : scheduler.cancel(cancel->id);
  } else if (auto* done = std::get_if<StoredMessage>(&message)) {
    storing = false;
    // A file that cannot be written is told of at the end, by save_checkpoints; the next would fail too.
    done->status ? static_cast<void>(++stored) : static_cast<void>(stores = false);
  } else {
    stopping = true;
    scheduler.cancel_all();
  }
}

void Engine::Core::step() {
  for (Work& work : scheduler.poll(clock.now_ns())) {
    // A lane has at most one work, so there is room, unless a collapse closed the channel.
    Channel<Work>& lane = *works[work.lane];
    if (lane.try_send(work)) continue;
    const std::scoped_lock lock(mutex);
    BATON_CHECK(broken != nullptr);
    return;
  }
  used_requests = scheduler.requests();
  used_states = scheduler.states();
  used_bytes = scheduler.state_bytes();
  prefilled = scheduler.prefilled_tokens();
  checkpoints = scheduler.checkpoints();
  checkpoint_bytes = scheduler.checkpoint_bytes();
  bytes_peak = scheduler.bytes_peak();
  for (LaneIndex lane = 0; lane < scheduler.bridge(); ++lane) {
    if (scheduler.lost(lane).empty()) continue;
    const std::scoped_lock lock(mutex);
    lost[lane] = scheduler.lost(lane);
  }
  for (Output& output : scheduler.take_outputs()) deliver(std::move(output));
  store_next();
}

void Engine::Core::store_next() {
  if (!stores || storing || stopping) return;
  std::optional<FoundCheckpoint> next = scheduler.next_to_store();
  if (!next) return;
  storing = true;
  writer->send(*std::move(next));
}

void Engine::Core::deliver(Output output) {
  const std::scoped_lock lock(mutex);
  if (broken != nullptr) return;
  const auto found = outlets.find(output.request);
  BATON_CHECK(found != outlets.end());
  EventOutlet& outlet = *found->second;
  const bool last = std::holds_alternative<FinishedEvent>(output.event);
  // The outlet has room for all of a request's events: a slow reader holds up nobody.
  BATON_CHECK(outlet.events.try_send(output.event));
  if (!last) return;
  outlet.events.close();
  outlet.finished = true;
  --open_requests;
  if (outlet.released) outlets.erase(found);
}

void Engine::LeaveCore::operator()(Core* core) const {
  if (core->owners.fetch_sub(1) == 1) const std::unique_ptr<Core> last(core);
}

Engine::Engine(std::unique_ptr<Core, LeaveCore> core) : core_(std::move(core)) {}

Result<std::unique_ptr<Engine>> Engine::create(EngineOptions options) try {
  BATON_OK(check_units(options.units));
  const EngineLimits& limits = options.limits;
  if (limits.requests_active_max == 0 || limits.decode_steps_per_prefill == 0 || !(limits.step_ms > 0)) {
    return fail(Code::kInvalidInput,
                "engine limits: requests_active_max, decode_steps_per_prefill and step_ms must be above zero");
  }
  if (!(limits.step_timeout_ms >= 0)) {
    return fail(Code::kInvalidInput, "engine limits: step_timeout_ms must be above zero, or zero for no limit");
  }
  SchedulerFacts facts = facts_of(options.units, limits);
  facts.cache = options.cache;
  std::unique_ptr<Core, LeaveCore> core(std::make_unique<Core>(std::move(options), std::move(facts)).release());
  BATON_OK(core->start());
  return std::unique_ptr<Engine>(new Engine(std::move(core)));
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "out of memory for the engine");
}

Status Engine::save_checkpoints(const std::function<bool(uint64_t done, uint64_t total)>& on_progress) {
  shutdown();
  core_->join();
  if (core_->broken != nullptr) return fail(core_->broken_code, core_->broken);
  return core_->options.cache == nullptr ? Status() : core_->save_checkpoints(on_progress);
}

std::vector<std::string> Engine::close() {
  shutdown();
  return core_->join();
}

Engine::~Engine() {
  close();
  BATON_CHECK(core_->outlets.empty());  // a ticket outlived the engine
}

Result<Ticket> Engine::submit(Request request) {
  BATON_TRY(ResolvedRequest resolved, resolve(std::move(request), core_->facts, core_->used_bytes));
  const uint64_t tokens_max = resolved.request.max_new_tokens;
  EventOutlet* outlet = nullptr;
  {
    const std::scoped_lock lock(core_->mutex);
    if (core_->broken != nullptr) return fail(core_->broken_code, core_->broken);
    if (core_->closed) return fail(Code::kCancelled, "the engine is shutting down");
    for (const LaneIndex lane : {resolved.prefill, resolved.via, resolved.decode}) {
      if (!core_->lost[lane].empty()) return fail(lost_unit(core_->facts.lanes[lane].name, core_->lost[lane]));
    }
    if (core_->open_requests >= core_->requests_max) {
      return fail(Code::kOutOfMemory, "queue full: " + std::to_string(core_->open_requests) +
                                          " requests are running or waiting; try again when one has finished");
    }
    const RequestId id = core_->next_id++;
    outlet = core_->outlets.emplace(id, std::make_unique<EventOutlet>(id, tokens_max + 1)).first->second.get();
    ++core_->open_requests;
  }
  // From here the ticket answers for the outlet.
  Ticket ticket(this, outlet);
  try {
    core_->inbox.send(SubmitMessage{outlet->id, std::move(resolved)});
  } catch (const std::bad_alloc&) {
    const std::scoped_lock lock(core_->mutex);
    if (!std::exchange(outlet->finished, true)) --core_->open_requests;
    throw;
  }
  return ticket;
}

Status Engine::health() const {
  const std::scoped_lock lock(core_->mutex);
  return core_->broken == nullptr ? Status() : fail(core_->broken_code, core_->broken);
}

bool Engine::goes_on() const {
  const std::scoped_lock lock(core_->mutex);
  return core_->broken == nullptr;
}

bool Engine::has_tickets() const {
  const std::scoped_lock lock(core_->mutex);
  return !core_->outlets.empty();
}

void Engine::shutdown() {
  {
    const std::scoped_lock lock(core_->mutex);
    if (std::exchange(core_->closed, true)) return;
  }
  core_->survive([&] { core_->inbox.send(StopMessage{}); });
}

std::vector<LostUnit> Engine::lost_units() const {
  std::vector<LostUnit> units;
  const std::scoped_lock lock(core_->mutex);
  for (LaneIndex lane = 0; lane < core_->lost.size(); ++lane) {
    if (!core_->lost[lane].empty()) units.push_back({core_->facts.lanes[lane].name, core_->lost[lane]});
  }
  return units;
}

EngineUsage Engine::usage() const {
  return {.requests = core_->used_requests,
          .states = core_->used_states,
          .state_bytes = core_->used_bytes,
          .prefilled = core_->prefilled,
          .checkpoints = core_->checkpoints,
          .checkpoint_bytes = core_->checkpoint_bytes,
          .stored = core_->stored,
          .bytes_peak = core_->bytes_peak};
}

std::vector<std::string_view> strategy_names() {
  std::vector<std::string_view> names;
  for (const Strategy* strategy : strategies()) names.push_back(strategy->name);
  return names;
}

Ticket::Ticket(Ticket&& other) noexcept
    : engine_(std::exchange(other.engine_, nullptr)),
      outlet_(std::exchange(other.outlet_, nullptr)),
      finished_(other.finished_) {}

Ticket& Ticket::operator=(Ticket&& other) noexcept {
  if (this == &other) return *this;
  release();
  engine_ = std::exchange(other.engine_, nullptr);
  outlet_ = std::exchange(other.outlet_, nullptr);
  finished_ = other.finished_;
  return *this;
}

Ticket::~Ticket() { release(); }

RequestId Ticket::id() const { return outlet_ == nullptr ? 0 : outlet_->id; }

std::optional<Event> Ticket::next_event(std::chrono::nanoseconds timeout) {
  if (outlet_ == nullptr) return std::nullopt;
  // Longer waits overflow the system's clock arithmetic.
  auto event = outlet_->events.receive_for(std::min<std::chrono::nanoseconds>(timeout, std::chrono::hours(24 * 365)));
  if (event) {
    finished_ = std::holds_alternative<FinishedEvent>(*event);
    return event;
  }
  const std::scoped_lock lock(engine_->core_->mutex);
  if (finished_ || engine_->core_->broken == nullptr) return std::nullopt;
  finished_ = true;
  FinishedEvent end;
  end.error = {engine_->core_->broken_code, engine_->core_->broken};
  return end;
}

void Ticket::cancel() { end_early(false); }
void Ticket::stop() { end_early(true); }

void Ticket::end_early(bool answered) {
  if (outlet_ == nullptr) return;
  const RequestId id = outlet_->id;
  Engine::Core& core = *engine_->core_;
  {
    const std::scoped_lock lock(core.mutex);
    if (outlet_->finished || std::exchange(answered ? outlet_->stop_sent : outlet_->cancel_sent, true)) return;
  }
  core.survive([&] { core.inbox.send(CancelMessage{id, answered}); });
}

void Ticket::release() {
  if (outlet_ == nullptr) return;
  cancel();
  const std::scoped_lock lock(engine_->core_->mutex);
  if (outlet_->finished) {
    engine_->core_->outlets.erase(outlet_->id);
  } else {
    outlet_->released = true;
  }
  outlet_ = nullptr;
}

}  // namespace baton
