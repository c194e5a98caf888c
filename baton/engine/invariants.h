// What must hold after every step, checked over snapshots and events by the simulation and the engine's tests.
#pragma once

#include <map>
#include <span>

#include "baton/base/status.h"
#include "baton/engine/sequence.h"
#include "baton/engine/snapshot.h"

namespace baton {

// Of one moment: each state has one owner and lies where its owner may touch it; nothing decodes from an unverified
// state; bounds are kept; nobody starves. kInternal names what is broken.
Status check_snapshot(const Snapshot& snapshot);

// The most steps of a lane that a ready work waits for: those in which it may be passed over, then every other work of
// its kind once, with the other kind between.
uint64_t waiting_bound(const EngineLimits& limits);

// Over a run: each request ends exactly once and says nothing afterwards, tokens are counted without a gap, and when
// all have ended no state is left.
class History {
 public:
  void submitted(RequestId id) { open_.emplace(id, 0); }
  Status observe(std::span<const Output> outputs, const Snapshot& snapshot);
  size_t open() const { return open_.size(); }

 private:
  std::map<RequestId, uint32_t> open_;  // request -> tokens so far
};

}  // namespace baton
