// Which unit prefills a request and which decodes it: a pure function of facts, so that a table tests it and
// `GET /v1/routes` explains it. Predictions are sums of a few figures; each says where it is from.
#pragma once

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "baton/model/model.h"
#include "baton/state/shape.h"

namespace baton {

// Where a figure is from, the weakest first.
enum class FigureFrom : uint8_t {
  kUnknown,
  kEstimated,  // from bytes and operations
  kEmulated,   // measured here, on another device than the unit stands for
  kMeasured,   // measured here
};
std::string_view to_string(FigureFrom from);

struct Speed {
  double per_second = 0;  // tokens, or bytes
  FigureFrom from = FigureFrom::kUnknown;

  bool known() const { return per_second > 0 && from != FigureFrom::kUnknown; }
};

struct RouteModel {
  std::string quantization;        // of most of its matrices: "Q4_K"
  uint64_t weight_bytes = 0;       // of all weights, as stored
  uint64_t token_bytes = 0;        // of the matrices that a decode step reads, as stored
  double token_flops = 0;          // of the matrices: a multiply and an add are two
  uint64_t state_bytes = 0;        // of a state, whatever its position
  uint64_t state_token_bytes = 0;  // and for each token
};
// `shape`: of the states that are moved.
RouteModel route_model(const Model& model, const StateShape& shape);

struct RouteUnit {
  std::string name;                 // as requests name it
  std::string asked = {};           // the same with its options, as it was asked for
  bool emulated = false;            // Caps::emulated
  std::string lost = {};            // why it takes no work; empty: it does
  bool decodes = true;              // false: it only prefills
  uint64_t token_bytes = 0;         // RouteModel's, as the unit keeps them (KeptBytes::token); 0: as stored
  uint32_t prefill_tokens_min = 1;  // fewer take as long
  double waiting_ms = 0;            // until its lane is free for a prefill
  Speed prefill = {}, decode = {};  // tokens; where one is not known it is estimated from
  double read_per_second = 0;       // bytes of weights
  double flops_per_second = 0;      // and operations; 0: not known
};

// What carries states from one unit to another.
struct RouteBridge {
  std::string from, to;
  bool adopts = false;  // memory changes hands: nothing is copied
  Speed bytes = {};
};

struct RouteFacts {
  RouteModel model;
  std::vector<RouteUnit> units;  // as they were asked for: of equal routes the first counts
  std::vector<RouteBridge> bridges;
  double bridge_bytes_per_second = 1e9;  // of pairs that are not among these: an estimate
  uint64_t prompt_tokens = 0;
  uint64_t cached_tokens = 0;  // of the prompt, in a checkpoint that the request may begin from
  uint64_t answer_tokens = 0;  // expected, at least one counts
};

// What a request's time consists of.
enum class RouteTerm : uint8_t { kNone, kWaiting, kPrefill, kMove, kDecode };
std::string_view to_string(RouteTerm term);

struct Route {
  std::string prefill, decode;
  std::string strategy;  // "single", "handoff" or "overlap"
  // Predicted. `move_ms`: what is waited for.
  double waiting_ms = 0, prefill_ms = 0, move_ms = 0, decode_ms = 0;
  double ttft_ms = 0, total_ms = 0;
  FigureFrom from = FigureFrom::kUnknown;  // the weakest of its figures
  // Behind the chosen one: the term that it is most slower in, and by how much.
  RouteTerm loses_by = RouteTerm::kNone;
  double loses_ms = 0;
  std::string impossible = {};   // why it cannot be taken, or predicted; its times are 0
  bool unknown = false;          // it can be taken: only figures are missing
  std::string unpredicted = {};  // of a route that is chosen all the same: why its times are not known, and 0
};

// Routes that predict less than this share of a difference are equal: the figures are no better.
inline constexpr double kRouteTie = 0.01;

// All candidates: the chosen one first, then by their predicted total, last what is impossible. The least total is
// chosen; of those as good the first in the order of units, one unit before two, an overlap before a hand-over. Empty
// without units. Pure.
std::vector<Route> find_routes(const RouteFacts& facts);

// Where none can be predicted: the one of these units (and, where it is among them, of this strategy) is chosen, or the
// only one there is, and moves to the front; why it has no times goes from `impossible` to `unpredicted`.
void choose_unpredicted(std::vector<Route>& routes, std::string_view prefill, std::string_view decode,
                        std::string_view strategy);

// The answer to GET /v1/routes: {model, prompt_tokens, ..., units, routes}.
nlohmann::ordered_json routes_json(std::string_view model, const RouteFacts& facts, const std::vector<Route>& routes);

}  // namespace baton
