// What comes back from lanes and bridge: results into the books, failures into fall-backs and ends.
#include <utility>

#include "baton/base/clock.h"
#include "baton/engine/scheduler.h"

namespace baton {
namespace {

Error because(std::string what, const Status& status) { return Error(status.error()).in(what); }

}  // namespace

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
    state.state.reset();
  }
  return useful;
}

void Scheduler::done(Work work, int64_t now_ns) {
  LaneRecord& lane = lanes_.at(work.lane);
  BATON_CHECK(work.id != 0 && lane.work_id == work.id);
  lane.work_id = 0;
  lane.in_flight = {};
  const double ms = ms_between(work.started_ns, work.ended_ns);
  account(work);
  if (auto* prefill = std::get_if<PrefillWork>(&work.body)) {
    if (prefill->status) lane.budget.learn(prefill->tokens(), ms);
    done_prefill(*prefill, ms);
  } else if (auto* move = std::get_if<MoveWork>(&work.body)) {
    done_move(*move, ms);
  } else if (auto* decode = std::get_if<DecodeWork>(&work.body)) {
    done_decode(*decode);
  } else if (auto* compare = std::get_if<CompareWork>(&work.body)) {
    done_compare(*compare, ms);
  } else {
    done_verify(std::get<VerifyWork>(work.body));
  }
  finish_ended(now_ns);
  count_states();
}

void Scheduler::account(const Work& work) {
  const auto add = [&](RequestId request, double FirstTokenTimes::*part, int64_t end_ns) {
    sequence_of(request).account(part, work.started_ns, end_ns);
  };
  // The token was there before its step returned.
  const auto end_of = [&](const DecodeRow& row) {
    return row.picked.empty() ? work.ended_ns : row.picked.front().time_ns;
  };
  if (const auto* prefill = std::get_if<PrefillWork>(&work.body)) {
    for (const PrefillRow& row : prefill->rows) {
      const bool proof = row.role == StateRole::kProof;
      add(row.request, proof ? &FirstTokenTimes::proof_ms : &FirstTokenTimes::prefill_ms, work.ended_ns);
    }
  } else if (const auto* move = std::get_if<MoveWork>(&work.body)) {
    add(move->request, &FirstTokenTimes::move_ms, work.ended_ns);
  } else if (const auto* decode = std::get_if<DecodeWork>(&work.body)) {
    for (const DecodeRow& row : decode->rows) add(row.request, &FirstTokenTimes::first_decode_ms, end_of(row));
  } else if (const auto* compare = std::get_if<CompareWork>(&work.body)) {
    add(compare->request, &FirstTokenTimes::proof_ms, work.ended_ns);
  } else {
    const DecodeRow& row = std::get<VerifyWork>(work.body).row;
    add(row.request, &FirstTokenTimes::first_decode_ms, end_of(row));
  }
}

void Scheduler::done_prefill(PrefillWork& work, double ms) {
  const bool shared = work.rows.size() > 1;
  if (work.status) prefilled_tokens_ += work.tokens();
  for (PrefillRow& row : work.rows) {
    Sequence& sequence = sequence_of(row.request);
    --sequence.steps_in_flight;
    RoleRecord& record = sequence.role(row.role);
    const Status& status = row.status ? work.status : row.status;
    if (!give_back(sequence, row.role, row.state, !status)) continue;
    if (!status) {
      const LaneIndex lane = record.lane;
      const std::string what = row.role == StateRole::kProof ? "the state for the proof on '" : "prefill on '";
      Error error = because(what + facts_.lanes[lane].name + "'", status);
      // As in a decode step: a request that has nothing to fall back to does not end by another's fault.
      if (shared && row.status && sequence.alone) {
        sequence.rebuild(std::move(error));
      } else {
        sequence.fall_back(std::move(error));
      }
      continue;
    }
    if (row.tokens.empty()) continue;
    if (!sequence.prompt_done) {
      record.prefill_tokens += row.tokens.size();
      record.prefill_ms += ms;
    }
    if (work.want_placement && !record.placement) record.placement = work.placement;
  }
}

void Scheduler::done_move(MoveWork& work, double ms) {
  Sequence& sequence = sequence_of(work.request);
  --sequence.steps_in_flight;
  const bool failed = !work.status;
  switch (work.form) {
    case MoveForm::kCarry: {
      // The source is done with either way; a target that a move failed to fill is not trusted to be untouched.
      const bool whole = !failed && work.to.state->position() == work.tokens.size();
      give_back(sequence, StateRole::kSource, work.from, true);
      if (!give_back(sequence, StateRole::kTarget, work.to, !whole)) return;
      if (failed) return sequence.fall_back(because("the hand-over", work.status));
      if (!whole) return sequence.fall_back({Code::kInternal, "the hand-over: the state arrived with other tokens"});
      sequence.take_over(Origin::kSealed);
      BridgeStats& stats = sequence.stats.bridge;
      stats.kind = "move";
      stats.bytes += work.report.bytes;
      stats.ms += work.report.ms;
      return;
    }
    case MoveForm::kOpen: {
      const bool useful = give_back(sequence, work.role, work.to, failed);
      if (sequence.over()) return;
      // A block that was given and does not hold is never worked around.
      if (failed) return sequence.end_with(because("the starting state", work.status));
      if (useful) return sequence.take_start(work.role, std::move(work.block), ms);
      sequence.request.start_state = std::move(work.block);
      return;
    }
    case MoveForm::kSeal:
      // What was asked for was made, even when a cancel came meanwhile.
      if (!failed) sequence.take_seal(std::move(work.block), work.tokens.size());
      if (!give_back(sequence, StateRole::kTarget, work.from, failed)) return;
      if (failed)
        return sequence.end_with(because("sealing the state", work.status));  // nothing when it was the answer's
      return;
  }
}

void Scheduler::done_row(Sequence& sequence, DecodeRow& row) {
  if (row.want_logits) sequence.logits = std::move(row.logits);
  for (const PickedToken& picked : row.picked) {
    if (!sequence.takes_tokens()) return;
    if (const auto token = sequence.take_token(picked.id, picked.time_ns)) outputs_.push_back({sequence.id, *token});
  }
  if (!row.status) sequence.end_with(because("decode", row.status));
}

void Scheduler::done_decode(DecodeWork& work) {
  const bool shared = work.rows.size() > 1;
  for (DecodeRow& row : work.rows) {
    Sequence& sequence = sequence_of(row.request);
    --sequence.steps_in_flight;
    sequence.picker = std::move(row.picker);
    if (!give_back(sequence, StateRole::kTarget, row.state, !work.status || !row.status)) continue;
    if (!sequence.decode_placement && !row.picked.empty()) sequence.decode_placement = work.placement;
    done_row(sequence, row);
    if (work.status || sequence.over()) continue;
    Error error = because("decode on '" + facts_.lanes[sequence.role(StateRole::kTarget).lane].name + "'", work.status);
    if (shared) {
      // Whose fault it was is unknown: each goes on by itself, so that a bad request takes no other with it.
      sequence.rebuild(std::move(error));
    } else {
      sequence.end_with(std::move(error));
    }
  }
}

void Scheduler::done_compare(CompareWork& work, double ms) {
  Sequence& sequence = sequence_of(work.request);
  --sequence.steps_in_flight;
  const bool target = give_back(sequence, StateRole::kTarget, work.target, false);
  const bool proof = give_back(sequence, StateRole::kProof, work.proof, !work.status);
  if (sequence.over() || !target || !proof) return;
  if (!work.status) {
    const std::string lane = facts_.lanes[sequence.role(StateRole::kTarget).lane].name;
    return sequence.fall_back(because("the state for the proof on '" + lane + "'", work.status));
  }
  RoleRecord& record = sequence.role(StateRole::kProof);
  record.prefill_tokens += work.tokens.size();
  record.prefill_ms += ms;
  if (work.compared) sequence.take_states(work.worst, work.worst_at, work.bounds);
}

void Scheduler::done_verify(VerifyWork& work) {
  DecodeRow& row = work.row;
  Sequence& sequence = sequence_of(row.request);
  --sequence.steps_in_flight;
  sequence.picker = std::move(row.picker);
  const bool poisoned = !work.status || !row.status;
  give_back(sequence, StateRole::kTarget, row.state, poisoned);
  give_back(sequence, StateRole::kProof, work.proof, poisoned);
  if (sequence.over()) return;
  if (!work.status) {
    return sequence.end_with(
        because("decode on '" + facts_.lanes[sequence.role(StateRole::kTarget).lane].name + "'", work.status));
  }
  if (!sequence.decode_placement) sequence.decode_placement = std::move(work.placement);
  if (!poisoned) sequence.take_logits(work.difference, work.verdict, work.bounds);
  done_row(sequence, row);
}

void Scheduler::finish_ended(int64_t now_ns) {
  for (auto entry = active_.begin(); entry != active_.end();) {
    Sequence& sequence = *entry->second;
    if (!sequence.over() || sequence.steps_in_flight > 0) {
      ++entry;
      continue;
    }
    for (RoleRecord& record : sequence.roles) record.held.state.reset();
    bytes_reserved_ -= sequence.bytes_reserved;
    outputs_.push_back({sequence.id, sequence.finish(now_ns)});
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
}

}  // namespace baton
