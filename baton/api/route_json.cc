// Routes as GET /v1/routes tells them.
#include <cmath>

#include "baton/api/route.h"

namespace baton {
namespace {

using RoutesJson = nlohmann::ordered_json;

// To a microsecond; more is noise.
double rounded(double value) { return std::round(value * 1000) / 1000; }

RoutesJson speed_json(const Speed& speed) {
  if (!speed.known()) return nullptr;
  return {{"per_second", rounded(speed.per_second)}, {"from", to_string(speed.from)}};
}

RoutesJson route_json(const Route& route, bool chosen) {
  RoutesJson json = {
      {"prefill", route.prefill}, {"decode", route.decode}, {"strategy", route.strategy}, {"chosen", chosen}};
  if (!route.impossible.empty()) {
    json["impossible"] = route.impossible;
    return json;
  }
  if (!route.unpredicted.empty()) {
    for (const char* name : {"ttft_ms", "total_ms", "terms", "loses_by"}) json[name] = nullptr;
    json["figures"] = to_string(FigureFrom::kUnknown);
    json["unpredicted"] = route.unpredicted;
    return json;
  }
  json["ttft_ms"] = rounded(route.ttft_ms);
  json["total_ms"] = rounded(route.total_ms);
  json["terms"] = {{"waiting_ms", rounded(route.waiting_ms)},
                   {"prefill_ms", rounded(route.prefill_ms)},
                   {"move_ms", rounded(route.move_ms)},
                   {"decode_ms", rounded(route.decode_ms)}};
  json["figures"] = to_string(route.from);
  json["loses_by"] = nullptr;
  if (route.loses_by != RouteTerm::kNone)
    json["loses_by"] = {{"term", to_string(route.loses_by)}, {"ms", rounded(route.loses_ms)}};
  return json;
}

}  // namespace

std::string_view to_string(FigureFrom from) {
  switch (from) {
    case FigureFrom::kUnknown:
      return "unknown";
    case FigureFrom::kEstimated:
      return "estimated";
    case FigureFrom::kEmulated:
      return "emulated";
    case FigureFrom::kMeasured:
      return "measured";
  }
  return "unknown";
}

std::string_view to_string(RouteTerm term) {
  switch (term) {
    case RouteTerm::kNone:
      return "none";
    case RouteTerm::kWaiting:
      return "waiting";
    case RouteTerm::kPrefill:
      return "prefill";
    case RouteTerm::kMove:
      return "move";
    case RouteTerm::kDecode:
      return "decode";
  }
  return "none";
}

RoutesJson routes_json(std::string_view model, const RouteFacts& facts, const std::vector<Route>& routes) {
  RoutesJson json = {{"object", "routes"},
                     {"model", model},
                     {"prompt_tokens", facts.prompt_tokens},
                     {"cached_tokens", facts.cached_tokens},
                     {"answer_tokens", facts.answer_tokens},
                     {"facts",
                      {{"quantization", facts.model.quantization},
                       {"weight_bytes", facts.model.weight_bytes},
                       {"token_bytes", facts.model.token_bytes},
                       {"token_flops", facts.model.token_flops},
                       {"state_bytes", facts.model.state_bytes},
                       {"state_token_bytes", facts.model.state_token_bytes}}}};
  json["units"] = RoutesJson::array();
  for (const RouteUnit& unit : facts.units) {
    RoutesJson& item = json["units"].emplace_back(
        RoutesJson{{"name", unit.name},
                   {"asked", unit.asked},
                   {"emulated", unit.emulated},
                   {"decodes", unit.decodes},
                   {"waiting_ms", rounded(unit.waiting_ms)},
                   {"token_bytes", unit.token_bytes > 0 ? unit.token_bytes : facts.model.token_bytes},
                   {"prefill_tokens", speed_json(unit.prefill)},
                   {"decode_tokens", speed_json(unit.decode)}});
    if (!unit.lost.empty()) item["lost"] = unit.lost;
  }
  json["bridges"] = RoutesJson::array();
  for (const RouteBridge& bridge : facts.bridges) {
    json["bridges"].push_back(
        {{"from", bridge.from}, {"to", bridge.to}, {"adopts", bridge.adopts}, {"bytes", speed_json(bridge.bytes)}});
  }
  json["routes"] = RoutesJson::array();
  for (const Route& route : routes)
    json["routes"].push_back(route_json(route, &route == &routes.front() && route.impossible.empty()));
  return json;
}

}  // namespace baton
