// Admission, planning and the books of what is lent to lanes. What comes back from lanes is in scheduler_done.cc.
#include "baton/engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr uint32_t kDecodeCallsMax = 64;

}  // namespace

Scheduler::Scheduler(SchedulerFacts facts) : facts_(std::move(facts)), shares_(facts_.lanes.size() + 2) {
  const EngineLimits& limits = facts_.limits;
  for (const LaneFacts& lane : facts_.lanes) {
    const uint32_t preferred = std::max(lane.prefill_tokens_preferred, 1u);
    lanes_.emplace_back(PrefillBudget(limits.step_ms, preferred, preferred * std::max(limits.prefill_factor_max, 1u),
                                      lane.prefill_tokens_min));
  }
  lanes_.emplace_back(PrefillBudget(limits.step_ms, 1, 1));
  candidates_.resize(lanes_.size());
}

std::vector<Output> Scheduler::take_outputs() { return std::exchange(outputs_, {}); }

LaneIndex Scheduler::lane_of(const Sequence& sequence, const PlannedWork& planned) const {
  if (planned.kind == WorkKind::kMove) return bridge();
  return sequence.role(planned.role).lane;
}

bool Scheduler::room_soon(const Sequence& sequence) const {
  const LaneIndex lane = sequence.role(StateRole::kTarget).lane;
  if (lanes_[lane].work_id != 0) return false;
  return std::none_of(active_.begin(), active_.end(), [&](const auto& entry) {
    const Sequence& other = *entry.second;
    return &other != &sequence && (other.alone || other.handed_over) && other.role(StateRole::kTarget).lane == lane;
  });
}

void Scheduler::collect(Sequence& sequence) {
  skip_keeping(sequence);
  sequence.room_soon = room_soon(sequence);
  StepPlan plan = sequence.plan();
  while (plan.change() != StepPlan::Change::kNone || leave_lost(sequence, plan)) {
    if (plan.change() == StepPlan::Change::kTakeOver) sequence.take_over_source();
    if (plan.change() == StepPlan::Change::kPassOn) sequence.pass_on();
    skip_keeping(sequence);
    plan = sequence.plan();
  }
  std::array<bool, kStateRoles> ready{};
  for (const PlannedWork& planned : plan.works()) {
    const LaneIndex lane = lane_of(sequence, planned);
    RoleRecord& record = sequence.role(planned.role);
    BATON_CHECK(!record.busy);
    if (!record.ready) {
      record.ready_since = lanes_[lane].steps;
      record.waited = 0;
    }
    ready[static_cast<size_t>(planned.role)] = true;
    candidates_[lane].push_back({&sequence, planned});
    uint64_t& tokens = candidates_[lane].back().planned.tokens;
    // The proof's state keeps nothing.
    if (planned.kind == WorkKind::kStep && !planned.decodes && planned.role != StateRole::kProof)
      tokens = std::min(tokens, sequence.next_cut(record.position()) - record.position());
  }
  for (size_t i = 0; i < kStateRoles; ++i) sequence.roles[i].ready = ready[i];
}

std::vector<Work> Scheduler::poll(int64_t now_ns) {
  give_up_overdue(now_ns);
  for (bool again = true; again;) {
    finish_ended(now_ns);
    admit(now_ns);
    for (auto& waiting : candidates_) waiting.clear();
    again = false;
    for (auto& [id, sequence] : active_) {
      collect(*sequence);
      again = again || sequence->ends_now();  // a lost lane ended it, or its deadline: there may be room for another
    }
  }
  cut_short();
  std::vector<Work> works;
  for (LaneIndex index = 0; index < lanes_.size(); ++index) {
    std::vector<Candidate>& waiting = candidates_[index];
    LaneRecord& lane = lanes_[index];
    if (lane.work_id != 0 || waiting.empty()) continue;
    uint64_t tokens_max = 0;
    std::vector<Candidate> chosen = choose(index, waiting, &tokens_max);
    ++lane.steps;
    for (const Candidate& candidate : waiting) ++candidate.sequence->role(candidate.planned.role).waited;
    works.push_back(start(index, chosen, waiting.size() > chosen.size(), tokens_max));
    lane.sent_ns = now_ns;
  }
  count_states();
  return works;
}

// Works that nobody waits for any more.
void Scheduler::cut_short() {
  for (LaneRecord& lane : lanes_) {
    const auto& requests = lane.in_flight.requests;
    const bool useless = !requests.empty() && std::all_of(requests.begin(), requests.end(),
                                                          [&](RequestId id) { return active_.at(id)->over(); });
    if (useless) lane.cancelled->store(true);
  }
}

void Scheduler::lend(Sequence& sequence, StateRole role, HeldState& to) {
  RoleRecord& record = sequence.role(role);
  BATON_CHECK(!record.busy);
  record.busy = true;
  record.waited = 0;
  record.ready = false;
  if (record.held.state == nullptr) {
    record.held.id = next_state_++;
    record.held.provenance = {};
    record.held.exact = true;
    record.held.kept = {};
    record.held.stream = {};
    record.held.home = record.lane;
    record.held.tokens_max = sequence.tokens_max;
    record.origin = Origin::kOwn;
  }
  to = std::move(record.held);
  record.held = {};
}

void Scheduler::start_decode(Sequence& sequence, StateRole role, Work& work, StepSeat& seat) {
  work.want_placement = work.want_placement || !sequence.decode_placement;
  seat.request = sequence.id;
  seat.role = role;
  seat.tokens = {sequence.history.back()};
  seat.want_logits = sequence.request.want_logits && !sequence.prompt_done;
  seat.picker = std::move(sequence.picker);
  lend(sequence, role, seat.state);
  seat.state.exact = false;
}

void Scheduler::start_step(const std::vector<Candidate>& chosen, bool others_wait, uint64_t tokens_max, Work& work) {
  auto& step = work.body.emplace<StepWork>();
  step.ms_max = facts_.limits.decode_ms;
  step.calls = others_wait ? 1 : kDecodeCallsMax;
  for (const Candidate& candidate : chosen) {
    Sequence& sequence = *candidate.sequence;
    const StateRole role = candidate.planned.role;
    StepSeat& seat = step.seats.emplace_back();
    if (candidate.planned.decodes) {
      // The first token of an answer returns at once: it is the time to first token, and a seal may be due behind it.
      uint64_t left = sequence.prompt_done ? sequence.request.max_new_tokens - sequence.generated() : 1;
      if (candidate.planned.tokens > 0) left = std::min(left, candidate.planned.tokens);
      step.calls = static_cast<uint32_t>(std::min<uint64_t>(step.calls, left));
      start_decode(sequence, role, work, seat);
      continue;
    }
    step.calls = 1;
    seat.request = sequence.id;
    seat.role = role;
    const RoleRecord& record = sequence.role(role);
    const bool scores = sequence.scores_prompt();
    if (scores) tokens_max = std::min(tokens_max, scored_tokens_max(facts_.models[facts_.lanes[record.lane].model]));
    seat.tokens = sequence.tokens_from(record.position(), std::min(candidate.planned.tokens, tokens_max));
    if (scores) sequence.ask_scores(record.position(), seat);
    work.want_placement = work.want_placement || !record.placement;
    lend(sequence, role, seat.state);
    if (!candidate.planned.streams) continue;
    seat.into_tokens = sequence.history.size() - 1;
    // A checkpoint that is due there is kept from the source.
    const bool kept = std::binary_search(sequence.cuts.begin(), sequence.cuts.end(), seat.into_tokens);
    if (!kept) seat.source = StreamSource::kGoes;
    lend(sequence, StateRole::kTarget, seat.into);
  }
}

void Scheduler::start_move(const Candidate& candidate, MoveWork& work) {
  Sequence& sequence = *candidate.sequence;
  work.request = sequence.id;
  const bool restores = candidate.planned.form == MoveForm::kOpen && (sequence.start.state || sequence.cached);
  work.form = restores ? MoveForm::kRestore : candidate.planned.form;
  work.role = candidate.planned.role;
  work.to_role = candidate.planned.to;
  if (work.form != MoveForm::kOpen && !restores)
    work.tokens = sequence.tokens_from(0, sequence.role(work.role).position());
  switch (work.form) {
    case MoveForm::kCarry:
      lend(sequence, work.role, work.from);
      lend(sequence, work.to_role, work.to);
      return;
    case MoveForm::kOpen:
      sequence.caller_asked = true;
      lend(sequence, work.role, work.to);
      work.tokens = sequence.request.tokens;
      work.start = sequence.request.start_state;
      return;
    case MoveForm::kSeal:
      sequence.caller_asked = true;
      lend(sequence, work.role, work.from);
      if (sequence.seal_pending) work.take = sequence.request.seal_to;
      work.want_block = sequence.keeps_seal();
      return;
    case MoveForm::kRestore:
      lend(sequence, work.role, work.to);
      if (sequence.cached) {
        work.tokens = sequence.request.tokens;
        work.start = sequence.cached->source;
        work.to.exact = sequence.start_key.exact && sequence.start_key.lane == work.to.home;
        return;
      }
      work.checkpoint = sequence.start;
      work.to.exact = sequence.start_key.exact && sequence.start_key.lane == work.to.home &&
                      sequence.start.state->position() % kExactTokens == 0;
      return;
    case MoveForm::kKeep:
      lend(sequence, work.role, work.from);
      sequence.putting_by = sequence.aside_due && !sequence.ending;
      work.memory = &checkpoint_memory_;
      if (!sequence.putting_by) work.at_rest = at_rest(sequence, work.from);
      keeping_bytes_ = CheckpointMemory::bytes_for(*work.from.state, work.from.kept.get(), work.at_rest);
      return;
  }
}

void Scheduler::start_prove(const Candidate& candidate, uint64_t tokens_max, Work& work) {
  Sequence& sequence = *candidate.sequence;
  auto& prove = work.body.emplace<ProveWork>();
  prove.bounds = sequence.bounds();
  if (candidate.planned.decodes) {
    start_decode(sequence, candidate.planned.role, work, prove.seat);
  } else {
    prove.seat.request = sequence.id;
    prove.seat.role = candidate.planned.role;
    const uint64_t from = sequence.role(StateRole::kProof).position();
    prove.steps = sequence.make_steps(from, sequence.role(candidate.planned.role).position(), tokens_max);
    uint64_t count = 0;
    for (const MakeStep& step : prove.steps) count += step.tokens;
    prove.seat.tokens = sequence.tokens_from(from, count);
    lend(sequence, candidate.planned.role, prove.seat.state);
  }
  lend(sequence, StateRole::kProof, prove.proof);
}

Work Scheduler::start(LaneIndex index, std::vector<Candidate>& chosen, bool others_wait, uint64_t tokens_max) {
  const Candidate& first = chosen.front();
  Work work;
  work.id = next_work_++;
  work.lane = index;
  LaneRecord& lane = lanes_[index];
  lane.work_id = work.id;
  lane.in_flight = {};
  lane.in_flight.kind = first.planned.kind;
  lane.cancelled->store(false);
  work.cancelled = lane.cancelled.get();
  const auto own = [&](const Sequence& sequence, StateRole role, const HeldState& held, bool decodes = false) {
    lane.in_flight.states.push_back({held.id, sequence.id, role, held.home, index, held.bytes, decodes});
  };
  for (const Candidate& candidate : chosen) {
    ++candidate.sequence->steps_in_flight;
    lane.in_flight.requests.push_back(candidate.sequence->id);
  }
  Sequence& sequence = *first.sequence;
  switch (first.planned.kind) {
    case WorkKind::kMake: {
      auto& body = work.body.emplace<MakeWork>();
      body.request = sequence.id;
      body.role = first.planned.role;
      lend(sequence, body.role, body.state);
      own(sequence, body.role, body.state);
      break;
    }
    case WorkKind::kStep: {
      start_step(chosen, others_wait, tokens_max, work);
      const auto& seats = std::get<StepWork>(work.body).seats;
      for (size_t i = 0; i < seats.size(); ++i)
        own(*chosen[i].sequence, seats[i].role, seats[i].state, seats[i].decodes());
      for (size_t i = 0; i < seats.size(); ++i) {
        if (!seats[i].streams()) continue;
        own(*chosen[i].sequence, StateRole::kTarget, seats[i].into);
        lane.in_flight.states.back().arrives = true;
      }
      break;
    }
    case WorkKind::kMove: {
      auto& body = work.body.emplace<MoveWork>();
      start_move(first, body);
      if (body.from.state) own(sequence, body.role, body.from);
      if (body.to.state) own(sequence, body.form == MoveForm::kCarry ? body.to_role : body.role, body.to);
      break;
    }
    case WorkKind::kProve: {
      start_prove(first, tokens_max, work);
      const auto& body = std::get<ProveWork>(work.body);
      own(sequence, body.seat.role, body.seat.state, body.seat.decodes());
      own(sequence, StateRole::kProof, body.proof);
      break;
    }
  }
  return work;
}

}  // namespace baton
