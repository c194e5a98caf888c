// Reads ahead of the engine by as many requests as run, so that it never waits for one.
#include "baton/cli/batch_run.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <span>
#include <utility>

#include "baton/base/memory_reserve.h"
#include "baton/base/terminal.h"
#include "baton/cli/figures.h"
#include "baton/state/checksum.h"

namespace baton::cli {
namespace {

constexpr int64_t kShownEveryNs = 60'000'000'000;  // off a terminal
constexpr uint64_t kLinesShownMax = 5;
constexpr int kShortagesMax = 8;  // of memory, one behind the other, and no answer: the batch ends
constexpr int kWholeMax = 2;
constexpr size_t kStarvedMax = 64;
constexpr int kLinesAtOnce = 256;  // that need no answer: those under way are looked at in between

// Of what no request is at fault for: the next one would end so too.
bool ends_batch(Code code) { return code == Code::kUnavailable || code == Code::kInternal || code == Code::kCancelled; }

constexpr const char* kShort = "out of memory";  // so short that the error takes none

Result<std::optional<Completion>> next_of(Answer& answer, std::chrono::nanoseconds timeout) try {
  return answer.next(timeout, {});
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, kShort);
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
      model_(name_of_path(flags.model.model)),
      fingerprint_(std::move(fingerprint)),
      interrupts_(interrupts),
      start_ns_(clock_.now_ns()),
      shown_ns_(start_ns_),
      meter_("batch"),
      under_way_max_(size_t{2} * flags.parallel) {}

Status BatchRun::run() {
  // What holds a request that waits takes no memory.
  under_way_.reserve(under_way_max_ + 1);
  again_.reserve(under_way_max_ + 1);
  starved_.reserve(kStarvedMax);
  Status status;
  while (status && !all_done() && !interrupts_.interrupted()) {
    refill_memory_reserve();
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
  // They end first, and it begins anew.
  if (!under_way_.empty() && !runtime_.goes_on()) return {};
  if (nothing_left() && !starved_.empty()) {
    if (!last_times_) last_times_ = starved_.size();
    if (*last_times_ == 0) {
      return fail(Code::kOutOfMemory, fmt::format("{} requests found no memory, each alone; the first was '{}': the "
                                                  "same command asks them again, with a smaller context (-c) perhaps",
                                                  starved_.size(), starved_.front().request.custom_id));
    }
    --*last_times_;
    again_.push_back(std::move(starved_.front()));
    starved_.erase(starved_.begin());
  }
  for (size_t left = again_.size(); left > 0 && under_way_.size() < under_way_max_; --left) {
    Asked next = std::move(again_.back());
    again_.pop_back();
    BATON_OK(begin(std::move(next)));
  }
  try {
    return again_.empty() ? fill_from_lines() : Status();
  } catch (const std::bad_alloc&) {
    return shortage({Code::kOutOfMemory, kShort});
  }
}

Status BatchRun::fill_from_lines() {
  for (int lines = 0; lines < kLinesAtOnce && under_way_.size() < under_way_max_ && again_.empty(); ++lines) {
    if (interrupts_.interrupted()) return {};
    if (!line_) {
      if (read_all_) return {};
      Line line;
      BATON_TRY(const auto outcome, source_.lines.next(line, under_way_.empty() ? 100 : 0));
      if (outcome == LineReader::Outcome::kNone) return {};
      read_all_ = outcome == LineReader::Outcome::kEnd;
      if (read_all_) return {};
      line_ = std::move(line);
    }
    const Status entered = enter(*line_);
    totals_.requests += line_->too_long || !is_blank(line_->text) ? 1 : 0;
    line_.reset();
    BATON_OK(entered);
  }
  return {};
}

Status BatchRun::enter(const Line& line) {
  if (!line.too_long && is_blank(line.text)) return {};
  if (line.too_long) {
    return report_line(line, {"invalid_json_line", fmt::format("more than {} bytes", kBatchLineBytesMax)});
  }
  auto request = openai::read_request_line(line.text);
  if (!request) return report_line(line, std::move(request).error());
  const auto kept = output_.kept(request->custom_id);
  if (!seen_.insert(request->custom_id).second) {
    return report_line(
        line, {"duplicate_custom_id", fmt::format("a line before has the custom_id '{}' too", request->custom_id),
               request->custom_id});
  }
  if (kept == BatchOutput::Kept::kNothing) return begin({line.number, *std::move(request)});
  ++totals_.kept;
  ++(kept == BatchOutput::Kept::kAnswer ? totals_.answered : totals_.failed);
  return {};
}

Status BatchRun::begin(Asked next) {
  try {
    return submit(next);
  } catch (const std::bad_alloc&) {
    again_.push_back(std::move(next));
  }
  return shortage({Code::kOutOfMemory, kShort});
}

Status BatchRun::submit(Asked& next) {
  const uint64_t number = next.number;
  const openai::BatchRequest& request = next.request;
  auto asked = openai::read_request(request.endpoint, request.body);
  if (!asked) return respond_error(number, request.custom_id, asked.error());
  if (const auto think = flags_.thinking.asked()) asked->chat.extra["enable_thinking"] = *think;
  auto tokens = openai::prompt_tokens(runtime_, *asked);
  if (!tokens) {
    if (tokens.error().code == to_string(Code::kOutOfMemory)) throw std::bad_alloc();
    return respond_error(number, request.custom_id, tokens.error());
  }
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
    const bool alone = under_way_max_ == 1 && under_way_.empty();
    under_way_.push_back({number, std::move(next.request), *std::move(answer), alone, next.whole});
    return {};
  }
  if (answer.error().code == Code::kOutOfMemory) {
    if (!runtime_.goes_on()) throw std::bad_alloc();
    answer.error().code = Code::kInvalidInput;  // it cannot fit, ever
  }
  if (ends_batch(answer.error().code)) return fail(std::move(answer).error());
  return respond_error(number, request.custom_id, openai::api_error(answer.error()));
}

Status BatchRun::shortage(Error why) {
  under_way_max_ = std::max<size_t>(under_way_max_ / 2, 1);
  if (++shortages_ > kShortagesMax) return fail(std::move(why));
  return {};
}

Status BatchRun::come_again(UnderWay ended, Error why) {
  Asked next{ended.number, std::move(ended.request), ended.whole};
  const bool ends_all = !runtime_.goes_on();
  if (ended.alone && !ends_all) {
    (starved_.size() < kStarvedMax ? starved_ : again_).push_back(std::move(next));
    return shortage(std::move(why));
  }
  again_.push_back(std::move(next));
  if (ends_all) return under_way_.empty() ? shortage(std::move(why)) : Status();
  under_way_max_ = std::clamp<size_t>(under_way_.size(), 1, std::max<size_t>(under_way_max_ - 1, 1));
  try {
    warn_once(fmt::format("{}; from now on {} at a time, at most", why.message, under_way_max_));
  } catch (const std::bad_alloc&) {
  }
  return {};
}

Status BatchRun::report_line(const Line& line, openai::LineError error) {
  if (output_.reported(line.number)) {
    ++totals_.failed;
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
  const std::string answer = openai::error_line(line.number, error);
  ++totals_.failed;
  return output_.add(answer);
}

Status BatchRun::respond_error(uint64_t number, const std::string& custom_id, const openai::ApiError& error) {
  const std::string answer = openai::answer_line(number, custom_id, error.status, openai::error_body(error));
  ++totals_.failed;
  return output_.add(answer);
}

Status BatchRun::poll(std::chrono::nanoseconds timeout) {
  for (size_t i = 0; i < under_way_.size();) {
    UnderWay& item = under_way_[i];
    auto completion = next_of(item.answer, i == 0 ? timeout : std::chrono::nanoseconds(0));
    if (completion && !*completion) {
      ++i;
      continue;
    }
    UnderWay ended = std::move(item);
    under_way_.erase(under_way_.begin() + static_cast<std::ptrdiff_t>(i));
    if (!completion && completion.error().code == Code::kOutOfMemory) {
      BATON_OK(come_again(std::move(ended), std::move(completion).error()));
      continue;
    }
    if (!completion && ends_batch(completion.error().code))
      return fail(std::move(completion).error().in(ended.request.custom_id));
    // Its bits may be others than those of an answer from one piece.
    if (completion && (**completion).stats.prefilled_answer > 0 && ended.whole < kWholeMax) {
      again_.push_back({ended.number, std::move(ended.request), ended.whole + 1});
      continue;
    }
    try {
      BATON_OK(completion
                   ? end(ended, **completion)
                   : respond_error(ended.number, ended.request.custom_id, openai::api_error(completion.error())));
      continue;
    } catch (const std::bad_alloc&) {
    }
    BATON_OK(come_again(std::move(ended), {Code::kOutOfMemory, kShort}));
  }
  return {};
}

Status BatchRun::end(const UnderWay& ended, const Completion& completion) {
  if (completion.ended == Ended::kCancelled) return {};
  const openai::AnswerFacts facts{openai::answer_id(ended.request.endpoint, ended.number), model_, fingerprint_,
                                  seconds_now()};
  const std::string line = openai::answer_line(ended.number, ended.request.custom_id, 200,
                                               openai::answer_body(ended.request.endpoint, facts, completion));
  BATON_OK(output_.add(line));
  shortages_ = 0;
  ++totals_.answered;
  try {
    count(completion.stats);
  } catch (const std::bad_alloc&) {  // of a figure
  }
  return {};
}

void BatchRun::count(const RequestStats& stats) {
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
