// Units that are lost, and works that do not come back: a unit that hangs holds its thread and the states in the work,
// and nothing else.
#include <algorithm>
#include <utility>

#include "baton/engine/scheduler.h"

namespace baton {
namespace {

int64_t timeout_ns(const EngineLimits& limits) {
  return static_cast<int64_t>(std::min(limits.step_timeout_ms, 1e12) * 1e6);
}

}  // namespace

int64_t Scheduler::next_overdue_ns() const {
  int64_t next = INT64_MAX;
  if (facts_.limits.step_timeout_ms <= 0) return next;
  for (LaneIndex index = 0; index < bridge(); ++index) {
    const LaneRecord& lane = lanes_[index];
    if (lane.work_id != 0 && !lane.given_up) next = std::min(next, lane.sent_ns + timeout_ns(facts_.limits));
  }
  return next;
}

void Scheduler::give_up_overdue(int64_t now_ns) {
  if (next_overdue_ns() > now_ns) return;
  for (LaneIndex index = 0; index < bridge(); ++index) {
    const LaneRecord& lane = lanes_[index];
    if (lane.work_id == 0 || lane.given_up || lane.sent_ns + timeout_ns(facts_.limits) > now_ns) continue;
    give_up(index);
  }
}

void Scheduler::give_up(LaneIndex index) {
  LaneRecord& lane = lanes_[index];
  const LaneFacts& facts = facts_.lanes[index];
  lane.given_up = true;
  lane.cancelled->store(true);
  lane.lost = "a step did not return within " + std::to_string(timeout_ns(facts_.limits) / 1'000'000) + " ms";
  const Error error = lost_unit(facts.name, lane.lost);
  for (Snapshot::State& state : lane.in_flight.states) {
    Sequence& sequence = sequence_of(state.request);
    RoleRecord& record = sequence.role(state.role);
    BATON_CHECK(record.busy && !record.held.state);
    record.busy = record.discard = false;
    state.given_up = true;
    const auto& of = facts_.lanes[state.home].state_bytes;  // one that arrives is of another lane
    const uint64_t asked = of ? of(sequence.tokens_max) : 0;
    lane.bytes_given_up += std::max(asked, state.bytes);
  }
  bytes_reserved_ += lane.bytes_given_up;
  for (const RequestId id : std::exchange(lane.in_flight.requests, {})) {
    Sequence& sequence = sequence_of(id);
    --sequence.steps_in_flight;
    if (sequence.over()) continue;
    const bool rests = index == sequence.role(StateRole::kTarget).lane;
    rests ? sequence.end_with(error) : sequence.fall_back(error);
  }
}

bool Scheduler::leave_lost(Sequence& sequence, const StepPlan& plan) {
  for (const PlannedWork& planned : plan.works()) {
    const LaneIndex lane = lane_of(sequence, planned);
    if (lanes_[lane].lost.empty()) continue;
    Error error = lost_unit(facts_.lanes[lane].name, lanes_[lane].lost);
    // All that a fall-back rests on is the target's unit.
    const bool rests = lane == sequence.role(StateRole::kTarget).lane;
    rests ? sequence.end_with(std::move(error)) : sequence.fall_back(std::move(error));
    return true;
  }
  return false;
}

bool Scheduler::refuse_first(std::unique_ptr<Sequence>& next, int64_t now_ns) {
  const auto hung = std::find_if(lanes_.begin(), lanes_.end(), [](const LaneRecord& lane) { return lane.given_up; });
  if (!active_.empty() || hung == lanes_.end()) return false;
  const std::string& unit = facts_.lanes[static_cast<size_t>(hung - lanes_.begin())].name;
  next->end_with({Code::kOutOfMemory, "unit '" + unit + "' hangs (" + hung->lost +
                                          ") and holds the memory that the request needs: start the engine again"});
  finish(*next, now_ns);
  return true;
}

bool Scheduler::holds_given_up(LaneIndex home) const {
  return std::any_of(lanes_.begin(), lanes_.end(), [home](const LaneRecord& lane) {
    return std::any_of(lane.in_flight.states.begin(), lane.in_flight.states.end(),
                       [home](const Snapshot::State& state) { return state.given_up && state.home == home; });
  });
}

}  // namespace baton
