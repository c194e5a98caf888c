// Transitions of one request that need no knowledge of the others.
#include "baton/engine/sequence.h"

#include <algorithm>
#include <utility>

#include "baton/base/clock.h"

namespace baton {
namespace {

void append_reason(std::string& to, std::string why) {
  if (!to.empty()) to += "; ";
  to += why;
}

double per_second(double count, double ms) { return ms > 0 ? count * 1000 / ms : 0; }

}  // namespace

RequestView Sequence::view() const {
  RequestView view;
  view.need = history.size() - 1;
  view.same_unit = prefill_lane == decode_lane;
  view.alone = alone;
  view.handed_over = handed_over;
  view.start_pending = start_pending;
  view.seal_due = seal_pending && prompt_done;
  view.proof_wanted = proof_wanted();
  for (size_t i = 0; i < kStateRoles; ++i) {
    const RoleRecord& record = roles[i];
    const bool here = record.held.state != nullptr;
    view.roles[i] = {.exists = here, .busy = record.busy, .position = here ? record.held.state->position() : 0};
  }
  return view;
}

StepPlan Sequence::plan() const {
  if (!ending) return strategy->plan(view());
  StepPlan plan;
  if (owes_seal() && !role(StateRole::kTarget).busy)
    plan.add({.kind = WorkKind::kMove, .role = StateRole::kTarget, .form = MoveForm::kSeal});
  return plan;
}

void Sequence::begin(Request&& asked, int32_t vocab) {
  request = std::move(asked);
  if (request.prefill_unit.empty()) request.prefill_unit = request.decode_unit;
  strategy = find_strategy(request.strategy);
  auto made = Sampler::create(request.sampler, vocab);
  BATON_CHECK(strategy != nullptr && made);
  picker = std::make_unique<TokenPicker>(
      TokenPicker{*std::move(made), request.ignore_eos ? std::vector<int32_t>() : std::move(request.stop_ids)});
  history = request.tokens;
  had_start = start_pending = !request.start_state.empty();
  foreign = start_pending || (strategy->hands_over && history.size() > 1);
  alone = !foreign;
  seal_pending = request.want_sealed_state;
  answer_seal_pending = request.want_answer_state;
}

void Sequence::end(FinishReason reason, Error why) {
  if (over()) return;
  const bool overtakes = reason == FinishReason::kError || reason == FinishReason::kCancelled;
  if (ending && !overtakes) return;
  ending = reason;
  error = std::move(why);
}

void Sequence::admitted(int64_t now_ns) {
  stats.queue_ms = stats.first_token.queue_ms = ms_between(submitted_ns, now_ns);
  timed_until_ns = now_ns;
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
  if (answer_seal_pending && ending) {
    if (seal_pending) sealed_state = block;
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
  record.held.state.reset();
  record.held.bytes = 0;
  record.held.provenance = {};
  record.discard = record.busy;
}

void Sequence::start_again(std::string why) {
  alone = true;
  handed_over = false;
  foreign = start_pending;
  stats.reused_tokens = 0;
  append_reason(stats.fallback, std::move(why));
  if (!prompt_done) {
    prefilled_by = StateRole::kTarget;
    role(StateRole::kTarget).prefill_tokens = 0;
    role(StateRole::kTarget).prefill_ms = 0;
  }
  for (const StateRole which : {StateRole::kSource, StateRole::kTarget, StateRole::kProof}) drop(which);
}

void Sequence::fall_back(Error why) {
  if (alone) return end_with(std::move(why));
  RoleRecord& target = role(StateRole::kTarget);
  RoleRecord& proof = role(StateRole::kProof);
  // What the decode unit made for the proof is what it would now begin again, unless a starting state is to be opened.
  HeldState begun;
  if (!start_pending && !target.busy) begun = std::exchange(proof.held, {});
  start_again(std::move(why.message));
  if (!begun.state) return;
  target.held = std::move(begun);
  target.origin = Origin::kOwn;
  target.prefill_tokens = proof.prefill_tokens;
  target.prefill_ms = proof.prefill_ms;
  target.placement = proof.placement;
}

void Sequence::rebuild(Error why) {
  if (single_row) return end_with(std::move(why));
  single_row = true;
  start_again(std::move(why.message));
}

void Sequence::take_over(Origin origin) {
  role(StateRole::kTarget).origin = origin;
  handed_over = true;
  prefilled_by = StateRole::kSource;
}

bool Sequence::hand_over_alias(const StepPlan& plan) {
  for (const PlannedWork& work : plan.works()) {
    if (work.kind != WorkKind::kMove || work.form != MoveForm::kAlias) continue;
    RoleRecord& source = role(StateRole::kSource);
    BATON_CHECK(!source.busy && source.held.state && !role(StateRole::kTarget).held.state);
    role(StateRole::kTarget).held = std::exchange(source.held, {});
    take_over(source.origin);
    stats.bridge.kind = "alias";
    return true;
  }
  return false;
}

void Sequence::start_opened(StateRole which, uint64_t bytes, double ms) {
  RoleRecord& record = role(which);
  const uint64_t position = record.held.state->position();
  if (position >= history.size()) {
    return end_with({Code::kMismatch, "the starting state holds " + std::to_string(position) +
                                          " tokens, the prompt has " + std::to_string(history.size()) +
                                          ": at least one must be new"});
  }
  start_pending = false;
  record.origin = Origin::kSealed;
  stats.reused_tokens = position;
  stats.bridge.kind = "open";
  stats.bridge.bytes += bytes;
  stats.bridge.ms += ms;
}

void Sequence::take_comparison(const Comparison& comparison, double tolerance) {
  BridgeStats& bridge = stats.bridge;
  ++bridge.checked;
  bridge.agreed += comparison.agreed ? 1 : 0;
  bridge.near_ties += comparison.near_tie ? 1 : 0;
  bridge.max_abs_dlogit = std::max(bridge.max_abs_dlogit, comparison.max_abs_dlogit);
  bridge.tolerance = tolerance;
  if (comparison.passed) {
    proof_passed = true;
    if (!proof_wanted()) drop(StateRole::kProof);
    return;
  }
  drop(StateRole::kTarget);
  role(StateRole::kTarget).held = std::exchange(role(StateRole::kProof).held, {});
  role(StateRole::kTarget).origin = Origin::kOwn;
  prefilled_by = StateRole::kProof;
  alone = true;
  foreign = false;
  append_reason(stats.fallback, "the bridge proof failed at answer token " + std::to_string(generated()) +
                                    ": logits differ by " + std::to_string(comparison.max_abs_dlogit) +
                                    ", the units' tolerance is " + std::to_string(tolerance) +
                                    "; the decode unit went on from its own state");
}

std::optional<TokenEvent> Sequence::take_token(int32_t token, int64_t now_ns) {
  if (!prompt_done) first_token_ns = now_ns;
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
  const TokenEvent event{.id = token, .index = static_cast<uint32_t>(generated()), .time_ns = now_ns};
  history.push_back(token);
  if (generated() >= request.max_new_tokens) end(FinishReason::kLength);
  return event;
}

void Sequence::fill_phases() {
  const RoleRecord& prefilled = role(prefilled_by);
  stats.prefill_tokens = prefilled.prefill_tokens;
  stats.prefill_ms = prefilled.prefill_ms;
  stats.prefill_tps = per_second(static_cast<double>(prefilled.prefill_tokens), prefilled.prefill_ms);
  stats.prefill.asked = request.prefill_unit;
  if (prefilled.prefill_tokens > 0 && prefilled.placement) {
    stats.prefill.ran = prefilled.placement->ran;
    stats.prefill.evidence = prefilled.placement->evidence;
    stats.prefill.warning = prefilled.placement->warning;
  } else if (prompt_tokens() == 1) {
    stats.prefill.evidence = "nothing to prefill: the prompt is one token";
  } else {
    stats.prefill.evidence = prompt_done ? "nothing to prefill: the starting state holds the rest" : "ended before it";
  }
  stats.decode.asked = request.decode_unit;
  if (decode_placement) {
    stats.decode.ran = decode_placement->ran;
    stats.decode.evidence = decode_placement->evidence;
    stats.decode.warning = decode_placement->warning;
  } else {
    stats.decode.evidence = "ended before it";
  }
}

FinishedEvent Sequence::finish(int64_t now_ns) {
  stats.prompt_tokens = prompt_tokens();
  stats.generated_tokens = generated();
  stats.total_ms = ms_between(submitted_ns, now_ns);
  if (prompt_done) {
    stats.ttft_ms = ms_between(submitted_ns, first_token_ns);
    const uint64_t sampled = generated() + (stop_id >= 0 ? 1 : 0);
    const double intervals = sampled > 1 ? static_cast<double>(sampled - 1) : 0;
    stats.decode_tps = per_second(intervals, ms_between(first_token_ns, last_token_ns));
  }
  fill_phases();
  stats.bridge.verified = foreign && prompt_done;

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
  }
  return event;
}

}  // namespace baton
