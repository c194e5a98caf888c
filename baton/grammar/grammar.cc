// From expressions to graphs without free edges.
#include "baton/grammar/grammar.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

namespace baton::grammar {
ExprId Draft::add(Expr expr) {
  exprs_.push_back(std::move(expr));
  return static_cast<ExprId>(exprs_.size() - 1);
}

ExprId Draft::terminal(RegexId regex) { return add({.kind = Kind::kRegex, .value = regex}); }

ExprId Draft::terminal(ByteDfa dfa) {
  if (dfa.states() == 0) return alt({});
  states_ += dfa.states();
  terminals_.push_back(store_->intern(std::move(dfa)));
  return add({.kind = Kind::kTerminal, .value = static_cast<uint32_t>(terminals_.size() - 1)});
}

ExprId Draft::terminal(ByteDfa dfa, Counted counted) {
  if (dfa.states() == 0 || counted.min > std::min(counted.max, kCountMax)) return alt({});
  states_ += dfa.states();
  terminals_.push_back(store_->intern(std::move(dfa), counted));
  return add({.kind = Kind::kTerminal, .value = static_cast<uint32_t>(terminals_.size() - 1)});
}

ExprId Draft::seq(std::vector<ExprId> parts) { return add({.kind = Kind::kSeq, .parts = std::move(parts)}); }

ExprId Draft::alt(std::vector<ExprId> parts) { return add({.kind = Kind::kAlt, .parts = std::move(parts)}); }

ExprId Draft::repeat(ExprId part, uint32_t min, uint32_t max) {
  return add({.kind = Kind::kRepeat, .parts = {part}, .min = min, .max = max});
}

ExprId Draft::rule(uint32_t id) { return add({.kind = Kind::kRule, .value = id}); }

ExprId Draft::members(Members members) {
  members_.push_back(std::move(members));
  return add({.kind = Kind::kMembers, .value = static_cast<uint32_t>(members_.size() - 1)});
}

uint32_t Draft::add_rule(std::string name) {
  rules_.push_back({.name = std::move(name)});
  return static_cast<uint32_t>(rules_.size() - 1);
}

Status Draft::find_nullable(std::vector<Ends>* rules) {
  std::vector<uint32_t> seen(raw_.size()), open;
  uint32_t round = 0;
  for (bool changed = true; changed;) {
    changed = false;
    for (Ends& rule : *rules) {
      if (rule.nullable) continue;
      open = {rule.start};
      for (++round; !open.empty();) {
        const uint32_t at = open.back();
        open.pop_back();
        if (seen[at] == round) continue;
        seen[at] = round;
        if (!budget_.spend(1 + raw_[at].edges.size() + raw_[at].free.size())) return too_much_work();
        open.insert(open.end(), raw_[at].free.begin(), raw_[at].free.end());
        for (const Grammar::Edge& edge : raw_[at].edges) {
          if (edge.symbol >= 0 ? terminals_[static_cast<size_t>(edge.symbol)]->nullable()
                               : (*rules)[static_cast<size_t>(~edge.symbol)].nullable) {
            open.push_back(edge.target);
          }
        }
      }
      rule.nullable = seen[rule.end] == round;
      changed = changed || rule.nullable;
    }
  }
  return {};
}

Status Draft::flatten(const std::vector<Ends>& rules, Grammar* out) {
  for (RawNode& node : raw_) {
    for (const Grammar::Edge& edge : node.edges) {
      if (edge.symbol >= 0 ? terminals_[static_cast<size_t>(edge.symbol)]->nullable()
                           : rules[static_cast<size_t>(~edge.symbol)].nullable) {
        node.free.push_back(edge.target);
      }
    }
  }
  std::vector<uint8_t> is_end(raw_.size());
  for (const Ends& rule : rules) is_end[rule.end] = 1;
  std::vector<uint32_t> number(raw_.size(), kDead), order, seen(raw_.size());
  const auto number_of = [&](uint32_t raw) {
    if (number[raw] == kDead) number[raw] = static_cast<uint32_t>(order.size()), order.push_back(raw);
    return number[raw];
  };
  for (const Ends& rule : rules) out->rules.push_back({.start = number_of(rule.start), .nullable = rule.nullable});
  for (size_t at = 0; at < order.size(); ++at) {
    out->nodes.push_back({.edges = static_cast<uint32_t>(out->edges.size())});
    std::set<std::pair<int32_t, uint32_t>> kept;
    std::vector<uint32_t> open = {order[at]};
    while (!open.empty()) {
      const uint32_t raw = open.back();
      open.pop_back();
      if (seen[raw] == at + 1) continue;
      seen[raw] = static_cast<uint32_t>(at + 1);
      if (!budget_.spend(1 + 4 * raw_[raw].edges.size())) return too_much_work();
      out->nodes.back().ends = out->nodes.back().ends || is_end[raw] != 0;
      for (const Grammar::Edge& edge : raw_[raw].edges) {
        if (kept.emplace(edge.symbol, edge.target).second) out->edges.push_back({edge.symbol, number_of(edge.target)});
      }
      open.insert(open.end(), raw_[raw].free.rbegin(), raw_[raw].free.rend());
    }
    if (out->edges.size() > limits_.edges_max) {
      return fail(Code::kUnsupported,
                  fmt::format("it needs more than {} grammar edges: make optional properties or alternatives fewer",
                              limits_.edges_max));
    }
  }
  out->nodes.push_back({.edges = static_cast<uint32_t>(out->edges.size())});
  return {};
}

Status Draft::prune(Grammar* out) const {
  const size_t count = out->nodes.size() - 1;
  struct Use {
    uint32_t source, target;
    int32_t symbol;
  };
  std::vector<Use> uses;
  std::vector<std::vector<uint32_t>> into(count), of_rule(out->rules.size()), starts(count);
  std::vector<uint8_t> good(count), good_rule(out->rules.size());
  std::vector<uint32_t> open;
  const auto mark = [&](uint32_t node) {
    if (good[node] == 0) good[node] = 1, open.push_back(node);
  };
  for (uint32_t r = 0; r < out->rules.size(); ++r) starts[out->rules[r].start].push_back(r);
  for (uint32_t n = 0; n < count; ++n) {
    if (out->nodes[n].ends) mark(n);
    for (const Grammar::Edge& edge : out->edges_of(n)) {
      into[edge.target].push_back(static_cast<uint32_t>(uses.size()));
      if (edge.symbol < 0) of_rule[static_cast<size_t>(~edge.symbol)].push_back(static_cast<uint32_t>(uses.size()));
      uses.push_back({n, edge.target, edge.symbol});
    }
  }
  const auto is_good = [&](int32_t symbol) { return symbol >= 0 || good_rule[static_cast<size_t>(~symbol)] != 0; };
  while (!open.empty()) {
    const uint32_t node = open.back();
    open.pop_back();
    for (const uint32_t use : into[node]) {
      if (is_good(uses[use].symbol)) mark(uses[use].source);
    }
    for (const uint32_t rule : starts[node]) {
      good_rule[rule] = 1;
      for (const uint32_t use : of_rule[rule]) {
        if (good[uses[use].target] != 0) mark(uses[use].source);
      }
    }
  }
  if (good[out->rules[out->root].start] == 0) {
    return fail(Code::kInvalidInput, "no finite text matches it: it contradicts itself, or never comes to an end");
  }
  std::vector<Grammar::Edge> kept;
  uint32_t at = 0;
  for (uint32_t n = 0; n < count; ++n) {
    const uint32_t from = std::exchange(out->nodes[n].edges, static_cast<uint32_t>(kept.size()));
    for (at = from; at < out->nodes[n + 1].edges; ++at) {
      const Grammar::Edge& edge = out->edges[at];
      if (good[edge.target] != 0 && is_good(edge.symbol)) kept.push_back(edge);
    }
  }
  out->nodes[count].edges = static_cast<uint32_t>(kept.size());
  out->edges = std::move(kept);
  return {};
}

// Rules by what they can begin with: a depth-first search, without recursion.
Status Draft::order(Grammar* out) const {
  std::vector<uint8_t> state(out->rules.size());  // 1: on the way, 2: done
  uint32_t next = static_cast<uint32_t>(out->rules.size());
  for (uint32_t root = 0; root < out->rules.size(); ++root) {
    if (state[root] != 0) continue;
    std::vector<std::pair<uint32_t, size_t>> way = {{root, 0}};
    state[root] = 1;
    while (!way.empty()) {
      const uint32_t rule = way.back().first;
      const auto edges = out->edges_of(out->rules[rule].start);
      size_t& at = way.back().second;
      while (at < edges.size() && (edges[at].symbol >= 0 || state[static_cast<size_t>(~edges[at].symbol)] == 2)) ++at;
      if (at == edges.size()) {
        state[rule] = 2;
        out->rules[rule].order = --next;
        way.pop_back();
        continue;
      }
      const uint32_t callee = static_cast<uint32_t>(~edges[at].symbol);
      if (state[callee] == 1) {
        return fail(Code::kUnsupported,
                    fmt::format("rule '{}' can begin with itself: put something in front of it", rules_[callee].name));
      }
      state[callee] = 1;
      way.emplace_back(callee, 0);
    }
  }
  return {};
}

Result<std::shared_ptr<const Grammar>> Draft::finish(uint32_t root) {
  const uint32_t spaced = add_rule("(root behind spaces)");
  ByteSet spaces;
  spaces.set(' ');
  spaces.set('\n');
  define(spaced, seq({terminal(regex_.repeat(regex_.set(spaces), 0, 4)), rule(root)}));
  if (rules_.size() > limits_.rules_max) {
    return fail(Code::kUnsupported, fmt::format("it has more than {} rules", limits_.rules_max));
  }
  std::vector<Ends> rules;
  for (const RuleDraft& drafted : rules_) {
    if (drafted.body == UINT32_MAX) return fail(Code::kInternal, fmt::format("rule '{}' has no body", drafted.name));
    BATON_OK(check_size(2));
    const uint32_t start = static_cast<uint32_t>(raw_.size());
    raw_.emplace_back();
    BATON_TRY(const uint32_t last, lower(drafted.body, start));
    const uint32_t end = static_cast<uint32_t>(raw_.size());
    raw_.emplace_back();
    raw_[last].free.push_back(end);
    rules.push_back({.start = start, .end = end});
  }
  if (states_ > limits_.states_max) return too_much_work();
  auto made = std::make_shared<Grammar>();
  made->root = root;
  made->spaced_root = spaced;
  BATON_OK(find_nullable(&rules));
  BATON_OK(flatten(rules, made.get()));
  BATON_OK(prune(made.get()));
  BATON_OK(order(made.get()));
  made->terminals = std::move(terminals_);
  return std::shared_ptr<const Grammar>(std::move(made));
}

}  // namespace baton::grammar
