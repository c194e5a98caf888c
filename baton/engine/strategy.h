// A strategy says what a request can do next: a pure function from the view of one request to a StepPlan. It knows
// nothing of other requests; the scheduler takes the plans of all, picks fairly for each idle lane and batches.
// What a plan owes:
// - it names all that can go on now, for each free role: it is asked for anew at each poll, and what was not picked is
//   forgotten;
// - it is empty only while a role of the request is busy: nothing else would ask again;
// - nothing decodes from the target before view.handed_over or view.alone, and while view.proof_wanted a kProve does in
//   the decode's place, once the proof's state is as far.
// New strategy: strategy/<name>.cc defining k_strategy_<name>, and one line in strategy_list.inc.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "baton/base/status.h"

namespace baton {

// The states a request can hold at one time.
enum class StateRole : uint8_t {
  kSource,  // on the prefill unit, until it is handed over
  kTarget,  // on the decode unit: what the answer is decoded from
  kProof,   // on the decode unit, made wholly by it: what the target is compared with, and the way out when that fails
};
inline constexpr size_t kStateRoles = 3;

// What a lane or the bridge does in one go for a request, or a lane for several.
enum class WorkKind : uint8_t {
  kMake,   // an empty state
  kStep,   // prefills or decodes
  kMove,   // over the bridge
  kProve,  // the target against the proof: the states, or the logits of a decode of both
};

enum class MoveForm : uint8_t {
  kCarry,  // from one role's state to another's, which exists
  kOpen,   // the request's sealed starting state -> the role's state, which is empty
  kSeal,   // the role's state -> sealed bytes for the caller
  // Not of strategies: a checkpoint -> the role's state, in kOpen's place; the role's state -> a checkpoint.
  kRestore,
  kKeep,
};

struct RoleView {
  bool exists = false;
  bool busy = false;      // in a step now: nothing may be planned for it
  uint64_t position = 0;  // when it exists and is not busy
};

struct RequestView {
  uint64_t need = 0;           // tokens a state holds before the next decode step: all so far but the last
  uint64_t generated = 0;      // of the answer
  bool same_unit = false;      // source and target lie on one unit
  bool room_soon = false;      // the target's unit has nothing to do: what it is asked to make is there at once
  bool onward = false;         // the target lies on the request's via unit: the decode unit comes after it
  bool alone = false;          // the decode unit does everything: nothing to hand over, or it failed
  bool handed_over = false;    // the target holds the prompt's state
  bool start_pending = false;  // the sealed starting state is not opened yet
  bool seal_due = false;       // the target is where the caller wants it sealed
  bool proof_wanted = false;   // the target may not be decoded from without the proof
  bool compare_due = false;    // of it: the states, before any logits
  bool proof_repeats = false;  // the comparison makes the proof's state itself, by the calls that made the target's
  // The starting state is to be compared before anything goes on from it, and whether the target holds it by now.
  bool start_check_due = false, start_opened = false;
  std::array<RoleView, kStateRoles> roles = {};

  const RoleView& source() const { return roles[static_cast<size_t>(StateRole::kSource)]; }
  const RoleView& target() const { return roles[static_cast<size_t>(StateRole::kTarget)]; }
  const RoleView& proof() const { return roles[static_cast<size_t>(StateRole::kProof)]; }
};

// A work that the request is ready for. A step and a proof make the states that do not exist.
struct PlannedWork {
  WorkKind kind = WorkKind::kMake;
  StateRole role = StateRole::kTarget;
  bool decodes = false;              // kStep: a token, not a prefill; kProve: the logits, not the states
  uint64_t tokens = 0;               // at most so many: of a prefill (the scheduler cuts steps), of the answer (0: all)
  bool streams = false;              // kStep, of the source: the target, which is free, is filled meanwhile
  MoveForm form = MoveForm::kCarry;  // kMove
  StateRole to = StateRole::kTarget;
};

// At most one work per role, each for a role that is not busy. Or a change of roles, for which nothing runs and nothing
// moves: the source is the target from now on, where both lie on one unit, or where the target, neither being busy,
// holds all of it; or the target, which is not busy and holds what is needed, is the source of another hand-over, to
// the decode unit, and the plan is asked for again.
class StepPlan {
 public:
  enum class Change : uint8_t { kNone, kTakeOver, kPassOn };
  static StepPlan take_over() { return StepPlan(Change::kTakeOver); }
  static StepPlan pass_on() { return StepPlan(Change::kPassOn); }
  StepPlan() = default;
  Change change() const { return change_; }
  void add(const PlannedWork& work) {
    BATON_CHECK(count_ < works_.size());
    works_[count_++] = work;
  }
  // Decodes draw at most so many tokens, one at least: 0 would be no limit.
  void limit_decodes(uint64_t tokens) {
    for (size_t i = 0; i < count_; ++i) works_[i].tokens = works_[i].decodes ? tokens : works_[i].tokens;
  }
  std::span<const PlannedWork> works() const { return {works_.data(), count_}; }

 private:
  explicit StepPlan(Change change) : change_(change) {}
  std::array<PlannedWork, kStateRoles> works_{};
  size_t count_ = 0;
  Change change_ = Change::kNone;
};

struct Strategy {
  std::string_view name;
  std::string_view summary;  // one line for --help
  uint32_t hand_overs;       // 0: everything on the decode unit; 1: from the prefill unit; 2: by way of the via unit
  StepPlan (*plan)(const RequestView& view);
};

std::span<const Strategy* const> strategies();
// Null when unknown.
const Strategy* find_strategy(std::string_view name);
// The one of that name or, without a name, the first that hands over as often as the units ask for; names of units are
// those of a Request. kNotFound when there is none, kInvalidInput when it cannot use the units.
Result<const Strategy*> choose_strategy(std::string_view name, std::string_view prefill, std::string_view via,
                                        std::string_view decode);

// Shared by strategies. The work of a request whose decode unit does everything, of one whose target is complete, and
// of one that hands over. There the prefill unit processes all tokens but the last, the state moves over the bridge,
// and the decode unit processes the last one and goes on; while the prefill unit works, the decode unit makes room for
// the state and, when a proof is wanted, makes its own.
StepPlan plan_alone(const RequestView& view);
StepPlan plan_decode(const RequestView& view);
StepPlan plan_handoff(const RequestView& view);
// Prefill of the role up to `upto` tokens: adds it when the role is free and lacks tokens, or its making when it does
// not exist and there are none.
void plan_prefill(const RequestView& view, StateRole role, uint64_t upto, StepPlan& plan);
// Opens the starting state into the target, then compares it with the decode unit's own, which the works of the
// comparison make.
StepPlan plan_start_check(const RequestView& view);

}  // namespace baton
