// Expressions by recursive descent. Chains of one precedence become one node, so that depth means nesting.
#include "baton/text/jinja/expressions.h"

namespace baton::jinja {

Result<NodePtr> ExpressionParser::parse_tuple(bool with_condition, std::initializer_list<std::string_view> ends,
                                              bool in_parentheses) {
  const uint32_t line = now().line;
  std::vector<NodePtr> items;
  bool is_tuple = false;
  const auto at_end = [&] {
    const TokenType type = now().type;
    return type == TokenType::kBlockEnd || type == TokenType::kVariableEnd || is_op(")") ||
           (type == TokenType::kName && std::find(ends.begin(), ends.end(), now().text) != ends.end());
  };
  for (;;) {
    if (!items.empty()) BATON_OK(expect_op(","));
    if (at_end()) break;
    BATON_TRY(NodePtr item, parse_expression(with_condition));
    items.push_back(std::move(item));
    if (!is_op(",")) break;
    is_tuple = true;
  }
  if (!is_tuple) {
    if (!items.empty()) return std::move(items[0]);
    if (!in_parentheses) return bad(fmt::format("expected an expression, found {}", shown()));
  }
  auto node = std::make_unique<Node>(Kind::kTuple, line);
  node->children = std::move(items);
  return done(std::move(node));
}

Result<NodePtr> ExpressionParser::parse_expression(bool with_condition) {
  const Level level(&nesting_);
  BATON_OK(check_nesting());
  if (!with_condition) return parse_or();
  const size_t unresolved = unresolved_.size();
  BATON_TRY(NodePtr value, parse_or());
  while (is_name("if")) {
    unresolved_.resize(unresolved);  // the value turns out to be conditional
    NodePtr node = make(Kind::kConditional);
    next();
    const Level soft(&soft_);
    BATON_TRY(NodePtr condition, parse_or());
    NodePtr otherwise;
    if (skip_name("else")) {
      BATON_TRY(otherwise, parse_expression(true));
    }
    node->children.push_back(std::move(condition));
    node->children.push_back(std::move(value));
    node->children.push_back(std::move(otherwise));
    BATON_TRY(value, done(std::move(node)));
  }
  return value;
}

template <class OpHere, class Operand>
Result<NodePtr> ExpressionParser::parse_chain(Kind kind, OpHere op_here, Operand operand) {
  const uint32_t line = now().line;
  BATON_TRY(NodePtr first, operand());
  NodePtr node;
  while (const std::optional<Op> op = op_here()) {
    if (!node) {
      node = std::make_unique<Node>(kind, line);
      node->children.push_back(std::move(first));
    }
    BATON_TRY(NodePtr right, operand());
    node->ops.push_back(*op);
    node->children.push_back(std::move(right));
  }
  if (!node) return first;
  return done(std::move(node));
}

std::optional<Op> ExpressionParser::skip_any(std::initializer_list<std::pair<std::string_view, Op>> ops) {
  for (const auto& [text, op] : ops) {
    if (skip_op(text)) return op;
  }
  return std::nullopt;
}

Result<NodePtr> ExpressionParser::parse_or() {
  return parse_chain(
      Kind::kOr, [&] { return skip_name("or") ? std::optional(Op::kNot) : std::nullopt; }, [&] { return parse_and(); });
}

Result<NodePtr> ExpressionParser::parse_and() {
  return parse_chain(
      Kind::kAnd, [&] { return skip_name("and") ? std::optional(Op::kNot) : std::nullopt; },
      [&] { return parse_not(); });
}

Result<NodePtr> ExpressionParser::parse_not() {
  size_t count = 0;
  const uint32_t line = now().line;
  while (skip_name("not")) ++count;
  BATON_TRY(NodePtr value, parse_compare());
  // not not x is a bool; more pairs change nothing.
  for (size_t i = count > 2 ? 2 + count % 2 : count; i > 0; --i) {
    auto node = std::make_unique<Node>(Kind::kUnary, line);
    node->ops = {Op::kNot};
    node->children.push_back(std::move(value));
    BATON_TRY(value, done(std::move(node)));
  }
  return value;
}

Result<NodePtr> ExpressionParser::parse_compare() {
  return parse_chain(
      Kind::kCompare,
      [&]() -> std::optional<Op> {
        if (skip_name("in")) return Op::kIn;
        if (is_name("not") && look().type == TokenType::kName && look().text == "in") {
          next(), next();
          return Op::kNotIn;
        }
        return skip_any({{"==", Op::kEqual},
                         {"!=", Op::kNotEqual},
                         {"<", Op::kLess},
                         {"<=", Op::kLessEqual},
                         {">", Op::kGreater},
                         {">=", Op::kGreaterEqual}});
      },
      [&] { return parse_sum(); });
}

Result<NodePtr> ExpressionParser::parse_sum() {
  return parse_chain(
      Kind::kArithmetic,
      [&] {
        return skip_any({{"+", Op::kAdd}, {"-", Op::kSubtract}});
      },
      [&] { return parse_concat(); });
}

Result<NodePtr> ExpressionParser::parse_concat() {
  return parse_chain(
      Kind::kConcat,
      [&] {
        return skip_any({{"~", Op::kAdd}});
      },
      [&] { return parse_product(); });
}

Result<NodePtr> ExpressionParser::parse_product() {
  return parse_chain(
      Kind::kArithmetic,
      [&] {
        return skip_any({{"*", Op::kMultiply}, {"/", Op::kDivide}, {"//", Op::kFloorDivide}, {"%", Op::kModulo}});
      },
      [&] { return parse_power(); });
}

Result<NodePtr> ExpressionParser::parse_power() {
  return parse_chain(
      Kind::kArithmetic,
      [&] {
        return skip_any({{"**", Op::kPower}});
      },
      [&] { return parse_unary(true); });
}

Result<NodePtr> ExpressionParser::parse_unary(bool with_filter) {
  NodePtr node;
  if (is_op("-") || is_op("+")) {
    const Level level(&nesting_);
    BATON_OK(check_nesting());
    node = make(Kind::kUnary);
    node->ops = {is_op("-") ? Op::kNegative : Op::kPositive};
    next();
    BATON_TRY(NodePtr value, parse_unary(false));
    node->children.push_back(std::move(value));
    BATON_TRY(node, done(std::move(node)));
  } else {
    BATON_TRY(node, parse_primary());
  }
  BATON_TRY(node, parse_postfix(std::move(node)));
  if (!with_filter) return node;
  for (;;) {
    if (skip_op("|")) {
      BATON_TRY(node, parse_filter(std::move(node)));
    } else if (is_name("is")) {
      BATON_TRY(node, parse_test(std::move(node)));
    } else if (is_op("(")) {
      BATON_TRY(node, parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<NodePtr> ExpressionParser::parse_primary() {
  NodePtr node = make(Kind::kConstant);
  switch (now().type) {
    case TokenType::kName:
      return parse_name(std::move(node));
    case TokenType::kString: {
      std::string text = next().text;
      while (now().type == TokenType::kString) text += next().text;
      return text_node(std::move(node), std::move(text));
    }
    case TokenType::kInteger:
      node->constant = Value::of_int(next().integer);
      return node;
    case TokenType::kFloat:
      node->constant = Value::of_float(next().real);
      return node;
    case TokenType::kOperator:
      if (skip_op("(")) {
        BATON_TRY(node, parse_tuple(true, {}, true));
        BATON_OK(expect_op(")"));
        return node;
      }
      if (is_op("[")) return parse_list(std::move(node));
      if (is_op("{")) return parse_dict(std::move(node));
      [[fallthrough]];
    default:
      return bad(fmt::format("unexpected {}", shown()));
  }
}

Result<NodePtr> ExpressionParser::parse_name(NodePtr node) {
  const std::string name = next().text;
  if (name == "true" || name == "True") {
    node->constant = Value::of_bool(true);
  } else if (name == "false" || name == "False") {
    node->constant = Value::of_bool(false);
  } else if (name == "none" || name == "None") {
    node->constant = Value::none();
  } else {
    node->kind = Kind::kName;
    node->text = name;
    node->symbol = symbol(name);
    if (name == "varargs") ++varargs_;
    if (name == "kwargs") ++kwargs_;
    if (name == "caller") ++callers_;
  }
  return node;
}

Result<NodePtr> ExpressionParser::parse_list(NodePtr node) {
  node->kind = Kind::kList;
  next();
  while (!is_op("]")) {
    if (!node->children.empty()) BATON_OK(expect_op(","));
    if (is_op("]")) break;
    BATON_TRY(NodePtr item, parse_expression(true));
    node->children.push_back(std::move(item));
  }
  next();
  return done(std::move(node));
}

Result<NodePtr> ExpressionParser::parse_dict(NodePtr node) {
  node->kind = Kind::kDict;
  next();
  while (!is_op("}")) {
    if (!node->children.empty()) BATON_OK(expect_op(","));
    if (is_op("}")) break;
    BATON_TRY(NodePtr key, parse_expression(true));
    BATON_OK(expect_op(":"));
    BATON_TRY(NodePtr value, parse_expression(true));
    node->children.push_back(std::move(key));
    node->children.push_back(std::move(value));
  }
  next();
  return done(std::move(node));
}

Result<NodePtr> ExpressionParser::parse_postfix(NodePtr node) {
  for (;;) {
    if (is_op(".") || is_op("[")) {
      BATON_TRY(node, parse_subscript(std::move(node)));
    } else if (is_op("(")) {
      BATON_TRY(node, parse_call(std::move(node)));
    } else {
      return node;
    }
  }
}

Result<NodePtr> ExpressionParser::parse_subscript(NodePtr of) {
  NodePtr node = make(Kind::kItem);
  node->children.push_back(std::move(of));
  if (skip_op(".")) {
    if (now().type == TokenType::kInteger) {
      NodePtr index = make(Kind::kConstant);
      index->constant = Value::of_int(next().integer);
      node->children.push_back(std::move(index));
      return done(std::move(node));
    }
    if (now().type != TokenType::kName) return bad(fmt::format("expected a name or number, found {}", shown()));
    node->kind = Kind::kAttribute;
    return done(text_node(std::move(node), next().text));
  }
  next();
  NodePtr from;
  if (!is_op(":")) {
    BATON_TRY(from, parse_expression(true));
  }
  if (!is_op(":")) {
    if (is_op(",")) {
      return fail(Code::kUnsupported, fmt::format("line {}: several subscripts are not supported", now().line));
    }
    BATON_OK(expect_op("]"));
    node->children.push_back(std::move(from));
    return done(std::move(node));
  }
  node->kind = Kind::kSlice;
  node->children.push_back(std::move(from));
  for (int i = 0; i < 2; ++i) {
    NodePtr bound;
    if (skip_op(":") && !is_op(":") && !is_op("]")) {
      BATON_TRY(bound, parse_expression(true));
    }
    node->children.push_back(std::move(bound));
  }
  BATON_OK(expect_op("]"));
  return done(std::move(node));
}

Status ExpressionParser::parse_arguments(Node* node) {
  BATON_OK(expect_op("("));
  bool first = true;
  while (!is_op(")")) {
    if (!first) BATON_OK(expect_op(","));
    if (is_op(")")) break;
    first = false;
    if (is_op("*") || is_op("**")) {
      return fail(Code::kUnsupported, fmt::format("line {}: '{}' arguments are not supported", now().line, now().text));
    }
    const bool is_keyword = now().type == TokenType::kName && look().type == TokenType::kOperator && look().text == "=";
    if (is_keyword) {
      Keyword keyword;
      keyword.name = next().text;
      next();
      BATON_TRY(keyword.value, parse_expression(true));
      for (const Keyword& other : node->keywords) {
        if (other.name == keyword.name) return bad(fmt::format("the argument '{}' appears twice", keyword.name));
      }
      node->keywords.push_back(std::move(keyword));
    } else {
      if (!node->keywords.empty()) return bad("a positional argument follows a named one");
      BATON_TRY(NodePtr value, parse_expression(true));
      node->children.push_back(std::move(value));
    }
  }
  next();
  return {};
}

Result<NodePtr> ExpressionParser::parse_call(NodePtr of) {
  NodePtr node = make(Kind::kCall);
  node->children.push_back(std::move(of));
  BATON_OK(parse_arguments(node.get()));
  return done(std::move(node));
}

Result<std::string> ExpressionParser::parse_dotted_name() {
  BATON_TRY(std::string name, expect_any_name());
  while (skip_op(".")) {
    BATON_TRY(const std::string more, expect_any_name());
    name += "." + more;
  }
  return name;
}

void ExpressionParser::resolve(Node* node, const Callable* found, std::string_view what) {
  node->callable = found;
  if (found == nullptr && soft_ == 0) {
    unresolved_.push_back(fmt::format("line {}: there is no {} '{}'", node->line, what, node->text));
  }
}

Result<NodePtr> ExpressionParser::parse_filter(NodePtr of) {
  NodePtr node = make(Kind::kFilter);
  node->children.push_back(std::move(of));
  BATON_TRY(node->text, parse_dotted_name());
  resolve(node.get(), find_filter(node->text), "filter");
  if (is_op("(")) BATON_OK(parse_arguments(node.get()));
  return done(std::move(node));
}

Result<NodePtr> ExpressionParser::parse_test(NodePtr of) {
  next();
  const uint32_t line = now().line;
  const bool negated = skip_name("not");
  NodePtr node = make(Kind::kTest);
  node->children.push_back(std::move(of));
  BATON_TRY(node->text, parse_dotted_name());
  resolve(node.get(), find_test(node->text), "test");
  const bool is_operand = now().type == TokenType::kString || now().type == TokenType::kInteger ||
                          now().type == TokenType::kFloat || is_op("[") || is_op("{") ||
                          (now().type == TokenType::kName && !is_name("else") && !is_name("or") && !is_name("and"));
  if (is_op("(")) {
    BATON_OK(parse_arguments(node.get()));
  } else if (is_operand) {
    if (is_name("is")) return bad("tests cannot be chained with 'is'");
    BATON_TRY(NodePtr operand, parse_primary());
    BATON_TRY(operand, parse_postfix(std::move(operand)));
    node->children.push_back(std::move(operand));
  }
  BATON_TRY(node, done(std::move(node)));
  if (!negated) return node;
  auto inverse = std::make_unique<Node>(Kind::kUnary, line);
  inverse->ops = {Op::kNot};
  inverse->children.push_back(std::move(node));
  return done(std::move(inverse));
}

}  // namespace baton::jinja
