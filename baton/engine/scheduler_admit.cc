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
  shares_.leave(sequence.request.tenant);
  outputs_.push_back({sequence.id, sequence.finish(now_ns)});
}

bool Scheduler::goes_before(const Sequence& a, const Sequence& b) const {
  if (passed_over(a) != passed_over(b)) return passed_over(a);
  if (passed_over(a)) return a.id < b.id;
  if (a.request.priority != b.request.priority) return a.request.priority > b.request.priority;
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
  // What does not fit is not overtaken by what would: a large request waits for memory once, and not for ever.
  while (!queue_.empty() && active_.size() < facts_.limits.requests_active_max) {
    const auto next = std::min_element(queue_.begin(), queue_.end(),
                                       [&](const auto& a, const auto& b) { return goes_before(*a, *b); });
    if (!room_for_state((*next)->bytes_reserved)) {
      if (!refuse_first(*next, now_ns)) break;
      queue_.erase(next);
      continue;
    }
    std::unique_ptr<Sequence> sequence = std::move(*next);
    queue_.erase(next);
    for (auto& waiting : queue_) waiting->overtaken += waiting->id < sequence->id ? 1 : 0;
    let_in(std::move(sequence), now_ns);
  }
}

void Scheduler::let_in(std::unique_ptr<Sequence> sequence, int64_t now_ns) {
  bytes_reserved_ += sequence->bytes_reserved;
  const Request& request = sequence->request;
  shares_.serve(request.tenant, admissions());
  shares_.charge(request.tenant, admissions(), static_cast<double>(request.tokens.size() + request.max_new_tokens));
  sequence->admitted(now_ns);
  if (request.reuse != ReuseMode::kOff && !sequence->had_start) find_start(*sequence);
  active_.emplace(sequence->id, std::move(sequence));
}

}  // namespace baton
