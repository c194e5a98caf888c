// What comes back from lanes and bridge: results into the books, failures into fall-backs and ends.
#include <algorithm>
#include <utility>

#include "baton/base/clock.h"
#include "baton/engine/scheduler.h"

namespace baton {
namespace {

Error because(std::string what, const Status& status) { return Error(status.error()).in(what); }

// Of the work, or of a seat that got no state; null: went well.
const Error* error_of(const Work& work) {
  const Status& status = std::visit([](const auto& body) -> const Status& { return body.status; }, work.body);
  if (!status) return &status.error();
  if (const auto* step = std::get_if<StepWork>(&work.body)) {
    for (const StepSeat& seat : step->seats) {
      if (!seat.status) return &seat.status.error();
    }
  }
  return nullptr;
}

}  // namespace

Error Scheduler::because_of(const Sequence& sequence, StateRole role, const char* what, const Status& status) const {
  if (role == StateRole::kProof) what = "the state for the proof";
  return because(what + (" on '" + facts_.lanes[sequence.role(role).lane].name + "'"), status);
}

Sequence& Scheduler::sequence_of(RequestId id) {
  const auto found = active_.find(id);
  BATON_CHECK(found != active_.end());
  return *found->second;
}

bool Scheduler::give_back(Sequence& sequence, StateRole role, HeldState& state, bool poisoned) {
  RoleRecord& record = sequence.role(role);
  BATON_CHECK(record.busy && !record.held.state);
  // Asked while the state is away: an end that owes its seal is over when there is none.
  const bool useful = !std::exchange(record.discard, false) && !sequence.over();
  record.busy = false;
  if (useful && !poisoned) {
    record.held = std::move(state);
  } else {
    state.stream.reset();
    state.state.reset();
  }
  return useful;
}

void Scheduler::done(Work work, int64_t now_ns) {
  LaneRecord& lane = lanes_.at(work.lane);
  BATON_CHECK(work.id != 0 && lane.work_id == work.id);
  lane.work_id = 0;
  lane.in_flight = {};
  if (std::exchange(lane.given_up, false)) {
    bytes_reserved_ -= std::exchange(lane.bytes_given_up, 0);
    return count_states();  // the unit stays lost: what it did is nobody's
  }
  const double ms = ms_between(work.started_ns, work.ended_ns);
  const Error* error = error_of(work);
  if (work.lane != bridge() && error != nullptr && error->code == Code::kUnavailable) lane.lost = error->message;
  if (error != nullptr && error->code == Code::kOutOfMemory) give_up_checkpoints();
  account(work);
  charge(work, ms);
  if (auto* make = std::get_if<MakeWork>(&work.body)) {
    done_make(*make);
  } else if (auto* step = std::get_if<StepWork>(&work.body)) {
    if (step->status) lane.budget.learn(step->prefill_tokens(), ms);
    done_step(*step, work.placement, ms);
  } else if (auto* move = std::get_if<MoveWork>(&work.body)) {
    done_move(*move, ms);
  } else {
    done_prove(std::get<ProveWork>(work.body), work.placement, ms);
  }
  finish_ended(now_ns);
  count_states();
}

void Scheduler::account(const Work& work) {
  const auto add = [&](RequestId request, double FirstTokenTimes::*part) {
    sequence_of(request).account(part, work.started_ns, work.ended_ns);
  };
  const auto add_making = [&](RequestId request, StateRole role) {
    add(request, role == StateRole::kProof ? &FirstTokenTimes::proof_ms : &FirstTokenTimes::prefill_ms);
  };
  const auto add_decode = [&](const StepSeat& seat) {
    // The token was there before its step returned.
    const int64_t end_ns = seat.draws.ids.empty() ? work.ended_ns : seat.draws.ids.front().time_ns;
    sequence_of(seat.request).account(&FirstTokenTimes::first_decode_ms, work.started_ns, end_ns);
  };
  if (const auto* make = std::get_if<MakeWork>(&work.body)) {
    add_making(make->request, make->role);
  } else if (const auto* step = std::get_if<StepWork>(&work.body)) {
    for (const StepSeat& seat : step->seats) {
      if (seat.decodes()) {
        add_decode(seat);
      } else {
        const int64_t made_ns = work.ended_ns - static_cast<int64_t>(seat.waited_ms * 1e6);
        const auto part = seat.role == StateRole::kProof ? &FirstTokenTimes::proof_ms : &FirstTokenTimes::prefill_ms;
        sequence_of(seat.request).account(part, work.started_ns, std::max(made_ns, work.started_ns));
        if (seat.streams()) add(seat.request, &FirstTokenTimes::move_ms);
      }
    }
  } else if (const auto* move = std::get_if<MoveWork>(&work.body)) {
    add(move->request, move->form == MoveForm::kKeep ? &FirstTokenTimes::keep_ms : &FirstTokenTimes::move_ms);
  } else {
    const StepSeat& seat = std::get<ProveWork>(work.body).seat;
    seat.decodes() ? add_decode(seat) : add(seat.request, &FirstTokenTimes::proof_ms);
  }
}

void Scheduler::charge(const Work& work, double ms) {
  const auto add = [&](RequestId request, double share) {
    shares_.charge(sequence_of(request).request.tenant, work.lane, ms * share);
  };
  if (const auto* step = std::get_if<StepWork>(&work.body)) {
    double all = 0;
    for (const StepSeat& seat : step->seats) all += static_cast<double>(seat.tokens.size());
    for (const StepSeat& seat : step->seats) add(seat.request, static_cast<double>(seat.tokens.size()) / all);
  } else if (const auto* make = std::get_if<MakeWork>(&work.body)) {
    add(make->request, 1);
  } else if (const auto* move = std::get_if<MoveWork>(&work.body)) {
    add(move->request, 1);
  } else {
    add(std::get<ProveWork>(work.body).seat.request, 1);
  }
}

void Scheduler::done_make(MakeWork& work) {
  Sequence& sequence = sequence_of(work.request);
  --sequence.steps_in_flight;
  if (!give_back(sequence, work.role, work.state, !work.status) || work.status) return;
  sequence.fall_back(because_of(sequence, work.role, "a state", work.status));
}

void Scheduler::done_step(StepWork& work, const Placement& placement, double ms) {
  const bool shared = work.seats.size() > 1;
  if (work.status) prefilled_tokens_ += work.prefill_tokens();
  for (StepSeat& seat : work.seats) {
    Sequence& sequence = sequence_of(seat.request);
    --sequence.steps_in_flight;
    if (seat.decodes()) {
      done_decode(sequence, seat, work.status, shared, placement);
    } else {
      done_prefill(sequence, seat, work.status, shared, placement, ms);
    }
  }
}

void Scheduler::done_prefill(Sequence& sequence, StepSeat& seat, const Status& status, bool shared,
                             const Placement& placement, double ms) {
  const bool failed = !status || !seat.status, moved = !failed && seat.moved;
  // Both, before either is dropped for another reason.
  if (seat.streams()) give_back(sequence, StateRole::kTarget, seat.into, !moved);
  if (!give_back(sequence, seat.role, seat.state, failed)) return;
  if (failed) {
    Error error = because_of(sequence, seat.role, "prefill", seat.status ? status : seat.status);
    // As in a decode: a request that has nothing to fall back to does not end by another's fault.
    if (shared && seat.status && sequence.alone) return sequence.rebuild(std::move(error));
    return sequence.fall_back(std::move(error));
  }
  if (!seat.moved) return sequence.fall_back(because("the hand-over", seat.moved));
  RoleRecord& record = sequence.role(seat.role);
  sequence.take_scores(seat.scored_from, std::move(seat.scores));
  if (!sequence.prompt_done) {
    record.prefill_tokens += seat.tokens.size();
    record.prefill_ms += ms;
  }
  if (!record.placement) record.placement = placement;
  record.move_waited_ms += seat.waited_ms;
  if (seat.arrived) {
    BridgeStats& stats = sequence.stats.bridge;
    stats.moved(seat.report);
    stats.hidden_ms += std::max(0.0, seat.report.ms - record.move_waited_ms);
  }
  const bool rounds_alike = !shared || facts_.lanes[record.lane].shared_prefills_exact;
  if (!rounds_alike || record.position() % kExactTokens != 0) record.held.exact = false;  // for what comes behind it
  if (!seat.arrived || !seat.report.adopted) return;
  // The source holds nothing any more.
  sequence.role(StateRole::kTarget).held.state ? sequence.take_over_source() : sequence.drop(seat.role);
}

void Scheduler::done_decode(Sequence& sequence, StepSeat& seat, const Status& status, bool shared,
                            const Placement& placement) {
  sequence.picker = std::move(seat.picker);
  if (!give_back(sequence, seat.role, seat.state, !status || !seat.status)) return;
  if (!sequence.decode_placement && !seat.draws.ids.empty()) sequence.decode_placement = placement;
  take_drawn(sequence, seat);
  if (status || !seat.status || sequence.over()) return;
  Error error = because_of(sequence, seat.role, "decode", status);
  // Whose fault it was is unknown where others shared it: each goes on by itself, so that a bad request takes no other
  // with it.
  shared ? sequence.rebuild(std::move(error)) : sequence.restart(std::move(error));
}

void Scheduler::take_drawn(Sequence& sequence, StepSeat& seat) {
  if (seat.want_logits) sequence.logits = std::move(seat.logits);
  for (DrawnId& drawn : seat.draws.ids) {
    if (!sequence.takes_tokens()) return;
    auto token = sequence.take_token(drawn.id, drawn.time_ns);
    if (!token) continue;
    token->logprobs = std::move(drawn.logprobs);
    outputs_.push_back({sequence.id, *std::move(token)});
  }
  if (!seat.status && !sequence.over()) sequence.restart(because("decode", seat.status));
}

void Scheduler::done_move(MoveWork& work, double ms) {
  Sequence& sequence = sequence_of(work.request);
  --sequence.steps_in_flight;
  sequence.caller_asked = false;
  const bool failed = !work.status;
  switch (work.form) {
    case MoveForm::kCarry: {
      // The source is done with either way; a target that a move failed to fill is not trusted to be untouched.
      const bool whole = !failed && work.to.state->position() == work.tokens.size();
      give_back(sequence, work.role, work.from, true);
      if (!give_back(sequence, work.to_role, work.to, !whole)) return;
      if (failed) return sequence.fall_back(because("the hand-over", work.status));
      if (!whole) return sequence.fall_back({Code::kInternal, "the hand-over: the state arrived with other tokens"});
      sequence.take_over(Origin::kSealed);
      sequence.stats.bridge.moved(work.report);
      return;
    }
    case MoveForm::kOpen: {
      const bool useful = give_back(sequence, work.role, work.to, failed);
      if (sequence.over()) return;
      // A state that was given and does not hold is never worked around.
      if (failed) return sequence.end_with(because("the starting state", work.status));
      if (useful) sequence.take_start(work.role, ms);
      return;
    }
    case MoveForm::kSeal:
      // What was asked for was made, even when a cancel came meanwhile.
      if (!failed) sequence.take_seal(std::move(work.block), work.tokens.size());
      if (!give_back(sequence, work.role, work.from, failed)) return;
      if (failed)
        return sequence.end_with(because("sealing the state", work.status));  // nothing when it was the answer's
      return;
    case MoveForm::kRestore:
      return done_restore(sequence, work, ms);
    case MoveForm::kKeep:
      return done_keep(sequence, work);
  }
}

void Scheduler::done_restore(Sequence& sequence, MoveWork& work, double ms) {
  const bool failed = !work.status, useful = give_back(sequence, work.role, work.to, failed);
  // One that does not hold is nobody's any more; what else failed may go well another time.
  const Code code = failed ? work.status.error().code : Code::kInternal;
  const Checkpoint* from = work.checkpoint.state.get();
  if (from != nullptr && code == Code::kCorrupt && !sequence.coming_back)
    checkpoints_.erase(sequence.start_key, std::span(sequence.request.tokens).first(from->position()), *from);
  if (sequence.cached && failed && code != Code::kOutOfMemory)
    facts_.cache->refuse(sequence.cached->file, code == Code::kCorrupt);
  if (sequence.over() || !useful) return;
  const std::string which = sequence.cached ? sequence.cached->file.string() : "a checkpoint";
  if (failed && sequence.coming_back) return sequence.come_back_without(because(which, work.status));
  if (failed) return sequence.begin_without(because(which, work.status));
  sequence.stats.restore_ms += ms;
  sequence.take_restored(work.role);
}

void Scheduler::done_keep(Sequence& sequence, MoveWork& work) {
  keeping_bytes_ = 0;
  const uint64_t tokens = work.tokens.size();
  CheckpointKey key = key_of(sequence, work.from);
  // Nothing was changed by reading, but values that are no numbers are of no use to this request either.
  const bool bad = !work.status && work.status.error().code == Code::kCorrupt;
  if (std::exchange(sequence.putting_by, false)) {
    sequence.put_by_failed = !work.status;
    sequence.put_by_key = key;
    if (work.status) sequence.put_by = std::move(work.checkpoint);
    if (give_back(sequence, work.role, work.from, bad) && bad)
      sequence.fall_back(because("keeping the state", work.status));
    return;
  }
  if (work.status) {
    const RoleRecord& record = sequence.role(work.role);
    const double ms_per_token = record.prefill_ms / static_cast<double>(std::max<uint64_t>(record.prefill_tokens, 1));
    ++sequence.stats.kept_checkpoints;
    if (const auto& rounding = work.checkpoint.state->rounding()) {
      key.exact = false;
      if (!sequence.stats.kept_rounding) sequence.stats.kept_rounding.emplace();
      sequence.stats.kept_rounding->add(*rounding);
    }
    sequence.take_kept(key, work.checkpoint);
    checkpoints_.insert(key, work.tokens, std::move(work.checkpoint), ms_per_token, sequence.request.passing);
  }
  sequence.kept_until = tokens;
  if (!give_back(sequence, work.role, work.from, bad) || !bad) return;
  sequence.fall_back(because("keeping the state", work.status));
}

void Scheduler::done_prove(ProveWork& work, const Placement& placement, double ms) {
  StepSeat& seat = work.seat;
  Sequence& sequence = sequence_of(seat.request);
  --sequence.steps_in_flight;
  const bool decodes = seat.decodes(), failed = !work.status || !seat.status;
  if (decodes) sequence.picker = std::move(seat.picker);
  const bool target = give_back(sequence, seat.role, seat.state, decodes && failed);
  const bool proof = give_back(sequence, StateRole::kProof, work.proof, failed);
  if (sequence.over() || !target || !proof) return;
  if (decodes) {
    if (!work.status) return sequence.end_with(because_of(sequence, seat.role, "decode", work.status));
    if (!sequence.decode_placement) sequence.decode_placement = placement;
    if (!failed) sequence.take_logits(work.difference, work.verdict, work.bounds.logits);
    return take_drawn(sequence, seat);
  }
  if (failed) return sequence.fall_back(because_of(sequence, StateRole::kProof, "", work.status));
  RoleRecord& record = sequence.role(StateRole::kProof);
  record.prefill_tokens += seat.tokens.size();
  record.prefill_ms += ms;
  if (work.compared) sequence.take_states(work.worst, work.worst_at, work.bounds);
}

void Scheduler::finish_ended(int64_t now_ns) {
  for (auto entry = active_.begin(); entry != active_.end();) {
    Sequence& sequence = *entry->second;
    if (!sequence.ends_now()) {
      ++entry;
      continue;
    }
    if (sequence.steps_in_flight > 0) {
      for (const StateRole which : {StateRole::kSource, StateRole::kTarget, StateRole::kProof}) sequence.drop(which);
      tell_end(sequence, now_ns);
      ++told_;
      ++entry;
      continue;
    }
    told_ -= sequence.told ? 1 : 0;
    for (RoleRecord& record : sequence.roles) record.held.state.reset();
    let_go(sequence);
    finish(sequence, now_ns);
    entry = active_.erase(entry);
  }
}

void Scheduler::count_states() {
  states_ = 0;
  state_bytes_ = 0;
  const auto count = [&](const HeldState& held) {
    if (held.state == nullptr) return;
    ++states_;
    state_bytes_ += held.bytes;
  };
  for (const auto& [id, sequence] : active_) {
    for (const RoleRecord& record : sequence->roles) count(record.held);
  }
  for (const LaneRecord& lane : lanes_) {
    for (const Snapshot::State& state : lane.in_flight.states) {
      ++states_;
      state_bytes_ += state.bytes;
    }
  }
  bytes_peak_ = std::max(bytes_peak_, state_bytes_ + checkpoint_memory_.bytes());
}

}  // namespace baton
