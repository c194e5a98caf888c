// What is said of how an answer was made: the `baton` object of answers, and the phases of the timeline.
#pragma once

#include <nlohmann/json.hpp>

#include "baton/engine/request.h"

namespace baton::serve {

// The extension object. `queue_ms`: of the server's queue, in front of the engine's.
nlohmann::ordered_json extension_json(const RequestStats& stats, double queue_ms);
nlohmann::ordered_json bridge_json(const BridgeStats& bridge);
// Of one that arrived and was given to the engine then, by the timeline's clock.
nlohmann::ordered_json phases_json(const RequestStats& stats, double arrived_ms, double submitted_ms);
// A message without folders of this machine: what stays of a path is its last part.
std::string without_paths(std::string_view message);

}  // namespace baton::serve
