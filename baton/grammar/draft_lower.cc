// Expressions to graphs: terminals where they are small enough, edges that need nothing between them.
#include <fmt/format.h>

#include <algorithm>

#include "baton/grammar/grammar.h"

namespace baton::grammar {
namespace {

constexpr uint64_t kAttemptWork = 8'000'000;      // for one terminal, before it becomes a graph
constexpr int32_t kTooLarge = -1, kNothing = -2;  // in place of a terminal

}  // namespace

Status Draft::check_size(size_t more) const {
  if (raw_.size() + more > limits_.nodes_max) {
    return fail(Code::kUnsupported,
                fmt::format("it needs more than {} grammar nodes: make repetitions, enumerations or "
                            "properties fewer",
                            limits_.nodes_max));
  }
  return {};
}

// A terminal of these states, as its index.
Result<uint32_t> Draft::intern(ByteDfa dfa) {
  states_ += dfa.states();
  if (states_ > limits_.states_max) {
    return fail(Code::kUnsupported,
                fmt::format("it needs more than {} automaton states: make expressions or enumerations shorter",
                            limits_.states_max));
  }
  terminals_.push_back(store_->intern(std::move(dfa)));
  return static_cast<uint32_t>(terminals_.size() - 1);
}

Result<uint32_t> Draft::lower_regex(RegexId id, uint32_t from) {
  const auto known = std::find_if(lowered_.begin(), lowered_.end(), [id](const auto& l) { return l.first == id; });
  int32_t terminal = known == lowered_.end() ? kTooLarge : known->second;
  const uint32_t to = static_cast<uint32_t>(raw_.size());
  if (known == lowered_.end()) {
    Budget attempt(kAttemptWork);
    auto dfa = determinise(regex_, id, limits_.terminal_states_max, &attempt);
    if (!budget_.spend(attempt.used())) return too_much_work();
    if (dfa && dfa->states() == 0) {
      terminal = kNothing;
    } else if (dfa) {
      BATON_TRY(const uint32_t made, intern(*std::move(dfa)));
      terminal = static_cast<int32_t>(made);
    }
    lowered_.emplace_back(id, terminal);
  }
  if (terminal != kTooLarge) {
    BATON_OK(check_size(1));
    raw_.emplace_back();
    if (terminal != kNothing) raw_[from].edges.push_back({terminal, to});
    return to;
  }
  const RegexPool::Node node = regex_.at(id);
  switch (node.kind) {
    case RegexPool::Kind::kSet:
      return too_much_work();  // one state and one edge: only the budget can stop it
    case RegexPool::Kind::kCat:
      for (const RegexId part : node.parts) {
        BATON_TRY(from, lower_regex(part, from));
      }
      return from;
    case RegexPool::Kind::kAlt: {
      BATON_OK(check_size(1));
      raw_.emplace_back();
      for (const RegexId part : node.parts) {
        BATON_TRY(const uint32_t end, lower_regex(part, from));
        raw_[end].free.push_back(to);
      }
      return to;
    }
    case RegexPool::Kind::kRepeat:
      break;
  }
  return lower_repeat(node.min, node.max, from, [&](uint32_t at) { return lower_regex(node.parts[0], at); });
}

template <class Part>
Result<uint32_t> Draft::lower_repeat(uint32_t min, uint32_t max, uint32_t from, Part part) {
  const auto fresh = [this](uint32_t before) -> Result<uint32_t> {
    BATON_OK(check_size(1));
    raw_.emplace_back();
    raw_[before].free.push_back(static_cast<uint32_t>(raw_.size() - 1));
    return static_cast<uint32_t>(raw_.size() - 1);
  };
  for (uint32_t i = 0; i < min; ++i) {
    if (!budget_.spend(1)) return too_much_work();
    BATON_TRY(from, part(from));
  }
  if (max == kUnbounded) {
    BATON_TRY(const uint32_t loop, fresh(from));
    BATON_TRY(const uint32_t end, part(loop));
    raw_[end].free.push_back(loop);
    return fresh(loop);
  }
  BATON_TRY(from, fresh(from));
  std::vector<uint32_t> ways = {from};
  for (uint32_t i = min; i < max; ++i) {
    if (!budget_.spend(1)) return too_much_work();
    BATON_TRY(const uint32_t end, part(ways.back()));
    BATON_TRY(const uint32_t next, fresh(end));
    ways.push_back(next);
  }
  for (size_t i = 0; i + 1 < ways.size(); ++i) raw_[ways[i]].free.push_back(ways.back());
  return ways.back();
}

Result<uint32_t> Draft::lower(ExprId id, uint32_t from) {
  const Expr expr = exprs_[id];
  const uint32_t to = static_cast<uint32_t>(raw_.size());
  switch (expr.kind) {
    case Kind::kRegex:
      return lower_regex(expr.value, from);
    case Kind::kMembers:
      return lower_members(Members(members_[expr.value]), from);
    case Kind::kTerminal:
    case Kind::kRule:
      BATON_OK(check_size(1));
      raw_.emplace_back();
      raw_[from].edges.push_back(
          {expr.kind == Kind::kRule ? ~static_cast<int32_t>(expr.value) : static_cast<int32_t>(expr.value), to});
      return to;
    case Kind::kSeq:
      for (const ExprId part : expr.parts) {
        BATON_TRY(from, lower(part, from));
      }
      return from;
    case Kind::kAlt:
      BATON_OK(check_size(expr.parts.size() + 1));
      raw_.emplace_back();
      for (const ExprId part : expr.parts) {
        BATON_TRY(const uint32_t end, lower(part, from));
        raw_[end].free.push_back(to);
      }
      return to;
    case Kind::kRepeat:
      break;
  }
  return lower_repeat(expr.min, expr.max, from, [&](uint32_t at) { return lower(expr.parts[0], at); });
}

// A table of nodes: by how many parts lie behind (rows), and how many were written (as far as that matters). In `open`
// the next part is to come, in `done` one was written.
Result<uint32_t> Draft::lower_members(const Members& members, uint32_t from) {
  const size_t rows = members.parts.size() + 1;
  const uint32_t bound = members.max == kUnbounded ? members.min : members.max;
  const size_t columns = size_t{bound} + 1;
  BATON_OK(
      check_size(2 * std::min<size_t>(rows, limits_.nodes_max) * std::min<size_t>(columns, limits_.nodes_max) + 1));
  const uint32_t open = static_cast<uint32_t>(raw_.size());
  raw_.resize(raw_.size() + 2 * rows * columns + 1);
  const uint32_t done = open + static_cast<uint32_t>(rows * columns), to = done + static_cast<uint32_t>(rows * columns);
  const auto at = [&](uint32_t base, size_t row, size_t column) {
    return base + static_cast<uint32_t>(row * columns + column);
  };
  const auto link = [&](ExprId expr, uint32_t start, uint32_t target) -> Status {
    BATON_TRY(const uint32_t end, lower(expr, start));
    raw_[end].free.push_back(target);
    return {};
  };
  raw_[from].free.push_back(open);
  bool may_be_empty = members.min == 0;
  for (size_t row = 0; row < rows; ++row) {
    const bool last = row + 1 == rows;
    for (size_t column = 0; column < columns; ++column) {
      if (!budget_.spend(8)) return too_much_work();
      const bool full = column == bound && members.max != kUnbounded;
      const size_t next = std::min<size_t>(column + 1, bound);
      if (!full && !last) BATON_OK(link(members.parts[row].expr, at(open, row, column), at(done, row + 1, next)));
      if (!full && last && members.extra) BATON_OK(link(*members.extra, at(open, row, column), at(done, row, next)));
      if (!full && (!last || members.extra))
        BATON_OK(link(members.between, at(done, row, column), at(open, row, column)));
      if (last) {
        if (column >= members.min) BATON_OK(link(members.close, at(done, row, column), to));
      } else if (!members.parts[row].required) {
        raw_[at(open, row, column)].free.push_back(at(open, row + 1, column));
        raw_[at(done, row, column)].free.push_back(at(done, row + 1, column));
      }
    }
    if (!last) may_be_empty = may_be_empty && !members.parts[row].required;
  }
  if (may_be_empty) BATON_OK(link(members.close_empty, from, to));
  return to;
}

}  // namespace baton::grammar
