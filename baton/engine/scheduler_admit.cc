// Who is let in, and when: the queue, its order, deadlines.
#include <algorithm>
#include <tuple>
#include <utility>

#include "baton/base/clock.h"
#include "baton/engine/scheduler.h"

namespace baton {

bool Scheduler::submit(RequestId id, ResolvedRequest& request, int64_t now_ns) {
  // What can start at once does not count as waiting.
  const uint64_t room = facts_.limits.requests_active_max + facts_.limits.requests_queued_max;
  if (requests() >= room) return false;
  auto sequence = std::make_unique<Sequence>();
  sequence->id = id;
  sequence->submitted_ns = now_ns;
  sequence->begin(std::move(request));
  shares_.join(sequence->request.tenant, sequence->request.weight);
  queue_.push_back(std::move(sequence));
  return true;
}

Sequence* Scheduler::find(RequestId id) {
  if (const auto found = active_.find(id); found != active_.end()) return found->second.get();
  const auto queued =
      std::find_if(queue_.begin(), queue_.end(), [id](const auto& waiting) { return waiting->id == id; });
  return queued == queue_.end() ? nullptr : queued->get();
}

void Scheduler::cancel(RequestId id) {
  if (Sequence* sequence = find(id)) sequence->end(FinishReason::kCancelled);
}

void Scheduler::stop(RequestId id) {
  Sequence* sequence = find(id);
  if (sequence == nullptr) return;
  // The state of the answer, which the caller wants, is made when it is back.
  if (sequence->coming_back && sequence->answer_seal_pending) {
    sequence->stop_due = true;
    return;
  }
  sequence->end(sequence->prompt_done ? FinishReason::kStop : FinishReason::kCancelled);
}

void Scheduler::cancel_all() {
  for (auto& waiting : queue_) waiting->end(FinishReason::kCancelled);
  for (auto& [id, sequence] : active_) sequence->end(FinishReason::kCancelled);
}

int64_t Scheduler::next_deadline_ns() const {
  int64_t next = next_overdue_ns();
  for (const auto& waiting : queue_) next = std::min(next, waiting->request.deadline_ns);
  for (const auto& [id, sequence] : active_) {
    if (!sequence->ending) next = std::min(next, sequence->request.deadline_ns);
  }
  return next;
}

void Scheduler::end_late(Sequence& sequence, int64_t now_ns) {
  const int64_t deadline_ns = sequence.request.deadline_ns;
  if (sequence.ending || now_ns < deadline_ns) return;
  const std::string where = !sequence.was_admitted  ? "while it waited to be let in"
                            : !sequence.prompt_done ? "before the first token"
                                                    : "after " + std::to_string(sequence.generated()) + " of at most " +
                                                          std::to_string(sequence.request.max_new_tokens) + " tokens";
  const auto after_ms = static_cast<int64_t>(ms_between(sequence.submitted_ns, deadline_ns));
  sequence.end(FinishReason::kDeadline,
               {Code::kCancelled, "the request's deadline, " + std::to_string(after_ms) + " ms after it came, passed " +
                                      where + ": give it more time or a higher priority"});
}

void Scheduler::finish(Sequence& sequence, int64_t now_ns) {
  if (!sequence.was_admitted) sequence.admitted(now_ns);
  sequence.come_back(now_ns);
  shares_.leave(sequence.request.tenant);
  tell_end(sequence, now_ns);
}

void Scheduler::tell_end(Sequence& sequence, int64_t now_ns) {
  if (std::exchange(sequence.told, true)) return;
  outputs_.push_back({sequence.id, sequence.finish(now_ns)});
}

bool Scheduler::goes_before(const Sequence& a, const Sequence& b) const {
  if (passed_over(a) != passed_over(b)) return passed_over(a);
  if (passed_over(a)) return a.id < b.id;
  if (a.request.priority != b.request.priority) return a.request.priority > b.request.priority;
  if (a.request.tenant != b.request.tenant) {
    const double held_a = share_held(held_by(a.request.tenant)) / shares_.weight(a.request.tenant);
    const double held_b = share_held(held_by(b.request.tenant)) / shares_.weight(b.request.tenant);
    if (held_a != held_b) return held_a < held_b;
  }
  const double start_a = shares_.start(a.request.tenant, admissions());
  const double start_b = shares_.start(b.request.tenant, admissions());
  if (start_a != start_b) return start_a < start_b;
  return std::pair(a.request.deadline_ns, a.id) < std::pair(b.request.deadline_ns, b.id);
}

void Scheduler::admit(int64_t now_ns) {
  for (auto& [id, sequence] : active_) end_late(*sequence, now_ns);
  std::erase_if(queue_, [&](std::unique_ptr<Sequence>& waiting) {
    end_late(*waiting, now_ns);
    if (!waiting->ending) return false;
    finish(*waiting, now_ns);
    return true;
  });
  for (auto& [id, sequence] : active_) sequence->aside_due = false;
  for (auto next = next_in(now_ns); next != queue_.end(); next = next_in(now_ns)) {
    std::unique_ptr<Sequence> sequence = std::move(*next);
    queue_.erase(next);
    for (auto& waiting : queue_) waiting->overtaken += waiting->id < sequence->id ? 1 : 0;
    let_in(std::move(sequence), now_ns);
  }
  for (auto& [id, sequence] : active_) {
    if (sequence->aside_due || !sequence->put_by.state) continue;
    // It stays after all: nobody reckoned with its state and the checkpoint of it.
    sequence->put_by = {};
    sequence->role(sequence->carrier()).held.kept.reset();
  }
}

std::deque<std::unique_ptr<Sequence>>::iterator Scheduler::next_in(int64_t now_ns) {
  while (!queue_.empty()) {
    // What does not fit is not overtaken by what would: a large request waits for memory once, and not for ever.
    const auto next = std::min_element(queue_.begin(), queue_.end(),
                                       [&](const auto& a, const auto& b) { return goes_before(*a, *b); });
    const bool seat = active_.size() < facts_.limits.requests_active_max;
    if (seat && room_for_state((*next)->bytes_reserved)) return next;
    if (make_way(**next, now_ns)) continue;
    if (!active_.empty()) return queue_.end();
    // Whoever comes back now is not set aside for it again, and again: all that can be dropped was.
    (*next)->kept_out_by = checkpoints_beside();
    // What was set aside holds the memory that is missing.
    const auto back = std::find_if(queue_.begin(), queue_.end(), [&](const auto& waiting) {
      return waiting->coming_back && room_for_state(waiting->bytes_reserved);
    });
    if (back != queue_.end()) return back;
    if (!refuse_first(*next, now_ns)) return queue_.end();
    queue_.erase(next);
  }
  return queue_.end();
}

void Scheduler::let_in(std::unique_ptr<Sequence> sequence, int64_t now_ns) {
  hold(*sequence);
  const Request& request = sequence->request;
  if (!sequence->was_admitted) {
    shares_.serve(request.tenant, admissions());
    shares_.charge(request.tenant, admissions(), static_cast<double>(request.tokens.size() + request.max_new_tokens));
    sequence->admitted(now_ns);
  }
  sequence->come_back(now_ns);
  if (request.reuse != ReuseMode::kOff && !sequence->had_start && !sequence->start_pending && !sequence->prompt_done)
    find_start(*sequence);
  active_.emplace(sequence->id, std::move(sequence));
}

}  // namespace baton
