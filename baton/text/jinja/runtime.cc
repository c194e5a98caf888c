// Statements, scopes and macros.
#include "baton/text/jinja/runtime.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace baton::jinja {
namespace {

// Adds the line to an error that has none yet.
Error at_line(Error error, uint32_t line) {
  if (error.message.starts_with("line ")) return error;
  return std::move(error).in(fmt::format("line {}", line));
}

}  // namespace

Runtime::Runtime(const Tree& tree, const TemplateLimits& limits, size_t input_bytes)
    : tree_(tree),
      limits_(limits),
      memory_max_(limits.memory_bytes_max + 8 * input_bytes),
      root_(tree.symbols.size()),
      root_set_(tree.symbols.size(), 0) {
  for (uint32_t i = 0; i < tree.symbols.size(); ++i) symbol_index_.emplace_back(tree.symbols[i], i);
  std::sort(symbol_index_.begin(), symbol_index_.end());
}

void Runtime::set_variable(std::string_view name, Value value) {
  const auto found = std::lower_bound(symbol_index_.begin(), symbol_index_.end(), name,
                                      [](const auto& entry, std::string_view wanted) { return entry.first < wanted; });
  if (found == symbol_index_.end() || found->first != name) return;  // the template does not use it
  root_[found->second] = value;
  root_set_[found->second] = 1;
}

Result<TextBuilder> Runtime::run() {
  for (const Callable& callable : globals()) {
    if (callable.name == "strftime_now" && !local_seconds) continue;
    Function function;
    function.callable = &callable;
    Value value = Value::of(Type::kFunction);
    value.function = heap_.make(function);
    const auto found =
        std::lower_bound(symbol_index_.begin(), symbol_index_.end(), callable.name,
                         [](const auto& entry, std::string_view wanted) { return entry.first < wanted; });
    const bool used = found != symbol_index_.end() && found->first == callable.name;
    if (used && root_set_[found->second] == 0) set_variable(callable.name, value);
  }
  TextBuilder out(limits_.output_bytes_max);
  BATON_TRY(const Flow flow, run_body(tree_.body, &root_scope_, &out));
  static_cast<void>(flow);
  return out;
}

// ---- Limits.

Status Runtime::charge(uint64_t steps) {
  steps_ += steps;
  if (steps_ > limits_.steps_max) {
    return fail(Code::kInvalidInput, fmt::format("the template takes more than {} steps", limits_.steps_max));
  }
  if (heap_.bytes_used() > memory_max_) {
    return fail(Code::kInvalidInput, fmt::format("the template uses more than {} bytes of memory", memory_max_));
  }
  return {};
}

Result<Value> Runtime::finish(const TextBuilder& builder, bool markup) {
  if (builder.overflowed()) {
    return fail(Code::kInvalidInput, fmt::format("a string grows above {} bytes", limits_.string_bytes_max));
  }
  BATON_OK(charge(builder.size() / 64));
  Text text = builder.finish(&heap_);
  text.markup = markup;
  return new_text(text);
}

Result<Text> Runtime::to_text(const Value& value) {
  if (value.is_text()) return *value.text;
  TextBuilder builder = new_text();
  BATON_OK(append_str(value, &builder));
  BATON_TRY(const Value text, finish(builder));
  return *text.text;
}

Result<Value> Runtime::new_list(std::span<const Value> items, ListKind kind) {
  if (items.size() > limits_.items_max) {
    return fail(Code::kInvalidInput, fmt::format("a list of more than {} items", limits_.items_max));
  }
  BATON_OK(charge(items.size() / 8));
  return make_list(&heap_, items, kind);
}

Result<Value> Runtime::new_texts(std::span<const Text> texts) {
  if (texts.size() > limits_.items_max) {
    return fail(Code::kInvalidInput, fmt::format("a list of more than {} items", limits_.items_max));
  }
  std::vector<Value> items;
  items.reserve(texts.size());
  for (const Text& text : texts) items.push_back(new_text(text));
  return new_list(items);
}

// ---- Scopes.

Scope* Runtime::push_scope(Scope* parent) {
  if (free_scopes_.empty()) {
    scopes_.push_back(std::make_unique<Scope>());
    free_scopes_.push_back(scopes_.back().get());
  }
  Scope* scope = free_scopes_.back();
  free_scopes_.pop_back();
  scope->parent = parent;
  scope->variables.clear();
  scope->captured = false;
  return scope;
}

void Runtime::pop_scope(Scope* scope) {
  if (!scope->captured) free_scopes_.push_back(scope);
}

void Runtime::set(Scope* scope, uint32_t symbol, const Value& value) {
  if (scope == &root_scope_) {
    root_[symbol] = value;
    root_set_[symbol] = 1;
    return;
  }
  for (auto& [known, old] : scope->variables) {
    if (known == symbol) {
      old = value;
      return;
    }
  }
  scope->variables.emplace_back(symbol, value);
}

Result<Value> Runtime::look_up(const Node& name, Scope* scope) {
  for (; scope != nullptr && scope != &root_scope_; scope = scope->parent) {
    for (const auto& [known, value] : scope->variables) {
      if (known == name.symbol) return value;
    }
  }
  if (root_set_[name.symbol] != 0) return root_[name.symbol];
  Text text;
  text.data = name.text.data();
  text.size = static_cast<uint32_t>(name.text.size());
  return Value::undefined(heap_.make(text));
}

// ---- Statements.

Result<Runtime::Flow> Runtime::run_body(const std::vector<NodePtr>& body, Scope* scope, TextBuilder* out) {
  for (const NodePtr& node : body) {
    Result<Flow> flow = run_statement(*node, scope, out);
    if (!flow) return fail(at_line(std::move(flow).error(), node->line));
    if (out->overflowed()) {
      const size_t bytes_max = limits_.output_bytes_max;
      return fail(Code::kInvalidInput, fmt::format("line {}: the output grows above {} bytes", node->line, bytes_max));
    }
    if (*flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

Status Runtime::print(const Value& value, TextBuilder* out) {
  if (value.is_text()) {
    BATON_OK(charge(value.text->size / 64));
    out->append(*value.text);
    return {};
  }
  return append_str(value, out);
}

Result<Runtime::Flow> Runtime::run_statement(const Node& node, Scope* scope, TextBuilder* out) {
  BATON_OK(charge(1));
  switch (node.kind) {
    case Kind::kData:
      out->append_literal(node.text);
      return Flow::kNext;
    case Kind::kOutput: {
      BATON_TRY(const Value value, evaluate(*node.children[0], scope));
      BATON_OK(print(value, out));
      return Flow::kNext;
    }
    case Kind::kIf:
      return run_if(node, scope, out);
    case Kind::kFor:
      return run_for(node, scope, out);
    case Kind::kSet: {
      BATON_TRY(const Value value, evaluate(*node.children[1], scope));
      BATON_OK(assign(*node.children[0], value, scope));
      return Flow::kNext;
    }
    case Kind::kSetBlock: {
      BATON_TRY(Value value, run_to_text(node.bodies[0], scope));
      if (node.children[1]) {
        BATON_TRY(value, evaluate_filter(*node.children[1], scope, &value));
      }
      BATON_OK(assign(*node.children[0], value, scope));
      return Flow::kNext;
    }
    case Kind::kMacro: {
      Function function;
      function.macro = &node;
      function.scope = scope;
      for (Scope* outer = scope; outer != nullptr; outer = outer->parent) outer->captured = true;
      Value value = Value::of(Type::kFunction);
      value.function = heap_.make(function);
      set(scope, node.symbol, value);
      return Flow::kNext;
    }
    case Kind::kCallBlock:
      return run_call_block(node, scope, out);
    case Kind::kFilterBlock: {
      BATON_TRY(const Value text, run_to_text(node.bodies[0], scope));
      BATON_TRY(const Value value, evaluate_filter(*node.children[0], scope, &text));
      BATON_OK(print(value, out));
      return Flow::kNext;
    }
    case Kind::kWith:
      return run_with(node, scope, out);
    case Kind::kScope: {
      BATON_TRY(const Value text, run_to_text(node.bodies[0], scope));
      BATON_OK(print(text, out));
      return Flow::kNext;
    }
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
    default:
      return fail(Code::kInternal, "an expression where a statement belongs");
  }
}

Result<Runtime::Flow> Runtime::run_if(const Node& node, Scope* scope, TextBuilder* out) {
  for (size_t i = 0; i < node.children.size(); ++i) {
    BATON_TRY(const Value condition, evaluate(*node.children[i], scope));
    if (is_true(condition)) return run_body(node.bodies[i], scope, out);
  }
  if (node.bodies.size() > node.children.size()) return run_body(node.bodies.back(), scope, out);
  return Flow::kNext;
}

Result<Runtime::Flow> Runtime::run_for(const Node& node, Scope* scope, TextBuilder* out) {
  const Node& target = *node.children[0];
  BATON_TRY(const Value iterable, evaluate(*node.children[1], scope));
  BATON_TRY(std::span<const Value> items, iterate(iterable));
  std::vector<Value> kept;
  if (node.children[2]) {
    for (const Value& value : items) {
      Scope* inner = push_scope(scope);
      Status assigned = assign(target, value, inner);
      Result<Value> keep = assigned ? evaluate(*node.children[2], inner) : Value();
      pop_scope(inner);
      if (!assigned) return fail(std::move(assigned).error());
      if (!keep) return fail(std::move(keep).error());
      if (is_true(*keep)) kept.push_back(value);
    }
    items = heap_.copy(std::span<const Value>(kept));
  }
  if (items.empty()) {
    if (node.bodies.size() < 2) return Flow::kNext;
    Scope* inner = push_scope(scope);
    Result<Flow> flow = run_body(node.bodies[1], inner, out);
    pop_scope(inner);
    return flow;
  }
  const auto loop_symbol =
      std::lower_bound(symbol_index_.begin(), symbol_index_.end(), std::string_view("loop"),
                       [](const auto& entry, std::string_view name) { return entry.first < name; });
  const bool uses_loop = loop_symbol != symbol_index_.end() && loop_symbol->first == "loop";
  const auto changed = heap_.make<const Value*>(nullptr);
  for (size_t i = 0; i < items.size(); ++i) {
    BATON_OK(charge(1));
    Scope* inner = push_scope(scope);
    if (uses_loop) {
      Value loop = Value::of(Type::kLoop);
      loop.loop = heap_.make(Loop{i, items, 0, changed});
      set(inner, loop_symbol->second, loop);
    }
    Status assigned = assign(target, items[i], inner);
    Result<Flow> flow = assigned ? run_body(node.bodies[0], inner, out) : Flow::kNext;
    pop_scope(inner);
    if (!assigned) return fail(std::move(assigned).error());
    if (!flow) return flow;
    if (*flow == Flow::kBreak) break;
  }
  return Flow::kNext;
}

Result<Runtime::Flow> Runtime::run_call_block(const Node& node, Scope* scope, TextBuilder* out) {
  Function function;
  function.macro = &node;
  function.scope = scope;
  for (Scope* outer = scope; outer != nullptr; outer = outer->parent) outer->captured = true;
  Value caller = Value::of(Type::kFunction);
  caller.function = heap_.make(function);
  BATON_TRY(const Value value, evaluate_call(*node.children[0], scope, &caller));
  BATON_OK(print(value, out));
  return Flow::kNext;
}

Result<Runtime::Flow> Runtime::run_with(const Node& node, Scope* scope, TextBuilder* out) {
  // All values are computed before any target is set.
  std::vector<Value> values;
  for (size_t i = 1; i < node.children.size(); i += 2) {
    BATON_TRY(const Value value, evaluate(*node.children[i], scope));
    values.push_back(value);
  }
  Scope* inner = push_scope(scope);
  for (size_t i = 0; i < values.size(); ++i) {
    if (Status assigned = assign(*node.children[2 * i], values[i], inner); !assigned) {
      pop_scope(inner);
      return fail(std::move(assigned).error());
    }
  }
  Result<Flow> flow = run_body(node.bodies[0], inner, out);
  pop_scope(inner);
  return flow;
}

Result<Value> Runtime::run_to_text(const std::vector<NodePtr>& body, Scope* parent) {
  TextBuilder builder = new_text();
  Scope* inner = push_scope(parent);
  Result<Flow> flow = run_body(body, inner, &builder);
  pop_scope(inner);
  if (!flow) return fail(std::move(flow).error());
  return finish(builder);
}

Status Runtime::assign(const Node& target, const Value& value, Scope* scope) {
  switch (target.kind) {
    case Kind::kName:
      set(scope, target.symbol, value);
      return {};
    case Kind::kNamespaceTarget: {
      Node name(Kind::kName, target.line);
      name.symbol = target.symbol;
      name.text = tree_.symbols[target.symbol];
      BATON_TRY(const Value space, look_up(name, scope));
      if (!space.is(Type::kNamespace)) {
        return fail(Code::kInvalidInput, fmt::format("cannot set attribute '{}': '{}' is not a namespace", target.text,
                                                     tree_.symbols[target.symbol]));
      }
      space.space->set(&heap_, target.text, value);
      return {};
    }
    case Kind::kTuple: {
      BATON_TRY(const std::span<const Value> items, iterate(value));
      if (items.size() != target.children.size()) {
        return fail(Code::kInvalidInput,
                    fmt::format("{} values for {} variables", items.size(), target.children.size()));
      }
      for (size_t i = 0; i < items.size(); ++i) BATON_OK(assign(*target.children[i], items[i], scope));
      return {};
    }
    default:
      return fail(Code::kInternal, "not a target");
  }
}

// ---- Macros.

Result<Value> Runtime::call_macro(const Function& function, const Arguments& arguments, const Value* caller) {
  const Node& macro = *function.macro;
  const std::string_view name = macro.kind == Kind::kCallBlock ? "caller" : std::string_view(macro.text);
  const auto bad = [&](std::string message) { return fail(Code::kInvalidInput, std::move(message)); };
  Scope* scope = push_scope(function.scope);
  struct Pop {
    ~Pop() { runtime->pop_scope(scope); }
    Runtime* runtime;
    Scope* scope;
  } pop{this, scope};
  const auto symbol_of = [&](std::string_view wanted) {
    const auto found = std::lower_bound(symbol_index_.begin(), symbol_index_.end(), wanted,
                                        [](const auto& entry, std::string_view other) { return entry.first < other; });
    return found->second;  // only asked for names that the template uses
  };

  const size_t given = arguments.positional.size();
  if (given > macro.parameters.size() && !macro.uses_varargs) {
    return bad(fmt::format("{}() takes at most {} arguments, {} given", name, macro.parameters.size(), given));
  }
  std::vector<uint8_t> named_used(arguments.named.size(), 0);
  for (size_t i = 0; i < macro.parameters.size(); ++i) {
    const Parameter& parameter = macro.parameters[i];
    std::optional<Value> value;
    if (i < given) value = arguments.positional[i];
    for (size_t n = 0; n < arguments.named.size(); ++n) {
      if (arguments.named[n].name != parameter.name) continue;
      if (value) return bad(fmt::format("{}() got two values for '{}'", name, parameter.name));
      value = arguments.named[n].value;
      named_used[n] = 1;
    }
    if (!value && parameter.otherwise) {
      BATON_TRY(value, evaluate(*parameter.otherwise, scope));
    }
    if (!value) {
      Text text;
      text.data = parameter.name.data();
      text.size = static_cast<uint32_t>(parameter.name.size());
      value = Value::undefined(heap_.make(text));
    }
    set(scope, parameter.symbol, *value);
  }
  std::vector<Dict::Entry> further;
  for (size_t n = 0; n < arguments.named.size(); ++n) {
    if (named_used[n] != 0) continue;
    if (!macro.uses_kwargs) return bad(fmt::format("{}() has no parameter '{}'", name, arguments.named[n].name));
    further.push_back({new_text(arguments.named[n].name), arguments.named[n].value});
  }
  if (macro.uses_kwargs) set(scope, symbol_of("kwargs"), make_dict(&heap_, further));
  if (macro.uses_varargs) {
    const size_t from = std::min(given, macro.parameters.size());
    BATON_TRY(const Value rest, new_list(arguments.positional.subspan(from), ListKind::kTuple));
    set(scope, symbol_of("varargs"), rest);
  }
  if (caller != nullptr && !macro.uses_caller) {
    return bad(fmt::format("{}() was called with a block but does not use caller()", name));
  }
  if (macro.uses_caller && macro.kind == Kind::kMacro) {
    set(scope, symbol_of("caller"), caller != nullptr ? *caller : Value());
  }
  return run_to_text(macro.bodies[0], scope);
}

}  // namespace baton::jinja
