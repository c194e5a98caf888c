// Faded sums, and the requests that are measured.
#include "baton/api/unit_speeds.h"

#include <algorithm>
#include <cmath>

#include "baton/base/random.h"

namespace baton {
namespace {

constexpr double kHalfBytes = 1e9;
constexpr uint64_t kPromptTokens = 65, kAnswerTokens = 8;

}  // namespace

void UnitSpeeds::Average::add(double more, double took_ms, double half, bool was_emulated) {
  if (!(more > 0) || !(took_ms > 0)) return;
  const double kept = std::exp2(-more / half);
  count = count * kept + more;
  ms = ms * kept + took_ms;
  emulated = was_emulated;
}

Speed UnitSpeeds::Average::speed() const {
  if (ms <= 0) return {};
  return {count * 1000 / ms, emulated ? FigureFrom::kEmulated : FigureFrom::kMeasured};
}

void UnitSpeeds::learn(const RequestStats& stats) {
  if (!stats.fallback.empty() || stats.preempted > 0) return;
  const std::lock_guard lock(mutex_);
  if (!stats.prefill.ran.empty()) {
    units_[stats.prefill.unit].prefill.add(static_cast<double>(stats.prefill_tokens), stats.prefill_ms, kHalfTokens,
                                           stats.prefill.emulated);
  }
  if (!stats.decode.ran.empty() && stats.decode_tps > 0 && stats.generated_tokens > stats.via_tokens + 1) {
    const auto tokens = static_cast<double>(stats.generated_tokens - stats.via_tokens - 1);
    units_[stats.decode.unit].decode.add(tokens, tokens * 1000 / stats.decode_tps, kHalfTokens, stats.decode.emulated);
  }
  // With a via unit there are two moves in the figures.
  if (!stats.via.unit.empty() || stats.prefill.unit == stats.decode.unit) return;
  OfPair& pair = pairs_[{stats.prefill.unit, stats.decode.unit}];
  if (stats.bridge.kind == BridgeKind::kAdopt) pair.adopts = true;
  if (stats.bridge.kind != BridgeKind::kMove) return;
  pair.adopts = false;
  pair.bytes.add(static_cast<double>(stats.bridge.bytes), stats.bridge.ms, kHalfBytes,
                 stats.prefill.emulated || stats.decode.emulated);
}

void UnitSpeeds::fill(RouteFacts& facts) const {
  const std::lock_guard lock(mutex_);
  for (RouteUnit& unit : facts.units) {
    const auto found = units_.find(unit.name);
    if (found == units_.end()) continue;
    if (const Speed speed = found->second.prefill.speed(); speed.known()) unit.prefill = speed;
    if (const Speed speed = found->second.decode.speed(); speed.known()) unit.decode = speed;
  }
  for (const auto& [units, pair] : pairs_) {
    const auto is_there = [&](const std::string& name) {
      return std::any_of(facts.units.begin(), facts.units.end(),
                         [&](const RouteUnit& unit) { return unit.name == name; });
    };
    if (!is_there(units.first) || !is_there(units.second) || (!pair.adopts && !pair.bytes.speed().known())) continue;
    facts.bridges.push_back({units.first, units.second, pair.adopts, pair.bytes.speed()});
  }
}

void LaneLoads::begin(uint64_t id, const Route& route) {
  const std::lock_guard lock(mutex_);
  open_[id] = {route.prefill, route.prefill_ms};
}

void LaneLoads::prefilled(uint64_t id) {
  const std::lock_guard lock(mutex_);
  open_.erase(id);
}

double LaneLoads::waiting_ms(const std::string& unit) const {
  const std::lock_guard lock(mutex_);
  double sum = 0;
  for (const auto& [id, load] : open_) sum += load.first == unit ? load.second : 0;
  return sum;
}

void LaneLoads::fill(RouteFacts& facts) const {
  for (RouteUnit& unit : facts.units) unit.waiting_ms = waiting_ms(unit.name);
}

Status measure_speeds(Runtime& runtime, std::span<const std::string> units, UnitSpeeds& speeds,
                      const std::function<bool()>& go_on) {
  Random random(1);
  std::vector<int32_t> tokens;
  const auto vocab = static_cast<uint64_t>(runtime.model().program.vocab);
  const uint64_t room = runtime.context_tokens();
  const uint64_t answer = std::min(kAnswerTokens, room), prompt = std::clamp<uint64_t>(room - answer, 1, kPromptTokens);
  for (uint64_t i = 0; i < prompt; ++i) tokens.push_back(static_cast<int32_t>(random.below(vocab)));
  for (const std::string& unit : units) {
    CompletionRequest request;
    request.request = runtime.make_request(tokens);
    request.request.max_new_tokens = static_cast<uint32_t>(answer);
    request.request.ignore_eos = true;
    request.request.prefill_unit = request.request.decode_unit = unit;
    for (const bool counts : {false, true}) {
      if (go_on && !go_on()) return fail(Code::kCancelled, "measuring the units was cancelled");
      auto made = runtime.complete(request, {}, {});
      if (!made && made.error().code == Code::kUnsupported && request.request.decode_unit == unit) {
        request.request.decode_unit = runtime.make_request(tokens).decode_unit;
        made = runtime.complete(request, {}, {});
      }
      if (!made) return fail(Error(made.error()).in("measuring '" + unit + "'"));
      if (counts) speeds.learn(made->stats);
    }
  }
  return {};
}

}  // namespace baton
