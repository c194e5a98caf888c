// The engine's books at one moment, as plain data: what the invariants are checked over. Made by Scheduler::snapshot
// between two inputs, for tests; borrows nothing.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "baton/engine/limits.h"
#include "baton/engine/request.h"
#include "baton/engine/strategy.h"

namespace baton {

struct Snapshot {
  // `owner`: the lane or bridge index that has it, or kScheduler.
  static constexpr uint32_t kScheduler = UINT32_MAX;
  struct State {
    uint64_t id = 0;  // unique over the run
    RequestId request = 0;
    StateRole role = StateRole::kTarget;
    uint32_t home = 0;  // the lane whose unit made it: no other lane may have it, but while it arrives
    uint32_t owner = kScheduler;
    uint64_t bytes = 0;     // behind its last step; 0: not made yet
    bool decodes = false;   // in flight: a token of the answer comes from it
    bool given_up = false;  // in flight: its request goes on without it, or has ended
    bool arrives = false;   // in flight: filled beside another unit's step, which it is no seat of
  };
  // A work in progress.
  struct InFlight {
    WorkKind kind = WorkKind::kMake;
    std::vector<State> states = {};        // it owns
    std::vector<RequestId> requests = {};  // it serves; none when it was given up: its states belong to nobody
    bool empty() const { return requests.empty(); }
  };
  struct Sequence {
    RequestId id = 0;
    bool foreign = false;    // its target came from elsewhere
    bool sealed_in = false;  // the target's contents passed the seal
    VerifyMode verify = VerifyMode::kOff;
    bool start_check_due = false;  // nothing may go on from the starting state yet
    bool states_compared = false;
    bool proof_passed = false;
    bool ending = false;
    bool told = false;   // its end: it is here for its works in flight alone
    bool ready = false;  // some work of it waits for a lane
    uint32_t steps_in_flight = 0;
    uint64_t waited = 0;  // the most steps any of its works has waited for
  };

  EngineLimits limits;
  uint32_t decode_seats_max = 1, prefill_seats_max = 1;  // the most of any lane
  uint64_t queued = 0;
  uint64_t overtaken = 0;        // the most that one of them was
  std::vector<Sequence> active;  // by id
  std::vector<State> states;     // all: held by the scheduler or in flight
  std::vector<InFlight> lanes;   // units, then the bridge
};

}  // namespace baton
