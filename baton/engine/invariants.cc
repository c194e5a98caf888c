// The invariants, each with the name it is reported by.
#include "baton/engine/invariants.h"

#include <algorithm>
#include <string>

namespace baton {
namespace {

Status broken(const std::string& what, uint64_t id) {
  return fail(Code::kInternal, what + " (" + std::to_string(id) + ")");
}

// Of those in the books, requests whose end was not told.
uint64_t open_in(const Snapshot& snapshot) {
  const auto told = std::count_if(snapshot.active.begin(), snapshot.active.end(),
                                  [](const Snapshot::Sequence& sequence) { return sequence.told; });
  return snapshot.active.size() - static_cast<uint64_t>(told) + snapshot.queued;
}

Status check_owners(const Snapshot& snapshot) {
  const uint32_t bridge = static_cast<uint32_t>(snapshot.lanes.size()) - 1;
  std::vector<uint64_t> ids;
  std::vector<std::pair<RequestId, StateRole>> places;
  for (const Snapshot::State& state : snapshot.states) {
    ids.push_back(state.id);
    if (state.given_up) continue;
    places.emplace_back(state.request, state.role);
    const bool away = state.owner != Snapshot::kScheduler && state.owner != bridge && !state.arrives;
    if (away && state.owner != state.home) {
      return broken("a state is on a lane that did not make it", state.id);
    }
    const auto owner = std::find_if(snapshot.active.begin(), snapshot.active.end(),
                                    [&](const Snapshot::Sequence& sequence) { return sequence.id == state.request; });
    if (owner == snapshot.active.end()) return broken("a state outlived its request", state.id);
    if (owner->told && state.owner == Snapshot::kScheduler) return broken("a state outlived its request", state.id);
  }
  std::sort(ids.begin(), ids.end());
  if (const auto twice = std::adjacent_find(ids.begin(), ids.end()); twice != ids.end()) {
    return broken("a state has two owners", *twice);
  }
  std::sort(places.begin(), places.end());
  if (const auto twice = std::adjacent_find(places.begin(), places.end()); twice != places.end()) {
    return broken("a request has two states in one role", twice->first);
  }
  return {};
}

// What a work goes on from was compared as far as it must be by then.
Status check_proofs(const Snapshot::InFlight& work, const Snapshot::State& state, const Snapshot::Sequence& sequence) {
  const bool goes_on = work.kind == WorkKind::kStep && state.role != StateRole::kProof && !state.arrives;
  if (goes_on && sequence.start_check_due) return broken("a step goes on from an unproven state", sequence.id);
  if (work.kind == WorkKind::kProve && state.decodes && !sequence.states_compared) {
    return broken("logits are compared before the states", sequence.id);
  }
  // All of kAll's tokens are proved; kSample's first one is.
  const bool proof_due =
      sequence.verify == VerifyMode::kAll || (sequence.verify == VerifyMode::kSample && !sequence.proof_passed);
  if (work.kind == WorkKind::kStep && state.decodes && (sequence.foreign || sequence.sealed_in) && proof_due) {
    return broken("a step decodes from a state without the proof that was asked for", sequence.id);
  }
  return {};
}

Status check_works(const Snapshot& snapshot) {
  for (const Snapshot::InFlight& work : snapshot.lanes) {
    size_t decodes = 0, arriving = 0;
    for (const Snapshot::State& state : work.states) {
      decodes += state.decodes ? 1 : 0;
      arriving += state.arrives ? 1 : 0;
      if (state.given_up) continue;
      const auto found = std::find_if(snapshot.active.begin(), snapshot.active.end(),
                                      [&](const Snapshot::Sequence& sequence) { return sequence.id == state.request; });
      if (found == snapshot.active.end()) return broken("a step serves a request that has ended", state.request);
      BATON_OK(check_proofs(work, state, *found));
    }
    if (work.kind != WorkKind::kStep) continue;
    if (decodes > snapshot.decode_seats_max) return broken("a step decodes too many sequences", decodes);
    const size_t prefills = work.states.size() - decodes - arriving;
    if (prefills > snapshot.prefill_seats_max) return broken("a step prefills too many sequences", prefills);
  }
  return {};
}

Status check_bounds(const Snapshot& snapshot) {
  if (snapshot.active.size() > snapshot.limits.requests_active_max) {
    return broken("too many active requests", snapshot.active.size());
  }
  if (open_in(snapshot) > uint64_t{snapshot.limits.requests_active_max} + snapshot.limits.requests_queued_max) {
    return broken("too many requests", snapshot.queued);
  }
  if (snapshot.overtaken > snapshot.limits.overtaken_max) return broken("a request is overtaken", snapshot.overtaken);
  uint64_t bytes = 0;
  for (const Snapshot::State& state : snapshot.states) bytes += state.bytes;
  if (snapshot.limits.state_bytes_max != 0 && bytes > snapshot.limits.state_bytes_max) {
    return broken("the states take more memory than allowed", bytes);
  }
  return {};
}

Status check_progress(const Snapshot& snapshot) {
  for (const Snapshot::Sequence& sequence : snapshot.active) {
    if (sequence.waited > waiting_bound(snapshot.limits)) return broken("a request starves", sequence.id);
    if (!sequence.ready && sequence.steps_in_flight == 0) return broken("a request is stuck", sequence.id);
  }
  return {};
}

}  // namespace

uint64_t waiting_bound(const EngineLimits& limits) {
  // A request has at most two works waiting for one lane: its target's or source's, and its proof's.
  const uint64_t works = 2 * uint64_t{limits.requests_active_max};
  const uint64_t in_turn = works * (1 + uint64_t{limits.decode_steps_per_prefill}) + limits.decode_steps_per_prefill;
  return limits.overtaken_max + in_turn;
}

Status check_snapshot(const Snapshot& snapshot) {
  BATON_OK(check_owners(snapshot));
  BATON_OK(check_works(snapshot));
  BATON_OK(check_bounds(snapshot));
  BATON_OK(check_progress(snapshot));
  return {};
}

Status History::observe(std::span<const Output> outputs, const Snapshot& snapshot) {
  for (const Output& output : outputs) {
    const auto found = open_.find(output.request);
    if (found == open_.end()) return broken("an event of a request that is not open", output.request);
    if (const auto* token = std::get_if<TokenEvent>(&output.event)) {
      if (token->index != found->second++) return broken("a token out of order", output.request);
      continue;
    }
    const auto& finished = std::get<FinishedEvent>(output.event);
    if (finished.stats.generated_tokens != found->second) return broken("tokens miscounted", output.request);
    open_.erase(found);
  }
  for (const Snapshot::State& state : snapshot.states) {
    const bool away = state.owner != Snapshot::kScheduler;  // of one whose end was told
    if (open_.empty() && !state.given_up && !away) return broken("states are left when no request is", state.id);
  }
  if (open_in(snapshot) != open_.size()) {
    return broken("requests in the books and requests open differ", open_in(snapshot));
  }
  return {};
}

}  // namespace baton
