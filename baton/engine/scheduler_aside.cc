// Requests that are set aside for others, and come back: which, when, and what of them is kept meanwhile.
#include <algorithm>
#include <tuple>
#include <utility>

#include "baton/engine/scheduler.h"

namespace baton {

void Scheduler::hold(const Sequence& sequence) {
  bytes_reserved_ += sequence.bytes_reserved;
  Held& held = held_[sequence.request.tenant];
  ++held.seats, held.bytes += sequence.bytes_reserved;
}

void Scheduler::let_go(const Sequence& sequence) {
  bytes_reserved_ -= sequence.bytes_reserved;
  const auto held = held_.find(sequence.request.tenant);
  held->second.bytes -= sequence.bytes_reserved;
  if (--held->second.seats == 0) held_.erase(held);
}

Scheduler::Held Scheduler::held_by(uint64_t tenant) const {
  const auto held = held_.find(tenant);
  return held == held_.end() ? Held() : held->second;
}

double Scheduler::share_held(const Held& held) const {
  const EngineLimits& limits = facts_.limits;
  const double seats = static_cast<double>(held.seats) / std::max(limits.requests_active_max, 1u);
  if (limits.state_bytes_max == 0) return seats;
  return std::max(seats, static_cast<double>(held.bytes) / static_cast<double>(limits.state_bytes_max));
}

uint64_t Scheduler::bytes_aside() const {
  uint64_t bytes = 0;
  for (const auto& waiting : queue_) bytes += waiting->coming_back ? waiting->start.state->bytes() : 0;
  return bytes;
}

// The checkpoints of all that are set aside stay within what is left beside the largest of them: each can come back
// when nothing runs.
bool Scheduler::can_come_back(const Sequence& sequence, uint64_t checkpoint_bytes) const {
  const uint64_t limit = facts_.limits.state_bytes_max;
  if (limit == 0) return true;
  uint64_t largest = sequence.bytes_reserved, kept = checkpoint_bytes + bytes_aside();
  for (const auto& waiting : queue_) largest = std::max(largest, waiting->coming_back ? waiting->bytes_reserved : 0);
  for (const auto& [id, other] : active_) {
    if (other.get() == &sequence || !other->aside_due) continue;
    largest = std::max(largest, other->bytes_reserved);
    kept += other->put_by.state ? other->put_by.state->bytes() : other->bytes_reserved;
  }
  return kept + largest <= limit;
}

Scheduler::Way Scheduler::way_aside(const Sequence& sequence) {
  const bool seals = sequence.seal_pending && sequence.prompt_done;
  if (sequence.ending || passed_over(sequence) || seals || sequence.stats.restarts > 0 ||
      sequence.request.verify != VerifyMode::kOff)
    return Way::kNone;
  if (sequence.steps_in_flight > 0) return Way::kLater;
  if (sequence.coming_back) return Way::kNow;  // it is not yet
  // From the tokens, where no more than prefills is lost: the bits are the same.
  const Way again = sequence.prompt_done || sequence.had_start ? Way::kNone : Way::kNow;
  if (sequence.start_pending) return again;
  const HeldState& held = sequence.role(sequence.carrier()).held;
  if (!held.state || held.state->position() == 0) return again;
  if (sequence.put_by.state && sequence.put_by.state->position() == held.state->position()) return Way::kNow;
  if (sequence.put_by_failed) return again;
  uint64_t used = 0;
  for (const RoleRecord& record : sequence.roles) used += record.held.state ? record.held.bytes : 0;
  const uint64_t unused = sequence.bytes_reserved - std::min(sequence.bytes_reserved, used);
  const uint64_t bytes = CheckpointMemory::bytes_for(*held.state, held.kept.get());
  const bool fits = can_come_back(sequence, CheckpointMemory::bytes_for(*held.state, nullptr)) &&
                    room_for_checkpoint(keeping_bytes_ + bytes, unused);
  return fits ? Way::kKeep : again;
}

bool Scheduler::gives_way(const Sequence& sequence, const Sequence& next, const Held& its, const Held& others) const {
  if (sequence.request.priority != next.request.priority) return sequence.request.priority < next.request.priority;
  // Of one priority: where its tenant still holds the larger share when both have changed places. So they never change
  // back and forth.
  if (sequence.request.tenant == next.request.tenant) return false;
  const Held left{its.seats - 1, its.bytes - std::min(its.bytes, sequence.bytes_reserved)};
  const Held taken{others.seats + 1, others.bytes + next.bytes_reserved};
  return share_held(left) * shares_.weight(next.request.tenant) >=
         share_held(taken) * shares_.weight(sequence.request.tenant);
}

std::vector<Sequence*> Scheduler::choose_aside(const Sequence& next) {
  std::vector<Sequence*> all, chosen;
  if (next.kept_out_by && checkpoints_beside() >= *next.kept_out_by) return chosen;
  std::map<uint64_t, Held> held = held_;
  for (auto& [id, sequence] : active_) all.push_back(sequence.get());
  // The least urgent first, and of these the last that came: it has lost least.
  std::sort(all.begin(), all.end(), [](const Sequence* a, const Sequence* b) {
    return std::tuple(a->request.priority, b->id) < std::tuple(b->request.priority, a->id);
  });
  const uint64_t limit = facts_.limits.state_bytes_max;
  uint64_t bytes = bytes_reserved_ + next.bytes_reserved + bytes_aside(), seats = active_.size() + 1;
  const auto enough = [&] { return seats <= facts_.limits.requests_active_max && (limit == 0 || bytes <= limit); };
  for (Sequence* sequence : all) {
    if (enough()) break;
    Held& its = held[sequence->request.tenant];
    if (!gives_way(*sequence, next, its, held[next.request.tenant])) continue;
    const Way way = way_aside(*sequence);
    if (way == Way::kNone) continue;
    chosen.push_back(sequence);
    --its.seats, its.bytes -= std::min(its.bytes, sequence->bytes_reserved);
    --seats, bytes -= std::min(bytes, sequence->bytes_reserved);
    if (sequence->coming_back) {
      bytes += sequence->start.state->bytes();
    } else if (way == Way::kKeep || sequence->put_by.state) {
      const HeldState& kept = sequence->role(sequence->carrier()).held;
      bytes += kept.state ? CheckpointMemory::bytes_for(*kept.state, nullptr) : 0;
    }
  }
  if (!enough()) chosen.clear();
  return chosen;
}

bool Scheduler::make_way(const Sequence& next, int64_t now_ns) {
  bool any = false;
  for (Sequence* sequence : choose_aside(next)) {
    const Way way = way_aside(*sequence);
    sequence->aside_due = way != Way::kNone;
    if (way != Way::kNow) continue;
    set_aside(*sequence, now_ns);
    any = true;
  }
  return any;
}

void Scheduler::set_aside(Sequence& sequence, int64_t now_ns) {
  let_go(sequence);
  const auto found = active_.find(sequence.id);
  queue_.push_back(std::move(found->second));
  active_.erase(found);
  sequence.put_aside(now_ns);
}

}  // namespace baton
