// Runs in turns, and the gaps between tokens.
#include "baton/bench/interference.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <optional>
#include <utility>

#include "baton/api/calibration.h"
#include "baton/base/clock.h"

namespace baton {
namespace {

constexpr size_t kMeanwhileWays = 3, kAnswerPrompt = 16;
constexpr auto kEventWait = std::chrono::milliseconds(100);

std::vector<int32_t> piece_of_text(const std::vector<int32_t>& text, size_t from, size_t count) {
  std::vector<int32_t> tokens;
  for (size_t i = 0; i < count; ++i) tokens.push_back(text[(from + i) % text.size()]);
  return tokens;
}

// An answer that goes on for as long as this is there, and when its tokens came.
class LongAnswer {
 public:
  LongAnswer(Runtime& runtime, std::vector<int32_t> prompt, std::string unit)
      : runtime_(runtime), prompt_(std::move(prompt)), unit_(std::move(unit)) {}
  LongAnswer(const LongAnswer&) = delete;

  Status begin() {
    Request request = runtime_.make_request(prompt_);
    request.prefill_unit = request.decode_unit = unit_;
    request.sampler.temperature = 0;
    request.ignore_eos = true;
    request.max_new_tokens = static_cast<uint32_t>(runtime_.context_tokens());  // cut to the context
    BATON_TRY(ticket_, runtime_.engine().submit(std::move(request)));
    times_.emplace_back();
    while (times_.back().empty()) BATON_OK(read(kEventWait));
    return {};
  }
  // Until a token came after this time.
  Status wait_until(int64_t time_ns) {
    while (times_.back().empty() || times_.back().back() <= time_ns) BATON_OK(read(kEventWait));
    return {};
  }
  Status wait_for(size_t tokens) {
    const size_t before = times_.size();
    while (times_.size() == before && times_.back().size() < tokens) BATON_OK(read(kEventWait));
    return {};
  }
  // Milliseconds between tokens, of the gaps that reach into the time between.
  std::vector<double> gaps(int64_t start_ns, int64_t end_ns) const {
    std::vector<double> gaps;
    for (const auto& times : times_) {
      for (size_t i = 1; i < times.size(); ++i) {
        if (times[i] > start_ns && times[i - 1] < end_ns) gaps.push_back(ms_between(times[i - 1], times[i]));
      }
    }
    return gaps;
  }

 private:
  Status read(std::chrono::nanoseconds timeout) {
    const auto event = ticket_->next_event(timeout);
    if (!event) return {};
    if (const auto* token = std::get_if<TokenEvent>(&*event)) {
      times_.back().push_back(token->time_ns);
      return {};
    }
    const auto& finished = std::get<FinishedEvent>(*event);
    return finished.reason == FinishReason::kError ? fail(finished.error) : begin();
  }

  Runtime& runtime_;
  const std::vector<int32_t> prompt_;
  const std::string unit_;
  std::optional<Ticket> ticket_;
  std::vector<std::vector<int64_t>> times_;  // of each answer
};

class Meanwhile {
 public:
  Meanwhile(Runtime& runtime, const InterferenceSettings& settings)
      : runtime_(runtime), settings_(settings), text_(calibration_sequences(runtime.text())[0]) {}

  Status check() const {
    const uint64_t room = runtime_.context_tokens();
    if (settings_.prompt_tokens < room && settings_.answer_tokens + kAnswerPrompt < room) return {};
    return fail(Code::kInvalidInput, fmt::format("a prompt of {} tokens and an answer of {} do not fit a context of {}",
                                                 settings_.prompt_tokens, settings_.answer_tokens, room));
  }
  // A prompt with nobody decoding.
  Status prefill_alone(bool counts) {
    BATON_TRY(const RequestStats stats, ask(settings_.prefill, settings_.decode));
    if (counts) prefill_alone_.push_back(stats.prefill_tps);
    return {};
  }
  Status decode(MeanwhileWay way, bool counts);
  InterferenceReport report() const;

 private:
  struct Figures {
    std::vector<double> p50, p99, tps, ttft;
    uint64_t gaps = 0;
  };
  Result<RequestStats> ask(const std::string& prefill, const std::string& decode);
  std::string pair_of(MeanwhileWay way) const;

  Runtime& runtime_;
  const InterferenceSettings& settings_;
  const std::vector<int32_t> text_;
  uint64_t asked_ = 0;
  std::vector<double> prefill_alone_, prefill_together_, move_ms_, visible_ms_, hidden_;
  std::array<Figures, kMeanwhileWays> figures_;
  bool emulated_ = false;
};

Result<RequestStats> Meanwhile::ask(const std::string& prefill, const std::string& decode) {
  Request request = runtime_.make_request(piece_of_text(text_, ++asked_ * 7, settings_.prompt_tokens));
  request.prefill_unit = prefill;
  request.decode_unit = decode;
  request.strategy = prefill == decode ? "single" : "overlap";
  request.sampler.temperature = 0;
  request.max_new_tokens = 0;
  BATON_TRY(Ticket ticket, runtime_.engine().submit(std::move(request)));
  while (true) {
    const auto event = ticket.next_event(kEventWait);
    if (!event) continue;
    const auto* finished = std::get_if<FinishedEvent>(&*event);
    if (finished == nullptr) continue;
    if (finished->reason == FinishReason::kError) return fail(finished->error);
    if (!finished->stats.fallback.empty()) return fail(Code::kDevice, finished->stats.fallback);
    emulated_ = emulated_ || finished->stats.emulated();
    return finished->stats;
  }
}

Status Meanwhile::decode(MeanwhileWay way, bool counts) {
  const SteadyClock clock;
  const bool single = way == MeanwhileWay::kSingle;
  LongAnswer answer(runtime_, piece_of_text(text_, 0, kAnswerPrompt), single ? settings_.single : settings_.decode);
  BATON_OK(answer.begin());
  int64_t start_ns = clock.now_ns();
  RequestStats stats;
  if (way == MeanwhileWay::kAlone) {
    start_ns = 0;
    BATON_OK(answer.wait_for(settings_.answer_tokens));
  } else {
    BATON_TRY(stats, ask(single ? settings_.single : settings_.prefill, single ? settings_.single : settings_.decode));
  }
  const int64_t end_ns = clock.now_ns();
  if (way != MeanwhileWay::kAlone) BATON_OK(answer.wait_until(end_ns));
  if (!counts) return {};
  Figures& figures = figures_[static_cast<size_t>(way)];
  const std::vector<double> gaps = answer.gaps(start_ns, end_ns);
  double sum = 0;
  for (const double gap : gaps) sum += gap;
  if (gaps.empty() || !(sum > 0)) return fail(Code::kInternal, "no token came while the prompt was prefilled");
  figures.gaps += gaps.size();
  figures.p50.push_back(quantile(gaps, 0.5));
  figures.p99.push_back(quantile(gaps, 0.99));
  figures.tps.push_back(static_cast<double>(gaps.size()) * 1000 / sum);
  if (way == MeanwhileWay::kAlone) return {};
  figures.ttft.push_back(stats.ttft_ms);
  if (single) return {};
  prefill_together_.push_back(stats.prefill_tps);
  move_ms_.push_back(stats.bridge.ms);
  visible_ms_.push_back(stats.bridge.ms - stats.bridge.hidden_ms);
  hidden_.push_back(stats.bridge.hidden_share());
  return {};
}

std::string Meanwhile::pair_of(MeanwhileWay way) const {
  if (way == MeanwhileWay::kOverlap) return settings_.prefill + "+" + settings_.decode;
  return way == MeanwhileWay::kSingle ? settings_.single : settings_.decode;
}

InterferenceReport Meanwhile::report() const {
  InterferenceReport report;
  const auto& alone = figures_[static_cast<size_t>(MeanwhileWay::kAlone)];
  const auto& overlap = figures_[static_cast<size_t>(MeanwhileWay::kOverlap)];
  report.prefill = {settings_.prefill, summarize(prefill_alone_), summarize(prefill_together_)};
  report.decode = {settings_.decode, summarize(alone.tps), summarize(overlap.tps)};
  for (size_t i = 0; i < kMeanwhileWays; ++i) {
    const Figures& figures = figures_[i];
    MeanwhileRow row;
    row.way = static_cast<MeanwhileWay>(i);
    row.pair = pair_of(row.way);
    row.gaps = figures.gaps;
    row.p50_ms = summarize(figures.p50);
    row.p99_ms = summarize(figures.p99);
    row.decode_tps = summarize(figures.tps);
    if (!figures.ttft.empty()) row.ttft_ms = summarize(figures.ttft);
    report.rows.push_back(std::move(row));
  }
  report.move_ms = summarize(move_ms_);
  report.visible_ms = summarize(visible_ms_);
  report.hidden_share = summarize(hidden_);
  report.emulated = emulated_;
  return report;
}

}  // namespace

std::string_view to_string(MeanwhileWay way) {
  switch (way) {
    case MeanwhileWay::kAlone:
      return "alone";
    case MeanwhileWay::kSingle:
      return "single";
    case MeanwhileWay::kOverlap:
      return "overlap";
  }
  return "unknown";
}

Result<InterferenceReport> measure_interference(Runtime& runtime, const InterferenceSettings& settings,
                                                const std::function<void(std::string_view)>& progress) {
  Meanwhile bench(runtime, settings);
  BATON_OK(bench.check());
  std::array<size_t, kMeanwhileWays + 1> order = {0, 1, 2, kMeanwhileWays};
  for (uint32_t round = 0; round <= settings.rounds; ++round) {
    for (const size_t what : order) {
      const auto way = static_cast<MeanwhileWay>(what);
      progress(
          fmt::format("round {}/{}: {}", round, settings.rounds, what == kMeanwhileWays ? "prefill" : to_string(way)));
      BATON_OK(what == kMeanwhileWays ? bench.prefill_alone(round > 0) : bench.decode(way, round > 0));
    }
    std::rotate(order.begin(), order.begin() + 1, order.end());
  }
  return bench.report();
}

}  // namespace baton
