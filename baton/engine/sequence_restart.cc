// What a request begins from: a checkpoint or the tokens, and again when something failed.
#include <algorithm>
#include <utility>

#include "baton/base/clock.h"
#include "baton/engine/sequence.h"

namespace baton {

void Sequence::begin_from(const CheckpointKey& key, KeptState found) {
  start_key = key;
  start = std::move(found);
  start_pending = true;
  kept_until = start.state->position();
}

void Sequence::begin_from_file(const CheckpointKey& key, CachedState found) {
  start_key = key;
  cached = std::move(found);
  start_pending = true;
  const uint64_t position = cached->tokens.size();
  add_cut(position);
  kept_until = position - 1;
}

void Sequence::put_aside(int64_t now_ns) {
  const StateRole which = carrier();
  ++stats.preempted;
  aside_since_ns = now_ns;
  aside_due = putting_by = put_by_failed = false;
  for (RoleRecord& record : roles) record.ready = false;
  const Origin origin = role(which).origin;
  for (const StateRole each : {StateRole::kSource, StateRole::kTarget, StateRole::kProof}) drop(each);
  last = {};
  KeptState kept = std::exchange(put_by, {});
  if (coming_back) return;  // from where it was to
  if (kept.state) {
    put_by_origin = origin;
    start_key = put_by_key;
    start = std::move(kept);
    start_pending = coming_back = true;
    return;
  }
  // Prefilled again.
  for (RoleRecord& record : roles) {
    stats.recomputed_tokens += record.prefill_tokens;
    record.prefill_tokens = 0;
    record.prefill_ms = 0;
  }
  end_start();
  handed_over = false;
  prefilled_by = StateRole::kTarget;
  stats.reused_tokens = stats.cached_tokens = 0;
  stats.cached_in.clear();
  stats.cached_rounding.reset();
  stats.reuse_failed.clear();
  kept_until = 0;
}

void Sequence::come_back(int64_t now_ns) {
  if (aside_since_ns) stats.aside_ms += ms_between(*aside_since_ns, now_ns);
  aside_since_ns.reset();
}

void Sequence::come_back_without(Error why) {
  coming_back = false;
  end_start();
  start_again(std::move(why.message));
}

void Sequence::take_restored(StateRole which) {
  if (std::exchange(coming_back, false)) {
    role(which).origin = put_by_origin;
    return end_start();
  }
  if (stats.restarts > 0) {
    // What it saved at its beginning it saved all the same.
    stats.restarted_at = role(which).position();
  } else {
    stats.reused_tokens = stats.cached_tokens = role(which).position();
    stats.cached_in = cached ? cached->file.string() : "";
    if (start.state) stats.cached_rounding = start.state->rounding();
    if (cached && cached->provenance.is_rounded()) stats.cached_rounding = RoundingError{.measured = false};
  }
  if (start.state) take_kept(start_key, start);
  end_start();
}

void Sequence::take_kept(const CheckpointKey& key, const KeptState& kept) {
  last_key = key;
  last = kept;
}

void Sequence::begin_without(const Error& why) {
  stats.reuse_failed = why.message;
  stats.reused_tokens = stats.cached_tokens = 0;
  stats.cached_in.clear();
  kept_until = 0;
  last = {};
  end_start();
}

void Sequence::start_again(std::string why) {
  if (start.state || cached) end_start();
  alone = true;
  handed_over = false;
  foreign = start_pending;
  ++stats.restarts;
  stats.restarted_at = 0;
  stats.prefilled_answer = generated();
  if (last.state) {
    start_key = last_key;
    start = last;
    start_pending = true;
  } else {
    stats.reused_tokens = stats.cached_tokens = 0;
    stats.cached_in.clear();
    stats.cached_rounding.reset();
  }
  start_opened = states_compared = proof_passed = false;
  say_fallback(std::move(why));
  if (!prompt_done) {
    prefilled_by = StateRole::kTarget;
    role(StateRole::kTarget).prefill_tokens = 0;
    role(StateRole::kTarget).prefill_ms = 0;
  }
  for (const StateRole which : {StateRole::kSource, StateRole::kTarget, StateRole::kProof}) drop(which);
}

void Sequence::say_fallback(std::string why) {
  if (!stats.fallback.empty()) stats.fallback += "; ";
  stats.fallback += why;
}

void Sequence::fall_back(Error why) {
  if (alone) return restart(std::move(why));
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
  if (unshared) return end_with(std::move(why));
  unshared = true;
  start_again(std::move(why.message));
}

// Without memory once again too: checkpoints have made room.
void Sequence::restart(Error why) {
  const bool again = last.state || why.code == Code::kOutOfMemory;
  again && !ending ? rebuild(std::move(why)) : end_with(std::move(why));
}

}  // namespace baton
