// Candidates and their predicted times.
#include "baton/api/route.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

namespace baton {
namespace {

// Of the better known of both figures, or from sizes. Unknown: nothing tells.
Speed decode_speed(const RouteUnit& unit, const RouteModel& model) {
  if (unit.decode.known()) return unit.decode;
  const uint64_t bytes = unit.token_bytes > 0 ? unit.token_bytes : model.token_bytes;
  if (unit.read_per_second <= 0 || bytes == 0) return {};
  return {unit.read_per_second / static_cast<double>(bytes), FigureFrom::kEstimated};
}

Speed prefill_speed(const RouteUnit& unit, const RouteModel& model) {
  if (unit.prefill.known()) return unit.prefill;
  if (unit.flops_per_second > 0 && model.token_flops > 0)
    return {unit.flops_per_second / model.token_flops, FigureFrom::kEstimated};
  // No slower than token by token.
  const Speed decode = decode_speed(unit, model);
  return decode.known() ? Speed{decode.per_second, FigureFrom::kEstimated} : Speed{};
}

double ms_of(double count, const Speed& speed) { return count <= 0 ? 0 : count * 1000 / speed.per_second; }

const RouteBridge* find_bridge(const RouteFacts& facts, std::string_view from, std::string_view to) {
  for (const RouteBridge& each : facts.bridges) {
    if (each.from == from && each.to == to) return &each;
  }
  return nullptr;
}

class RoutePredictor {
 public:
  explicit RoutePredictor(const RouteFacts& facts) : facts_(facts) {}

  Route predict(const RouteUnit& prefill, const RouteUnit& decode, std::string_view strategy) const {
    Route route{.prefill = prefill.name, .decode = decode.name, .strategy = std::string(strategy)};
    for (const RouteUnit* unit : {&prefill, &decode}) {
      if (unit->lost.empty()) continue;
      route.impossible = "unit '" + unit->name + "' is lost: " + unit->lost;
      return route;
    }
    const uint64_t prompt = std::max<uint64_t>(facts_.prompt_tokens, 1);
    const uint64_t fresh = prompt - 1 - std::min(facts_.cached_tokens, prompt - 1);
    const Speed prefills = prefill_speed(prefill, facts_.model), decodes = decode_speed(decode, facts_.model);
    if (!decodes.known()) return unknown(std::move(route), "decode", decode);
    if (fresh > 0 && !prefills.known()) return unknown(std::move(route), "prefill", prefill);
    route.from = decodes.from;
    if (fresh > 0) {
      route.from = std::min(route.from, prefills.from);
      route.prefill_ms = ms_of(static_cast<double>(std::max<uint64_t>(fresh, prefill.prefill_tokens_min)), prefills);
    }
    // A prompt that is known but for its last token waits for no prefill lane.
    route.waiting_ms = fresh > 0 ? prefill.waiting_ms : 0;
    if (prefill.name != decode.name) {
      move(prefill.name, decode.name, strategy == "overlap", prompt - 1, route);
      const double ready_ms = route.waiting_ms + route.prefill_ms + route.move_ms;
      route.waiting_ms += std::max(0.0, decode.waiting_ms - ready_ms);
    } else if (fresh == 0) {
      route.waiting_ms = decode.waiting_ms;
    }
    const double token_ms = ms_of(1, decodes);
    route.decode_ms = token_ms * static_cast<double>(std::max<uint64_t>(facts_.answer_tokens, 1));
    route.ttft_ms = route.waiting_ms + route.prefill_ms + route.move_ms + token_ms;
    route.total_ms = route.waiting_ms + route.prefill_ms + route.move_ms + route.decode_ms;
    return route;
  }

 private:
  static Route unknown(Route route, const char* what, const RouteUnit& unit) {
    route.impossible = "nothing is known of how fast '" + unit.name + "' " + what + "s this model";
    route.unknown = true;
    return route;
  }

  void move(const std::string& from, const std::string& to, bool overlaps, uint64_t tokens, Route& route) const {
    const RouteBridge* known = find_bridge(facts_, from, to);
    if (known != nullptr && known->adopts) return;
    const bool measured = known != nullptr && known->bytes.known();
    const Speed speed = measured ? known->bytes : Speed{facts_.bridge_bytes_per_second, FigureFrom::kEstimated};
    route.from = std::min(route.from, speed.from);
    const double fixed_ms = ms_of(static_cast<double>(facts_.model.state_bytes), speed);
    const double grown_ms =
        ms_of(static_cast<double>(facts_.model.state_token_bytes) * static_cast<double>(tokens), speed);
    // Keys and values leave while later tokens are computed; the rest is final behind the last of them.
    route.move_ms = fixed_ms + (overlaps ? std::max(0.0, grown_ms - route.prefill_ms) : grown_ms);
  }

  const RouteFacts& facts_;
};

void find_loss(const Route& chosen, Route& route) {
  const std::pair<RouteTerm, double> terms[] = {{RouteTerm::kWaiting, route.waiting_ms - chosen.waiting_ms},
                                                {RouteTerm::kPrefill, route.prefill_ms - chosen.prefill_ms},
                                                {RouteTerm::kMove, route.move_ms - chosen.move_ms},
                                                {RouteTerm::kDecode, route.decode_ms - chosen.decode_ms}};
  for (const auto& [term, ms] : terms) {
    if (ms > route.loses_ms) route.loses_by = term, route.loses_ms = ms;
  }
}

}  // namespace

std::vector<Route> find_routes(const RouteFacts& facts) {
  const RoutePredictor predictor(facts);
  std::vector<Route> routes;
  for (const RouteUnit& unit : facts.units) {
    if (unit.decodes) routes.push_back(predictor.predict(unit, unit, "single"));
  }
  for (const std::string_view strategy : {"overlap", "handoff"}) {
    for (const RouteUnit& prefill : facts.units) {
      for (const RouteUnit& decode : facts.units) {
        // A prompt of one token is decoded, and nothing handed over.
        if (prefill.name == decode.name || !decode.decodes || facts.prompt_tokens < 2) continue;
        const RouteBridge* bridge = find_bridge(facts, prefill.name, decode.name);
        if (strategy == "overlap" && bridge != nullptr && bridge->adopts) continue;  // nothing is copied
        routes.push_back(predictor.predict(prefill, decode, strategy));
      }
    }
  }
  const auto possible_end =
      std::stable_partition(routes.begin(), routes.end(), [](const Route& route) { return route.impossible.empty(); });
  if (possible_end == routes.begin()) return routes;
  const auto faster = [](const Route& a, const Route& b) { return a.total_ms < b.total_ms; };
  const double least = std::min_element(routes.begin(), possible_end, faster)->total_ms;
  const auto chosen = std::find_if(routes.begin(), possible_end,
                                   [&](const Route& route) { return route.total_ms <= least * (1 + kRouteTie); });
  std::rotate(routes.begin(), chosen, chosen + 1);
  std::stable_sort(routes.begin() + 1, possible_end, faster);
  for (auto route = routes.begin() + 1; route != possible_end; ++route) find_loss(routes.front(), *route);
  return routes;
}

void choose_unpredicted(std::vector<Route>& routes, std::string_view prefill, std::string_view decode,
                        std::string_view strategy) {
  if (routes.empty() || routes.front().impossible.empty()) return;
  auto taken = routes.end(), only = routes.end();
  int ways = 0;
  for (auto route = routes.begin(); route != routes.end(); ++route) {
    if (!route->unknown) continue;
    only = route;
    ++ways;
    if (route->prefill != prefill || route->decode != decode) continue;
    if (taken == routes.end() || route->strategy == strategy) taken = route;
  }
  if (taken == routes.end() && ways == 1) taken = only;
  if (taken == routes.end()) return;
  taken->unpredicted = std::exchange(taken->impossible, {});
  std::rotate(routes.begin(), taken, taken + 1);
}

RouteModel route_model(const Model& model, const StateShape& shape) {
  RouteModel made;
  std::map<DType, uint64_t> by_type;
  const auto add = [&](WeightId id, uint64_t times) {
    const Weight& weight = model.weights[static_cast<size_t>(id)];
    const auto values = static_cast<uint64_t>(weight.rows * weight.columns) * times;
    made.token_bytes += weight.bytes * times;
    made.token_flops += 2 * static_cast<double>(values);
    by_type[weight.dtype] += weight.bytes * times;
  };
  for (const Op& op : model.program.ops) {
    if (op.kind == OpKind::kLinear || op.kind == OpKind::kHead) add(op.weights[Op::kMatrix], 1);
    if (op.kind != OpKind::kExperts) continue;
    add(op.weights[Op::kRouter], 1);
    for (const size_t part : {Op::kGates, Op::kUps, Op::kDowns})
      add(op.weights[part], static_cast<uint64_t>(op.experts_used));
  }
  const auto most = std::max_element(by_type.begin(), by_type.end(),
                                     [](const auto& a, const auto& b) { return a.second < b.second; });
  if (most != by_type.end()) made.quantization = to_string(most->first);
  made.weight_bytes = model.weight_bytes();
  made.state_bytes = section_bytes(shape, 0);
  made.state_token_bytes = section_bytes(shape, 1) - made.state_bytes;
  return made;
}

}  // namespace baton
