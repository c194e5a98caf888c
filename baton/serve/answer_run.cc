// The loop of a worker.
#include "baton/serve/answer_run.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "baton/base/memory_reserve.h"
#include "baton/serve/answer_figures.h"
#include "baton/serve/shown_logprobs.h"

namespace baton::serve {
namespace {

constexpr double kProgressMs = 250;
constexpr std::chrono::milliseconds kLookMs{50};  // for clients that left

ApiError error_of(const Error& error) {
  ApiError made = openai::api_error(error);
  made.message = without_paths(made.message);
  // As the client calls it.
  constexpr std::string_view kScores = "prompt_logprobs";
  if (made.message.starts_with(kScores)) {
    made.message.replace(0, kScores.size(), "'logprobs' beside 'echo'");
    made.param = "logprobs";
  }
  std::replace(made.code.begin(), made.code.end(), ' ', '_');
  if (error.code == Code::kOutOfMemory || error.code == Code::kUnavailable || error.code == Code::kCancelled)
    made.status = 503;
  return made;
}

const char* word_of(Finish finish) {
  switch (finish) {
    case Finish::kStop:
    case Finish::kStopString:
      return "stop";
    case Finish::kLength:
      return "length";
    case Finish::kToolCalls:
      return "tool_calls";
    case Finish::kCancelled:
      return "cancelled";
  }
  return "error";
}

AnswerParserOptions parser_options(const Job& job) {
  AnswerParserOptions options;
  const bool chat = job.request.endpoint == openai::Endpoint::kChat;
  const bool calls = !job.request.chat.tools.is_null() && job.request.tool_choice != openai::ToolChoice::kNone;
  if (chat && calls) {
    options.style = tool_style_of(job.model->runtime().text());
    options.tools = job.request.chat.tools;
    options.stream_arguments = job.request.stream;
  }
  options.split_reasoning = chat;
  options.begins_in_reasoning = chat && job.prompts.front().in_reasoning;
  return options;
}

}  // namespace

AnswerRun::AnswerRun(Service& service, Job& job)
    : service_(service), job_(job), unsent_(job.exchange), constrained_(job.constraint != nullptr) {
  const AnswerParserOptions options = parser_options(job);
  for (uint32_t i = 0; i < job.request.answers(); ++i) choices_.emplace_back(options);
}

void AnswerRun::run() try {
  if (const auto started = start(0); !started) return fail(refused(started.error()));
  if (job_.request.stream) service_.begin_stream(job_);
  while (ended_ < choices_.size()) {
    gone_ = gone_ || job_.exchange->gone();
    if (gone_) return tell_done("cancelled");
    if (service_.cancelling_) {
      return fail({.status = 503,
                   .message = "the server is shutting down: the answer was cut off",
                   .type = "server_error",
                   .code = "unavailable"});
    }
    bool first = true;
    for (uint32_t i = 0; i < started_; ++i) {
      if (choices_[i].completion) continue;
      const auto timeout = !first                 ? std::chrono::milliseconds(0)
                           : choices_.size() == 1 ? kLookMs
                                                  : std::chrono::milliseconds(5);
      first = false;
      if (const auto stepped = step(i, timeout); !stepped) return fail(refused(stepped.error()));
    }
    if (const auto begun = start_others(); !begun) return fail(refused(begun.error()));
    if (!unsent_.flush()) gone_ = true;
    tell_progress();
  }
  finish();
} catch (const std::bad_alloc&) {
  choices_.clear();
  refill_memory_reserve();
  fail({.status = 503, .message = "out of memory", .type = "server_error", .code = "out_of_memory"});
}

ApiError AnswerRun::refused(const Error& error) {
  if (error.code == Code::kUnavailable) job_.model->tell_lost_units();
  return error_of(error);
}

Status AnswerRun::start(uint32_t index) {
  // Its tokens are asked for again by each further choice.
  const uint32_t nth = index % job_.request.choices;
  const bool last = nth + 1 == job_.request.choices;
  JobPrompt& prompt = prompt_of(index);
  CompletionRequest request =
      job_.model->make_request(last ? std::move(prompt.tokens) : std::vector<int32_t>(prompt.tokens));
  job_.request.apply(request);
  request.request.sampler.seed += nth;
  request.request.sampler.constraint = std::move(job_.constraint);
  if (index > 0 && constrained_) {
    BATON_TRY(request.request.sampler.constraint, job_.model->constraint(job_.request, prompt.in_reasoning));
  }
  request.request.keep_at = job_.keep_at;
  if (held_back()) request.request.prompt_logprobs = job_.request.logprobs;
  request.request.tenant = job_.caller.tenant;
  request.request.weight = job_.caller.weight;
  if (index == 0) {
    submitted_ms_ = service_.timeline_.now_ms();
    stops_ = request.stops;
  }
  const std::string prefill = request.request.prefill_unit, decode = request.request.decode_unit,
                    strategy = request.request.strategy;
  if (index == 0) {
    load_ = job_.model->prefill_begins(request.request);
    for (const std::string_view unit : {prefill, decode, request.request.via_unit})
      emulated_ = emulated_ || job_.pooled->facts().is_emulated(unit);
  }
  BATON_TRY(choices_[index].answer, job_.model->start(std::move(request)));
  ++started_;
  if (index > 0) return {};
  service_.tell(job_, "prefill",
                {{"prefill_unit", prefill},
                 {"decode_unit", decode},
                 {"strategy", strategy},
                 {"emulated", emulated_},
                 {"queue_ms", submitted_ms_ - job_.arrived_ms},
                 {"prompt_tokens", job_.head.prompt_tokens}});
  return {};
}

// More than one of a prompt: behind the first one's prompt, so that they begin from the checkpoint it left.
Status AnswerRun::start_others() {
  const Choice& first = choices_.front();
  const bool waits = job_.request.choices > 1 && !first.completion && !first.answer->begun();
  if (started_ == choices_.size() || waits) return {};
  while (started_ < choices_.size()) BATON_OK(start(static_cast<uint32_t>(started_)));
  return {};
}

Status AnswerRun::step(uint32_t index, std::chrono::milliseconds timeout) {
  Choice& choice = choices_[index];
  const std::function<void(std::string_view)> on_text = [&](std::string_view text) { take(index, text); };
  BATON_TRY(choice.completion, choice.answer->next(timeout, held_back() ? nullptr : on_text));
  if (first_ms_ == 0 && (choice.completion ? !choice.completion->ids.empty() : choice.answer->begun()))
    tell_first_token();
  if (choice.completion) end_choice(index);
  return {};
}

void AnswerRun::take(uint32_t index, std::string_view text) {
  Choice& choice = choices_[index];
  if (choice.called) return;
  emit(index, choice.parser.push(text), choice.answer->so_far());
  if (job_.request.parallel_tools || choice.parser.whole_calls() == 0) return;
  choice.called = true;
  choice.answer->stop();
}

std::vector<ShownLogprob> AnswerRun::new_logprobs(Choice& choice, const AnswerSoFar& so_far) const {
  const auto& tokenizer = job_.model->runtime().text().tokenizer;
  if (!job_.request.logprobs || !tokenizer || so_far.logprobs.size() <= choice.logprobs_seen) return {};
  const size_t from = std::exchange(choice.logprobs_seen, so_far.logprobs.size());
  return shown_logprobs(*tokenizer, std::span(so_far.ids).subspan(from), std::span(so_far.logprobs).subspan(from));
}

void AnswerRun::emit(uint32_t index, std::vector<AnswerPart> parts, const AnswerSoFar& so_far) {
  Choice& choice = choices_[index];
  if (!std::exchange(writing_, true)) send(job_.writer->begin(job_.head));
  if (job_.request.echo && !choice.echoed) echo(index, {});
  if (!parts.empty()) choice.reasoning = parts.back().kind == AnswerPart::Kind::kReasoning;
  // Of parts that come at once the first has the tokens of all; what no part came of waits for the next.
  for (size_t i = 0; i < parts.size(); ++i)
    send(job_.writer->part(index, parts[i], i == 0 ? new_logprobs(choice, so_far) : std::vector<ShownLogprob>()));
  const size_t seen = so_far.ids.size();
  if (choice.reasoning) choice.reasoning_tokens += seen - std::min(seen, choice.tokens_seen);
  choice.tokens_seen = seen;
}

void AnswerRun::echo(uint32_t index, const std::vector<ShownLogprob>& logprobs) {
  choices_[index].echoed = true;
  const openai::Prompt& prompt = job_.request.prompts.at(index / job_.request.choices);
  std::string text = prompt.text;
  if (prompt.ids) {
    Detokenizer detokenizer(*job_.model->runtime().text().tokenizer, false, true);
    for (const int32_t id : *prompt.ids) text += detokenizer.push(id).value_or("");
    text += detokenizer.finish();
  }
  send(job_.writer->part(index, {AnswerPart::Kind::kText, std::move(text)}, logprobs));
}

ChoiceEnd AnswerRun::end_of(const Choice& choice) const {
  if (choice.called) return {Finish::kToolCalls};
  switch (choice.completion->ended) {
    case Ended::kTokenLimit:
    case Ended::kContextFull:
      return {Finish::kLength};
    case Ended::kStopString:
      return {Finish::kStopString, stops_.at(choice.completion->stop_string.value_or(0))};
    case Ended::kCancelled:
      return {Finish::kCancelled};
    case Ended::kEndToken:
      break;
  }
  return {choice.parser.whole_calls() > 0 ? Finish::kToolCalls : Finish::kStop};
}

void AnswerRun::end_choice(uint32_t index) {
  Choice& choice = choices_[index];
  const Completion& completion = *choice.completion;
  const AnswerSoFar all{completion.text, completion.ids, completion.logprobs};
  choice.answer.reset();
  if (held_back()) {
    if (!std::exchange(writing_, true)) send(job_.writer->begin(job_.head));
    const auto& tokenizer = *job_.model->runtime().text().tokenizer;
    echo(index, shown_prompt_logprobs(tokenizer, prompt_of(index).echo_ids, completion.prompt_logprobs));
    emit(index, choice.parser.push(completion.text), all);
  }
  if (!choice.called) emit(index, choice.parser.finish(), all);
  // Tokens whose text was held back to the end; those of a stop string are not shown, nor is it.
  if (auto rest = new_logprobs(choice, all); !rest.empty() && completion.ended != Ended::kStopString)
    send(job_.writer->part(index, {}, rest));
  send(job_.writer->end_choice(index, end_of(choice)));
  ++ended_;
}

void AnswerRun::send(std::string bytes) {
  if (bytes.empty()) return;
  if (!job_.request.stream) {
    whole_ += bytes;
  } else if (!unsent_.push(bytes)) {
    gone_ = true;
  }
}

uint64_t AnswerRun::tokens() const {
  uint64_t count = 0;
  for (const Choice& choice : choices_) {
    count += choice.completion ? choice.completion->ids.size() : choice.answer ? choice.answer->so_far().ids.size() : 0;
  }
  return count;
}

// Of each prompt's first choice: what the others find is what that one left.
uint64_t AnswerRun::cached_tokens() const {
  uint64_t count = 0;
  for (size_t i = 0; i < choices_.size(); i += job_.request.choices)
    count += choices_[i].completion ? choices_[i].completion->stats.cached_tokens : 0;
  return count;
}

void AnswerRun::tell_first_token() {
  job_.model->prefilled(load_);
  first_ms_ = told_ms_ = service_.timeline_.now_ms();
  service_.tell(job_, "decode", {{"ttft_ms", first_ms_ - job_.arrived_ms}, {"emulated", emulated_}});
}

void AnswerRun::tell_progress() {
  const double now_ms = service_.timeline_.now_ms();
  if (first_ms_ == 0 || now_ms - told_ms_ < kProgressMs || !service_.timeline_.watched()) return;
  const uint64_t count = tokens();
  service_.tell(job_, "tokens",
                {{"tokens", count},
                 {"tokens_per_second", static_cast<double>(count - told_tokens_) * 1000 / (now_ms - told_ms_)},
                 {"emulated", emulated_}});
  told_ms_ = now_ms;
  told_tokens_ = count;
}

void AnswerRun::finish() {
  AnswerTail tail;
  const RequestStats& first = choices_.front().completion->stats;
  tail.prompt_tokens = job_.head.prompt_tokens;
  tail.cached_tokens = cached_tokens();
  for (const Choice& choice : choices_) {
    tail.completion_tokens += choice.completion->stats.generated_tokens;
    tail.reasoning_tokens += choice.reasoning_tokens;
  }
  const double server_queue_ms = submitted_ms_ - job_.arrived_ms;
  tail.load_ms = job_.load_ms;
  tail.queue_ms = server_queue_ms + first.queue_ms;
  tail.prefill_ms = first.prefill_ms;
  for (const float ms : first.token_ms) tail.decode_ms += ms;
  tail.decode_ms += first.first_token.first_decode_ms;
  tail.total_ms = service_.timeline_.now_ms() - job_.arrived_ms;
  tail.baton = extension_json(first, server_queue_ms);
  tell_done(word_of(end_of(choices_.front()).finish));
  send(job_.writer->end(tail));
  if (gone_) return;
  if (job_.request.stream) return service_.outbox_.finish(std::move(unsent_));
  job_.exchange->respond({200, {{"content-type", job_.writer->content_type()}}, std::move(whole_)});
}

void AnswerRun::tell_done(const char* finish) {
  Observed observed{.finished = finish,
                    .emulated = emulated_,
                    .queue_s = (submitted_ms_ - job_.arrived_ms) / 1000,
                    .first_token_s = (first_ms_ - job_.arrived_ms) / 1000,
                    .total_s = (service_.timeline_.now_ms() - job_.arrived_ms) / 1000,
                    .prompt_tokens = job_.head.prompt_tokens,
                    .generated_tokens = tokens()};
  std::vector<const RequestStats*> stats;
  for (const Choice& choice : choices_) {
    if (choice.completion) stats.push_back(&choice.completion->stats);
  }
  Json told = {{"finish", finish}, {"prompt_tokens", job_.head.prompt_tokens}};
  if (!stats.empty()) {
    const RequestStats& first = *stats.front();
    // Where it ran is what counts.
    observed.emulated = std::any_of(stats.begin(), stats.end(), [](const auto* each) { return each->emulated(); });
    observed.cached_tokens = cached_tokens();
    observed.queue_s += first.queue_ms / 1000;
    const auto positive = [](double number) { return number > 0 ? Json(number) : Json(nullptr); };
    told.update(
        Json{{"cached_tokens", observed.cached_tokens},
             {"completion_tokens", observed.generated_tokens},
             {"phases", phases_json(first, job_.arrived_ms, submitted_ms_)},
             {"bridge", bridge_json(first.bridge)},
             {"state_bytes", job_.model->state_bytes(first.prompt_tokens + first.generated_tokens)},
             {"tokens_per_second", {{"prefill", positive(first.prefill_tps)}, {"decode", positive(first.decode_tps)}}},
             {"joules", "unknown"},
             {"emulated", observed.emulated},
             {"fallback", first.fallback.empty() ? Json(nullptr) : Json(first.fallback)}});
  } else {
    told.update(Json{
        {"completion_tokens", observed.generated_tokens}, {"phases", Json::array()}, {"emulated", observed.emulated}});
  }
  job_.model->prefilled(load_);
  for (const RequestStats* each : stats) job_.model->learn(*each);
  service_.metrics_.count_answer(job_.pooled->name(), observed, stats);
  service_.tell(job_, "done", std::move(told));
}

void AnswerRun::fail(const ApiError& error) {
  for (Choice& choice : choices_) choice.answer.reset();
  if (!job_.begun) {
    tell_done("error");
    return respond_error(*job_.exchange, job_.protocol, error);
  }
  tell_done("error");
  if (unsent_.push(job_.writer->error(error))) service_.outbox_.finish(std::move(unsent_));
}

}  // namespace baton::serve
