// Transitions of one request that need no knowledge of the others.
#include "baton/engine/sequence.h"

#include <algorithm>
#include <utility>

#include "baton/base/clock.h"

namespace baton {
namespace {

void ran_as(const Placement& placement, PhaseStats& phase) {
  phase.ran = placement.ran;
  phase.evidence = placement.text();
  phase.warning = placement.warning;
  phase.emulated = placement.emulated;
}

double per_second(double count, double ms) { return ms > 0 ? count * 1000 / ms : 0; }

}  // namespace

RequestView Sequence::view() const {
  RequestView view;
  view.need = history.size() - 1;
  view.generated = generated();
  view.same_unit = same_unit();
  view.room_soon = room_soon;
  view.onward = onward();
  // What comes back is opened into the role it was in.
  view.alone = alone || (handed_over && coming_back);
  view.handed_over = handed_over && !coming_back;
  view.start_pending = start_pending;
  view.seal_due = seal_pending && prompt_done;
  view.proof_wanted = proof_wanted();
  view.compare_due = view.proof_wanted && !states_compared;
  view.proof_repeats = view.compare_due && proof_repeats();
  view.start_check_due = start_check_due;
  view.start_opened = start_opened;
  for (size_t i = 0; i < kStateRoles; ++i) {
    const RoleRecord& record = roles[i];
    view.roles[i] = {.exists = record.held.state != nullptr, .busy = record.busy, .position = record.position()};
  }
  return view;
}

uint64_t Sequence::next_cut(uint64_t position) const {
  const auto next = std::upper_bound(cuts.begin(), cuts.end(), position);
  return next == cuts.end() ? UINT64_MAX : *next;
}

std::optional<StateRole> Sequence::keep_due() const {
  if (ending) return owes_checkpoint() && !role(holder()).busy ? std::optional(holder()) : std::nullopt;
  if (aside_due || prompt_done || start_pending) return std::nullopt;
  const StateRole which = carrier();
  const RoleRecord& record = role(which);
  const bool due = !record.busy && record.held.state && record.position() > kept_until &&
                   std::binary_search(cuts.begin(), cuts.end(), record.position());
  return due ? std::optional(which) : std::nullopt;
}

bool Sequence::owes_checkpoint() const {
  if (!ending || !prompt_done || request.reuse != ReuseMode::kAny) return false;
  if (*ending != FinishReason::kStop && *ending != FinishReason::kLength) return false;
  const RoleRecord& target = role(holder());
  // A stop comes while a step is under way: what it draws is part of the answer, and of its state.
  if (target.busy) return *ending == FinishReason::kStop && !target.discard;
  const uint64_t position = target.position();
  return target.held.state && position >= kPageTokens && position > kept_until && position + 1 >= history.size();
}

StepPlan Sequence::plan() const {
  if (aside_due && !ending) {
    StepPlan keeping;
    if (steps_in_flight == 0) keeping.add({.kind = WorkKind::kMove, .role = carrier(), .form = MoveForm::kKeep});
    return keeping;
  }
  const std::optional<StateRole> keeps = keep_due();
  if (!ending && !keeps) return strategy->plan(view());
  StepPlan plan;
  if (!ending) {
    const StepPlan other = strategy->plan(view());
    plan.add({.kind = WorkKind::kMove, .role = *keeps, .form = MoveForm::kKeep});
    for (const PlannedWork& planned : other.works()) {
      const bool moves = planned.kind == WorkKind::kMove;
      if (planned.role != *keeps && !moves && planned.kind != WorkKind::kProve) plan.add(planned);
    }
    return plan;
  }
  if (owes_seal() && !role(holder()).busy)
    plan.add({.kind = WorkKind::kMove, .role = holder(), .form = MoveForm::kSeal});
  if (plan.works().empty() && keeps) plan.add({.kind = WorkKind::kMove, .role = *keeps, .form = MoveForm::kKeep});
  return plan;
}

void Sequence::begin(ResolvedRequest&& asked) {
  request = std::move(asked.request);
  strategy = asked.strategy;
  picker = std::move(asked.picker);
  tokens_max = asked.tokens_max;
  bytes_reserved = asked.state_bytes;
  decode_lane = asked.decode;
  prefill_words = std::move(asked.prefill_words);
  via_words = std::move(asked.via_words);
  decode_words = std::move(asked.decode_words);
  for (RoleRecord& record : roles) record.lane = asked.via;
  role(StateRole::kSource).lane = asked.prefill;
  history = request.tokens;
  had_start = start_pending = !request.start_state.empty();
  foreign = start_pending || (strategy->hand_overs > 0 && history.size() > 1);
  alone = !foreign;
  seal_pending = request.want_sealed_state || request.seal_to;
  answer_seal_pending = request.want_answer_state;
  cuts = std::move(asked.cuts);
  settle_proof();
}

void Sequence::add_cut(uint64_t position) {
  const auto at = std::lower_bound(cuts.begin(), cuts.end(), position);
  if (position > 0 && (at == cuts.end() || *at != position)) cuts.insert(at, position);
}

void Sequence::end(FinishReason reason, Error why) {
  if (over()) return;
  const bool overtakes =
      reason == FinishReason::kError || reason == FinishReason::kCancelled || reason == FinishReason::kDeadline;
  if (ending && !overtakes) return;
  ending = reason;
  error = std::move(why);
}

void Sequence::admitted(int64_t now_ns) {
  stats.queue_ms = stats.first_token.queue_ms = ms_between(submitted_ns, now_ns);
  timed_until_ns = now_ns;
  was_admitted = true;
}

void Sequence::account(double FirstTokenTimes::*part, int64_t start_ns, int64_t end_ns) {
  if (prompt_done || end_ns <= timed_until_ns) return;
  FirstTokenTimes& times = stats.first_token;
  const int64_t begin_ns = std::max(start_ns, timed_until_ns);
  times.waiting_ms += ms_between(timed_until_ns, begin_ns);
  times.*part += ms_between(begin_ns, end_ns);
  timed_until_ns = end_ns;
}

void Sequence::take_seal(std::vector<std::byte> block, uint64_t tokens) {
  // One that was begun before the end may not have been kept.
  if (answer_seal_pending && ending && !block.empty()) {
    if (seal_pending && request.want_sealed_state) sealed_state = block;
    answer_state = std::move(block);
    answer_state_tokens = tokens;
    answer_seal_pending = false;
  } else {
    sealed_state = std::move(block);
  }
  seal_pending = false;
}

void Sequence::drop(StateRole which) {
  RoleRecord& record = role(which);
  record.held.stream.reset();
  record.held.state.reset();
  record.held.kept.reset();
  record.held.bytes = 0;
  record.discard = record.busy;
}

void Sequence::take_over(Origin origin) {
  role(StateRole::kTarget).origin = origin;
  handed_over = true;
  prefilled_by = StateRole::kSource;
}

void Sequence::take_over_source() {
  RoleRecord& source = role(StateRole::kSource);
  RoleRecord& target = role(StateRole::kTarget);
  BATON_CHECK(!source.busy && !target.busy);
  if (!same_unit()) {
    BATON_CHECK(target.held.state && !target.held.stream);
    drop(StateRole::kSource);
    return take_over(Origin::kSealed);
  }
  BATON_CHECK(source.held.state && !target.held.state);
  target.held = std::exchange(source.held, {});
  take_over(source.origin);
  const BridgeKind kind = stats.bridge.kind;
  if (kind != BridgeKind::kMove && kind != BridgeKind::kAdopt) stats.bridge.kind = BridgeKind::kAlias;
}

void Sequence::pass_on() {
  RoleRecord& source = role(StateRole::kSource);
  RoleRecord& target = role(StateRole::kTarget);
  BATON_CHECK(onward() && !source.busy && !source.held.state && !target.busy && target.held.state);
  settle_via();
  via_level = level();
  passed_on = other_bounds = true;
  source.held = std::exchange(target.held, {});
  source.origin = target.origin;
  source.lane = target.lane;
  target.lane = role(StateRole::kProof).lane = decode_lane;
  for (RoleRecord& record : roles) record.ready = false;
  drop(StateRole::kProof);
  alone = handed_over = states_compared = proof_passed = false;
  foreign = true;
}

// What was decoded so far was the via unit's.
void Sequence::settle_via() {
  stats.via_tokens = generated();
  via_until_ns = last_token_ns;
  via_placement = std::exchange(decode_placement, std::nullopt);
}

void Sequence::take_start(StateRole which, double ms) {
  RoleRecord& record = role(which);
  const uint64_t position = record.held.state->position();
  if (position >= history.size()) {
    return end_with({Code::kMismatch, "the starting state holds " + std::to_string(position) +
                                          " tokens, the prompt has " + std::to_string(history.size()) +
                                          ": at least one must be new"});
  }
  stats.bridge.kind = BridgeKind::kOpen;
  stats.bridge.bytes += request.start_state.size();
  stats.bridge.ms += ms;
  record.origin = Origin::kSealed;
  start_check_due = start_check_due && position > 0;
  if (start_check_due) {
    start_opened = true;
  } else {
    end_start();
    stats.reused_tokens = position;
    if (request.reuse == ReuseMode::kOff || position < kPageTokens) return;
    add_cut(position);
    kept_until = position - 1;
  }
}

std::optional<TokenEvent> Sequence::take_token(int32_t token, int64_t now_ns) {
  if (!prompt_done) first_token_ns = now_ns;
  const double gap_ms = ms_between(last_token_ns, now_ns);
  prompt_done = true;
  last_token_ns = now_ns;
  if (request.max_new_tokens == 0) {
    end(FinishReason::kLength);
    return std::nullopt;
  }
  if (picker->stops(token)) {
    stop_id = token;
    end(FinishReason::kStop);
    return std::nullopt;
  }
  if (generated() > 0) stats.token_ms.push_back(static_cast<float>(gap_ms));
  const TokenEvent event{.id = token, .index = static_cast<uint32_t>(generated()), .time_ns = now_ns};
  history.push_back(token);
  if (generated() >= request.max_new_tokens) end(FinishReason::kLength);
  if (stop_due) end(FinishReason::kStop);
  return event;
}

void Sequence::ask_scores(uint64_t position, StepSeat& seat) const {
  seat.scored_from = position + 1;
  seat.scored = tokens_from(position + 1, seat.tokens.size());
  seat.scored_top = *request.prompt_logprobs;
}

void Sequence::take_scores(uint64_t first, std::vector<Logprobs>&& scores) {
  if (scores.empty()) return;
  prompt_logprobs.resize(prompt_tokens() - 1);
  BATON_CHECK(first > 0 && first + scores.size() <= prompt_tokens());
  std::move(scores.begin(), scores.end(), prompt_logprobs.begin() + static_cast<ptrdiff_t>(first - 1));
}

void Sequence::fill_phases() {
  const RoleRecord& prefilled = role(prefilled_by);
  stats.prefill_tokens = prefilled.prefill_tokens;
  stats.prefill_ms = prefilled.prefill_ms;
  stats.prefill_tps = per_second(static_cast<double>(prefilled.prefill_tokens), prefilled.prefill_ms);
  stats.prefill.unit = request.prefill_unit;
  stats.prefill.asked = prefill_words.asked;
  if (prefilled.prefill_tokens > 0 && prefilled.placement) {
    ran_as(*prefilled.placement, stats.prefill);
  } else if (prompt_tokens() == 1) {
    stats.prefill.evidence = "nothing to prefill: the prompt is one token";
  } else {
    stats.prefill.evidence = prompt_done ? "nothing to prefill: the starting state holds the rest" : "ended before it";
  }
  if (strategy->hand_overs > 1 && request.via_unit != request.decode_unit) {
    stats.via.unit = request.via_unit;
    stats.via.asked = via_words.asked;
    via_placement ? ran_as(*via_placement, stats.via) : static_cast<void>(stats.via.evidence = "ended before it");
  }
  stats.decode.unit = request.decode_unit;
  stats.decode.asked = decode_words.asked;
  if (decode_placement) {
    ran_as(*decode_placement, stats.decode);
  } else {
    stats.decode.evidence = "ended before it";
  }
}

BridgeLevel Sequence::level() const {
  if (!foreign || !prompt_done) return BridgeLevel::kNone;
  if (request.verify != VerifyMode::kOff) return BridgeLevel::kProven;
  return stats.bridge.kind != BridgeKind::kAlias || had_start ? BridgeLevel::kSealed : BridgeLevel::kNone;
}

void Sequence::fill_bridge() {
  BridgeStats& bridge = stats.bridge;
  // Where the last unit decoded nothing, the answer is the via unit's.
  bridge.level = passed_on && !decode_placement ? via_level : level();
  if (strategy->hand_overs > 1 && prompt_done && bridge.level == BridgeLevel::kNone &&
      request.verify != VerifyMode::kOff && stats.fallback.empty()) {
    bridge.unproven = "nothing was handed over: the answer ended before it";
  }
  bridge.verified = bridge.level == (asked_verify == VerifyMode::kOff ? BridgeLevel::kSealed : BridgeLevel::kProven);
}

FinishedEvent Sequence::finish(int64_t now_ns) {
  if (onward()) settle_via();
  stats.prompt_tokens = prompt_tokens();
  stats.generated_tokens = generated();
  stats.total_ms = ms_between(submitted_ns, now_ns);
  if (prompt_done) {
    stats.ttft_ms = ms_between(submitted_ns, first_token_ns);
    const uint64_t sampled = generated() + (stop_id >= 0 ? 1 : 0);
    const uint64_t before = std::max<uint64_t>(stats.via_tokens, 1);
    const int64_t from_ns = stats.via_tokens > 0 ? via_until_ns : first_token_ns;
    const double intervals = sampled > before ? static_cast<double>(sampled - before) : 0;
    stats.decode_tps = per_second(intervals, ms_between(from_ns, last_token_ns));
    const uint64_t via_sampled = decode_placement ? stats.via_tokens : sampled;
    if (stats.via_tokens > 0 && via_sampled > 1)
      stats.via_tps = per_second(static_cast<double>(via_sampled - 1), ms_between(first_token_ns, via_until_ns));
  }
  fill_phases();
  fill_bridge();

  FinishedEvent event;
  event.reason = *ending;
  event.error = std::move(error);
  if (*ending == FinishReason::kStop) event.stop_id = stop_id;
  event.stats = std::move(stats);
  if (*ending != FinishReason::kError) {
    event.sealed_state = std::move(sealed_state);
    event.answer_state = std::move(answer_state);
    event.answer_state_tokens = answer_state_tokens;
    event.logits = std::move(logits);
    if (prompt_done) event.prompt_logprobs = std::move(prompt_logprobs);
  }
  return event;
}

}  // namespace baton
