// One fault of baton/base/fault_list.inc in a simulated run, in every build: fake units and the simulation's bridge ask
// whether it is their time. Points of files and threads have no place in a simulation.
#pragma once

#include <array>
#include <limits>
#include <new>
#include <optional>

#include "baton/base/fault.h"
#include "baton/engine/lane.h"
#include "tests/support/fake_unit.h"

namespace baton::fake {

inline constexpr std::array kSimulatedFaults = {
    FaultPoint::kStateMemory, FaultPoint::kStepFails,  FaultPoint::kStepMemory, FaultPoint::kStepLost,
    FaultPoint::kStepSleeps,  FaultPoint::kStateNan,   FaultPoint::kLogitsNan,  FaultPoint::kMoveRead,
    FaultPoint::kMoveWrite,   FaultPoint::kMoveDamage, FaultPoint::kKeepMemory, FaultPoint::kKeepDamage,
    FaultPoint::kSealSink,
};

class SimulatedFault {
 public:
  SimulatedFault() = default;
  // `reached`: how often it was before, in other runs.
  SimulatedFault(FaultPoint point, FaultPlan plan, uint64_t reached) : point_(point), plan_(plan), reached_(reached) {}

  bool is(FaultPoint point) const { return point_ == point; }
  explicit operator bool() const { return point_.has_value(); }
  uint64_t reached() const { return reached_; }
  uint64_t fired() const { return fired_; }
  // The point is reached: whether it fires.
  bool fires(FaultPoint point) {
    if (point_ != point) return false;
    ++reached_;
    const bool now = reached_ == plan_.at || (plan_.every > 0 && reached_ % plan_.every == 0);
    fired_ += now ? 1 : 0;
    return now;
  }

  // Of a unit: what its acts come to.
  void give(Behaviour& behaviour) {
    behaviour.before = [this](Act act, size_t) -> Status {
      if (act == Act::kNewState) {
        return fires(FaultPoint::kStateMemory) ? fail(Code::kOutOfMemory, "injected failure") : Status();
      }
      if (fires(FaultPoint::kStepMemory)) throw std::bad_alloc();
      if (fires(FaultPoint::kStepLost)) return fail(Code::kUnavailable, "injected failure");
      return fires(FaultPoint::kStepFails) ? fail(Code::kDevice, "injected failure") : Status();
    };
    behaviour.spoils_logits = [this] { return fires(FaultPoint::kLogitsNan); };
  }

  // The bridge's acts, by the real one.
  Result<MoveReport> carry(const SequenceState& from, SequenceState& to) {
    const Damaged giver(const_cast<SequenceState&>(from), *this);
    Damaged target(to, *this);
    to.begin_write(from.position());
    auto report = move_state(giver, target);
    if (report) {
      const Status finished = to.finish_write();
      BATON_CHECK(finished);
    }
    return report;
  }
  Status seal(Carrier& carrier, const SequenceState& from, const StateIdentity& identity,
              std::span<const int32_t> tokens, const Provenance& provenance, const SealTaker& take) {
    if (fires(FaultPoint::kSealSink)) return fail(Code::kInvalidInput, "injected failure");
    const Damaged giver(const_cast<SequenceState&>(from), *this);
    return carrier.seal(giver, identity, tokens, provenance, take);
  }
  Result<MoveReport> restore(const Checkpoint& from, SequenceState& to) {
    BATON_OK(from.check());
    return carry(from, to);
  }
  Result<std::shared_ptr<const Checkpoint>> keep(CheckpointMemory& memory, const SequenceState& from,
                                                 const std::shared_ptr<const Checkpoint>& before) {
    if (fires(FaultPoint::kKeepMemory)) return fail(Code::kOutOfMemory, "injected failure");
    const Damaged giver(const_cast<SequenceState&>(from), *this);
    auto kept = memory.keep(giver, before);
    if (kept && fires(FaultPoint::kKeepDamage)) {
      auto* row = const_cast<std::byte*>((*kept)->view(2, {1, 1}));
      row[1] ^= std::byte{4};
    }
    return kept;
  }

 private:
  // A state that reads or is written as the fault has it.
  class Damaged final : public SequenceState {
   public:
    Damaged(SequenceState& right, SimulatedFault& fault)
        : SequenceState(right.tokens_max(), live_states()), right_(right), fault_(fault) {
      set_position(right.position());
    }
    const StateShape& shape() const override { return right_.shape(); }
    uint64_t bytes() const override { return right_.bytes(); }

   private:
    static LiveStates& live_states() {
      static LiveStates live;
      return live;
    }
    Status read_rows(size_t segment, const Dims&, RowRange rows, std::byte* out) const override {
      BATON_OK(right_.read(segment, rows, out));
      if (writing_) return {};
      if (fault_.fires(FaultPoint::kMoveRead)) return fail(Code::kDevice, "injected failure");
      if (fault_.fires(FaultPoint::kStateNan)) std::memset(out, 0xff, 4);
      return {};
    }
    Status write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) override {
      writing_ = true;
      if (fault_.fires(FaultPoint::kMoveWrite)) return fail(Code::kDevice, "injected failure");
      std::vector<std::byte> values(in, in + rows.count * dims[2] * value_bytes(shape().segments[segment].dtype));
      if (fault_.fires(FaultPoint::kMoveDamage)) values[values.size() / 2] ^= std::byte{1};
      return right_.write(segment, rows, values.data());
    }
    SequenceState& right_;
    SimulatedFault& fault_;
    bool writing_ = false;
  };

  std::optional<FaultPoint> point_;
  FaultPlan plan_;
  uint64_t reached_ = 0, fired_ = 0;
};

}  // namespace baton::fake
