// Ways in turns, figures by way and turn.
#include "baton/bench/conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <thread>
#include <utility>

#include "baton/api/calibration.h"
#include "baton/api/idle_prefill.h"
#include "baton/bench/energy_meter.h"

namespace baton {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint32_t kPauseParts = 8;

bool hands_over(ConversationWay way) { return way != ConversationWay::kSingle && way != ConversationWay::kSingleBusy; }
bool has_neighbour(ConversationWay way) {
  return way == ConversationWay::kSingleBusy || way == ConversationWay::kOverlap;
}

std::chrono::nanoseconds until(Clock::time_point time) {
  return std::max<std::chrono::nanoseconds>(time - Clock::now(), std::chrono::nanoseconds(0));
}

// Another user's answer, decoded for as long as this is there.
class Neighbour {
 public:
  Neighbour(Runtime& runtime, std::vector<int32_t> prompt, std::string unit)
      : runtime_(runtime), prompt_(std::move(prompt)), unit_(std::move(unit)) {}
  Neighbour(const Neighbour&) = delete;

  Status begin() {
    CompletionRequest request{runtime_.make_request(prompt_), {}};
    request.request.prefill_unit = request.request.decode_unit = unit_;
    request.request.sampler.temperature = 0;
    request.request.ignore_eos = true;
    request.request.max_new_tokens = static_cast<uint32_t>(runtime_.context_tokens());  // cut to the context
    BATON_TRY(answer_, runtime_.start(std::move(request)));
    while (!answer_->begun()) BATON_OK(look(std::chrono::milliseconds(20)));
    return {};
  }
  // Reads what came, and begins another one when this has ended.
  Status look(std::chrono::nanoseconds timeout) {
    BATON_TRY(const auto done, answer_->next(timeout, {}));
    return done ? begin() : Status();
  }

 private:
  Runtime& runtime_;
  const std::vector<int32_t> prompt_;
  const std::string unit_;
  std::optional<Answer> answer_;
};

class Bench {
 public:
  Bench(Runtime& runtime, const ConversationSettings& settings)
      : runtime_(runtime), settings_(settings), text_(calibration_sequences(runtime.text())[0]) {}

  Status check() const;
  // All turns with states of its own; the figures are kept when `counts`.
  Status run(ConversationWay way, bool counts);
  ConversationReport report() const;

 private:
  struct Figures {
    uint64_t prompt_tokens = 0, cached_tokens = 0;
    std::vector<double> ttft_ms, hand_over_ms, decode_tps, total_ms, joules;
    bool emulated = false;
  };
  using Kept = std::map<std::pair<ConversationWay, uint32_t>, Figures>;

  std::vector<int32_t> input(uint32_t turn) const;
  Request request(ConversationWay way, std::vector<int32_t> tokens) const;
  Status pause(IdlePrefill* idle, Neighbour* neighbour, const std::vector<int32_t>& said,
               std::span<const int32_t> question) const;
  // `emulated`: a unit that stands for another made the state that the turn began from, or a part of it.
  void keep(ConversationWay way, uint32_t turn, const Completion& done, double total_ms, bool emulated,
            std::optional<double> joules);

  Runtime& runtime_;
  const ConversationSettings& settings_;
  const std::vector<int32_t> text_;
  EnergyMeter meter_;
  uint64_t tenant_ = 0;  // a new one for each conversation: none begins from another's
  Kept figures_;
};

Status Bench::check() const {
  const ConversationShape& shape = settings_.shape;
  const uint64_t tokens = uint64_t{shape.turns} * (shape.input_tokens + shape.answer_tokens);
  if (tokens <= runtime_.context_tokens()) return {};
  return fail(Code::kInvalidInput,
              fmt::format("{} turns of {} and {} tokens are {}, but the context is {}", shape.turns, shape.input_tokens,
                          shape.answer_tokens, tokens, runtime_.context_tokens()));
}

std::vector<int32_t> Bench::input(uint32_t turn) const {
  std::vector<int32_t> tokens;
  const size_t from = size_t{turn} * settings_.shape.input_tokens;
  for (size_t i = 0; i < settings_.shape.input_tokens; ++i) tokens.push_back(text_[(from + i) % text_.size()]);
  return tokens;
}

Request Bench::request(ConversationWay way, std::vector<int32_t> tokens) const {
  Request request = runtime_.make_request(std::move(tokens));
  request.prefill_unit = hands_over(way) ? settings_.prefill : settings_.decode;
  request.decode_unit = settings_.decode;
  if (hands_over(way)) request.strategy = way == ConversationWay::kHandoff ? "handoff" : "overlap";
  request.sampler.temperature = 0;
  request.ignore_eos = true;
  request.max_new_tokens = settings_.shape.answer_tokens;
  request.reuse = ReuseMode::kAny;
  request.tenant = tenant_;
  return request;
}

Status Bench::pause(IdlePrefill* idle, Neighbour* neighbour, const std::vector<int32_t>& said,
                    std::span<const int32_t> question) const {
  const auto start = Clock::now();
  for (uint32_t part = 0; part < kPauseParts; ++part) {
    if (idle != nullptr) {
      std::vector<int32_t> known = said;
      const auto typed = question.first(question.size() * part / (kPauseParts - 1));
      known.insert(known.end(), typed.begin(), typed.end());
      if (part + 1 == kPauseParts) known.pop_back();  // the turn's own: Conversation::if_sent
      BATON_OK(idle->certain(std::move(known)));
    }
    const auto end = start + std::chrono::milliseconds(settings_.shape.pause_ms) * (part + 1) / kPauseParts;
    while (until(end).count() > 0) {
      const auto slice = std::min<std::chrono::nanoseconds>(until(end), std::chrono::milliseconds(20));
      if (neighbour != nullptr) BATON_OK(neighbour->look(std::chrono::nanoseconds(0)));
      if (idle != nullptr && idle->busy()) {
        BATON_OK(idle->poll(slice));
      } else {
        std::this_thread::sleep_for(slice);
      }
    }
  }
  return idle != nullptr ? idle->stop() : Status();
}

Status Bench::run(ConversationWay way, bool counts) {
  ++tenant_;
  std::optional<IdlePrefill> idle;
  if (way == ConversationWay::kIdlePrefill) {
    idle.emplace(runtime_, [&](Request& request) {
      request.tenant = tenant_;
      request.prefill_unit = settings_.prefill;
      request.decode_unit = settings_.only_prefills ? settings_.decode : settings_.prefill;
    });
  }
  std::optional<Neighbour> neighbour;
  if (has_neighbour(way)) {
    neighbour.emplace(runtime_, input(settings_.shape.turns), settings_.decode);
    BATON_OK(neighbour->begin());
  }
  std::vector<int32_t> said;
  bool emulated = false;
  for (uint32_t turn = 0; turn < settings_.shape.turns; ++turn) {
    meter_.start();
    const std::vector<int32_t> question = input(turn);
    if (turn > 0) {
      BATON_OK(pause(idle ? &*idle : nullptr, neighbour ? &*neighbour : nullptr, said, question));
    }
    said.insert(said.end(), question.begin(), question.end());
    CompletionRequest asked{request(way, said), {}};
    const auto sent = Clock::now();
    BATON_TRY(const Completion done, runtime_.complete(std::move(asked), {}, {}));
    const double total_ms = std::chrono::duration<double, std::milli>(Clock::now() - sent).count();
    emulated = emulated || done.stats.emulated();
    if (done.ids.size() != settings_.shape.answer_tokens)
      return fail(Code::kInternal, fmt::format("turn {}: {} tokens came", turn + 1, done.ids.size()));
    said.insert(said.end(), done.ids.begin(), done.ids.end());
    if (neighbour) BATON_OK(neighbour->look(std::chrono::nanoseconds(0)));
    if (counts) keep(way, turn + 1, done, total_ms, emulated, meter_.joules());
  }
  return {};
}

void Bench::keep(ConversationWay way, uint32_t turn, const Completion& done, double total_ms, bool emulated,
                 std::optional<double> joules) {
  Figures& figures = figures_[{way, turn}];
  const RequestStats& stats = done.stats;
  figures.prompt_tokens = stats.prompt_tokens;
  figures.cached_tokens = stats.reused_tokens;
  figures.ttft_ms.push_back(stats.ttft_ms);
  figures.hand_over_ms.push_back(stats.restore_ms + stats.bridge.ms - stats.bridge.hidden_ms);
  figures.decode_tps.push_back(stats.decode_tps);
  figures.total_ms.push_back(total_ms);
  figures.emulated = figures.emulated || emulated;
  if (joules) figures.joules.push_back(*joules);
}

ConversationReport Bench::report() const {
  ConversationReport report;
  bool emulated = false;
  for (const auto& [which, figures] : figures_) {
    ConversationRow row;
    row.way = which.first;
    row.pair = hands_over(row.way) ? settings_.prefill + "+" + settings_.decode : settings_.decode;
    row.turn = which.second;
    row.rounds = static_cast<uint32_t>(figures.ttft_ms.size());
    row.prompt_tokens = figures.prompt_tokens;
    row.cached_tokens = figures.cached_tokens;
    row.replayed_tokens = figures.prompt_tokens - figures.cached_tokens;
    row.ttft_ms = summarize(figures.ttft_ms);
    row.hand_over_ms = summarize(figures.hand_over_ms);
    row.decode_tps = summarize(figures.decode_tps);
    row.total_ms = summarize(figures.total_ms);
    row.emulated = figures.emulated;
    // The host's energy says nothing of an emulated device.
    if (!row.emulated && figures.joules.size() == row.rounds) row.joules = summarize(figures.joules).median;
    emulated = emulated || row.emulated;
    report.rows.push_back(std::move(row));
  }
  report.energy_reason = !meter_.available() ? meter_.reason() : emulated ? "a unit is emulated" : "";
  return report;
}

}  // namespace

std::string_view to_string(ConversationWay way) {
  switch (way) {
    case ConversationWay::kSingle:
      return "single";
    case ConversationWay::kSingleBusy:
      return "single-busy";
    case ConversationWay::kHandoff:
      return "handoff";
    case ConversationWay::kOverlap:
      return "overlap";
    case ConversationWay::kIdlePrefill:
      return "idle-prefill";
  }
  return "unknown";
}

Result<ConversationReport> measure_conversation(Runtime& runtime, const ConversationSettings& settings,
                                                const std::function<void(std::string_view)>& progress) {
  std::vector<ConversationWay> ways;
  for (const auto way : {ConversationWay::kSingle, ConversationWay::kSingleBusy, ConversationWay::kHandoff,
                         ConversationWay::kOverlap, ConversationWay::kIdlePrefill}) {
    if (settings.prefill != settings.decode || !hands_over(way)) ways.push_back(way);
  }
  Bench bench(runtime, settings);
  BATON_OK(bench.check());
  for (uint32_t round = 0; round <= settings.rounds; ++round) {
    for (const ConversationWay way : ways) {
      progress(fmt::format("round {}/{}: {}", round, settings.rounds, to_string(way)));
      BATON_OK(bench.run(way, round > 0));
    }
    std::rotate(ways.begin(), ways.begin() + 1, ways.end());
  }
  return bench.report();
}

}  // namespace baton
