// The first lines of `baton inspect`: what a reader wants to know before running a model.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "baton/api/embed_spec.h"
#include "baton/cli/command.h"
#include "baton/unit/unit.h"

namespace baton::cli {

struct MemoryNeed {
  uint64_t weights = 0, state = 0, other = 0;  // estimated bytes
  uint64_t context = 0;                        // tokens of the state
  uint64_t experts = 0;                        // of the weights: what may stay in the file
  uint64_t experts_stored = 0;                 // and its bytes there
  uint64_t total() const { return weights + state + other; }
};
// Of a run on one unit with this context: matrices as that unit keeps them, the state, and what every run needs.
MemoryNeed memory_need(const Model& model, const Unit& unit, const StateShape& shape, uint64_t context);

// What a unit's weights and states lie in.
struct MemoryRoom {
  uint64_t bytes = 0, free_bytes = 0;  // 0: not known
  std::string of = {};                 // the device; empty: the host
};
// Of its device, which is opened for that, or of the host.
Result<MemoryRoom> memory_room(Unit& unit);

// "yes: ...", "no: ...", or "unknown".
std::string fit_text(const MemoryNeed& need, const MemoryRoom& room);

// Bytes that a token's keys and values take, by the types that the unit has: "f16 12.3 kB, ..."; empty: no choice.
std::string kv_bytes_text(const Model& model, std::string_view unit);

// About ten lines. `unit` names the executor's; `embed`: of an encoder, else null.
std::string summary_text(const Model& model, std::string_view unit, const StateShape& shape, const MemoryNeed& need,
                         const MemoryRoom& room, const EmbedSpec* embed);
OrderedJson summary_json(const Model& model, std::string_view unit, const MemoryNeed& need, const MemoryRoom& room);

}  // namespace baton::cli
