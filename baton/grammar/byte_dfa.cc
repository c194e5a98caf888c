// Thompson's construction, subsets, products, and Moore's refinement.
#include "baton/grammar/byte_dfa.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "baton/grammar/terminal.h"

namespace baton::grammar {
namespace {

constexpr int kRoundsMax = 48;  // of refinement; each is linear

// States with at most one edge over bytes, or up to two that need none.
struct ByteNfa {
  struct State {
    int32_t set = -1;               // of `sets`
    uint32_t a = kDead, b = kDead;  // targets; of a set only `a`
  };
  std::vector<State> states;
  std::vector<ByteSet> sets;
  std::map<std::string, int32_t> known;

  uint32_t add() {
    states.emplace_back();
    return static_cast<uint32_t>(states.size() - 1);
  }
  int32_t intern(const ByteSet& set) {
    const auto [found, made] = known.emplace(set.to_string(), static_cast<int32_t>(sets.size()));
    if (made) sets.push_back(set);
    return found->second;
  }
};

// Writes `id` between `from` and a state that it returns. Depth is that of the tree, which its readers bound.
uint32_t build(const RegexPool& pool, RegexId id, uint32_t from, ByteNfa* nfa) {
  const RegexPool::Node& node = pool.at(id);
  switch (node.kind) {
    case RegexPool::Kind::kSet: {
      const uint32_t to = nfa->add();
      nfa->states[from].set = nfa->intern(node.set);
      nfa->states[from].a = to;
      return to;
    }
    case RegexPool::Kind::kCat:
      for (const RegexId part : node.parts) from = build(pool, part, from, nfa);
      return from;
    case RegexPool::Kind::kAlt: {
      const uint32_t to = nfa->add();
      for (size_t i = 0; i < node.parts.size(); ++i) {
        const uint32_t way = nfa->add();
        nfa->states[from].a = way;
        if (i + 1 < node.parts.size()) {
          const uint32_t rest = nfa->add();
          nfa->states[from].b = rest;
          from = rest;
        }
        const uint32_t end = build(pool, node.parts[i], way, nfa);
        nfa->states[end].a = to;
      }
      return to;
    }
    case RegexPool::Kind::kRepeat:
      break;
  }
  for (uint32_t i = 0; i < node.min; ++i) from = build(pool, node.parts[0], from, nfa);
  const uint32_t to = nfa->add();
  if (node.max == kUnbounded) {
    const uint32_t loop = nfa->add(), way = nfa->add();
    nfa->states[from].a = loop;
    nfa->states[loop].a = way;
    nfa->states[loop].b = to;
    const uint32_t end = build(pool, node.parts[0], way, nfa);
    nfa->states[end].a = loop;
    return to;
  }
  for (uint32_t i = node.min; i < node.max; ++i) {
    const uint32_t way = nfa->add();
    nfa->states[from].a = way;
    nfa->states[from].b = to;
    from = build(pool, node.parts[0], way, nfa);
  }
  const uint32_t last = nfa->add();
  nfa->states[from].a = last;
  nfa->states[last].a = to;
  return to;
}

// Bytes that no set tells apart share a class.
void classify(const std::vector<ByteSet>& sets, ByteDfa* dfa) {
  std::map<std::vector<bool>, uint8_t> known;
  for (uint32_t b = 0; b < 256; ++b) {
    std::vector<bool> in(sets.size());
    for (size_t i = 0; i < sets.size(); ++i) in[i] = sets[i].test(b);
    dfa->class_of[b] = known.emplace(std::move(in), static_cast<uint8_t>(known.size())).first->second;
  }
  dfa->classes = static_cast<uint32_t>(known.size());
}

struct SubsetHash {
  size_t operator()(const std::vector<uint32_t>& set) const {
    uint64_t hash = 0x9e3779b97f4a7c15ull;
    for (const uint32_t v : set) hash = (hash ^ v) * 0xff51afd7ed558ccdull, hash ^= hash >> 29;
    return hash;
  }
};

class Subsets {
 public:
  Subsets(const ByteNfa& nfa, uint32_t end) : nfa_(nfa), end_(end), seen_(nfa.states.size()) {}

  Result<ByteDfa> run(uint32_t start, uint32_t states_max, Budget* budget) {
    classify(nfa_.sets, &dfa_);
    std::vector<uint8_t> example(dfa_.classes);
    for (uint32_t b = 256; b-- > 0;) example[dfa_.class_of[b]] = static_cast<uint8_t>(b);
    id_of({start});
    for (uint32_t at = 0; at < members_.size(); ++at) {
      if (members_.size() > states_max) {
        return fail(Code::kOutOfMemory, "the expression needs more than " + std::to_string(states_max) + " states");
      }
      for (uint32_t c = 0; c < dfa_.classes; ++c) {
        std::vector<uint32_t> targets;
        for (const uint32_t s : *members_[at]) {
          const ByteNfa::State& state = nfa_.states[s];
          if (state.set >= 0 && nfa_.sets[static_cast<size_t>(state.set)].test(example[c])) targets.push_back(state.a);
        }
        work_ += members_[at]->size() + 2;
        dfa_.next.push_back(targets.empty() ? kDead : id_of(std::move(targets)));
      }
      if (!budget->spend(std::exchange(work_, 0))) return too_much_work();
    }
    return std::move(dfa_);
  }

 private:
  uint32_t id_of(std::vector<uint32_t> set) {
    ++round_;
    std::vector<uint32_t> kept;
    bool accepts = false;
    while (!set.empty()) {
      const uint32_t s = set.back();
      set.pop_back();
      if (s == kDead || seen_[s] == round_) continue;
      seen_[s] = round_;
      ++work_;
      const ByteNfa::State& state = nfa_.states[s];
      accepts = accepts || s == end_;
      if (state.set >= 0 || s == end_) {
        kept.push_back(s);
      } else {
        set.push_back(state.a);
        set.push_back(state.b);
      }
    }
    std::sort(kept.begin(), kept.end());
    const auto [found, made] = known_.emplace(std::move(kept), static_cast<uint32_t>(members_.size()));
    if (made) {
      members_.push_back(&found->first);
      dfa_.accepting.push_back(accepts);
    }
    return found->second;
  }

  const ByteNfa& nfa_;
  uint32_t end_;
  std::vector<uint32_t> seen_;
  uint32_t round_ = 0;
  uint64_t work_ = 0;
  std::unordered_map<std::vector<uint32_t>, uint32_t, SubsetHash> known_;  // its keys do not move
  std::vector<const std::vector<uint32_t>*> members_;
  ByteDfa dfa_;
};

// By state: an accepting one can be reached.
std::vector<uint8_t> useful(const ByteDfa& dfa) {
  std::vector<std::vector<uint32_t>> back(dfa.states());
  std::vector<uint32_t> open;
  std::vector<uint8_t> live(dfa.states());
  for (uint32_t s = 0; s < dfa.states(); ++s) {
    for (uint32_t c = 0; c < dfa.classes; ++c) {
      const uint32_t to = dfa.next[size_t{s} * dfa.classes + c];
      if (to != kDead && (back[to].empty() || back[to].back() != s)) back[to].push_back(s);
    }
    if (dfa.accepting[s] != 0) live[s] = 1, open.push_back(s);
  }
  while (!open.empty()) {
    const uint32_t s = open.back();
    open.pop_back();
    for (const uint32_t from : back[s]) {
      if (live[from] == 0) live[from] = 1, open.push_back(from);
    }
  }
  return live;
}

// By state: its group, such that states of a group accept the same texts; each alone where the rounds did not do.
std::vector<uint32_t> groups_of(const ByteDfa& dfa) {
  std::vector<uint32_t> group(dfa.accepting.begin(), dfa.accepting.end());
  size_t count = 0;
  for (int round = 0; round < kRoundsMax; ++round) {
    std::unordered_map<std::vector<uint32_t>, uint32_t, SubsetHash> known;
    std::vector<uint32_t> refined(dfa.states());
    std::vector<uint32_t> key(dfa.classes + 1);
    for (uint32_t s = 0; s < dfa.states(); ++s) {
      key[0] = group[s];
      for (uint32_t c = 0; c < dfa.classes; ++c) {
        const uint32_t to = dfa.next[size_t{s} * dfa.classes + c];
        key[c + 1] = to == kDead ? kDead : group[to];
      }
      refined[s] = known.emplace(key, static_cast<uint32_t>(known.size())).first->second;
    }
    group = std::move(refined);
    if (known.size() == count) return group;
    count = known.size();
  }
  for (uint32_t s = 0; s < dfa.states(); ++s) group[s] = s;
  return group;
}

// Classes that no state tells apart are put together, numbered by their first byte.
void merge_classes(ByteDfa* dfa) {
  std::map<std::vector<uint32_t>, uint8_t> known;
  std::vector<uint8_t> renamed(dfa->classes);
  std::vector<uint8_t> seen(dfa->classes);
  std::vector<uint32_t> kept;
  for (uint32_t b = 0; b < 256; ++b) {
    const uint8_t c = dfa->class_of[b];
    if (seen[c] == 0) {
      seen[c] = 1;
      std::vector<uint32_t> column(dfa->states());
      for (uint32_t s = 0; s < dfa->states(); ++s) column[s] = dfa->next[size_t{s} * dfa->classes + c];
      const auto [found, made] = known.emplace(std::move(column), static_cast<uint8_t>(known.size()));
      if (made) kept.push_back(c);
      renamed[c] = found->second;
    }
    dfa->class_of[b] = renamed[c];
  }
  std::vector<uint32_t> next;
  for (uint32_t s = 0; s < dfa->states(); ++s) {
    for (const uint32_t c : kept) next.push_back(dfa->next[size_t{s} * dfa->classes + c]);
  }
  dfa->next = std::move(next);
  dfa->classes = static_cast<uint32_t>(kept.size());
}

// `step` and `accepting`: of `b`, whose classes its bytes have.
template <class Step, class Accepting>
Result<ByteDfa> product_of(const ByteDfa& a, const ByteDfa& b, Product kind, uint32_t states_max, Budget* budget,
                           Step step, Accepting accepting) {
  ByteDfa out;
  if (a.states() == 0 || (b.states() == 0 && kind == Product::kBoth)) return out;
  std::map<std::pair<uint8_t, uint8_t>, uint8_t> classes;
  std::vector<uint8_t> example;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const auto [found, made] = classes.emplace(std::pair(a.class_of[byte], b.class_of[byte]), classes.size());
    if (made) example.push_back(static_cast<uint8_t>(byte));
    out.class_of[byte] = found->second;
  }
  out.classes = static_cast<uint32_t>(example.size());
  std::vector<std::pair<uint32_t, uint32_t>> members;
  std::unordered_map<uint64_t, uint32_t> known;
  const auto id_of = [&](uint32_t p, uint32_t q) {
    const auto [found, made] = known.emplace(uint64_t{p} << 32 | q, static_cast<uint32_t>(members.size()));
    if (made) {
      members.emplace_back(p, q);
      const bool second = q != kDead && accepting(q);
      out.accepting.push_back(a.accepting[p] != 0 && second == (kind == Product::kBoth));
    }
    return found->second;
  };
  id_of(0, b.states() > 0 ? 0 : kDead);
  for (size_t at = 0; at < members.size(); ++at) {
    if (members.size() > states_max) {
      return fail(Code::kOutOfMemory, "together they need more than " + std::to_string(states_max) + " states");
    }
    if (!budget->spend(uint64_t{out.classes} * 4)) return too_much_work();
    for (const uint8_t byte : example) {
      const uint32_t p = a.step(members[at].first, byte);
      const uint32_t q = members[at].second == kDead ? kDead : step(members[at].second, byte);
      const bool dead = p == kDead || (q == kDead && kind == Product::kBoth);
      out.next.push_back(dead ? kDead : id_of(p, q));
    }
  }
  if (!budget->spend(out.next.size() * 8)) return too_much_work();
  return minimized(std::move(out));
}

}  // namespace

tl::unexpected<Error> too_much_work() {
  return fail(Code::kUnsupported, "it takes too much work to compile: make repetitions, alternatives or nesting fewer");
}

bool ByteDfa::matches(std::string_view text) const {
  uint32_t state = states() > 0 ? 0 : kDead;
  for (const char c : text) {
    if (state == kDead) return false;
    state = step(state, static_cast<uint8_t>(c));
  }
  return state != kDead && accepting[state] != 0;
}

Result<ByteDfa> determinise(const RegexPool& pool, RegexId root, uint32_t states_max, Budget* budget) {
  const uint64_t size = pool.at(root).size;
  if (size > uint64_t{states_max} * 64) {
    return fail(Code::kOutOfMemory, "the expression needs more than " + std::to_string(states_max) + " states");
  }
  if (!budget->spend(size * 4)) return too_much_work();
  ByteNfa nfa;
  const uint32_t start = nfa.add();
  const uint32_t end = build(pool, root, start, &nfa);
  BATON_TRY(ByteDfa dfa, Subsets(nfa, end).run(start, states_max, budget));
  if (!budget->spend(dfa.next.size() * 8)) return too_much_work();
  return minimized(std::move(dfa));
}

Result<ByteDfa> product(const ByteDfa& a, const ByteDfa& b, Product kind, uint32_t states_max, Budget* budget) {
  return product_of(
      a, b, kind, states_max, budget, [&b](uint32_t q, uint8_t byte) { return b.step(q, byte); },
      [&b](uint32_t q) { return b.accepting[q] != 0; });
}

Result<ByteDfa> product(const ByteDfa& a, const ByteDfa& b, const Counted& counted, uint32_t states_max,
                        Budget* budget) {
  const Terminal counts(0, b, counted);
  return product_of(
      a, b, Product::kBoth, states_max, budget, [&](uint32_t q, uint8_t byte) { return counts.step(q, byte); },
      [&](uint32_t q) { return counts.accepting(q); });
}

ByteDfa minimized(ByteDfa dfa) {
  const std::vector<uint8_t> live = useful(dfa);
  if (dfa.states() == 0 || live[0] == 0) return {};
  for (uint32_t& to : dfa.next) {
    if (to != kDead && live[to] == 0) to = kDead;
  }
  merge_classes(&dfa);
  const std::vector<uint32_t> group = groups_of(dfa);
  // Numbered as a walk over all bytes finds them.
  std::vector<uint32_t> number(dfa.states(), kDead);
  std::vector<uint32_t> order = {0};
  number[group[0]] = 0;
  ByteDfa out;
  out.class_of = dfa.class_of;
  out.classes = dfa.classes;
  for (size_t at = 0; at < order.size(); ++at) {
    out.accepting.push_back(dfa.accepting[order[at]]);
    for (uint32_t c = 0; c < dfa.classes; ++c) {
      const uint32_t to = dfa.next[size_t{order[at]} * dfa.classes + c];
      if (to != kDead && number[group[to]] == kDead) {
        number[group[to]] = static_cast<uint32_t>(order.size());
        order.push_back(to);
      }
      out.next.push_back(to == kDead ? kDead : number[group[to]]);
    }
  }
  return out;
}

}  // namespace baton::grammar
