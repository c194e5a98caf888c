// How works are carried out: by a lane on its executor, by the bridge on states in transit. Used by the engine's
// threads and, unchanged, by the simulation. A work brings all it needs and takes its results back: who holds it owns
// its states, and nothing here is locked.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baton/base/clock.h"
#include "baton/bridge/bridge.h"
#include "baton/engine/step_streams.h"
#include "baton/engine/work.h"
#include "baton/unit/unit.h"

namespace baton {

// The bridge's acts; replaced by the simulation to break them. From the bridge's thread, while lanes step other states
// of the same executors; `stream` from lanes and their porters, on distinct states at a time. Errors as in bridge.h; a
// `to` that came to one is dropped by the scheduler.
class Carrier {
 public:
  // `crew`: helps; borrowed, or null.
  explicit Carrier(Crew* crew = nullptr) : crew_(crew) {}
  virtual ~Carrier() = default;
  Crew* crew() const { return crew_; }
  // `to` is at position 0, of the same model, mostly on another unit.
  // Nobody needs `from` behind it.
  virtual Result<MoveReport> carry(SequenceState& from, SequenceState& to);
  // Of a state that a step makes: StateStream::move.
  virtual Status stream(StateStream& stream, const SequenceState& from, uint64_t position,
                        std::span<const int32_t> layers);
  // A caller's state: kMismatch when it is of another model or tokenizer, or `prompt` does not begin with its tokens.
  virtual Status open(const SealSource& source, const StateIdentity& identity, const std::vector<int32_t>& prompt,
                      SequenceState& to, Provenance& provenance);
  // `tokens`: those that the state holds, from the first. Errors of `take` too.
  virtual Status seal(const SequenceState& from, const StateIdentity& identity, std::span<const int32_t> tokens,
                      const Provenance& provenance, const SealTaker& take);
  virtual Result<std::shared_ptr<const Checkpoint>> keep(CheckpointMemory& memory, const SequenceState& from,
                                                         const std::shared_ptr<const Checkpoint>& before,
                                                         AtRest at_rest);
  virtual Result<MoveReport> restore(const Checkpoint& from, SequenceState& to);

 private:
  Crew* const crew_;
};

// Executes Make, Step and Prove. Owns the logits that leave a step: as many rows as the largest step so far wanted.
class Lane {
 public:
  // `unit`: its name, for the provenance of what it makes. `decode_seats_max`: of its Caps; a step that decodes more is
  // a bug. `carrier`: for seats that stream; null: one of its own, and a thread beside the steps, started by the first
  // of them, with the help of `crew`. A carrier that is given is called on the lane's thread. Borrowed all.
  Lane(Executor& executor, std::string unit, uint32_t decode_seats_max, const Clock& clock, Carrier* carrier = nullptr,
       Crew* crew = nullptr);
  // Writes results and status into `work`. Never throws: what a unit or the allocator throws is the work's kOutOfMemory
  // or kInternal. From one thread at a time. Not for Move.
  void run(Work& work);

 private:
  // Of what is empty, before anything else is done with it. Errors of new_state.
  Status make(HeldState& held);
  // A seat without a state is left out and says so; the work's status is that of the unit's call with the others.
  void step(StepWork& work);
  Status step_on(StepWork& work);
  // The seat's scores, from a row for each; the error of the first row that is no numbers.
  Status score(std::span<const float> rows, StepSeat& seat) const;
  // The thread for streams; null where there is none.
  Porter* porter();
  // Of a proof: the calls that make its state; these, then the states part by part; or a decode of both states.
  Status repeat(ProveWork& work);
  Status compare(ProveWork& work);
  Status verify(ProveWork& work);

  Executor& executor_;
  const StateMaker maker_;
  const Clock& clock_;
  const uint32_t seats_max_;  // that decode
  Carrier own_carrier_;
  Carrier* const carrier_;  // null: own_carrier_
  std::unique_ptr<Porter> porter_;
  StepContext context_;  // of the work under way
  const size_t vocab_;
  std::vector<float> logits_;  // [rows, vocab]
  std::vector<Seat> seats_;    // of the call under way; reserved, so that a decode does not allocate
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
  Status open(MoveWork& work, const SealSource& source);

  Carrier& carrier_;
  const std::atomic<bool>* cancelled_ = nullptr;  // of the work under way: what is the caller's is asked no further
  const std::function<Result<StateIdentity>(LaneIndex)> identity_;
};

}  // namespace baton
