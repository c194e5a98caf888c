// Readers, queue and workers.
#include "baton/serve/service.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <new>
#include <system_error>

#include "baton/base/memory_reserve.h"
#include "baton/serve/answer_figures.h"
#include "baton/serve/answer_run.h"
#include "baton/serve/body.h"
#include "baton/serve/request_note.h"

namespace baton::serve {
namespace {

constexpr const char* kStopping = "the server is shutting down: ask another one, or later";
constexpr uint64_t kReadMax = 4096;  // bodies that wait to be read, beside what the queue allows
// A long body takes seconds to read: one thread has them all, at most so many wait for it, and it delays no others.
constexpr uint64_t kLongBytes = uint64_t{1} << 18, kLongMax = 64;

ApiError overloaded(std::string message) {
  return {.status = 429, .message = std::move(message), .type = "rate_limit_error", .code = "overloaded"};
}

ApiError unavailable(std::string message) {
  return {.status = 503, .message = std::move(message), .type = "server_error", .code = "unavailable"};
}

// 24 letters and digits: a number that counts, and what was drawn when the server began, mixed.
std::string id_of(uint64_t number, uint64_t salt) {
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string id;
  Random random(salt ^ (number * 0x9e3779b97f4a7c15ull));
  for (int i = 0; i < 24; ++i) id += kLetters[random.below(kLetters.size())];
  return id;
}

// Ids of two servers, or of two lives of one, differ.
uint64_t random_salt() {
  uint64_t salt = 0;
  randombytes_buf(&salt, sizeof salt);
  return salt;
}

bool prompt_ends_in_thinking(const Runtime& runtime, const std::vector<int32_t>& tokens) {
  const auto& tokenizer = runtime.text().tokenizer;
  if (!tokenizer) return false;
  const size_t count = std::min<size_t>(tokens.size(), 8);
  auto text = tokenizer->decode(std::span(tokens).last(count), false);
  if (!text) return false;
  const size_t last = text->find_last_not_of(" \n\r\t");
  text->resize(last == std::string::npos ? 0 : last + 1);
  return text->ends_with("<think>");
}

// What of it cannot be held to; the grammar's own words say where.
ApiError refused_format(const ApiRequest& request, const Error& error) {
  using Kind = AnswerFormat::Kind;
  const char* field = openai::must_call(request)              ? "tools"
                      : request.format.kind == Kind::kRegex   ? "regex"
                      : request.format.kind == Kind::kGrammar ? "grammar"
                                                              : "response_format";
  ApiError made = openai::api_error(error, field);
  made.message = without_paths(made.message);
  return made;
}

}  // namespace

http::Response json_response(int status, const Json& body) {
  return {status, {{"content-type", "application/json"}}, body.dump(-1, ' ', false, Json::error_handler_t::replace)};
}

void respond_error(http::Exchange& exchange, const Protocol* protocol, const ApiError& error, int64_t retry_ms) {
  auto response = json_response(error.status, protocol != nullptr ? protocol->error_body(error) : error_body(error));
  if (error.status == 429 || error.status == 503) {
    response.headers.emplace_back("retry-after", fmt::to_string((retry_ms + 999) / 1000));
  }
  exchange.respond(std::move(response));
}

Service::Service(const ServiceOptions& options, ModelPool& models)
    : options_(options), models_(models), queue_(options.queue_max), salt_(random_salt()) {}

Result<std::unique_ptr<Service>> Service::create(const ServiceOptions& options, ModelPool& models) {
  std::unique_ptr<Service> service(new Service(options, models));
  BATON_OK(service->start_threads());
  return service;
}

Status Service::start_threads() try {
  outbox_.start();
  for (uint32_t i = 0; i < options_.readers; ++i) threads_.emplace_back([this] { read_loop(work_); });
  threads_.emplace_back([this] { read_loop(long_work_); });
  for (uint32_t i = 0; i < options_.parallel; ++i) threads_.emplace_back([this] { work_loop(); });
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
  outbox_.close();
  timeline_.close();
}

void Service::take(const Protocol& protocol, ExchangePtr exchange, Caller caller) {
  if (stopped_) return respond_error(*exchange, &protocol, unavailable(kStopping));
  const ServiceCounts now = counts();
  if (now.reading + now.waiting >= options_.queue_max + options_.parallel) {
    metrics_.count_refused("queue_full");
    return respond_error(*exchange, &protocol,
                         overloaded(fmt::format("{} requests wait: ask again later", now.reading + now.waiting)));
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
    if (closing_ || to.size() >= (is_long ? kLongMax : kReadMax + options_.queue_max)) return false;
    to.push_back(std::move(work));
  }
  came_.notify_all();
  return true;
}

void Service::read_loop(std::deque<std::function<void()>>& work) {
  while (true) {
    std::function<void()> next;
    {
      std::unique_lock lock(mutex_);
      came_.wait(lock, [&] { return closing_ || !work.empty(); });
      if (work.empty()) return;
      next = std::move(work.front());
      work.pop_front();
    }
    next();
  }
}

void Service::read(const Protocol& protocol, const ExchangePtr& exchange, const Caller& caller) try {
  if (exchange->gone()) return;
  auto job = read_job(protocol, exchange, caller);
  if (!job) return respond_error(*exchange, &protocol, job.error());
  if ((*job)->request.load_only) return respond_loaded(**job);
  enqueue(*std::move(job));
} catch (const std::bad_alloc&) {
  refill_memory_reserve();
  respond_error(*exchange, &protocol, unavailable("out of memory"));
}

tl::expected<std::unique_ptr<Job>, ApiError> Service::read_job(const Protocol& protocol, const ExchangePtr& exchange,
                                                               const Caller& caller) {
  auto body = parse_body(exchange->request().body);
  if (!body) return tl::unexpected(std::move(body).error());
  auto request = protocol.read(*body);
  if (!request) return tl::unexpected(std::move(request).error());
  auto job = std::make_unique<Job>();
  job->request = *std::move(request);
  job->model = models_.find(job->request.model);
  if (job->model == nullptr) {
    return tl::unexpected(ApiError{.status = 404,
                                   .message = fmt::format("the model '{}' is not here: GET /v1/models lists those that "
                                                          "are",
                                                          job->request.model.substr(0, 100)),
                                   .param = "model",
                                   .code = "model_not_found"});
  }
  const Runtime& runtime = job->model->runtime();
  if (job->request.load_only) {
    begin_job(*job, protocol, exchange, caller);
    return job;
  }
  ChatInput& chat = job->request.chat;
  if (const auto thinking = job->model->setup().thinking; thinking && !job->request.thinking)
    chat.extra["enable_thinking"] = *thinking;
  auto tokens = openai::prompt_tokens(runtime, job->request);
  if (!tokens) {
    tokens.error().message = without_paths(tokens.error().message);
    return tl::unexpected(std::move(tokens).error());
  }
  job->tokens = *std::move(tokens);
  if (job->request.endpoint == openai::Endpoint::kChat) {
    if (job->model->setup().reuse) job->keep_at = openai::branching_positions(runtime, chat, job->tokens);
    chat.messages = Json::array();
  }
  if (job->request.echo && job->request.logprobs) job->echo_ids = job->tokens;
  if (auto tools = openai::check_tools(runtime.text(), job->request); !tools)
    return tl::unexpected(std::move(tools).error());
  job->in_reasoning = prompt_ends_in_thinking(runtime, job->tokens);
  auto constraint = job->model->constraint(job->request, job->in_reasoning);
  if (!constraint) return tl::unexpected(refused_format(job->request, constraint.error()));
  job->constraint = *std::move(constraint);
  begin_job(*job, protocol, exchange, caller);
  return job;
}

void Service::begin_job(Job& job, const Protocol& protocol, const ExchangePtr& exchange, const Caller& caller) {
  job.number = next_number_++;
  job.protocol = &protocol;
  job.exchange = exchange;
  job.caller = caller;
  const auto now = std::chrono::steady_clock::now();
  job.read_ms = timeline_.now_ms();
  job.arrived_ms = job.read_ms - std::chrono::duration<double, std::milli>(now - exchange->request().arrived).count();
  job.head = {
      id_of(job.number, salt_), job.request.model.empty() ? job.model->name() : job.request.model,
      job.model->setup().fingerprint,
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count(),
      job.tokens.size()};
  job.writer = protocol.writer(job.request);
  if (RequestNote* note = note_of(*exchange)) note->begin(job);
}

// The model is there: nothing runs.
void Service::respond_loaded(Job& job) {
  AnswerTail tail;
  tail.total_ms = timeline_.now_ms() - job.arrived_ms;
  std::string body = job.writer->begin(job.head);
  body += job.writer->end(tail);
  job.exchange->respond({200, {{"content-type", job.writer->content_type()}}, std::move(body)});
}

void Service::enqueue(std::unique_ptr<Job> job) {
  tell(*job, "queued",
       {{"path", job->exchange->request().path},
        {"stream", job->request.stream},
        {"prompt_tokens", job->tokens.size()}});
  // One that must wait holds its client by comments; one that need not keeps its status for what may go wrong.
  if (job->request.stream && running_ >= options_.parallel) begin_stream(*job);
  const uint64_t number = job->number;
  const ExchangePtr exchange = job->exchange;
  const auto pushed = queue_.push(job);
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
  if (!job.begun) return respond_error(*job.exchange, job.protocol, error);
  Unsent unsent(job.exchange);
  if (unsent.push(job.writer->error(error))) outbox_.finish(std::move(unsent));
}

void Service::work_loop() {
  while (auto job = queue_.pop()) {
    ++running_;
    if (!job->exchange->gone()) {
      AnswerRun run(*this, *job);
      run.run();
    }
    queue_.ended(job->caller.key);
    job.reset();
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

ServiceCounts Service::counts() const { return {reading_, queue_.waiting(), running_}; }

Gauges Service::gauges() const {
  const ServiceCounts now = counts();
  Gauges gauges{.running = now.running, .waiting = now.waiting};
  for (const auto& model : models_.all()) {
    const EngineUsage used = model->usage();
    gauges.state_bytes += used.state_bytes;
    gauges.checkpoint_bytes += used.checkpoint_bytes;
    gauges.checkpoints += used.checkpoints;
    gauges.state_bytes_max += model->setup().state_bytes_max;
  }
  return gauges;
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
  Json made = {{"event", event}, {"request", job.head.id}, {"model", job.model->name()}, {"usage", usage()}};
  made.update(more);
  // The request that ends is counted until its thread is free.
  Json& running = made["usage"]["running"];
  if (made["event"] == "done" && running > 0) running = running.get<uint64_t>() - 1;
  timeline_.add(made);
}

}  // namespace baton::serve
