// An engine over fake units, and what its tests ask of it: requests, whole answers, a gate that holds a lane.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "baton/engine/engine.h"
#include "tests/support/fake_unit.h"

namespace baton::fake {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

inline constexpr auto kPatience = std::chrono::seconds(60);
inline constexpr int32_t kContext = 2048;

struct Rig {
  Rig(EngineLimits limits, std::vector<Behaviour> behaviours) {
    const auto model = make_model(kContext);
    EngineOptions options;
    for (Behaviour& behaviour : behaviours) {
      const std::string name = std::string(1, static_cast<char>('a' + units.size()));
      units.push_back(std::make_unique<FakeExecutor>(name, model, std::move(behaviour)));
      options.units.push_back({name, &units.back()->caps(), units.back().get()});
    }
    options.limits = limits;
    auto made = Engine::create(std::move(options));
    BATON_CHECK(made);
    engine = *std::move(made);
  }
  int64_t live_states() const {
    int64_t live = 0;
    for (const auto& unit : units) live += unit->live_states();
    return live;
  }

  std::vector<std::unique_ptr<FakeExecutor>> units;
  std::unique_ptr<Engine> engine;
};

// Waits until it does.
inline bool comes_true(const std::function<bool()>& what) {
  for (const auto limit = steady_clock::now() + kPatience; steady_clock::now() < limit;) {
    if (what()) return true;
    std::this_thread::sleep_for(milliseconds(1));
  }
  return false;
}

inline Request make_request(size_t prompt, uint32_t answer, uint64_t seed = 1) {
  Request request;
  for (size_t i = 0; i < prompt; ++i) request.tokens.push_back(static_cast<int32_t>(mix(seed * 1000 + i) % kVocab));
  request.max_new_tokens = answer;
  request.prefill_unit = "a";
  request.decode_unit = "b";
  request.move_bounds = request.start_bounds = exact_bounds();
  return request;
}

struct Answer {
  std::vector<int32_t> tokens;
  std::vector<Logprobs> logprobs;  // of the tokens that came with some
  FinishedEvent finished;
  bool ended = false;
};

inline Answer read_answer(Ticket& ticket) {
  Answer answer;
  const auto limit = steady_clock::now() + kPatience;
  while (steady_clock::now() < limit) {
    std::optional<Event> event = ticket.next_event(milliseconds(200));
    if (!event) continue;
    if (const auto* token = std::get_if<TokenEvent>(&*event)) {
      EXPECT_EQ(token->index, answer.tokens.size());
      answer.tokens.push_back(token->id);
      if (token->logprobs) answer.logprobs.push_back(*token->logprobs);
      continue;
    }
    answer.finished = std::get<FinishedEvent>(std::move(*event));
    answer.ended = true;
    break;
  }
  EXPECT_TRUE(answer.ended);
  return answer;
}

// The rest of an answer of which `read` tokens were taken.
inline Answer read_answer_after(Ticket& ticket, size_t read) {
  Answer answer;
  const auto limit = steady_clock::now() + kPatience;
  while (!answer.ended && steady_clock::now() < limit) {
    std::optional<Event> event = ticket.next_event(milliseconds(200));
    if (!event) continue;
    if (std::holds_alternative<FinishedEvent>(*event)) {
      answer.finished = std::get<FinishedEvent>(std::move(*event));
      answer.ended = true;
    } else {
      EXPECT_EQ(std::get<TokenEvent>(*event).index, read++);
    }
  }
  EXPECT_TRUE(answer.ended);
  return answer;
}

inline Answer run(Engine& engine, Request request) {
  auto ticket = engine.submit(std::move(request));
  EXPECT_TRUE(ticket) << ticket.error().message;
  return ticket ? read_answer(*ticket) : Answer();
}

inline std::vector<int32_t> expected_of(const Request& request) {
  return expected_answer(request.tokens, request.max_new_tokens, request.sampler, request.stop_ids).tokens;
}

// Holds a lane until it is opened.
class Gate {
 public:
  void open() {
    const std::scoped_lock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void wait_for_arrival() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ > 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int arrived_ = 0;
};

}  // namespace baton::fake
