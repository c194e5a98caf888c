// The statement half of the parser.
#include "baton/text/jinja/parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <initializer_list>
#include <utility>

#include "baton/text/jinja/expressions.h"

namespace baton::jinja {
namespace {

class Parser : private ExpressionParser {
 public:
  using ExpressionParser::ExpressionParser;

  Result<Tree> run() {
    BATON_TRY(tree_.body, parse_body({}));
    if (!unresolved_.empty()) return fail(Code::kUnsupported, unresolved_.front());
    return std::move(tree_);
  }

 private:
  // ---- Statements.
  // Until a block whose name is in `ends` (not consumed beyond its '{%'), or the end of the template when `ends` is
  // empty.
  Result<Body> parse_body(std::initializer_list<std::string_view> ends) {
    const Level level(&nesting_);
    BATON_OK(check_nesting());
    Body body;
    while (now().type != TokenType::kEnd) {
      if (now().type == TokenType::kData) {
        NodePtr node = make(Kind::kData);
        body.push_back(text_node(std::move(node), next().text));
      } else if (now().type == TokenType::kVariableBegin) {
        next();
        NodePtr node = make(Kind::kOutput);
        BATON_TRY(NodePtr value, parse_tuple(true, {}, false));
        node->children.push_back(std::move(value));
        BATON_OK(expect(TokenType::kVariableEnd, "'}}'"));
        BATON_TRY(node, done(std::move(node)));
        body.push_back(std::move(node));
      } else {
        BATON_OK(expect(TokenType::kBlockBegin, "'{%'"));
        if (now().type == TokenType::kName && std::find(ends.begin(), ends.end(), now().text) != ends.end()) {
          return body;
        }
        BATON_OK(parse_statement(&body));
        BATON_OK(expect(TokenType::kBlockEnd, "'%}'"));
      }
    }
    if (ends.size() > 0) return bad(fmt::format("the template ends before '{}'", *(ends.end() - 1)));
    return body;
  }
  // After a statement's head: '%}', the body, and the end name, which is consumed.
  Result<Body> parse_block(std::string_view end) {
    skip_op(":");
    BATON_OK(expect(TokenType::kBlockEnd, "'%}'"));
    BATON_TRY(Body body, parse_body({end}));
    next();
    return body;
  }

  Status parse_statement(Body* body) {
    if (now().type != TokenType::kName) return bad(fmt::format("expected a statement, found {}", shown()));
    const std::string name = now().text;
    Result<NodePtr> node = [&]() -> Result<NodePtr> {
      if (name == "if") return parse_if();
      if (name == "for") return parse_for();
      if (name == "set") return parse_set();
      if (name == "macro") return parse_macro();
      if (name == "call") return parse_call_block();
      if (name == "filter") return parse_filter_block();
      if (name == "with") return parse_with();
      if (name == "generation") return parse_generation();
      if (name == "print") return parse_print(body);
      if (name == "break" || name == "continue") return parse_loop_control();
      for (const std::string_view other :
           {"block", "extends", "include", "import", "from", "autoescape", "do", "trans"}) {
        if (name == other) {
          return fail(Code::kUnsupported,
                      fmt::format("line {}: the statement '{}' is not supported in chat templates", now().line, name));
        }
      }
      return bad(fmt::format("unknown statement '{}'", name));
    }();
    if (!node) return fail(std::move(node).error());
    if (*node) {
      BATON_TRY(NodePtr finished, done(*std::move(node)));
      body->push_back(std::move(finished));
    }
    return {};
  }

  Result<NodePtr> parse_if() {
    NodePtr node = make(Kind::kIf);
    next();
    const Level soft(&soft_);
    for (;;) {
      BATON_TRY(NodePtr condition, parse_tuple(false, {}, false));
      node->children.push_back(std::move(condition));
      skip_op(":");
      BATON_OK(expect(TokenType::kBlockEnd, "'%}'"));
      BATON_TRY(Body body, parse_body({"elif", "else", "endif"}));
      node->bodies.push_back(std::move(body));
      if (skip_name("elif")) continue;
      if (skip_name("else")) {
        BATON_TRY(Body otherwise, parse_block("endif"));
        node->bodies.push_back(std::move(otherwise));
      } else {
        next();
      }
      return node;
    }
  }

  Result<NodePtr> parse_for() {
    NodePtr node = make(Kind::kFor);
    next();
    BATON_TRY(NodePtr target, parse_target({"in"}, false));
    BATON_OK(expect_name("in"));
    BATON_TRY(NodePtr iterable, parse_tuple(false, {"recursive"}, false));
    node->children.push_back(std::move(target));
    node->children.push_back(std::move(iterable));
    node->children.emplace_back();
    if (skip_name("if")) {
      BATON_TRY(node->children[2], parse_expression(true));
    }
    if (is_name("recursive")) {
      return fail(Code::kUnsupported, fmt::format("line {}: recursive loops are not supported", now().line));
    }
    skip_op(":");
    BATON_OK(expect(TokenType::kBlockEnd, "'%}'"));
    ++loops_;
    Result<Body> body = parse_body({"else", "endfor"});
    --loops_;
    if (!body) return fail(std::move(body).error());
    node->bodies.push_back(*std::move(body));
    if (skip_name("else")) {
      BATON_TRY(Body otherwise, parse_block("endfor"));
      node->bodies.push_back(std::move(otherwise));
    } else {
      next();
    }
    return node;
  }

  Result<NodePtr> parse_set() {
    NodePtr node = make(Kind::kSet);
    next();
    BATON_TRY(NodePtr target, parse_target({}, true));
    node->children.push_back(std::move(target));
    if (skip_op("=")) {
      BATON_TRY(NodePtr value, parse_tuple(true, {}, false));
      node->children.push_back(std::move(value));
      return node;
    }
    node->kind = Kind::kSetBlock;
    NodePtr filter;
    while (is_op("|")) {
      next();
      BATON_TRY(filter, parse_filter(std::move(filter)));
    }
    node->children.push_back(std::move(filter));
    BATON_TRY(Body body, parse_nested_block("endset"));
    node->bodies.push_back(std::move(body));
    return node;
  }

  // A body that is rendered to text: break and continue cannot leave it.
  Result<Body> parse_nested_block(std::string_view end) {
    const size_t loops = std::exchange(loops_, 0);
    Result<Body> body = parse_block(end);
    loops_ = loops;
    return body;
  }

  Status parse_parameters(Node* node) {
    BATON_OK(expect_op("("));
    bool saw_default = false;
    while (!is_op(")")) {
      if (!node->parameters.empty()) BATON_OK(expect_op(","));
      BATON_TRY(std::string name, expect_any_name());
      Parameter parameter{symbol(name), std::move(name), nullptr};
      if (skip_op("=")) {
        saw_default = true;
        BATON_TRY(parameter.otherwise, parse_expression(true));
      } else if (saw_default) {
        return bad("a parameter without default follows one with");
      }
      node->parameters.push_back(std::move(parameter));
    }
    next();
    return {};
  }

  // The body of a macro or caller; notes which of the special names it uses.
  Status parse_macro_body(Node* node, std::string_view end) {
    const size_t varargs = std::exchange(varargs_, 0), kwargs = std::exchange(kwargs_, 0),
                 callers = std::exchange(callers_, 0);
    Result<Body> body = parse_nested_block(end);
    node->uses_varargs = varargs_ > 0;
    node->uses_kwargs = kwargs_ > 0;
    node->uses_caller = callers_ > 0;
    varargs_ = varargs, kwargs_ = kwargs, callers_ = callers;
    if (!body) return fail(std::move(body).error());
    node->bodies.push_back(*std::move(body));
    return {};
  }

  Result<NodePtr> parse_macro() {
    NodePtr node = make(Kind::kMacro);
    next();
    BATON_TRY(node->text, expect_any_name());
    node->symbol = symbol(node->text);
    BATON_OK(parse_parameters(node.get()));
    BATON_OK(parse_macro_body(node.get(), "endmacro"));
    return node;
  }

  Result<NodePtr> parse_call_block() {
    NodePtr node = make(Kind::kCallBlock);
    next();
    if (is_op("(")) BATON_OK(parse_parameters(node.get()));
    BATON_TRY(NodePtr call, parse_expression(true));
    if (call->kind != Kind::kCall) return bad("expected a call after 'call'");
    node->children.push_back(std::move(call));
    BATON_OK(parse_macro_body(node.get(), "endcall"));
    return node;
  }

  Result<NodePtr> parse_filter_block() {
    NodePtr node = make(Kind::kFilterBlock);
    next();
    BATON_TRY(NodePtr filter, parse_filter(nullptr));
    while (skip_op("|")) {
      BATON_TRY(filter, parse_filter(std::move(filter)));
    }
    node->children.push_back(std::move(filter));
    BATON_TRY(Body body, parse_nested_block("endfilter"));
    node->bodies.push_back(std::move(body));
    return node;
  }

  Result<NodePtr> parse_with() {
    NodePtr node = make(Kind::kWith);
    next();
    while (now().type != TokenType::kBlockEnd && !is_op(":")) {
      if (!node->children.empty()) BATON_OK(expect_op(","));
      BATON_TRY(NodePtr target, parse_target({}, false));
      BATON_OK(expect_op("="));
      BATON_TRY(NodePtr value, parse_expression(true));
      node->children.push_back(std::move(target));
      node->children.push_back(std::move(value));
    }
    BATON_TRY(Body body, parse_block("endwith"));
    node->bodies.push_back(std::move(body));
    return node;
  }

  // {% generation %}: marks the assistant's text for training; here only a scope.
  Result<NodePtr> parse_generation() {
    NodePtr node = make(Kind::kScope);
    next();
    BATON_TRY(Body body, parse_nested_block("endgeneration"));
    node->bodies.push_back(std::move(body));
    return node;
  }

  Result<NodePtr> parse_print(Body* body) {
    next();
    bool first = true;
    while (now().type != TokenType::kBlockEnd) {
      if (!first) BATON_OK(expect_op(","));
      first = false;
      NodePtr node = make(Kind::kOutput);
      BATON_TRY(NodePtr value, parse_expression(true));
      node->children.push_back(std::move(value));
      BATON_TRY(node, done(std::move(node)));
      body->push_back(std::move(node));
    }
    return NodePtr();
  }

  Result<NodePtr> parse_loop_control() {
    if (loops_ == 0) return bad(fmt::format("'{}' outside of a loop", now().text));
    NodePtr node = make(now().text == "break" ? Kind::kBreak : Kind::kContinue);
    next();
    return node;
  }

  // ---- Assignment targets: names, tuples of them, and namespace attributes where allowed.
  Result<NodePtr> parse_target(std::initializer_list<std::string_view> ends, bool with_namespace) {
    const uint32_t line = now().line;
    std::vector<NodePtr> targets;
    bool is_tuple = false;
    const auto at_end = [&] {
      const TokenType type = now().type;
      return type == TokenType::kBlockEnd || type == TokenType::kVariableEnd || is_op(")") || is_op("=") ||
             (type == TokenType::kName && std::find(ends.begin(), ends.end(), now().text) != ends.end());
    };
    for (;;) {
      if (!targets.empty()) BATON_OK(expect_op(","));
      if (at_end()) break;
      BATON_TRY(NodePtr target, parse_one_target(with_namespace));
      targets.push_back(std::move(target));
      if (!is_op(",")) break;
      is_tuple = true;
    }
    if (!is_tuple && targets.empty()) return bad(fmt::format("expected a variable, found {}", shown()));
    if (!is_tuple) return std::move(targets[0]);
    auto node = std::make_unique<Node>(Kind::kTuple, line);
    node->children = std::move(targets);
    return done(std::move(node));
  }
  Result<NodePtr> parse_one_target(bool with_namespace) {
    if (skip_op("(")) {
      const Level level(&nesting_);
      BATON_OK(check_nesting());
      BATON_TRY(NodePtr inner, parse_target({}, with_namespace));
      BATON_OK(expect_op(")"));
      return inner;
    }
    if (now().type != TokenType::kName) return bad(fmt::format("cannot assign to {}", shown()));
    for (const std::string_view reserved : {"true", "false", "none", "True", "False", "None"}) {
      if (now().text == reserved) return bad(fmt::format("cannot assign to '{}'", reserved));
    }
    NodePtr node = make(Kind::kName);
    node->text = next().text;
    node->symbol = symbol(node->text);
    if (with_namespace && skip_op(".")) {
      node->kind = Kind::kNamespaceTarget;
      BATON_TRY(node->text, expect_any_name());
    }
    return node;
  }
};

}  // namespace

Result<Tree> parse(std::string_view source, size_t nesting_max) {
  BATON_TRY(std::vector<Token> tokens, tokenize(source));
  return Parser(std::move(tokens), nesting_max).run();
}

}  // namespace baton::jinja
