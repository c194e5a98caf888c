// Reads ahead of the engine by as many requests as run, so that it never waits for one.
#include "baton/cli/batch_run.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <span>

#include "baton/base/terminal.h"
#include "baton/cli/figures.h"
#include "baton/state/checksum.h"

namespace baton::cli {
namespace {

constexpr int64_t kShownEveryNs = 60'000'000'000;  // off a terminal
constexpr uint64_t kLinesShownMax = 5;
constexpr int kLinesAtOnce = 256;  // that need no answer: those under way are looked at in between

// Of what no request is at fault for: the next one would end so too.
bool ends_batch(Code code) {
  return code == Code::kUnavailable || code == Code::kInternal || code == Code::kCancelled ||
         code == Code::kOutOfMemory;
}

uint64_t seed_of(const SamplingFlags& sampling, const std::string& custom_id) {
  return static_cast<uint64_t>(sampling.seed) + checksum(std::as_bytes(std::span(custom_id)));
}

int64_t seconds_now() {
  return std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace

BatchRun::BatchRun(const BatchFlags& flags, Runtime& runtime, Source source, BatchOutput& output,
                   std::string fingerprint, const InterruptScope& interrupts)
    : flags_(flags),
      runtime_(runtime),
      source_(std::move(source)),
      output_(output),
      model_(model_name(flags.model.model)),
      fingerprint_(std::move(fingerprint)),
      interrupts_(interrupts),
      start_ns_(clock_.now_ns()),
      shown_ns_(start_ns_),
      meter_("batch"),
      under_way_max_(size_t{2} * flags.parallel) {}

Status BatchRun::run() {
  Status status;
  while (status && !all_done() && !interrupts_.interrupted()) {
    status = fill();
    if (status) status = poll(std::chrono::milliseconds(5));
    totals_.seconds = ms_between(start_ns_, clock_.now_ns()) / 1000;
    show_progress();
  }
  if (status && interrupts_.interrupted()) {
    status = poll(std::chrono::nanoseconds(0));  // what has ended by now
    if (status && !all_done()) status = fail(Code::kCancelled, "interrupted: the same command goes on from here");
  }
  under_way_.clear();
  meter_.clear();
  return status;
}

Status BatchRun::fill() {
  while (!again_.empty() && under_way_.size() < under_way_max_) {
    Again next = std::move(again_.back());
    again_.pop_back();
    BATON_OK(begin(next.number, std::move(next.request)));
  }
  for (int lines = 0; lines < kLinesAtOnce && under_way_.size() < under_way_max_; ++lines) {
    if (read_all_ || interrupts_.interrupted()) return {};
    Line line;
    BATON_TRY(const auto outcome, source_.lines.next(line, under_way_.empty() ? 100 : 0));
    if (outcome == LineReader::Outcome::kNone) return {};
    read_all_ = outcome == LineReader::Outcome::kEnd;
    if (!read_all_) BATON_OK(enter(line));
  }
  return {};
}

Status BatchRun::enter(const Line& line) {
  if (!line.too_long && is_blank(line.text)) return {};
  ++totals_.requests;
  if (line.too_long) {
    return report_line(line, {"invalid_json_line", fmt::format("more than {} bytes", kBatchLineBytesMax)});
  }
  auto request = openai::read_request_line(line.text);
  if (!request) return report_line(line, std::move(request).error());
  if (!seen_.insert(request->custom_id).second) {
    return report_line(
        line, {"duplicate_custom_id", fmt::format("a line before has the custom_id '{}' too", request->custom_id),
               request->custom_id});
  }
  const auto kept = output_.kept(request->custom_id);
  if (kept == BatchOutput::Kept::kNothing) return begin(line.number, *std::move(request));
  ++totals_.kept;
  ++(kept == BatchOutput::Kept::kAnswer ? totals_.answered : totals_.failed);
  return {};
}

Status BatchRun::begin(uint64_t number, openai::BatchRequest request) {
  auto asked = openai::read_request(request.endpoint, request.body);
  if (!asked) return respond_error(number, request.custom_id, asked.error());
  if (const auto think = flags_.thinking.asked()) asked->chat.extra["enable_thinking"] = *think;
  auto tokens = openai::prompt_tokens(runtime_, *asked);
  if (!tokens) return respond_error(number, request.custom_id, tokens.error());
  std::vector<uint64_t> keep_at;
  if (!flags_.no_reuse && request.endpoint == openai::Endpoint::kChat)
    keep_at = openai::branching_positions(runtime_, asked->chat, *tokens);
  CompletionRequest completion{runtime_.make_request(*std::move(tokens)), flags_.sampling.stops};
  flags_.sampling.apply(completion.request);
  completion.request.sampler.seed = seed_of(flags_.sampling, request.custom_id);
  flags_.model.apply(completion.request);
  asked->apply(completion);
  // No answer shows it, but where states were asked for that are not exact.
  if (!flags_.no_reuse) completion.request.reuse = flags_.cache.bf16() ? ReuseMode::kAny : ReuseMode::kExact;
  completion.request.keep_at = std::move(keep_at);
  auto answer = runtime_.start(std::move(completion));
  if (answer) {
    under_way_.push_back({number, std::move(request), *std::move(answer), under_way_max_ == 1 && under_way_.empty()});
    return {};
  }
  if (answer.error().code == Code::kOutOfMemory) answer.error().code = Code::kInvalidInput;  // it cannot fit, ever
  if (ends_batch(answer.error().code)) return fail(std::move(answer).error());
  return respond_error(number, request.custom_id, openai::api_error(answer.error()));
}

Status BatchRun::report_line(const Line& line, openai::LineError error) {
  ++totals_.failed;
  if (output_.reported(line.number)) {
    ++totals_.kept;
    return {};
  }
  const std::string byte = error.byte ? fmt::format(", byte {} of the file", line.offset + *error.byte) : "";
  error.message =
      fmt::format("{}, line {}{}: {}: mend the line, or take it out", source_.name, line.number, byte, error.message);
  if (++lines_shown_ <= kLinesShownMax) {
    meter_.clear();
    spdlog::warn("{}{}", error.message, lines_shown_ == kLinesShownMax ? " (of more there is nothing here)" : "");
  }
  return output_.add(openai::error_line(line.number, error));
}

Status BatchRun::respond_error(uint64_t number, const std::string& custom_id, const openai::ApiError& error) {
  ++totals_.failed;
  return output_.add(openai::answer_line(number, custom_id, error.status, openai::error_body(error)));
}

Status BatchRun::poll(std::chrono::nanoseconds timeout) {
  for (size_t i = 0; i < under_way_.size();) {
    UnderWay& item = under_way_[i];
    auto completion = item.answer.next(i == 0 ? timeout : std::chrono::nanoseconds(0), {});
    if (completion && !*completion) {
      ++i;
      continue;
    }
    UnderWay ended = std::move(item);
    under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
    if (completion) {
      BATON_OK(end(ended, **completion));
    } else if (completion.error().code == Code::kOutOfMemory && !ended.alone) {
      under_way_max_ = std::clamp<size_t>(under_way_.size(), 1, std::max<size_t>(under_way_max_ - 1, 1));
      warn_once(fmt::format("{}; from now on {} at a time, at most", completion.error().message, under_way_max_));
      again_.push_back({ended.number, std::move(ended.request)});
    } else if (ends_batch(completion.error().code)) {
      return fail(std::move(completion).error().in(ended.request.custom_id));
    } else {
      BATON_OK(respond_error(ended.number, ended.request.custom_id, openai::api_error(completion.error())));
    }
  }
  return {};
}

Status BatchRun::end(const UnderWay& ended, const Completion& completion) {
  if (completion.ended == Ended::kCancelled) return {};
  const openai::AnswerFacts facts{openai::answer_id(ended.request.endpoint, ended.number), model_, fingerprint_,
                                  seconds_now()};
  BATON_OK(output_.add(openai::answer_line(ended.number, ended.request.custom_id, 200,
                                           openai::answer_body(ended.request.endpoint, facts, completion))));
  const RequestStats& stats = completion.stats;
  ++totals_.answered;
  totals_.prompt_tokens += stats.prompt_tokens;
  totals_.tokens += stats.generated_tokens;
  totals_.cached_tokens += stats.reused_tokens;
  totals_.set_aside += stats.preempted;
  if (stats.kept_rounding) {
    if (!totals_.kept_rounding) totals_.kept_rounding.emplace();
    totals_.kept_rounding->add(*stats.kept_rounding);
  }
  const size_t room = BatchTotals::kGapsMax - totals_.token_ms.size();
  const auto gaps = stats.token_ms.begin();
  totals_.token_ms.insert(totals_.token_ms.end(), gaps,
                          gaps + static_cast<std::ptrdiff_t>(std::min(room, stats.token_ms.size())));
  if (!stats.fallback.empty()) ++totals_.fallbacks;
  for (const PhaseStats* phase : {&stats.prefill, &stats.via, &stats.decode}) warn_once(phase->warning);
  warn_once(stats.fallback);
  warn_once(stats.reuse_failed);
  if (!totals_.first) totals_.first = stats;
  return {};
}

void BatchRun::warn_once(const std::string& text) {
  if (text.empty() || warned_.size() > 100 || !warned_.insert(text).second) return;
  meter_.clear();
  spdlog::warn("{}", text);
}

void BatchRun::show_progress() {
  if (flags_.quiet) return;
  const int64_t now_ns = clock_.now_ns();
  const uint64_t done = totals_.answered + totals_.failed - totals_.kept;
  const uint64_t earlier = output_.lines_kept();
  const double tps = totals_.seconds > 0 ? static_cast<double>(totals_.tokens) / totals_.seconds : 0;
  if (::isatty(STDERR_FILENO) != 0) {
    const std::string speed = fmt::format("{:.1f} tokens/s", tps);
    if (source_.count) meter_.show(done, std::max(done, *source_.count - std::min(*source_.count, earlier)), speed);
    return;
  }
  if (now_ns - shown_ns_ < kShownEveryNs) return;
  shown_ns_ = now_ns;
  fmt::print(stderr, "baton: {}{} lines done after {}, {:.1f} tokens/s\n", done + totals_.kept,
             source_.count ? fmt::format(" of {}", *source_.count) : "", duration_text(totals_.seconds), tps);
}

}  // namespace baton::cli
