// The scheduler's books as plain data.
#include "baton/engine/snapshot.h"

#include <algorithm>

#include "baton/engine/scheduler.h"

namespace baton {

Snapshot Scheduler::snapshot() const {
  Snapshot snapshot;
  snapshot.limits = facts_.limits;
  snapshot.queued = queue_.size();
  for (const auto& waiting : queue_) snapshot.overtaken = std::max<uint64_t>(snapshot.overtaken, waiting->overtaken);
  for (const LaneFacts& lane : facts_.lanes) {
    snapshot.decode_seats_max = std::max(snapshot.decode_seats_max, lane.decode_seats_max);
    snapshot.prefill_seats_max = std::max(snapshot.prefill_seats_max, lane.prefill_seats_shared);
  }
  for (const LaneRecord& lane : lanes_) {
    snapshot.lanes.push_back(lane.in_flight);
    snapshot.states.insert(snapshot.states.end(), lane.in_flight.states.begin(), lane.in_flight.states.end());
  }
  for (const auto& [id, sequence] : active_) {
    Snapshot::Sequence& entry = snapshot.active.emplace_back();
    const RoleRecord& target = sequence->role(StateRole::kTarget);
    entry = {.id = id,
             .foreign = sequence->foreign,
             .sealed_in = target.origin == Origin::kSealed,
             .verify = sequence->request.verify,
             .start_check_due = sequence->start_check_due,
             .states_compared = sequence->states_compared,
             .proof_passed = sequence->proof_passed,
             .ending = sequence->ending.has_value(),
             .told = sequence->told,
             .steps_in_flight = sequence->steps_in_flight};
    for (size_t i = 0; i < kStateRoles; ++i) {
      const RoleRecord& record = sequence->roles[i];
      entry.ready = entry.ready || record.ready;
      if (record.ready) entry.waited = std::max(entry.waited, record.waited);
      if (!record.held.state) continue;
      snapshot.states.push_back(
          {record.held.id, id, static_cast<StateRole>(i), record.held.home, Snapshot::kScheduler, record.held.bytes});
    }
  }
  return snapshot;
}

}  // namespace baton
