// From requests to answers: reads bodies, lets them wait, runs them on the engines of models. ARCHITECTURE of it: an
// exchange is read by a reader's thread (`take`, `post`), waits for its model and in the queue without a thread, and is
// answered by a worker (AnswerRun), of which there are as many as requests run at once. No thread of the HTTP server
// does more than hand over, no worker waits for a client: what one does not take at once goes to the outbox.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "baton/serve/job_queue.h"
#include "baton/serve/metrics.h"
#include "baton/serve/outbox.h"
#include "baton/serve/timeline.h"

namespace baton::serve {

struct ServiceOptions {
  uint32_t parallel = 8;                         // requests that run at once: workers
  uint32_t queue_max = 512;                      // requests that wait
  uint32_t readers = 2;                          // threads that read bodies
  std::chrono::milliseconds keep_alive{10'000};  // a stream is quiet for so long
};

// A body above it is long: it takes seconds to read. One thread has them all, and they delay no others.
inline constexpr uint64_t kLongBytes = uint64_t{1} << 18;

struct ServiceCounts {
  uint64_t reading = 0, waiting = 0, running = 0;
};

// Must outlive the exchanges that it took; the pool outlives it, and loads nothing for anybody behind its `stop`.
class Service {
 public:
  // kOutOfMemory when the system refuses a thread.
  static Result<std::unique_ptr<Service>> create(const ServiceOptions& options, ModelPool& models);
  ~Service();  // as drain without time
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  // A request for an answer. Any thread, never waits: what there is no room for is refused here, before its body is
  // looked at.
  void take(const Protocol& protocol, ExchangePtr exchange, Caller caller);
  // Other work that takes a while (a template, a tokenizer) over a body of so many bytes, on a reader: long ones wait
  // for each other alone. False: no room; nothing was done.
  bool post(uint64_t bytes, std::function<void()> work);
  // On a reader: `then` with the model, now, or on a reader as soon as it is loaded. Whoever left is not called.
  using WithModel = std::function<void(tl::expected<ModelLease, ApiError> lease)>;
  void with_model(PooledModel& model, const ExchangePtr& exchange, WithModel then);

  // Refuses what comes from now on, and answers what waits with 503.
  void stop();
  // Waits for what runs, at most so long; then cancels it and waits for that. False: it was cancelled.
  bool drain(std::chrono::milliseconds timeout);
  // What runs ends at its next token, as an error of the server.
  void cancel_all() { cancelling_ = true; }

  bool ready() const { return !stopped_; }
  // Units of loaded models that take no work any more.
  struct Lost {
    std::string model, unit, why;
    bool refuses = false;  // the model, what asks for no unit
  };
  std::vector<Lost> lost_units() const;
  ServiceCounts counts() const;
  Gauges gauges() const;
  std::vector<ModelGauges> model_gauges() const;
  ModelPool& models() { return models_; }
  Metrics& metrics() { return metrics_; }
  Timeline& timeline() { return timeline_; }
  const ServiceOptions& options() const { return options_; }
  // Of one more request, from how long those before it ran; 1 while nothing is known.
  int64_t retry_after_ms() const;

 private:
  friend class AnswerRun;
  class Loading;
  Service(const ServiceOptions& options, ModelPool& models);
  Status start_threads();
  struct Work;
  void read_loop(Work& work);
  void work_loop();
  void read(const Protocol& protocol, const ExchangePtr& exchange, const Caller& caller);
  tl::expected<std::unique_ptr<Job>, ApiError> read_job(const Protocol& protocol, const ExchangePtr& exchange,
                                                        const Caller& caller);
  void begin_job(Job& job, const Protocol& protocol, const ExchangePtr& exchange, const Caller& caller);
  // Its model is found, or waited for; then it is made ready, on a reader.
  void find_model(std::unique_ptr<Job> job);
  void wait_for(PooledModel& model, uint64_t number, const ExchangePtr& exchange, std::unique_ptr<Loading> loading);
  void loaded(std::unique_ptr<Loading> loading);
  void run_loaded(Work& work);
  void prepare(std::unique_ptr<Job> job);
  tl::expected<void, ApiError> make_ready(Job& job);
  void respond_loaded(Job& job);
  void enqueue(std::unique_ptr<Job> job);
  void begin_stream(Job& job);
  void fail_job(Job& job, const ApiError& error);
  void refuse(Job& job, const ApiError& error);  // one that was not queued
  void tell(const Job& job, const char* event, Json more);
  void tell_model(const PoolEvent& event);
  Json usage() const;
  void join();

  const ServiceOptions options_;
  ModelPool& models_;
  Metrics metrics_;
  Timeline timeline_;
  Outbox outbox_;
  JobQueue queue_;
  const uint64_t salt_;  // of ids
  std::atomic<uint64_t> next_number_{1}, reading_{0}, running_{0};
  std::atomic<double> answer_s_{0};  // of answers, the later ones more
  std::atomic<bool> stopped_{false}, cancelling_{false};
  std::mutex mutex_;
  std::condition_variable came_, idle_;
  // Of readers.
  struct Work {
    std::deque<std::function<void()>> next;
    std::deque<std::unique_ptr<ModelWaiter>> loaded;  // Loading: for one of `next` each
  };
  Work work_, long_work_;  // of short bodies; of long ones, which one thread reads
  bool closing_ = false;
  std::vector<std::thread> threads_;
};

// Whole answers.
http::Response json_response(int status, const Json& body);
// With Retry-After, in whole seconds, where it is 429 or 503.
void respond_error(http::Exchange& exchange, const Protocol* protocol, const ApiError& error, int64_t retry_ms = 1000);
// Why a model is not there, for who asked for it.
ApiError error_of_pool(const Error& error);

}  // namespace baton::serve
