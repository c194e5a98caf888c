// From the engine's events to text.
#include <algorithm>

#include "baton/api/runtime.h"

namespace baton {

std::string_view to_string(Ended ended) {
  switch (ended) {
    case Ended::kEndToken:
      return "end_token";
    case Ended::kStopString:
      return "stop_string";
    case Ended::kTokenLimit:
      return "token_limit";
    case Ended::kContextFull:
      return "context_full";
    case Ended::kCancelled:
      return "cancelled";
  }
  return "unknown";
}

Result<Answer> Runtime::start(CompletionRequest request) {
  BATON_OK(begin_engine_anew());
  BATON_TRY(StopStrings stops, StopStrings::create(std::move(request.stops)));
  const uint64_t tokens_max = request.request.max_new_tokens;
  BATON_TRY(Ticket ticket, engine_->submit(std::move(request.request)));
  Answer answer(std::move(ticket), std::move(stops));
  if (text_.tokenizer) answer.detokenizer_.emplace(*text_.tokenizer);
  answer.tokens_max_ = tokens_max;
  answer.completion_.load_ms = load_ms_;
  answer.completion_.context_tokens = context_tokens();
  return answer;
}

Result<std::optional<Completion>> Answer::next(std::chrono::nanoseconds timeout,
                                               const std::function<void(std::string_view)>& on_text) {
  auto event = ticket_.next_event(timeout);
  for (; event; event = ticket_.next_event(std::chrono::nanoseconds(0))) {
    if (auto* token = std::get_if<TokenEvent>(&*event)) {
      BATON_OK(take(std::move(*token), on_text));
      continue;
    }
    auto finished = std::get<FinishedEvent>(*std::move(event));
    if (finished.reason == FinishReason::kError || finished.reason == FinishReason::kDeadline)
      return fail(std::move(finished.error));
    return end(std::move(finished), on_text);
  }
  return std::nullopt;
}

void Answer::stop() {
  stopped_ = true;
  ticket_.stop();
}

Status Answer::take(TokenEvent&& token, const std::function<void(std::string_view)>& on_text) {
  if (stops_.matched()) return {};  // made before the stop took effect
  completion_.ids.push_back(token.id);
  if (token.logprobs) completion_.logprobs.push_back(*std::move(token.logprobs));
  if (!detokenizer_) return {};
  BATON_TRY(const std::string text, detokenizer_->push(token.id));
  StopStrings::Output safe = stops_.push(text);
  completion_.stop_string = safe.match;
  show(safe.text, on_text);
  // A stop, not a cancel: the state that was asked for is still made.
  if (stops_.matched()) ticket_.stop();
  return {};
}

void Answer::show(const std::string& text, const std::function<void(std::string_view)>& on_text) {
  if (text.empty()) return;
  completion_.text += text;
  if (on_text) on_text(text);
}

Completion Answer::end(FinishedEvent finished, const std::function<void(std::string_view)>& on_text) {
  if (detokenizer_ && !stops_.matched()) {
    StopStrings::Output safe = stops_.push(detokenizer_->finish());
    completion_.stop_string = safe.match;
    show(safe.text, on_text);
    if (!stops_.matched()) show(stops_.finish(), on_text);
  }
  Completion& made = completion_;
  // An end token that came all the same ended the answer.
  if (stopped_ && finished.reason == FinishReason::kStop && finished.stop_id < 0)
    finished.reason = FinishReason::kCancelled;
  made.reason = stops_.matched() ? FinishReason::kStop : finished.reason;
  made.ended = stops_.matched()                                ? Ended::kStopString
               : finished.reason == FinishReason::kStop        ? Ended::kEndToken
               : finished.reason != FinishReason::kLength      ? Ended::kCancelled
               : finished.stats.generated_tokens < tokens_max_ ? Ended::kContextFull
                                                               : Ended::kTokenLimit;
  made.stats = std::move(finished.stats);
  made.stats.generated_tokens = made.ids.size();
  made.stats.via_tokens = std::min(made.stats.via_tokens, made.stats.generated_tokens);
  made.sealed_state = std::move(finished.sealed_state);
  made.answer_state = std::move(finished.answer_state);
  made.answer_state_tokens = finished.answer_state_tokens;
  made.logits = std::move(finished.logits);
  made.prompt_logprobs = std::move(finished.prompt_logprobs);
  return std::move(made);
}

}  // namespace baton
