// Which of the works that wait for a lane are its next step.
#include <algorithm>
#include <tuple>

#include "baton/engine/scheduler.h"

namespace baton {

bool Scheduler::shares_prefill(const Candidate& candidate) {
  const PlannedWork& planned = candidate.planned;
  return planned.kind == WorkKind::kStep && !planned.decodes && candidate.sequence->shares_prefill();
}

bool Scheduler::shares_decode(const Candidate& candidate) {
  const PlannedWork& planned = candidate.planned;
  return planned.kind == WorkKind::kStep && planned.decodes && !candidate.sequence->unshared;
}

uint64_t Scheduler::prefill_room(LaneIndex index, uint64_t decodes) const {
  // Whoever decodes beside it waits for half as long as others for a cancel.
  const double ms = decodes > 0 ? facts_.limits.step_ms / 2 : facts_.limits.step_ms;
  const uint64_t most = facts_.limits.step_tokens_max, budget = lanes_[index].budget.tokens(ms);
  if (most == 0 || budget + decodes <= most) return budget;
  // In pieces that the unit sums in, so that who came along does not show in bits, where there is room for one.
  const uint64_t piece = std::min<uint64_t>(budget, std::max(facts_.lanes[index].prefill_tokens_preferred, 1u));
  const uint64_t room = most - std::min(most, decodes);
  return room > piece ? room / piece * piece : room;
}

void Scheduler::add_prefills(LaneIndex index, std::span<const Candidate> waiting, uint64_t tokens,
                             std::vector<Candidate>& chosen) const {
  uint64_t room = tokens - std::min<uint64_t>(tokens, chosen.front().planned.tokens);
  for (const Candidate& next : waiting) {
    if (chosen.size() >= facts_.lanes[index].prefill_seats_shared) return;
    if (!shares_prefill(next) || next.planned.tokens > room) continue;
    chosen.push_back(next);
    room -= next.planned.tokens;
  }
}

uint64_t Scheduler::decode_turns(LaneIndex index, std::span<const Candidate> rivals, const Candidate& other) const {
  const auto decoding = static_cast<uint64_t>(
      std::count_if(rivals.begin(), rivals.end(), [](const Candidate& rival) { return rival.planned.decodes; }));
  // None where the other takes those that decode along.
  const uint64_t least = facts_.lanes[index].mixes && shares_prefill(other) ? 0 : 1;
  return std::clamp<uint64_t>(decoding / (rivals.size() - decoding), least,
                              std::max<uint64_t>(facts_.limits.decode_steps_per_prefill, least));
}

void Scheduler::order(LaneIndex index, std::vector<Candidate>& waiting) const {
  for (Candidate& candidate : waiting) {
    const Request& request = candidate.sequence->request;
    candidate.passed_over = candidate.record().waited >= facts_.limits.overtaken_max;
    candidate.starts = shares_.start(request.tenant, index);
  }
  std::sort(waiting.begin(), waiting.end(), [](const Candidate& a, const Candidate& b) {
    const auto turn = [](const Candidate& candidate) {
      return std::pair(candidate.record().ready_since, candidate.sequence->id);
    };
    if (a.passed_over != b.passed_over) return a.passed_over;
    if (a.passed_over) return turn(a) < turn(b);
    const Request &first = a.sequence->request, &second = b.sequence->request;
    if (first.priority != second.priority) return first.priority > second.priority;
    if (a.starts != b.starts) return a.starts < b.starts;
    return std::tuple(first.deadline_ns, turn(a)) < std::tuple(second.deadline_ns, turn(b));
  });
  // Of those that are next by the same rule, decodes and other works take turns.
  const Candidate& head = waiting.front();
  const auto end = std::find_if(waiting.begin(), waiting.end(), [&](const Candidate& candidate) {
    const Request &first = head.sequence->request, &other = candidate.sequence->request;
    return candidate.passed_over != head.passed_over ||
           (!head.passed_over && (first.priority != other.priority || first.tenant != other.tenant));
  });
  const auto decodes = [](const Candidate& candidate) { return candidate.planned.decodes; };
  const auto decode = std::find_if(waiting.begin(), end, decodes),
             other = std::find_if_not(waiting.begin(), end, decodes);
  const bool decode_now =
      decode != end && (other == end || lanes_[index].decodes_since_prefill <
                                            decode_turns(index, std::span(waiting.begin(), end), *other));
  const auto next = decode_now ? decode : other;
  std::rotate(waiting.begin(), next, next + 1);
}

std::vector<Scheduler::Candidate> Scheduler::choose(LaneIndex index, std::vector<Candidate>& waiting,
                                                    uint64_t* tokens_max) {
  LaneRecord& lane = lanes_[index];
  order(index, waiting);
  std::vector<Candidate> chosen = {waiting.front()};
  const Candidate& first = chosen.front();
  shares_.serve(first.sequence->request.tenant, index);
  const auto others = std::span<const Candidate>(waiting).subspan(1);
  const bool decodes = first.planned.decodes;
  lane.decodes_since_prefill = decodes ? lane.decodes_since_prefill + 1 : 0;
  if (index == bridge()) return chosen;
  std::vector<Candidate> along;
  const bool takes = decodes ? shares_decode(first) : facts_.lanes[index].mixes && shares_prefill(first);
  if (takes) along = decodes_of(index, others, decodes ? 1 : 0);
  *tokens_max = prefill_room(index, along.size());
  if (!decodes && shares_prefill(first)) add_prefills(index, others, *tokens_max, chosen);
  chosen.insert(chosen.end(), along.begin(), along.end());
  return chosen;
}

std::vector<Scheduler::Candidate> Scheduler::decodes_of(LaneIndex index, std::span<const Candidate> waiting,
                                                        uint64_t seats) const {
  uint64_t seats_max = std::max(facts_.lanes[index].decode_seats_max, 1u);
  if (const uint64_t most = facts_.limits.step_tokens_max; most != 0) {
    // A prompt goes on too, be it by a token.
    seats_max = std::min(seats_max, seats > 0 ? most : most - 1);
  }
  std::vector<Candidate> chosen;
  for (const Candidate& next : waiting) {
    if (seats + chosen.size() >= seats_max) break;
    if (shares_decode(next)) chosen.push_back(next);
  }
  return chosen;
}

}  // namespace baton
