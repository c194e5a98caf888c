// What a request's proof compares, what it allows, and what follows from it.
#include <algorithm>
#include <utility>

#include "baton/engine/sequence.h"

namespace baton {

// What was asked for and cannot be had is left out here, once, and said.
void Sequence::settle_proof() {
  asked_verify = request.verify;
  if (asked_verify == VerifyMode::kOff) return;
  std::string& why = stats.bridge.unproven;
  const bool hands_over = strategy->hand_overs > 0 && history.size() > 1;
  const bool arrives = onward() || (hands_over && !same_unit());
  const auto no_bounds = [](const std::string& from, const std::string& to) {
    return "no bounds are known for states that '" + from + "' hands to '" + to + "'";
  };
  if (!foreign && !onward()) {
    why = history.size() > 1 ? "nothing is handed over: one unit does everything"
                             : "nothing is handed over: the prompt is one token";
  } else if (had_start && onward()) {
    why = "a starting state that is handed over twice is not compared";
  } else if (arrives && !request.move_bounds) {
    why = no_bounds(onward() ? request.via_unit : request.prefill_unit, request.decode_unit);
  } else if (hands_over && onward() && !same_unit() && !request.via_bounds) {
    why = no_bounds(request.prefill_unit, request.via_unit);
  } else if (had_start && !request.start_bounds) {
    why = "no bounds are known for the starting state on '" + request.decode_unit + "'";
  }
  if (!why.empty()) request.verify = VerifyMode::kOff;
  start_check_due = had_start && request.verify != VerifyMode::kOff;
}

bool Sequence::proof_repeats() const {
  const bool moved = !same_unit() && !alone && !start_check_due;
  return !moved && (!had_start || request.start_bounds->exact());
}

ProofBounds Sequence::bounds() const {
  // On one unit, from the tokens: the same bits.
  ProofBounds sum;
  if (had_start) sum = *request.start_bounds;
  if (start_check_due) return sum;
  const std::string& unit = onward() ? via_words.shown : decode_words.shown;
  if (handed_over && !same_unit()) {
    const ProofBounds& moved = onward() ? *request.via_bounds : *request.move_bounds;
    had_start ? sum.add(moved) : static_cast<void>(sum = moved);
  }
  if (sum.between.empty()) sum.between = unit + " -> " + unit + ", the same bits";
  return sum;
}

std::vector<MakeStep> Sequence::make_steps(uint64_t from, uint64_t to, uint64_t about) const {
  std::vector<MakeStep> steps;
  const Provenance& made = role(StateRole::kTarget).held.provenance;
  const bool repeats = proof_repeats() && made.replayable();
  uint64_t taken = 0, at = 0;
  for (const StateStep& step : made.steps) {
    for (uint32_t i = 0; i < step.count && repeats && at < to; ++i) {
      at += step.tokens;
      if (at <= from || at > to) continue;
      if (taken > 0 && taken + step.tokens > about) return steps;
      steps.push_back({step.kind == StepKind::kDecode, step.tokens});
      taken += step.tokens;
    }
  }
  if (!steps.empty() || from >= to) return steps;
  if (from + 1 == to) return {{.decodes = true, .tokens = 1}};
  return {{.decodes = false, .tokens = static_cast<uint32_t>(std::min(to - 1 - from, std::max<uint64_t>(about, 1)))}};
}

void Sequence::take_states(const WorstPart& worst, const std::string& worst_at, const ProofBounds& bounds) {
  BridgeStats& bridge = stats.bridge;
  if (std::exchange(other_bounds, false)) {
    bridge.worst = {};
    bridge.max_rms_dlogit = bridge.max_abs_dlogit = bridge.max_kl = 0;
  }
  bridge.between = bounds.between;
  if (bridge.states++ == 0 || worst.share() >= bridge.worst.share()) {
    bridge.worst = worst;
    bridge.worst_at = worst_at;
  }
  if (!worst.passed()) {
    return fail_proof(start_check_due ? "the starting state" : "the hand-over", "the states differ, " + worst_at);
  }
  if (!start_check_due) {
    states_compared = true;
    return;
  }
  start_check_due = start_opened = false;
  if (alone) {
    stats.reused_tokens = role(StateRole::kTarget).held.state->position();
    end_start();
  } else {
    drop(StateRole::kTarget);  // the prefill unit goes on from it
  }
}

void Sequence::take_logits(const LogitsDifference& difference, const LogitsVerdict& verdict,
                           const LogitsBounds& bounds) {
  BridgeStats& bridge = stats.bridge;
  ++bridge.checked;
  bridge.agreed += difference.agreed ? 1 : 0;
  bridge.near_ties += verdict.near_tie ? 1 : 0;
  bridge.max_rms_dlogit = std::max(bridge.max_rms_dlogit, difference.rms);
  bridge.max_abs_dlogit = std::max(bridge.max_abs_dlogit, difference.largest);
  bridge.max_kl = std::max(bridge.max_kl, difference.kl);
  bridge.logits = bounds;
  if (verdict.passed) {
    proof_passed = true;
    if (!proof_wanted()) drop(StateRole::kProof);
    return;
  }
  fail_proof("answer token " + std::to_string(generated()),
             "the logits differ by rms " + std::to_string(difference.rms) + " of " + std::to_string(bounds.rms) +
                 " allowed, largest " + std::to_string(difference.largest) + " of " + std::to_string(bounds.largest) +
                 ", KL " + std::to_string(difference.kl) + " of " + std::to_string(bounds.kl) +
                 (difference.agreed ? "" : ", and choose another token"));
}

void Sequence::fail_proof(const std::string& where, const std::string& what) {
  RoleRecord& target = role(StateRole::kTarget);
  RoleRecord& proof = role(StateRole::kProof);
  drop(StateRole::kTarget);
  target.held = std::exchange(proof.held, {});
  target.origin = Origin::kOwn;
  target.prefill_tokens = proof.prefill_tokens;
  target.prefill_ms = proof.prefill_ms;
  target.placement = proof.placement;
  prefilled_by = StateRole::kTarget;
  alone = true;
  foreign = start_check_due = start_opened = false;
  end_start();
  stats.bridge.proof_failed = true;
  stats.reused_tokens = 0;
  say_fallback("the bridge proof failed at " + where + ": " + what + "; the decode unit went on from its own state");
}

}  // namespace baton
