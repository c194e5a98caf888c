// Counting, and one copy of each terminal.
#include "baton/grammar/terminal.h"

#include <algorithm>
#include <atomic>

namespace baton::grammar {

Terminal::Terminal(uint32_t id, ByteDfa dfa, Counted counted)
    : id_(id), dfa_(std::move(dfa)), counts_(true), counted_(counted) {}

uint32_t Terminal::step_counted(uint32_t state, uint8_t byte) const {
  const uint32_t from = state % dfa_.states();
  uint32_t count = state / dfa_.states();
  const uint32_t to = dfa_.step(from, byte);
  if (to == kDead) return kDead;
  if (from == counted_.loop) {
    const bool ends = dfa_.accepting[to] != 0;
    if (ends ? count < counted_.min : count >= counted_.max) return kDead;
  }
  // Without an upper bound nothing tells counts above the lower one apart.
  if (to == counted_.loop && from != 0 && (counted_.max != kUnbounded || count < counted_.min)) ++count;
  return count * dfa_.states() + to;
}

uint32_t Terminal::representative(uint32_t state, uint32_t longest) const {
  if (!counts_) return state;
  const uint32_t count = state / dfa_.states();
  const uint32_t missing = counted_.min - std::min(counted_.min, count), room = counted_.max - count;
  if (room <= longest) return state;
  if (missing > longest) return state % dfa_.states();
  return missing > 0 ? state : counted_.min * dfa_.states() + state % dfa_.states();
}

bool Terminal::is(const ByteDfa& dfa, const Counted* counted) const {
  return counts_ == (counted != nullptr) && (counted == nullptr || *counted == counted_) && dfa == dfa_;
}

std::shared_ptr<const Terminal> TerminalStore::intern(ByteDfa dfa) { return find_or_add(std::move(dfa), nullptr); }

std::shared_ptr<const Terminal> TerminalStore::intern(ByteDfa dfa, Counted counted) {
  if (counted.max != kUnbounded) counted.max = std::min(counted.max, kCountMax);
  return find_or_add(std::move(dfa), &counted);
}

std::shared_ptr<const Terminal> TerminalStore::find_or_add(ByteDfa dfa, const Counted* counted) {
  uint64_t hash = counted == nullptr ? 0 : counted->min * 31ull + counted->max;
  const auto mix = [&hash](uint64_t v) { hash = (hash ^ v) * 0xff51afd7ed558ccdull, hash ^= hash >> 31; };
  for (const uint8_t c : dfa.class_of) mix(c);
  for (const uint32_t to : dfa.next) mix(to);
  const std::lock_guard lock(mutex_);
  const auto [begin, end] = known_.equal_range(hash);
  for (auto at = begin; at != end; ++at) {
    if (auto held = at->second.lock(); held != nullptr && held->is(dfa, counted)) return held;
  }
  if (known_.size() >= sweep_at_) {
    std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
    sweep_at_ = std::max<size_t>(1024, 2 * known_.size());
  }
  static std::atomic<uint32_t> ids = 0;
  const uint32_t id = ids.fetch_add(1, std::memory_order_relaxed);
  auto made = counted == nullptr ? std::make_shared<const Terminal>(id, std::move(dfa))
                                 : std::make_shared<const Terminal>(id, std::move(dfa), *counted);
  known_.emplace(hash, made);
  return made;
}

}  // namespace baton::grammar
