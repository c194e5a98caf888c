// Readers, queue and workers.
#include "baton/serve/service.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <system_error>

#include "baton/serve/answer_run.h"
#include "baton/serve/request_note.h"

namespace baton::serve {
namespace {

constexpr const char* kStopping = "the server is shutting down: ask another one, or later";
constexpr uint64_t kReadMax = 4096;  // bodies that wait to be read, beside what the queue allows
constexpr uint64_t kLongMax = 64;    // long bodies that wait
constexpr size_t kModelsBeside = 16;

ApiError overloaded(std::string message) {
  return {.status = 429, .message = std::move(message), .type = "rate_limit_error", .code = "overloaded"};
}

ApiError unavailable(std::string message) {
  return {.status = 503, .message = std::move(message), .type = "server_error", .code = "unavailable"};
}

// Ids of two servers, or of two lives of one, differ.
uint64_t random_salt() {
  uint64_t salt = 0;
  randombytes_buf(&salt, sizeof salt);
  return salt;
}

}  // namespace

http::Response json_response(int status, const Json& body) {
  return {status, {{"content-type", "application/json"}}, body.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

void respond_error(http::Exchange& exchange, const Protocol* protocol, const ApiError& error, int64_t retry_ms) {
  Json body = protocol != nullptr ? protocol->error_body(error) : error_body(error);
  if (const std::string& id = exchange.request().id; protocol == &anthropic_messages() && !id.empty())
    body["request_id"] = id;
  auto response = json_response(error.status, body);
  if (error.status == 429 || error.status == 503) {
    response.headers.emplace_back("retry-after", fmt::to_string((retry_ms + 999) / 1000));
  }
  exchange.respond(std::move(response));
}

Service::Service(const ServiceOptions& options, ModelPool& models)
    : options_(options), models_(models), queue_(options.queue_max, options.parallel), salt_(random_salt()) {
  models_.listen([this](const PoolEvent& event) { tell_model(event); });
}

Result<std::unique_ptr<Service>> Service::create(const ServiceOptions& options, ModelPool& models) {
  std::unique_ptr<Service> service(new Service(options, models));
  BATON_OK(service->start_threads());
  return service;
}

Status Service::start_threads() try {
  BATON_OK(models_.start());
  outbox_.start();
  for (uint32_t i = 0; i < options_.readers; ++i) threads_.emplace_back([this] { read_loop(work_); });
  threads_.emplace_back([this] { read_loop(long_work_); });
  // One more for each further model, see JobQueue.
  const size_t models = std::clamp<size_t>(models_.all().size(), 1, kModelsBeside + 1);
  for (size_t i = 0; i + 1 < options_.parallel + models; ++i) threads_.emplace_back([this] { work_loop(); });
  return {};
} catch (const std::system_error& error) {
  return fail(Code::kOutOfMemory,
              fmt::format("cannot start the threads of the server: {}: take fewer (--parallel), or allow more "
                          "processes (ulimit -u)",
                          error.code().message()));
}

Service::~Service() {
  stop();
  drain(std::chrono::milliseconds(0));
  join();
}

void Service::join() {
  {
    const std::lock_guard lock(mutex_);
    closing_ = true;
  }
  came_.notify_all();
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
  models_.stop();
  for (Work* const work : {&work_, &long_work_}) {
    for (const auto& next : work->next) next();  // what readers asked for meanwhile is refused by now
    work->next.clear();
  }
  models_.listen({});
  outbox_.close();
  timeline_.close();
}

void Service::take(const Protocol& protocol, ExchangePtr exchange, Caller caller) {
  if (stopped_) return respond_error(*exchange, &protocol, unavailable(kStopping));
  const ServiceCounts now = counts();
  if (now.reading + now.waiting >= options_.queue_max + options_.parallel) {
    metrics_.count_refused("queue_full");
    return respond_error(*exchange, &protocol,
                         overloaded(fmt::format("{} requests wait: ask again later", now.reading + now.waiting)),
                         retry_after_ms());
  }
  ++reading_;
  const bool posted = post(exchange->request().body.size(), [this, &protocol, exchange, caller] {
    read(protocol, exchange, caller);
    --reading_;
  });
  if (posted) return;
  --reading_;
  metrics_.count_refused("readers_busy");
  respond_error(*exchange, &protocol, overloaded("too many requests wait to be read: ask again later"));
}

bool Service::post(uint64_t bytes, std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    const bool is_long = bytes > kLongBytes;
    auto& to = is_long ? long_work_ : work_;
    if (closing_ || to.next.size() >= (is_long ? kLongMax : kReadMax + options_.queue_max)) return false;
    to.next.push_back(std::move(work));
  }
  came_.notify_all();
  return true;
}

void Service::read_loop(Work& work) {
  while (true) {
    std::function<void()> next;
    {
      std::unique_lock lock(mutex_);
      came_.wait(lock, [&] { return closing_ || !work.next.empty(); });
      if (work.next.empty()) return;
      next = std::move(work.next.front());
      work.next.pop_front();
    }
    next();
  }
}

void Service::enqueue(std::unique_ptr<Job> job) {
  tell(*job, "queued",
       {{"path", job->exchange->request().path},
        {"stream", job->request.stream},
        {"prompt_tokens", job->head.prompt_tokens}});
  // One that must wait holds its client by comments; one that need not, and one that is refused, keeps its status for
  // what there is to say.
  const bool waits = job->request.stream && (running_ >= options_.parallel || queue_.waits_for_its_key(*job));
  const uint64_t number = job->number;
  const ExchangePtr exchange = job->exchange;
  const auto pushed = queue_.push(job, [&](Job& taken) {
    if (waits) begin_stream(taken);
  });
  if (pushed == JobQueue::Pushed::kYes) {
    exchange->on_gone([this, number] {
      if (auto left = queue_.remove(number)) {
        metrics_.count_refused("client_gone");
        tell(*left, "done", {{"finish", "cancelled"}, {"phases", Json::array()}});
      }
    });
    return;
  }
  const bool closed = pushed == JobQueue::Pushed::kClosed, of_key = pushed == JobQueue::Pushed::kKeyFull;
  metrics_.count_refused(closed ? "stopping" : of_key ? "key_limit" : "queue_full");
  ApiError error = closed ? unavailable(kStopping)
                          : overloaded(of_key ? "as many requests of this key wait as may: ask again later"
                                              : "too many requests wait: ask again later");
  if (of_key) error.code = "rate_limit_exceeded";
  fail_job(*job, error);
}

void Service::begin_stream(Job& job) {
  if (job.begun) return;
  job.begun = true;
  job.exchange->begin(
      200, {{"content-type", job.writer->content_type()}, {"cache-control", "no-store"}, {"x-accel-buffering", "no"}});
  if (const std::string text = job.writer->keep_alive(); !text.empty())
    job.exchange->keep_alive(text, options_.keep_alive);
}

void Service::fail_job(Job& job, const ApiError& error) {
  tell(job, "done", {{"finish", "error"}, {"phases", Json::array()}});
  refuse(job, error);
}

void Service::refuse(Job& job, const ApiError& error) {
  const int64_t retry_ms = error.code == "model_not_loaded" ? kRetryMs : retry_after_ms();
  if (!job.begun) return respond_error(*job.exchange, job.protocol, error, retry_ms);
  Unsent unsent(job.exchange);
  if (unsent.push(job.writer->error(error))) outbox_.finish(std::move(unsent));
}

void Service::work_loop() {
  while (auto job = queue_.pop()) {
    ++running_;
    const double began_ms = timeline_.now_ms();
    if (!job->exchange->gone()) {
      AnswerRun run(*this, *job);
      run.run();
    }
    const uint32_t model = job->pooled->index(), key = job->caller.key;
    const double ran_s = (timeline_.now_ms() - began_ms) / 1000;
    answer_s_ = answer_s_ == 0 ? ran_s : answer_s_ + (ran_s - answer_s_) / 8;
    job.reset();
    queue_.done(model, key);
    {
      const std::lock_guard lock(mutex_);
      --running_;
    }
    idle_.notify_all();
  }
}

void Service::stop() {
  stopped_ = true;
  for (const auto& job : queue_.close()) {
    metrics_.count_refused("stopping");
    fail_job(*job, unavailable(kStopping));
  }
  models_.stop();
}

bool Service::drain(std::chrono::milliseconds timeout) {
  const auto idle = [&] { return running_ == 0 && reading_ == 0 && outbox_.waiting() == 0; };
  const auto end = std::chrono::steady_clock::now() + timeout;
  std::unique_lock lock(mutex_);
  while (!idle() && !cancelling_ && std::chrono::steady_clock::now() < end)
    idle_.wait_for(lock, std::chrono::milliseconds(20));
  const bool all = idle();
  if (!all) {
    cancelling_ = true;
    idle_.wait_for(lock, std::chrono::seconds(5), [&] { return running_ == 0; });
  }
  return all;
}

ServiceCounts Service::counts() const { return {reading_, queue_.waiting() + models_.waiting(), running_}; }

int64_t Service::retry_after_ms() const {
  return static_cast<int64_t>(1000 * std::clamp(answer_s_ / options_.parallel, 1.0, 60.0));
}

Gauges Service::gauges() const {
  const ServiceCounts now = counts();
  Gauges gauges{.running = now.running, .waiting = now.waiting};
  models_.visit([&gauges](const PooledModel& /*model*/, const ServedModel& served) {
    const EngineUsage used = served.usage();
    gauges.state_bytes += used.state_bytes;
    gauges.checkpoint_bytes += used.checkpoint_bytes;
    gauges.checkpoints += used.checkpoints;
  });
  return gauges;
}

std::vector<Service::Lost> Service::lost_units() const {
  std::vector<Lost> all;
  models_.visit([&all](const PooledModel& model, const ServedModel& served) {
    const std::vector<LostUnit> lost = served.lost_units();
    const bool refuses = !served.takes_requests(lost);
    for (const LostUnit& each : lost) all.push_back({model.name(), each.name, each.why, refuses});
  });
  return all;
}

std::vector<ModelGauges> Service::model_gauges() const {
  std::vector<ModelGauges> made;
  std::map<uint32_t, EngineUsage> usage;  // by index
  models_.visit(
      [&usage](const PooledModel& model, const ServedModel& served) { usage[model.index()] = served.usage(); });
  for (const ModelStatus& status : models_.status()) {
    const ModelFacts& facts = status.model.facts();
    const JobQueue::Counts requests = queue_.counts_of(status.model.index());
    const EngineUsage& used = usage[status.model.index()];
    made.push_back({.name = facts.name,
                    .bytes = status.loaded ? facts.bytes() : 0,
                    .in_use = status.leases,
                    .waiting = status.waiting,
                    .loads = status.loads,
                    .evictions = status.evictions,
                    .loaded = status.loaded,
                    .vectors = facts.vectors,
                    .prefill_unit = facts.prefill_unit,
                    .decode_unit = facts.decode_unit,
                    .emulated_units = facts.emulated_units,
                    .requests_running = requests.running,
                    .requests_waiting = requests.waiting + (facts.vectors ? 0 : status.waiting),
                    .state_bytes = used.state_bytes,
                    .state_bytes_max = facts.state_bytes_max,
                    .checkpoint_bytes = used.checkpoint_bytes,
                    .checkpoints = used.checkpoints});
  }
  return made;
}

Json Service::usage() const {
  const Gauges now = gauges();
  return {{"running", now.running},
          {"waiting", now.waiting},
          {"state_bytes", now.state_bytes},
          {"checkpoints", now.checkpoints},
          {"checkpoint_bytes", now.checkpoint_bytes}};
}

void Service::tell(const Job& job, const char* event, Json more) {
  if (RequestNote* note = note_of(*job.exchange)) note->learn(event, more);
  Json made = {{"event", event}, {"request", job.head.id}, {"model", job.pooled->name()}, {"usage", usage()}};
  made.update(more);
  // The request that ends is counted until its thread is free.
  Json& running = made["usage"]["running"];
  if (made["event"] == "done" && running > 0) running = running.get<uint64_t>() - 1;
  timeline_.add(made);
}

void Service::tell_model(const PoolEvent& event) {
  if (event.kind == PoolEvent::Kind::kLoading) return;
  const bool unloaded = event.kind == PoolEvent::Kind::kUnloaded;
  Json made = {{"event", unloaded ? "unload" : "load"},
               {"request", nullptr},
               {"model", event.model.name()},
               {"usage", usage()},
               {"ms", event.ms},
               {"bytes", event.model.facts().bytes()}};
  if (!unloaded) made["failed"] = event.kind == PoolEvent::Kind::kFailed;
  timeline_.add(made);
}

}  // namespace baton::serve
