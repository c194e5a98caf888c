// A context-free grammar over terminals: as expressions while it is written, as graphs when it is matched.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/grammar/byte_dfa.h"
#include "baton/grammar/regex_tree.h"
#include "baton/grammar/terminal.h"

namespace baton::grammar {

// Immutable; any thread.
struct Grammar {
  // `symbol`: a terminal, or ~rule.
  struct Edge {
    int32_t symbol = 0;
    uint32_t target = 0;
  };
  struct Node {
    uint32_t edges = 0;  // where its edges begin; they end where the next node's begin
    bool ends = false;   // the rule may end here
  };
  struct Rule {
    uint32_t start = 0;
    uint32_t order = 0;  // above that of the rules that can begin with it
    bool nullable = false;
  };
  std::vector<std::shared_ptr<const Terminal>> terminals;
  std::vector<Edge> edges;
  std::vector<Node> nodes;  // and one more behind the last
  std::vector<Rule> rules;
  uint32_t root = 0;
  uint32_t spaced_root = 0;  // up to four spaces or line ends, then the root

  std::span<const Edge> edges_of(uint32_t node) const {
    return std::span(edges).subspan(nodes[node].edges, nodes[node + 1].edges - nodes[node].edges);
  }
};

using ExprId = uint32_t;

// Of what a grammar may be.
struct Limits {
  uint32_t terminal_states_max = 4096;  // of one terminal; larger expressions become graphs
  uint32_t nodes_max = 200'000;         // of all rules
  uint32_t edges_max = 500'000;         //
  uint32_t rules_max = 20'000;          //
  uint64_t states_max = 400'000;        // of all terminals together
  uint64_t work = 60'000'000;           // below a second
};

// A grammar while it is written. One thread.
class Draft {
 public:
  explicit Draft(TerminalStore* store, const Limits& limits = {})
      : limits_(limits), budget_(limits.work), store_(store) {}

  RegexPool& regex() { return regex_; }
  Budget& budget() { return budget_; }
  const Limits& limits() const { return limits_; }

  // One terminal; more of them where it is too large.
  ExprId terminal(RegexId regex);
  ExprId terminal(ByteDfa dfa);
  ExprId terminal(ByteDfa dfa, Counted counted);
  ExprId terminal(std::string_view text) { return terminal(regex_.text(text)); }
  ExprId seq(std::vector<ExprId> parts);
  ExprId alt(std::vector<ExprId> parts);  // of none: nothing at all
  ExprId repeat(ExprId part, uint32_t min, uint32_t max);
  ExprId optional(ExprId part) { return repeat(part, 0, 1); }
  ExprId rule(uint32_t id);
  // A list of parts, each at most once and in order, the optional ones or not, then any number of `extra`, with
  // `between` between two. Ends with `close`, or where there is no part with `close_empty`.
  struct Members {
    struct Part {
      ExprId expr = 0;
      bool required = false;
    };
    std::vector<Part> parts = {};
    std::optional<ExprId> extra = {};
    ExprId between = 0, close = 0, close_empty = 0;
    uint32_t min = 0, max = kUnbounded;  // parts and extras together
  };
  ExprId members(Members members);
  // Named for errors; to be defined before finish().
  uint32_t add_rule(std::string name);
  void define(uint32_t rule, ExprId body) { rules_[rule].body = body; }
  size_t rule_count() const { return rules_.size(); }

  // kInvalidInput: no finite text matches. kUnsupported: a rule that begins with itself, or beyond the limits.
  Result<std::shared_ptr<const Grammar>> finish(uint32_t root);

 private:
  enum class Kind : uint8_t { kTerminal, kRegex, kRule, kSeq, kAlt, kRepeat, kMembers };
  struct Expr {
    Kind kind = Kind::kSeq;
    uint32_t value = 0;  // of terminals_, a RegexId, a rule, or of members_
    std::vector<ExprId> parts = {};
    uint32_t min = 0, max = 0;
  };
  struct RuleDraft {
    std::string name;
    ExprId body = UINT32_MAX;
  };
  // A graph with edges that need nothing.
  struct RawNode {
    std::vector<Grammar::Edge> edges = {};
    std::vector<uint32_t> free = {};
  };
  ExprId add(Expr expr);
  Status check_size(size_t more) const;
  Result<uint32_t> intern(ByteDfa dfa);
  Result<uint32_t> lower(ExprId id, uint32_t from);
  Result<uint32_t> lower_members(const Members& members, uint32_t from);
  Result<uint32_t> lower_regex(RegexId id, uint32_t from);
  template <class Part>
  Result<uint32_t> lower_repeat(uint32_t min, uint32_t max, uint32_t from, Part part);
  struct Ends {
    uint32_t start = 0, end = 0;  // raw nodes
    bool nullable = false;
  };
  Status find_nullable(std::vector<Ends>* rules);
  Status flatten(const std::vector<Ends>& rules, Grammar* out);
  Status prune(Grammar* out) const;  // what no finite text goes through
  Status order(Grammar* out) const;

  Limits limits_;
  Budget budget_;
  TerminalStore* store_;
  RegexPool regex_;
  std::vector<Expr> exprs_;
  std::vector<Members> members_;
  std::vector<RuleDraft> rules_;
  std::vector<std::shared_ptr<const Terminal>> terminals_;
  std::vector<RawNode> raw_;
  std::vector<std::pair<RegexId, int32_t>> lowered_;  // terminals of expressions, or why there is none
  uint64_t states_ = 0;
};

}  // namespace baton::grammar
