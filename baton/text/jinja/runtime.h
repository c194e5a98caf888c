// Runs a syntax tree: scopes, statements, expressions; and what filters, tests and methods need from it.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/text/chat_template.h"
#include "baton/text/jinja/ast.h"
#include "baton/text/jinja/value.h"

namespace baton::jinja {

class Runtime;

struct Arguments {
  struct Named {
    std::string_view name;
    Value value;
  };
  std::span<const Value> positional;  // of filters, tests and methods: the value itself first
  std::span<const Named> named;
};

// A built-in: a filter, a test (gives a bool), a method or a global function.
struct Callable {
  std::string_view name;
  Result<Value> (*run)(Runtime&, const Arguments&);
};
const Callable* find_filter(std::string_view name);  // null: none
const Callable* find_test(std::string_view name);
const Callable* find_method(Type type, std::string_view name);
const Callable* find_global(std::string_view name);  // raise_exception, strftime_now, namespace, range, dict
std::span<const Callable> globals();
// Attributes that Python's type has and this engine has no method for: an error, not "undefined".
bool is_python_attribute(Type type, std::string_view name);

// What a call can call: a built-in, maybe bound to a value, or a macro with the scope it was made in.
struct Scope;
struct Function {
  const Callable* callable = nullptr;
  bool bound = false;
  Value self;
  const Node* macro = nullptr;
  Scope* scope = nullptr;
};

struct Scope {
  Scope* parent = nullptr;
  std::vector<std::pair<uint32_t, Value>> variables;
  bool captured = false;  // a macro may outlive it
};

// One rendering. Single use, single thread.
class Runtime {
 public:
  // `input_bytes`: adds to the memory that may be used.
  Runtime(const Tree& tree, const TemplateLimits& limits, size_t input_bytes);

  void set_variable(std::string_view name, Value value);
  std::optional<int64_t> local_seconds;

  // The whole template; the output keeps origins.
  Result<TextBuilder> run();

  // ---- For filters, tests, methods and globals.
  Heap* heap() { return &heap_; }
  const TemplateLimits& limits() const { return limits_; }
  // Counts work; an error when there was too much, or too much memory is in use.
  Status charge(uint64_t steps);
  TextBuilder new_text() const { return TextBuilder(limits_.string_bytes_max); }
  // An error when it grew too long.
  Result<Value> finish(const TextBuilder& builder, bool markup = false);
  Result<Text> to_text(const Value& value);  // str()
  Value new_text(const Text& text) { return make_text(&heap_, text); }
  Value new_text(std::string_view bytes) { return make_text(&heap_, bytes, false); }
  Result<Value> new_list(std::span<const Value> items, ListKind kind = ListKind::kList);
  Result<Value> new_texts(std::span<const Text> texts);
  // What a for statement would go through. kInvalidInput for what cannot be iterated.
  Result<std::span<const Value>> iterate(const Value& value);
  Result<Value> attribute(const Value& of, std::string_view name);    // of.name
  Result<Value> item(const Value& of, const Value& key);              // of[key]
  Result<bool> contains(const Value& container, const Value& value);  // value in container
  Result<Value> call(const Callable& callable, const Arguments& arguments);
  // Positional and named arguments after the first `skip` into `out`, which holds the defaults. Unknown, double and
  // surplus ones are errors.
  Status bind(const Arguments& arguments, size_t skip, std::initializer_list<std::string_view> names, Value* out);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Statements.
  Result<Flow> run_body(const std::vector<NodePtr>& body, Scope* scope, TextBuilder* out);
  Result<Flow> run_statement(const Node& node, Scope* scope, TextBuilder* out);
  Result<Flow> run_if(const Node& node, Scope* scope, TextBuilder* out);
  Result<Flow> run_for(const Node& node, Scope* scope, TextBuilder* out);
  Result<Flow> run_call_block(const Node& node, Scope* scope, TextBuilder* out);
  Result<Flow> run_with(const Node& node, Scope* scope, TextBuilder* out);
  Result<Value> run_to_text(const std::vector<NodePtr>& body, Scope* parent);
  Status assign(const Node& target, const Value& value, Scope* scope);
  Status print(const Value& value, TextBuilder* out);

  // Expressions.
  Result<Value> evaluate(const Node& node, Scope* scope);
  Result<Value> evaluate_kind(const Node& node, Scope* scope);
  Result<Value> evaluate_slice(const Node& node, Scope* scope);
  Result<Value> evaluate_concat(const Node& node, Scope* scope);
  Result<Value> evaluate_compare(const Node& node, Scope* scope);
  Result<Value> evaluate_call(const Node& node, Scope* scope, const Value* caller);
  Result<Value> evaluate_filter(const Node& node, Scope* scope, const Value* input);
  Result<Value> evaluate_test(const Node& node, Scope* scope);
  Result<Value> evaluate_dict(const Node& node, Scope* scope);
  Result<Value> evaluate_unary(const Node& node, Scope* scope);
  Status evaluate_arguments(const Node& node, Scope* scope, std::vector<Value>* positional,
                            std::vector<Arguments::Named>* named);
  Result<Value> call_macro(const Function& function, const Arguments& arguments, const Value* caller);
  Result<Value> loop_attribute(const Loop& loop, std::string_view name);
  Result<Value> bound_method(const Value& of, std::string_view name);

  // Scopes come from a pool: those that a macro captured stay until the end.
  Scope* push_scope(Scope* parent);
  void pop_scope(Scope* scope);
  void set(Scope* scope, uint32_t symbol, const Value& value);
  Result<Value> look_up(const Node& name, Scope* scope);

  const Tree& tree_;
  TemplateLimits limits_;
  size_t memory_max_;
  Heap heap_;
  uint64_t steps_ = 0;
  size_t depth_ = 0;
  std::vector<Value> root_;        // by symbol: variables of the top level
  std::vector<uint8_t> root_set_;  // whether root_ has it
  Scope root_scope_;
  std::vector<std::unique_ptr<Scope>> scopes_;
  std::vector<Scope*> free_scopes_;
  std::vector<std::pair<std::string_view, uint32_t>> symbol_index_;  // sorted by name
};

// What filters, tests and methods refuse.
inline tl::unexpected<Error> bad(std::string message) { return fail(Code::kInvalidInput, std::move(message)); }
// What a filter or a test is of.
inline const Value& subject(const Arguments& arguments) { return arguments.positional[0]; }

// Arithmetic operators on values, as Python has them.
Result<Value> arithmetic(Runtime& runtime, Op op, const Value& a, const Value& b);
// The % of strings.
Result<Value> format_percent(Runtime& runtime, const Text& format, std::span<const Value> values);
// a + b for texts: markup escapes what is not.
Result<Value> join_texts(Runtime& runtime, std::span<const Text> texts);

}  // namespace baton::jinja
