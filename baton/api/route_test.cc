// Routes: a table of facts and what follows from them; running averages; what the JSON says.
#include "baton/api/route.h"

#include <gtest/gtest.h>

#include <functional>

#include "baton/api/unit_speeds.h"

namespace baton {
namespace {

constexpr FigureFrom kMeasured = FigureFrom::kMeasured, kEmulated = FigureFrom::kEmulated,
                     kEstimated = FigureFrom::kEstimated;

RouteUnit unit_of(std::string name, double prefill, double decode, FigureFrom from = kMeasured) {
  RouteUnit unit{.name = std::move(name)};
  if (prefill > 0) unit.prefill = {prefill, from};
  if (decode > 0) unit.decode = {decode, from};
  return unit;
}

// A prompt of 1001 tokens and 100 of an answer: "fast" prefills ten times as fast as "cpu" and decodes at half of its
// speed; a state is 10 MB and 10 kB a token, the bridge carries 1 GB/s.
RouteFacts two_units() {
  RouteFacts facts;
  facts.model = {.quantization = "Q4_K",
                 .weight_bytes = 1'000'000'000,
                 .token_bytes = 500'000'000,
                 .token_flops = 2e9,
                 .state_bytes = 10'000'000,
                 .state_token_bytes = 10'000};
  facts.units = {unit_of("cpu", 100, 50), unit_of("fast", 1000, 25)};
  facts.bridges = {{"fast", "cpu", false, {1e9, kMeasured}}, {"cpu", "fast", false, {1e9, kMeasured}}};
  facts.prompt_tokens = 1001;
  facts.answer_tokens = 100;
  return facts;
}

struct RouteCase {
  const char* what;
  std::function<void(RouteFacts&)> change;
  const char* prefill;
  const char* decode;
  const char* strategy;
  double ttft_ms, total_ms;
  FigureFrom from = kMeasured;
};

const RouteCase kCases[] = {
    {"each phase where it is fast", [](RouteFacts&) {}, "fast", "cpu", "overlap", 1000 + 10 + 20, 1000 + 10 + 2000},
    {"a short answer behind a long prompt stays where the prompt is",
     [](RouteFacts& f) { f.answer_tokens = 1, f.units[1].decode.per_second = 49; }, "fast", "fast", "single",
     1000 + 1000.0 / 49, 1000 + 1000.0 / 49},
    {"a long answer behind a short prompt stays where the answer is",
     [](RouteFacts& f) { f.prompt_tokens = 2, f.answer_tokens = 500; }, "cpu", "cpu", "single", 10 + 20, 10 + 10000},
    {"what is cached need not be prefilled", [](RouteFacts& f) { f.cached_tokens = 1000; }, "cpu", "cpu", "single", 20,
     2000},
    {"more is cached than the prompt has", [](RouteFacts& f) { f.cached_tokens = 5000; }, "cpu", "cpu", "single", 20,
     2000},
    {"one token is decoded, nothing is handed over", [](RouteFacts& f) { f.prompt_tokens = 1; }, "cpu", "cpu", "single",
     20, 2000},
    {"a busy lane is left alone", [](RouteFacts& f) { f.units[1].waiting_ms = 20000; }, "cpu", "cpu", "single",
     10000 + 20, 10000 + 2000},
    {"a short wait is waited for", [](RouteFacts& f) { f.units[1].waiting_ms = 500; }, "fast", "cpu", "overlap",
     500 + 1000 + 10 + 20, 500 + 1000 + 10 + 2000},
    {"the decode lane's load hides behind the prefill", [](RouteFacts& f) { f.units[0].waiting_ms = 800; }, "fast",
     "cpu", "overlap", 1000 + 10 + 20, 1000 + 10 + 2000},
    {"as far as it can", [](RouteFacts& f) { f.units[0].waiting_ms = 1510; }, "fast", "cpu", "overlap", 1510 + 20,
     1510 + 2000},
    {"a slow bridge keeps it on one unit",
     [](RouteFacts& f) { f.bridges[0].bytes.per_second = f.bridges[1].bytes.per_second = 1e6; }, "fast", "fast",
     "single", 1000 + 40, 1000 + 4000},
    {"where memory changes hands nothing is gained by overlapping", [](RouteFacts& f) { f.bridges[0].adopts = true; },
     "fast", "cpu", "handoff", 1000 + 20, 1000 + 2000},
    {"an unmeasured bridge is estimated", [](RouteFacts& f) { f.bridges.clear(); }, "fast", "cpu", "overlap",
     1000 + 10 + 20, 1000 + 10 + 2000, kEstimated},
    {"an emulated unit counts as it is here, and says so",
     [](RouteFacts& f) { f.units[1] = unit_of("fast", 1000, 25, kEmulated); }, "fast", "cpu", "overlap", 1030, 3010,
     kEmulated},
    {"equal units: the first", [](RouteFacts& f) { f.units[1] = unit_of("fast", 100, 50); }, "cpu", "cpu", "single",
     10020, 12000},
    {"nearly equal is equal", [](RouteFacts& f) { f.units[1] = unit_of("fast", 100.3, 50.1); }, "cpu", "cpu", "single",
     10020, 12000},
    {"a lost unit is not asked", [](RouteFacts& f) { f.units[1].lost = "gone"; }, "cpu", "cpu", "single", 10020, 12000},
    {"one that only prefills", [](RouteFacts& f) { f.units[1].decodes = false, f.units[1].decode = {}; }, "fast", "cpu",
     "overlap", 1030, 3010},
    {"speeds from bytes and operations",
     [](RouteFacts& f) {
       for (RouteUnit& unit : f.units) unit.prefill = unit.decode = {};
       f.units[0].read_per_second = 25e9, f.units[0].flops_per_second = 200e9;
       f.units[1].read_per_second = 100e9, f.units[1].flops_per_second = 2e12, f.units[1].token_bytes = 4'000'000'000;
     },
     "fast", "cpu", "overlap", 1030, 3010, kEstimated},
    {"a unit that nothing is known of is not guessed",
     [](RouteFacts& f) { f.units[1].prefill = f.units[1].decode = {}; }, "cpu", "cpu", "single", 10020, 12000},
    {"a unit that cannot prefill less", [](RouteFacts& f) { f.units[1].prefill_tokens_min = 5000; }, "fast", "cpu",
     "overlap", 5030, 7010},
};

TEST(Route, TableOfFacts) {
  for (const RouteCase& item : kCases) {
    SCOPED_TRACE(item.what);
    RouteFacts facts = two_units();
    item.change(facts);
    const std::vector<Route> routes = find_routes(facts);
    ASSERT_FALSE(routes.empty());
    const Route& chosen = routes.front();
    EXPECT_EQ(chosen.prefill, item.prefill);
    EXPECT_EQ(chosen.decode, item.decode);
    EXPECT_EQ(chosen.strategy, item.strategy);
    EXPECT_NEAR(chosen.ttft_ms, item.ttft_ms, 1e-6);
    EXPECT_NEAR(chosen.total_ms, item.total_ms, 1e-6);
    EXPECT_EQ(chosen.from, item.from);
    EXPECT_EQ(chosen.loses_by, RouteTerm::kNone);
    double before = 0;
    for (const Route& route : routes) {
      if (!route.impossible.empty()) continue;
      EXPECT_NEAR(route.total_ms, route.waiting_ms + route.prefill_ms + route.move_ms + route.decode_ms, 1e-6);
      EXPECT_GE(route.total_ms * (1 + kRouteTie), chosen.total_ms);
      if (&route == &chosen) continue;
      EXPECT_GE(route.total_ms, before);
      before = route.total_ms;
    }
  }
}

TEST(Route, EveryCandidateIsThereAndSaysWhereItLoses) {
  RouteFacts facts = two_units();
  facts.units.push_back(unit_of("gone", 1e9, 1e9));
  facts.units.back().lost = "a step did not return";
  facts.units.push_back({.name = "new"});
  const std::vector<Route> routes = find_routes(facts);
  EXPECT_EQ(routes.size(), 4u + 2 * 4 * 3);
  const auto find = [&](std::string_view prefill, std::string_view decode, std::string_view strategy) {
    return *std::find_if(routes.begin(), routes.end(), [&](const Route& route) {
      return route.prefill == prefill && route.decode == decode && route.strategy == strategy;
    });
  };
  EXPECT_EQ(find("cpu", "cpu", "single").loses_by, RouteTerm::kPrefill);
  EXPECT_NEAR(find("cpu", "cpu", "single").loses_ms, 9000, 1e-6);
  EXPECT_EQ(find("fast", "fast", "single").loses_by, RouteTerm::kDecode);
  EXPECT_NEAR(find("fast", "fast", "single").loses_ms, 2000, 1e-6);
  EXPECT_EQ(find("fast", "cpu", "handoff").loses_by, RouteTerm::kMove);
  EXPECT_NEAR(find("fast", "cpu", "handoff").loses_ms, 10, 1e-6);
  EXPECT_EQ(find("gone", "cpu", "handoff").impossible, "unit 'gone' is lost: a step did not return");
  EXPECT_EQ(find("cpu", "new", "overlap").impossible, "nothing is known of how fast 'new' decodes this model");
  EXPECT_EQ(find("new", "cpu", "overlap").impossible, "nothing is known of how fast 'new' prefills this model");
  for (size_t i = 1; i < routes.size(); ++i)
    EXPECT_TRUE(!routes[i].impossible.empty() || routes[i - 1].impossible.empty()) << "the impossible come last";
  facts.units[1].waiting_ms = 20000;
  for (const Route& route : find_routes(facts)) {
    const bool waits = route.prefill == "fast" && route.decode == "cpu";
    EXPECT_TRUE(!waits || route.loses_by == RouteTerm::kWaiting);
  }
  facts.units.resize(1);
  facts.units[0].lost = "gone";
  EXPECT_FALSE(find_routes(facts).front().impossible.empty());
  facts.units.clear();
  EXPECT_TRUE(find_routes(facts).empty());
}

TEST(Route, WhatNobodyKnowsIsChosenWhereItIsAskedForOrTheOnlyWay) {
  RouteFacts facts = two_units();
  facts.units = {{.name = "cpu"}};
  auto routes = find_routes(facts);
  EXPECT_FALSE(routes.front().impossible.empty());
  choose_unpredicted(routes, "", "", "single");
  EXPECT_EQ(routes.front().impossible, "");
  EXPECT_EQ(routes.front().unpredicted, "nothing is known of how fast 'cpu' decodes this model");
  const auto json = routes_json("m", facts, routes)["routes"][0];
  EXPECT_EQ(json["chosen"], true);
  EXPECT_TRUE(json["total_ms"].is_null() && json["ttft_ms"].is_null());
  EXPECT_EQ(json["figures"], "unknown");
  EXPECT_EQ(json["unpredicted"], routes.front().unpredicted);
  EXPECT_FALSE(json.contains("impossible"));
  // Of several the one that was asked for, or none.
  facts.units = {{.name = "cpu"}, {.name = "fast"}};
  const auto chosen = [&](std::string_view prefill, std::string_view decode, std::string_view strategy) {
    auto found = find_routes(facts);
    choose_unpredicted(found, prefill, decode, strategy);
    const Route& first = found.front();
    return first.impossible.empty() ? first.prefill + " " + first.decode + " " + first.strategy : "";
  };
  EXPECT_EQ(chosen("", "", "single"), "");
  EXPECT_EQ(chosen("fast", "cpu", "handoff"), "fast cpu handoff");
  EXPECT_EQ(chosen("fast", "cpu", "overlap"), "fast cpu overlap");
  EXPECT_EQ(chosen("fast", "fast", "overlap"), "fast fast single");
  facts.units[1].lost = "a step did not return";
  EXPECT_EQ(chosen("fast", "cpu", "handoff"), "cpu cpu single") << "the only one that is left";
  facts.units[0].lost = "gone";
  EXPECT_EQ(chosen("cpu", "cpu", "single"), "") << "what is lost cannot be taken";
  facts = two_units();
  EXPECT_EQ(chosen("cpu", "cpu", "single"), "fast cpu overlap") << "what is predicted stays";
}

TEST(Route, OfAModel) {
  const auto model = load_model(std::filesystem::path(BATON_SOURCE_DIR) / "tests" / "data" / "golden" / "tiny-qwen3.5");
  ASSERT_TRUE(model) << model.error().message;
  const StateShape shape = state_shape((*model)->program, DType::kF32);
  const RouteModel made = route_model(**model, shape);
  EXPECT_EQ(made.weight_bytes, (*model)->weight_bytes());
  EXPECT_GT(made.token_bytes, 0u);
  EXPECT_LE(made.token_bytes, made.weight_bytes);
  EXPECT_EQ(made.state_bytes + 10 * made.state_token_bytes, section_bytes(shape, 10));
  EXPECT_FALSE(made.quantization.empty());
}

TEST(Route, AsJson) {
  RouteFacts facts = two_units();
  facts.units.push_back(unit_of("gone", 1, 1, kEmulated));
  facts.units.back().lost = "a step did not return";
  const auto json = routes_json("m", facts, find_routes(facts));
  EXPECT_EQ(json["model"], "m");
  EXPECT_EQ(json["prompt_tokens"], 1001);
  EXPECT_EQ(json["facts"]["quantization"], "Q4_K");
  EXPECT_EQ(json["units"][0]["prefill_tokens"]["per_second"], 100.0);
  EXPECT_EQ(json["units"][2]["decode_tokens"]["from"], "emulated");
  EXPECT_EQ(json["units"][2]["lost"], "a step did not return");
  const auto& first = json["routes"][0];
  EXPECT_EQ(first["prefill"], "fast");
  EXPECT_EQ(first["chosen"], true);
  EXPECT_EQ(first["total_ms"], 3010.0);
  EXPECT_EQ(first["terms"]["move_ms"], 10.0);
  EXPECT_EQ(first["figures"], "measured");
  EXPECT_TRUE(first["loses_by"].is_null());
  EXPECT_EQ(json["routes"][1]["chosen"], false);
  EXPECT_EQ(json["routes"][1]["loses_by"]["term"], "move");
  EXPECT_TRUE(json["routes"].back().contains("impossible"));
  facts.units.erase(facts.units.begin(), facts.units.begin() + 2);
  EXPECT_EQ(routes_json("m", facts, find_routes(facts))["routes"][0]["chosen"], false) << "nothing can be chosen";
}

RequestStats stats_of(double prefill_tps, double decode_tps, BridgeKind kind = BridgeKind::kMove) {
  RequestStats stats;
  stats.prefill = {.unit = "fast", .asked = "fast:device=1", .ran = "fast", .evidence = ""};
  stats.decode = {.unit = "cpu", .asked = "cpu:threads=2", .ran = "cpu", .evidence = ""};
  stats.prefill_tokens = 1000;
  stats.prefill_ms = 1000 * 1000 / prefill_tps;
  stats.generated_tokens = 101;
  stats.decode_tps = decode_tps;
  stats.bridge.kind = kind;
  stats.bridge.bytes = kind == BridgeKind::kMove ? 2'000'000 : 0;
  stats.bridge.ms = 4;
  return stats;
}

TEST(UnitSpeeds, FollowWhatRequestsShow) {
  UnitSpeeds speeds;
  RouteFacts facts = two_units();
  for (RouteUnit& unit : facts.units) unit.prefill = unit.decode = {};
  facts.bridges.clear();
  speeds.fill(facts);
  EXPECT_FALSE(facts.units[0].decode.known());
  EXPECT_TRUE(facts.bridges.empty());
  speeds.learn(stats_of(800, 40));
  speeds.fill(facts);
  EXPECT_NEAR(facts.units[1].prefill.per_second, 800, 1e-6);
  EXPECT_NEAR(facts.units[0].decode.per_second, 40, 1e-6);
  EXPECT_EQ(facts.units[0].decode.from, kMeasured);
  EXPECT_FALSE(facts.units[0].prefill.known());
  ASSERT_EQ(facts.bridges.size(), 1u);
  EXPECT_EQ(facts.bridges[0].from, "fast");
  EXPECT_NEAR(facts.bridges[0].bytes.per_second, 5e8, 1);
  // Of a unit that became slower half is believed after kHalfTokens, and nearly all soon.
  double before = 800;
  for (int i = 0; i < 60; ++i) {
    speeds.learn(stats_of(200, 10, BridgeKind::kAdopt));
    speeds.fill(facts);
    EXPECT_LT(facts.units[1].prefill.per_second, before);
    before = facts.units[1].prefill.per_second;
  }
  EXPECT_NEAR(before, 200, 1);
  EXPECT_TRUE(facts.bridges.back().adopts);
}

TEST(UnitSpeeds, LearnNothingFromWhatDidNotRunAsAsked) {
  const auto learned = [](const std::function<void(RequestStats&)>& change) {
    UnitSpeeds speeds;
    RequestStats stats = stats_of(800, 40);
    change(stats);
    speeds.learn(stats);
    RouteFacts facts = two_units();
    for (RouteUnit& unit : facts.units) unit.prefill = unit.decode = {};
    facts.bridges.clear();
    speeds.fill(facts);
    return std::tuple(facts.units[1].prefill.known(), facts.units[0].decode.known(), facts.bridges.size());
  };
  EXPECT_EQ(learned([](RequestStats&) {}), std::tuple(true, true, 1u));
  EXPECT_EQ(learned([](RequestStats& s) { s.fallback = "the device failed"; }), std::tuple(false, false, 0u));
  EXPECT_EQ(learned([](RequestStats& s) { s.preempted = 1; }), std::tuple(false, false, 0u));
  EXPECT_EQ(learned([](RequestStats& s) { s.prefill.ran.clear(), s.prefill_tokens = 0, s.prefill_ms = 0; }),
            std::tuple(false, true, 1u));
  EXPECT_EQ(learned([](RequestStats& s) { s.generated_tokens = 1, s.decode_tps = 0; }), std::tuple(true, false, 1u));
  EXPECT_EQ(learned([](RequestStats& s) { s.prefill_ms = 0; }), std::tuple(false, true, 1u));
  EXPECT_EQ(learned([](RequestStats& s) { s.via.unit = "via"; }), std::tuple(true, true, 0u));
  UnitSpeeds speeds;
  RequestStats stats = stats_of(800, 40);
  stats.prefill.emulated = true;
  speeds.learn(stats);
  RouteFacts facts = two_units();
  speeds.fill(facts);
  EXPECT_EQ(facts.units[1].prefill.from, kEmulated);
  EXPECT_EQ(facts.units[0].decode.from, kMeasured);
}

TEST(LaneLoads, AreThePrefillsUnderWay) {
  LaneLoads loads;
  Route route = find_routes(two_units()).front();
  loads.begin(1, route);
  loads.begin(2, route);
  EXPECT_NEAR(loads.waiting_ms("fast"), 2000, 1e-6);
  EXPECT_EQ(loads.waiting_ms("cpu"), 0);
  loads.prefilled(1);
  loads.prefilled(1);
  RouteFacts facts = two_units();
  loads.fill(facts);
  EXPECT_NEAR(facts.units[1].waiting_ms, 1000, 1e-6);
  loads.prefilled(2);
  EXPECT_EQ(loads.waiting_ms("fast"), 0);
}

TEST(MeasureSpeeds, OfEachUnit) {
  RuntimeOptions options;
  options.model = std::filesystem::path(BATON_SOURCE_DIR) / "tests" / "data" / "golden" / "tiny-qwen3.5";
  options.units = {"ref", "cpu"};
  auto runtime = Runtime::open(options);
  ASSERT_TRUE(runtime) << runtime.error().message;
  UnitSpeeds speeds;
  const Status measured = measure_speeds(**runtime, options.units, speeds);
  ASSERT_TRUE(measured) << measured.error().message;
  RouteFacts facts;
  facts.units = {{.name = "ref"}, {.name = "cpu"}};
  speeds.fill(facts);
  for (const RouteUnit& unit : facts.units) {
    EXPECT_TRUE(unit.prefill.known()) << unit.name;
    EXPECT_TRUE(unit.decode.known()) << unit.name;
    EXPECT_EQ(unit.decode.from, kMeasured);
  }
  EXPECT_EQ(measure_speeds(**runtime, options.units, speeds, [] { return false; }).error().code, Code::kCancelled);
  const std::vector<std::string> wrong = {"npu"};
  EXPECT_EQ(measure_speeds(**runtime, wrong, speeds).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace baton
