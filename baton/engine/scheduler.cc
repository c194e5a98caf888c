// Admission, planning and the books of what is lent to lanes. What comes back from lanes is in scheduler_done.cc.
#include "baton/engine/scheduler.h"

#include <algorithm>
#include <utility>

namespace baton {
namespace {

constexpr uint32_t kDecodeCallsMax = 64;

}  // namespace

Scheduler::Scheduler(SchedulerFacts facts) : facts_(std::move(facts)) {
  const EngineLimits& limits = facts_.limits;
  for (const LaneFacts& lane : facts_.lanes) {
    const uint32_t preferred = std::max(lane.prefill_tokens_preferred, 1u);
    lanes_.emplace_back(PrefillBudget(limits.step_ms, preferred, preferred * std::max(limits.prefill_factor_max, 1u),
                                      lane.prefill_tokens_min));
  }
  lanes_.emplace_back(PrefillBudget(limits.step_ms, 1, 1));
  candidates_.resize(lanes_.size());
}

bool Scheduler::submit(RequestId id, ResolvedRequest& request, int64_t now_ns) {
  // What can start at once does not count as waiting.
  const uint64_t room = facts_.limits.requests_active_max + facts_.limits.requests_queued_max;
  if (requests() >= room) return false;
  queue_.push_back({id, std::move(request), now_ns, false});
  return true;
}

void Scheduler::cancel(RequestId id) {
  for (Queued& waiting : queue_) {
    if (waiting.id == id) waiting.cancelled = true;
  }
  if (const auto found = active_.find(id); found != active_.end()) found->second->end(FinishReason::kCancelled);
}

void Scheduler::stop(RequestId id) {
  const auto found = active_.find(id);
  if (found == active_.end() || !found->second->prompt_done) return cancel(id);
  found->second->end(FinishReason::kStop);
}

void Scheduler::cancel_all() {
  for (Queued& waiting : queue_) waiting.cancelled = true;
  for (auto& [id, sequence] : active_) sequence->end(FinishReason::kCancelled);
}

std::vector<Output> Scheduler::take_outputs() { return std::exchange(outputs_, {}); }

void Scheduler::admit(int64_t now_ns) {
  std::erase_if(queue_, [&](Queued& waiting) {
    if (!waiting.cancelled) return false;
    Sequence sequence;
    sequence.begin(std::move(waiting.request));
    sequence.submitted_ns = waiting.submitted_ns;
    sequence.admitted(now_ns);
    sequence.end(FinishReason::kCancelled);
    outputs_.push_back({waiting.id, sequence.finish(now_ns)});
    return true;
  });
  // In order of arrival: a large request at the head waits for memory rather than being overtaken for ever.
  while (!queue_.empty() && active_.size() < facts_.limits.requests_active_max) {
    const uint64_t bytes = queue_.front().request.state_bytes;
    if (!room_for_state(bytes)) {
      if (refuse_first(now_ns)) continue;
      break;
    }
    Queued next = std::move(queue_.front());
    queue_.pop_front();
    bytes_reserved_ += bytes;
    auto sequence = std::make_unique<Sequence>();
    sequence->id = next.id;
    sequence->submitted_ns = next.submitted_ns;
    sequence->admitted(now_ns);
    sequence->begin(std::move(next.request));
    if (sequence->request.reuse != ReuseMode::kOff && !sequence->had_start) find_start(*sequence);
    active_.emplace(next.id, std::move(sequence));
  }
}

LaneIndex Scheduler::lane_of(const Sequence& sequence, const PlannedWork& planned) const {
  if (planned.kind == WorkKind::kMove) return bridge();
  return sequence.role(planned.role).lane;
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

void Scheduler::collect(Sequence& sequence) {
  skip_keeping(sequence);
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

bool Scheduler::shares_prefill(const Candidate& candidate) {
  const PlannedWork& planned = candidate.planned;
  return planned.kind == WorkKind::kStep && !planned.decodes && candidate.sequence->shares_prefill();
}

bool Scheduler::shares_decode(const Candidate& candidate) {
  const PlannedWork& planned = candidate.planned;
  return planned.kind == WorkKind::kStep && planned.decodes && !candidate.sequence->unshared;
}

std::vector<Scheduler::Candidate> Scheduler::choose_prefills(LaneIndex index,
                                                             std::span<const Candidate> waiting) const {
  std::vector<Candidate> chosen = {waiting.front()};
  if (!shares_prefill(waiting.front())) return chosen;
  const uint64_t budget = lanes_[index].budget.tokens();
  uint64_t room = budget - std::min<uint64_t>(budget, waiting.front().planned.tokens);
  for (const Candidate& next : waiting.subspan(1)) {
    if (chosen.size() >= facts_.lanes[index].prefill_seats_shared) break;
    if (!shares_prefill(next) || next.planned.tokens > room) continue;
    chosen.push_back(next);
    room -= next.planned.tokens;
  }
  return chosen;
}

std::vector<Scheduler::Candidate> Scheduler::choose(LaneIndex index, std::vector<Candidate>& waiting) {
  LaneRecord& lane = lanes_[index];
  std::sort(waiting.begin(), waiting.end(), [](const Candidate& a, const Candidate& b) {
    return std::pair(a.record().ready_since, a.sequence->id) < std::pair(b.record().ready_since, b.sequence->id);
  });
  const auto decodes = [](const Candidate& candidate) { return candidate.planned.decodes; };
  const auto decode = std::find_if(waiting.begin(), waiting.end(), decodes);
  const auto other = std::find_if_not(waiting.begin(), waiting.end(), decodes);
  const bool decode_now =
      decode != waiting.end() &&
      (other == waiting.end() || lane.decodes_since_prefill < facts_.limits.decode_steps_per_prefill);
  if (!decode_now) {
    lane.decodes_since_prefill = 0;
    if (index == bridge()) return {*other};
    auto chosen = choose_prefills(index, std::span(waiting).subspan(static_cast<size_t>(other - waiting.begin())));
    if (facts_.lanes[index].mixes && shares_prefill(chosen.front())) {
      add_decodes(index, std::span(waiting).subspan(static_cast<size_t>(decode - waiting.begin())), chosen);
    }
    return chosen;
  }
  ++lane.decodes_since_prefill;
  std::vector<Candidate> chosen = {*decode};
  if (!shares_decode(*decode)) return chosen;
  add_decodes(index, std::span(waiting).subspan(static_cast<size_t>(decode + 1 - waiting.begin())), chosen);
  return chosen;
}

void Scheduler::add_decodes(LaneIndex index, std::span<const Candidate> waiting, std::vector<Candidate>& chosen) const {
  const uint32_t seats_max = std::max(facts_.lanes[index].decode_seats_max, 1u);
  auto seats = static_cast<uint32_t>(std::count_if(chosen.begin(), chosen.end(), shares_decode));
  for (const Candidate& next : waiting) {
    if (seats == seats_max) return;
    if (!shares_decode(next)) continue;
    chosen.push_back(next);
    ++seats;
  }
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
      again = again || (sequence->over() && sequence->steps_in_flight == 0);  // a lost lane ended it: room for another
    }
  }
  std::vector<Work> works;
  for (LaneIndex index = 0; index < lanes_.size(); ++index) {
    std::vector<Candidate>& waiting = candidates_[index];
    LaneRecord& lane = lanes_[index];
    if (lane.work_id != 0 || waiting.empty()) continue;
    std::vector<Candidate> chosen = choose(index, waiting);
    ++lane.steps;
    for (const Candidate& candidate : waiting) ++candidate.sequence->role(candidate.planned.role).waited;
    works.push_back(start(index, chosen, waiting.size() > chosen.size()));
    lane.sent_ns = now_ns;
  }
  count_states();
  return works;
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
    seat.tokens = sequence.tokens_from(record.position(), std::min(candidate.planned.tokens, tokens_max));
    work.want_placement = work.want_placement || !record.placement;
    lend(sequence, role, seat.state);
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
      lend(sequence, work.role, work.to);
      work.to.exact = false;  // whoever made it
      work.tokens = sequence.request.tokens;
      work.start = sequence.request.start_state;
      return;
    case MoveForm::kSeal:
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
      work.memory = &checkpoint_memory_;
      keeping_bytes_ = CheckpointMemory::bytes_for(*work.from.state, work.from.kept.get());
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

Work Scheduler::start(LaneIndex index, std::vector<Candidate>& chosen, bool others_wait) {
  const Candidate& first = chosen.front();
  Work work;
  work.id = next_work_++;
  work.lane = index;
  LaneRecord& lane = lanes_[index];
  lane.work_id = work.id;
  lane.in_flight = {};
  lane.in_flight.kind = first.planned.kind;
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
      start_step(chosen, others_wait, lane.budget.tokens(), work);
      const auto& seats = std::get<StepWork>(work.body).seats;
      for (size_t i = 0; i < seats.size(); ++i)
        own(*chosen[i].sequence, seats[i].role, seats[i].state, seats[i].decodes());
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
      start_prove(first, lane.budget.tokens(), work);
      const auto& body = std::get<ProveWork>(work.body);
      own(sequence, body.seat.role, body.seat.state, body.seat.decodes());
      own(sequence, StateRole::kProof, body.proof);
      break;
    }
  }
  return work;
}

}  // namespace baton
