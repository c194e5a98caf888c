// How works are carried out: by a lane on its executor, by the bridge on states in transit. Used by the engine's
// threads and, unchanged, by the simulation.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "baton/base/clock.h"
#include "baton/bridge/bridge.h"
#include "baton/engine/work.h"
#include "baton/unit/unit.h"

namespace baton {

// The bridge's three acts; replaced by the simulation to break them. Errors as in bridge.h.
class Carrier {
 public:
  virtual ~Carrier() = default;
  virtual Result<MoveReport> carry(const SequenceState& from, SequenceState& to);
  virtual Status open(std::span<const std::byte> block, const StateIdentity& identity,
                      const std::vector<int32_t>& prompt, SequenceState& to, Provenance& provenance);
  virtual Result<std::vector<std::byte>> seal(const SequenceState& from, const StateIdentity& identity,
                                              std::span<const int32_t> tokens, const Provenance& provenance);
};

// Executes Make, Step and Prove. Owns the logits that leave a step.
class Lane {
 public:
  // `unit`: its name, for the provenance of what it makes. `cancelled`: ends long steps when it becomes true, at the
  // engine's end; null: never.
  Lane(Executor& executor, std::string unit, uint32_t decode_seats_max, const Clock& clock,
       const std::atomic<bool>* cancelled = nullptr);
  // Writes results and status into `work`; never throws. Not for Move.
  void run(Work& work);

 private:
  // Of what is empty.
  Status make(HeldState& held);
  void step(StepWork& work);
  Status step_on(StepWork& work);
  Status repeat(ProveWork& work);
  Status compare(ProveWork& work);
  Status verify(ProveWork& work);

  Executor& executor_;
  const StateMaker maker_;
  const Clock& clock_;
  const uint32_t seats_max_;  // that decode
  const StepContext context_;
  const size_t vocab_;
  std::vector<float> logits_;  // [rows, vocab]
  std::vector<Seat> seats_;
};

// Executes Move. States that are carried stay in this process, between executors of one model. Those that leave it or
// come from elsewhere are sealed and opened with what `identity` gives for the model of the lane that made the state,
// which may take as long as reading all weights; it is asked when it is needed.
class BridgeLane {
 public:
  BridgeLane(Carrier& carrier, std::function<Result<StateIdentity>(LaneIndex)> identity)
      : carrier_(carrier), identity_(std::move(identity)) {}
  void run(Work& work);

 private:
  Status move(MoveWork& work);

  Carrier& carrier_;
  const std::function<Result<StateIdentity>(LaneIndex)> identity_;
};

}  // namespace baton
