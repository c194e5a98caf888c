// The expression half of the parser, and the token cursor that both halves share.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "baton/base/status.h"
#include "baton/text/jinja/ast.h"
#include "baton/text/jinja/lexer.h"
#include "baton/text/jinja/runtime.h"

namespace baton::jinja {

using Body = std::vector<NodePtr>;

// Precedence, loosest first: conditional, or, and, not, comparisons, + -, ~, * / // %, **, signs, postfix, filters and
// tests.
class ExpressionParser {
 public:
  ExpressionParser(std::vector<Token> tokens, size_t nesting_max)
      : tokens_(std::move(tokens)), nesting_max_(nesting_max) {}

 protected:
  // ---- Tokens.
  const Token& now() const { return tokens_[at_]; }
  const Token& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  const Token& next() { return tokens_[at_ + 1 < tokens_.size() ? at_++ : at_]; }
  bool is_op(std::string_view op) const { return now().type == TokenType::kOperator && now().text == op; }
  bool is_name(std::string_view name) const { return now().type == TokenType::kName && now().text == name; }
  bool skip_op(std::string_view op) { return is_op(op) && (next(), true); }
  bool skip_name(std::string_view name) { return is_name(name) && (next(), true); }

  tl::unexpected<Error> bad(std::string_view what) const {
    return fail(Code::kInvalidInput, fmt::format("line {}: {}", now().line, what));
  }
  std::string shown() const {
    switch (now().type) {
      case TokenType::kEnd:
        return "the end of the template";
      case TokenType::kVariableEnd:
        return "'}}'";
      case TokenType::kBlockEnd:
        return "'%}'";
      case TokenType::kData:
        return "text";
      default:
        return fmt::format("'{}'", now().text);
    }
  }
  Status expect_op(std::string_view op) {
    if (!skip_op(op)) return bad(fmt::format("expected '{}', found {}", op, shown()));
    return {};
  }
  Status expect_name(std::string_view name) {
    if (!skip_name(name)) return bad(fmt::format("expected '{}', found {}", name, shown()));
    return {};
  }
  Status expect(TokenType type, std::string_view what) {
    if (now().type != type) return bad(fmt::format("expected {}, found {}", what, shown()));
    next();
    return {};
  }
  Result<std::string> expect_any_name() {
    if (now().type != TokenType::kName) return bad(fmt::format("expected a name, found {}", shown()));
    return next().text;
  }

  // ---- Nodes.
  NodePtr make(Kind kind) const { return std::make_unique<Node>(kind, now().line); }
  uint32_t symbol(const std::string& name) {
    const auto [found, is_new] = symbols_.try_emplace(name, static_cast<uint32_t>(tree_.symbols.size()));
    if (is_new) tree_.symbols.push_back(name);
    return found->second;
  }
  // Counts a level of recursion while it lives.
  struct Level {
    explicit Level(size_t* d) : depth(d) { ++*depth; }
    ~Level() { --*depth; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;
    size_t* depth;
  };
  Status check_nesting() const {
    if (nesting_ > nesting_max_) return bad(fmt::format("nested deeper than {}", nesting_max_));
    return {};
  }
  // Sets the depth once the parts are there.
  Result<NodePtr> done(NodePtr node) const {
    uint32_t depth = 0;
    const auto see = [&](const NodePtr& child) {
      if (child) depth = std::max(depth, child->depth);
    };
    for (const NodePtr& child : node->children) see(child);
    for (const Keyword& keyword : node->keywords) see(keyword.value);
    for (const Parameter& parameter : node->parameters) see(parameter.otherwise);
    for (const Body& body : node->bodies) {
      for (const NodePtr& child : body) see(child);
    }
    node->depth = depth + 1;
    if (node->depth > nesting_max_ * 4) {
      return fail(Code::kInvalidInput,
                  fmt::format("line {}: expressions nested deeper than {}", node->line, nesting_max_ * 4));
    }
    return node;
  }
  static NodePtr text_node(NodePtr node, std::string text) {
    node->text = std::move(text);
    node->constant_text.data = node->text.data();
    node->constant_text.size = static_cast<uint32_t>(node->text.size());
    node->constant = Value::of_text(&node->constant_text);
    return node;
  }

  // ---- Expressions.
  Result<NodePtr> parse_tuple(bool with_condition, std::initializer_list<std::string_view> ends, bool in_parentheses);
  Result<NodePtr> parse_expression(bool with_condition);
  // A chain `operand (operator operand)*` of one precedence. `op_here` consumes an operator, or gives nothing.
  template <class OpHere, class Operand>
  Result<NodePtr> parse_chain(Kind kind, OpHere op_here, Operand operand);
  std::optional<Op> skip_any(std::initializer_list<std::pair<std::string_view, Op>> ops);
  Result<NodePtr> parse_or();
  Result<NodePtr> parse_and();
  Result<NodePtr> parse_not();
  Result<NodePtr> parse_compare();
  Result<NodePtr> parse_sum();
  Result<NodePtr> parse_concat();
  Result<NodePtr> parse_product();
  Result<NodePtr> parse_power();
  Result<NodePtr> parse_unary(bool with_filter);
  Result<NodePtr> parse_primary();
  Result<NodePtr> parse_name(NodePtr node);
  Result<NodePtr> parse_list(NodePtr node);
  Result<NodePtr> parse_dict(NodePtr node);
  Result<NodePtr> parse_postfix(NodePtr node);
  Result<NodePtr> parse_subscript(NodePtr of);
  Status parse_arguments(Node* node);
  Result<NodePtr> parse_call(NodePtr of);
  Result<std::string> parse_dotted_name();
  // Unknown names are errors of the template, but inside a condition only when reached: templates ask before they use.
  void resolve(Node* node, const Callable* found, std::string_view what);
  Result<NodePtr> parse_filter(NodePtr of);
  Result<NodePtr> parse_test(NodePtr of);

  std::vector<Token> tokens_;
  size_t at_ = 0;
  size_t nesting_max_;
  size_t nesting_ = 0;
  size_t soft_ = 0;  // inside a condition
  std::vector<std::string> unresolved_;
  size_t loops_ = 0;  // loops that break would leave
  size_t varargs_ = 0, kwargs_ = 0, callers_ = 0;
  std::unordered_map<std::string, uint32_t> symbols_;
  Tree tree_;
};

}  // namespace baton::jinja
