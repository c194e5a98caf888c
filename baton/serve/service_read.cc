// From a body to a job that may run: what is asked for, its model, its tokens.
#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "baton/base/memory_reserve.h"
#include "baton/serve/answer_figures.h"
#include "baton/serve/body.h"
#include "baton/serve/request_note.h"
#include "baton/serve/service.h"

namespace baton::serve {
namespace {

// 24 letters and digits: a number that counts, and what was drawn when the server began, mixed.
std::string id_of(uint64_t number, uint64_t salt) {
  constexpr std::string_view kLetters = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  std::string id;
  Random random(salt ^ (number * 0x9e3779b97f4a7c15ull));
  for (int i = 0; i < 24; ++i) id += kLetters[random.below(kLetters.size())];
  return id;
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

const char* refusal_of(Code code) {
  return code == Code::kCancelled ? "stopping" : code == Code::kOutOfMemory ? "no_room" : "not_loaded";
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

// What no other request's end makes room for.
tl::expected<void, ApiError> check_room(const Job& job, size_t tokens) {
  const uint64_t needs = job.model->state_bytes(tokens), most = job.pooled->facts().state_bytes_max;
  if (most == 0 || needs <= most) return {};
  return tl::unexpected(ApiError{
      .status = 400,
      .message = fmt::format("the prompt has {} tokens, whose state takes {} bytes; states may take {}: shorten it, or "
                             "start the server with a larger --memory-budget",
                             tokens, needs, most),
      .param = job.request.endpoint == openai::Endpoint::kChat ? "messages" : "prompt",
      .code = "context_length_exceeded"});
}

}  // namespace

// Waits for its model: a job, or what `with_model` was asked to do.
class Service::Loading final : public ModelWaiter {
 public:
  Loading(Service& service, std::unique_ptr<Job> job) : service_(service), job_(std::move(job)) {}
  Loading(Service& service, ExchangePtr exchange, WithModel then)
      : service_(service), exchange_(std::move(exchange)), then_(std::move(then)) {}

  void got(std::unique_ptr<ModelWaiter> self, Result<ModelLease> lease) override {
    lease_ = std::move(lease);
    static_cast<void>(self.release());
    service_.loaded(std::unique_ptr<Loading>(this));
  }
  bool slow() override {
    if (exchange().gone()) return false;
    // What has no comments to send keeps its status for what may go wrong.
    if (job_ && job_->request.stream && !job_->request.load_only && !job_->writer->keep_alive().empty())
      service_.begin_stream(*job_);
    return true;
  }
  // On a reader.
  void run() {
    if (!lease_) service_.metrics_.count_refused(refusal_of(lease_.error().code));
    if (exchange().gone()) return;
    if (!job_) return lease_ ? then_(*std::move(lease_)) : then_(tl::unexpected(error_of_pool(lease_.error())));
    if (!lease_) return service_.refuse(*job_, error_of_pool(lease_.error()));
    job_->lease = *std::move(lease_);
    service_.prepare(std::move(job_));
  }
  void fail(const Error& error) {
    lease_ = baton::fail(error);
    run();
  }
  http::Exchange& exchange() const { return job_ ? *job_->exchange : *exchange_; }

 private:
  Service& service_;
  std::unique_ptr<Job> job_;
  ExchangePtr exchange_;
  WithModel then_;
  Result<ModelLease> lease_;
};

ApiError error_of_pool(const Error& error) {
  const bool small = error.code == Code::kOutOfMemory, ends = error.code == Code::kCancelled;
  return {.status = 503,
          .message = small || ends ? without_paths(error.message)
                                   : "the model could not be loaded: " + without_paths(error.message),
          .type = "server_error",
          .code = ends    ? "unavailable"
                  : small ? "out_of_memory"
                          : "model_not_loaded"};
}

void Service::read(const Protocol& protocol, const ExchangePtr& exchange, const Caller& caller) try {
  if (exchange->gone()) return;
  auto job = read_job(protocol, exchange, caller);
  if (!job) return respond_error(*exchange, &protocol, job.error());
  find_model(*std::move(job));
} catch (const std::bad_alloc&) {
  refill_memory_reserve();
  respond_error(*exchange, &protocol,
                {.status = 503, .message = "out of memory", .type = "server_error", .code = "unavailable"});
}

tl::expected<std::unique_ptr<Job>, ApiError> Service::read_job(const Protocol& protocol, const ExchangePtr& exchange,
                                                               const Caller& caller) {
  auto body = parse_body(exchange->request().body);
  if (!body) return tl::unexpected(std::move(body).error());
  auto request = protocol.read(*body);
  if (!request) return tl::unexpected(std::move(request).error());
  auto job = std::make_unique<Job>();
  job->request = *std::move(request);
  job->pooled = models_.find(job->request.model);
  if (job->pooled == nullptr) {
    const std::string name = job->request.model.substr(0, 100);
    const bool vectors = models_.find_embedder(job->request.model) != nullptr;
    return tl::unexpected(ApiError{.status = 404,
                                   .message = vectors ? fmt::format("the model '{}' makes vectors and writes no text: "
                                                                    "ask /v1/embeddings or /v1/rerank",
                                                                    name)
                                                      : fmt::format("the model '{}' is not here: GET /v1/models lists "
                                                                    "those that are",
                                                                    name),
                                   .param = "model",
                                   .code = "model_not_found"});
  }
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
  job.head.id = id_of(job.number, salt_);
  job.head.request_id = job.exchange->request().id;
  job.head.model = job.request.model.empty() ? job.pooled->name() : job.request.model;
  job.head.created =
      std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  job.writer = protocol.writer(job.request);
  if (RequestNote* note = note_of(*exchange)) note->begin(job);
}

void Service::find_model(std::unique_ptr<Job> job) {
  PooledModel& model = *job->pooled;
  if (job->request.load_only && job->request.keep_alive == 0.0) {
    models_.keep(model, std::chrono::milliseconds(0));
    return respond_loaded(*job);
  }
  if ((job->lease = models_.lease(model))) return prepare(std::move(job));
  const uint64_t number = job->number;
  const ExchangePtr exchange = job->exchange;
  wait_for(model, number, exchange, std::make_unique<Loading>(*this, std::move(job)));
}

void Service::with_model(PooledModel& model, const ExchangePtr& exchange, WithModel then) {
  if (auto lease = models_.lease(model)) return then(std::move(lease));
  wait_for(model, next_number_++, exchange, std::make_unique<Loading>(*this, exchange, std::move(then)));
}

void Service::wait_for(PooledModel& model, uint64_t number, const ExchangePtr& exchange,
                       std::unique_ptr<Loading> loading) {
  // Before it is on the list: who is gone by then is noticed when the model is there.
  exchange->on_gone([this, number] {
    if (models_.take_back(number)) metrics_.count_refused("client_gone");
  });
  models_.want(model, number, std::move(loading));
}

// On the pool's thread.
void Service::loaded(std::unique_ptr<Loading> loading) try {
  {
    const std::lock_guard lock(mutex_);
    Work& work = loading->exchange().request().body.size() > kLongBytes ? long_work_ : work_;
    work.next.emplace_front([this, &work] { run_loaded(work); });
    try {
      work.loaded.emplace_back();
    } catch (const std::bad_alloc&) {
      work.next.pop_front();
      throw;
    }
    work.loaded.back() = std::move(loading);
    ++reading_;
  }
  came_.notify_all();
} catch (const std::bad_alloc&) {
  refill_memory_reserve();
  loading->fail({Code::kOutOfMemory, "out of memory"});
}

void Service::run_loaded(Work& work) {
  std::unique_ptr<ModelWaiter> next;
  {
    const std::lock_guard lock(mutex_);
    next = std::move(work.loaded.front());
    work.loaded.pop_front();
  }
  static_cast<Loading&>(*next).run();
  next.reset();
  --reading_;
}

void Service::prepare(std::unique_ptr<Job> job) try {
  job->model = &job->lease.as<ServedModel>();
  job->load_ms = timeline_.now_ms() - job->read_ms;
  if (job->request.keep_alive) models_.keep(*job->pooled, keep_alive_ms(*job->request.keep_alive));
  if (job->request.load_only) return respond_loaded(*job);
  if (const auto ready = make_ready(*job); !ready) return refuse(*job, ready.error());
  enqueue(std::move(job));
} catch (const std::bad_alloc&) {
  refill_memory_reserve();
  if (job) refuse(*job, {.status = 503, .message = "out of memory", .type = "server_error", .code = "unavailable"});
}

tl::expected<void, ApiError> Service::make_ready(Job& job) {
  const Runtime& runtime = job.model->runtime();
  ChatInput& chat = job.request.chat;
  if (const auto thinking = job.model->setup().thinking; thinking && !job.request.thinking)
    chat.extra["enable_thinking"] = *thinking;
  for (size_t i = 0; i < std::max<size_t>(job.request.prompts.size(), 1); ++i) {
    auto tokens = openai::prompt_tokens(runtime, job.request, i);
    if (!tokens) {
      tokens.error().message = without_paths(tokens.error().message);
      return tl::unexpected(std::move(tokens).error());
    }
    if (auto fits = check_room(job, tokens->size()); !fits) return fits;
    job.head.prompt_tokens += tokens->size();
    JobPrompt& prompt = job.prompts.emplace_back();
    prompt.in_reasoning = prompt_ends_in_thinking(runtime, *tokens);
    prompt.tokens = *std::move(tokens);
    if (job.request.echo && job.request.logprobs) prompt.echo_ids = prompt.tokens;
  }
  JobPrompt& first = job.prompts.front();
  if (job.request.endpoint == openai::Endpoint::kChat) {
    if (job.model->setup().reuse) job.keep_at = openai::branching_positions(runtime, chat, first.tokens);
    chat.messages = Json::array();
  }
  if (auto tools = openai::check_tools(runtime.text(), job.request); !tools)
    return tl::unexpected(std::move(tools).error());
  auto constraint = job.model->constraint(job.request, first.in_reasoning);
  if (!constraint) return tl::unexpected(refused_format(job.request, constraint.error()));
  job.constraint = *std::move(constraint);
  job.head.fingerprint = job.model->setup().fingerprint;
  if (RequestNote* note = note_of(*job.exchange)) note->begin(job);
  return {};
}

// The model is there, or will be let go of: nothing runs.
void Service::respond_loaded(Job& job) {
  AnswerTail tail;
  tail.load_ms = job.load_ms;
  tail.total_ms = timeline_.now_ms() - job.arrived_ms;
  std::string body = job.writer->begin(job.head);
  body += job.writer->end(tail);
  job.exchange->respond({200, {{"content-type", job.writer->content_type()}}, std::move(body)});
}

}  // namespace baton::serve
