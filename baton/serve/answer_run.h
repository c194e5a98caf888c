// One request on a worker: its choices through the engine, and their parts to the client.
#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/api/answer_parts.h"
#include "baton/serve/job.h"
#include "baton/serve/outbox.h"
#include "baton/serve/service.h"

namespace baton::serve {

// Lives for one call of `run`. A client that left is noticed within 50 ms, and its choices are cancelled.
class AnswerRun {
 public:
  AnswerRun(Service& service, Job& job);
  void run();

 private:
  struct Choice {
    explicit Choice(AnswerParserOptions options) : parser(std::move(options)) {}
    std::optional<Answer> answer;
    AnswerParser parser;
    std::optional<Completion> completion;
    size_t tokens_seen = 0, logprobs_seen = 0;
    uint64_t reasoning_tokens = 0;
    bool reasoning = false, echoed = false;
    bool called = false;  // the one call that it may make is there: nothing behind it is shown
  };

  Status start(uint32_t index);
  Status start_others();
  Status step(uint32_t index, std::chrono::milliseconds timeout);
  void take(uint32_t index, std::string_view text);
  void emit(uint32_t index, std::vector<AnswerPart> parts, const AnswerSoFar& so_far);
  // The prompt in front of the answer; with logprobs it is known at the end only, and the answer comes behind it.
  void echo(uint32_t index, const std::vector<ShownLogprob>& logprobs);
  bool held_back() const { return job_.request.echo && job_.request.logprobs; }
  std::vector<ShownLogprob> new_logprobs(Choice& choice, const AnswerSoFar& so_far) const;
  void end_choice(uint32_t index);
  ChoiceEnd end_of(const Choice& choice) const;
  void tell_first_token();
  void tell_progress();
  void finish();
  void tell_done(const char* finish);
  void fail(const ApiError& error);
  ApiError refused(const Error& error);
  void send(std::string bytes);
  uint64_t tokens() const;
  uint64_t cached_tokens() const;
  JobPrompt& prompt_of(uint32_t index) { return job_.prompts.at(index / job_.request.choices); }

  Service& service_;
  Job& job_;
  Unsent unsent_;
  const bool constrained_;
  std::string whole_;               // where nothing is streamed
  std::vector<std::string> stops_;  // that may end it
  std::vector<Choice> choices_;
  size_t started_ = 0, ended_ = 0;
  bool writing_ = false, gone_ = false;
  bool emulated_ = false;  // a unit that it was asked of is
  double submitted_ms_ = 0, first_ms_ = 0, told_ms_ = 0;
  uint64_t told_tokens_ = 0;
  uint64_t load_ = 0;  // of the prompt, ServedModel::prefill_begins
};

}  // namespace baton::serve
