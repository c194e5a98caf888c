// The kinds of work: what the scheduler sends to a lane or the bridge, and what comes back. A work owns the states
// and samplers it uses while it is away, so a state has one owner at each moment; results are written into the same
// object. Logits stay on the lane: only sampled ids, comparisons and the one row a caller asked for come back.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "baton/bridge/bridge.h"
#include "baton/bridge/compare.h"
#include "baton/engine/request.h"
#include "baton/engine/strategy.h"
#include "baton/unit/unit.h"

namespace baton {

// Index in the engine's units; the bridge is the index after the last.
using LaneIndex = uint32_t;

// A state with its identity in the books. Empty (`state` null) with an id: still to be made by the lane.
struct HeldState {
  uint64_t id = 0;
  LaneIndex home = 0;  // the lane whose unit made it
  uint64_t bytes = 0;  // that it takes on its unit
  std::unique_ptr<SequenceState> state;
  Provenance provenance;  // of its tokens: who processed them, in which steps; goes where the contents go
};

struct PrefillRow {
  RequestId request = 0;
  StateRole role = StateRole::kTarget;
  HeldState state;
  uint64_t tokens_max = 0;      // for a new state
  std::vector<int32_t> tokens;  // none: only make the state

  Status status;  // of this row alone: its state could not be made, and it was left out
};

// Makes the states that are empty, then processes the tokens of all rows in one call.
struct PrefillWork {
  std::vector<PrefillRow> rows;
  bool want_placement = false;

  Status status;  // of the call: all states are poisoned
  Placement placement;

  uint64_t tokens() const {
    uint64_t sum = 0;
    for (const PrefillRow& row : rows) sum += row.tokens.size();
    return sum;
  }
};

struct MoveWork {
  RequestId request = 0;
  MoveForm form = MoveForm::kCarry;
  StateRole role = StateRole::kTarget;  // kOpen: of `to`
  HeldState from;                       // kCarry, kSeal
  HeldState to;                         // kCarry, kOpen
  std::vector<int32_t> tokens;          // kCarry, kSeal: of the state; kOpen: of the prompt
  std::vector<std::byte> block;         // kOpen: in; kSeal: out

  Status status;
  MoveReport report;
};

// How a request's tokens are drawn, and which of them end it. Travels with the state.
struct TokenPicker {
  Sampler sampler;
  std::vector<int32_t> stop_ids;

  bool stops(int32_t token) const { return std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end(); }
};

struct PickedToken {
  int32_t id = -1;
  int64_t time_ns = 0;  // by the lane's clock
};

struct DecodeRow {
  RequestId request = 0;
  HeldState state;
  std::unique_ptr<TokenPicker> picker;
  int32_t token = 0;         // fed first
  bool want_logits = false;  // of the first step

  Status status;                    // of this row alone: logits that are not numbers
  std::vector<PickedToken> picked;  // one for each step that went well
  std::vector<float> logits;
};

// Up to `steps` decode steps of the same rows, each fed with what the one before picked. Fewer when one picks a stop id
// or fails, or when `ms_max` has passed.
struct DecodeWork {
  std::vector<DecodeRow> rows;
  uint32_t steps = 1;
  double ms_max = 0;
  bool want_placement = false;

  Status status;  // of the last call: all states are poisoned; what was picked before it holds
  Placement placement;
};

// One call of a unit that makes a state.
struct MakeStep {
  bool decodes = false;
  uint32_t tokens = 1;  // of a decode: 1

  friend bool operator==(const MakeStep&, const MakeStep&) = default;
};

// The proof of the states themselves: the target against the decode unit's own, part by part.
struct CompareWork {
  RequestId request = 0;
  HeldState target, proof;      // proof: made when it is empty
  uint64_t tokens_max = 0;      // for a new state
  std::vector<MakeStep> steps;  // of the proof's state, first; compared when they bring it to the target's position
  std::vector<int32_t> tokens;  // of the steps
  ProofBounds bounds;

  Status status;  // of the calls: the proof's state is poisoned
  bool compared = false;
  WorstPart worst;
  std::string worst_at;  // its name
};

// One decode step of both states, and the proof of the logits. Samples from the target's logits when they pass, else
// from the proof's.
struct VerifyWork {
  DecodeRow row;  // row.state: the target
  HeldState proof;
  LogitsBounds bounds;
  bool want_placement = false;

  Status status;  // of the decode calls: both states are poisoned
  Placement placement;
  LogitsDifference difference;
  LogitsVerdict verdict;
};

struct Work {
  uint64_t id = 0;
  LaneIndex lane = 0;
  int64_t started_ns = 0, ended_ns = 0;  // by the lane's clock
  std::variant<PrefillWork, MoveWork, DecodeWork, CompareWork, VerifyWork> body;
};

}  // namespace baton
