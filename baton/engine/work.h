// What the scheduler sends to a lane or the bridge, and what comes back: four kinds of work. A work owns the states and
// pickers it uses while it is away, so a state has one owner at each moment; results are written into the same object.
// Logits stay on the lane: only sampled ids, comparisons and the one row a caller asked for come back.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <variant>
#include <vector>

#include "baton/bridge/bridge.h"
#include "baton/bridge/checkpoint.h"
#include "baton/bridge/compare.h"
#include "baton/engine/request.h"
#include "baton/engine/strategy.h"
#include "baton/unit/unit.h"

namespace baton {

// A lane: one unit and the thread that it is used from. Index in the engine's units; the bridge is the index after the
// last.
using LaneIndex = uint32_t;

// A state with its identity in the books. Empty (`state` null) with an id: still to be made by the lane, which makes
// what is empty before it does anything else.
struct HeldState {
  uint64_t id = 0;
  LaneIndex home = 0;       // the lane whose unit made it
  uint64_t tokens_max = 0;  // its room
  uint64_t bytes = 0;       // that it took on its unit behind its last step
  std::unique_ptr<SequenceState> state;
  Provenance provenance;  // of its tokens: who processed them, in which steps; goes where the contents go
  bool exact = true;      // made by its home's prefills alone, as ReuseMode::kExact asks for
  std::shared_ptr<const Checkpoint> kept = {};  // what its contents were restored from or kept as last
  std::unique_ptr<StateStream> stream = {};     // that fills it, when it was begun and is not whole
};

struct MakeWork {
  RequestId request = 0;
  StateRole role = StateRole::kTarget;
  HeldState state;

  Status status;
};

struct MoveWork {
  RequestId request = 0;
  MoveForm form = MoveForm::kCarry;
  StateRole role = StateRole::kTarget;  // kCarry, kSeal, kKeep: of `from`; kOpen, kRestore: of `to`
  HeldState from;
  StateRole to_role = StateRole::kTarget;  // kCarry
  HeldState to;
  std::vector<int32_t> tokens;         // kCarry, kSeal, kKeep: of the state; kOpen, and kRestore from a file: of the
                                       // prompt
  CheckpointMemory* memory = nullptr;  // kKeep
  AtRest at_rest = AtRest::kAsIs;      // kKeep
  SealSource start;                    // kOpen; kRestore from a file
  SealTaker take;                      // kSeal: none, or whom it goes to
  bool want_block = false;             // kSeal

  KeptState checkpoint;  // kRestore: what from; kKeep: what was made
  std::vector<std::byte> block;
  Status status;
  MoveReport report;
};

// How a request's tokens are drawn, and which of them end it. Travels with the state.
struct TokenPicker {
  Sampler sampler;
  std::vector<int32_t> stop_ids;

  bool stops(int32_t token) const { return std::find(stop_ids.begin(), stop_ids.end(), token) != stop_ids.end(); }
};

// A request's part of a step: a run of its tokens that is prefilled or, with a picker, a token that is decoded.
struct StepSeat {
  RequestId request = 0;
  StateRole role = StateRole::kTarget;
  HeldState state;
  std::vector<int32_t> tokens;  // decoded: the one that is fed first
  std::unique_ptr<TokenPicker> picker;
  bool want_logits = false;  // decoded: of the first call
  // Prefilled: the token behind each of `tokens`, whose logprobs are wanted beside so many alternatives; empty: none.
  // The first of them is this token of the prompt.
  std::vector<int32_t> scored;
  uint32_t scored_top = 0;
  uint64_t scored_from = 0;
  // With into_tokens: a state of another lane's unit, at position 0. What the step brings is moved there meanwhile;
  // with the last of so many tokens it has all that `state` had.
  HeldState into = {};
  uint64_t into_tokens = 0;
  StreamSource source = StreamSource::kStays;  // kGoes: `state` may hold nothing behind the last of them

  Status status;  // of this seat alone: no state could be made, no token drawn, or logits that are not numbers
  Draws draws;    // its ids: one for each call that went well, by the lane's clock
  std::vector<float> logits;
  std::vector<Logprobs> scores;  // one of each of `scored`
  Status moved;                  // of the move; the step may have gone well all the same
  bool arrived = false;          // `into` is whole
  MoveReport report;             // when it is: of all steps
  // How long the step waited for the move: part of its time, the last of it.
  double waited_ms = 0;

  bool decodes() const { return picker != nullptr; }
  bool streams() const { return into_tokens > 0; }
};

// Up to `calls` steps of the unit with the same seats, more than one only where all decode: Executor::step_on. None
// begins when `ms_max` have passed.
struct StepWork {
  std::vector<StepSeat> seats;  // those that decode are the last
  uint32_t calls = 1;
  double ms_max = 0;

  Status status;  // of the last step: all states are poisoned; what was drawn before it holds

  uint64_t prefill_tokens() const {
    uint64_t sum = 0;
    for (const StepSeat& seat : seats) sum += seat.decodes() ? 0 : seat.tokens.size();
    return sum;
  }
};

// One call of a unit that makes a state.
struct MakeStep {
  bool decodes = false;
  uint32_t tokens = 1;  // of a decode: 1

  friend bool operator==(const MakeStep&, const MakeStep&) = default;
};

// The proof: the target against a state that its unit made wholly by itself. With a picker in the target's seat that of
// the logits: one decode of both, sampled from the target's logits when they pass, else from the proof's. Without, that
// of the states themselves, part by part.
struct ProveWork {
  StepSeat seat;  // the target; without a picker its tokens are those of `steps`
  HeldState proof;
  std::vector<MakeStep> steps;  // of the proof's state, first; compared when they bring it to the target's position
  ProofBounds bounds;

  Status status;          // of the calls: the states in them are poisoned
  bool compared = false;  // the states
  WorstPart worst;
  std::string worst_at;  // its name
  LogitsDifference difference;
  LogitsVerdict verdict;
};

// What is away on a lane or the bridge: a lane has at most one.
struct Work {
  uint64_t id = 0;
  LaneIndex lane = 0;
  int64_t started_ns = 0, ended_ns = 0;  // by the lane's clock
  // Becomes true when nobody waits for it any more: a lane then ends a long step, and the bridge asks a caller's source
  // for no more, and gives its taker none. Outlives the work; null: never.
  const std::atomic<bool>* cancelled = nullptr;
  bool want_placement = false;
  Placement placement;  // of the lane's executor, when it is wanted
  std::variant<MakeWork, StepWork, MoveWork, ProveWork> body;
};

}  // namespace baton
