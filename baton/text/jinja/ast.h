// The syntax tree of a template. One node type; which fields mean something depends on the kind.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "baton/text/jinja/value.h"

namespace baton::jinja {

struct Callable;
struct Node;
using NodePtr = std::unique_ptr<Node>;

enum class Kind : uint8_t {
  // Expressions.
  kConstant,     // constant
  kName,         // symbol, text
  kAttribute,    // children[0] . text
  kItem,         // children[0] [ children[1] ]
  kSlice,        // children[0] [ children[1] : children[2] : children[3] ], any of 1..3 null
  kCall,         // children[0] ( children[1..], keywords )
  kFilter,       // children[0] | text ( children[1..], keywords ); children[0] null in filter and set blocks
  kTest,         // children[0] is text ( children[1..], keywords )
  kUnary,        // op children[0]
  kArithmetic,   // children[0] ops[0] children[1] ops[1] ..., left to right, one precedence
  kConcat,       // children joined as text
  kCompare,      // children[0] ops[0] children[1] ops[1] ..., chained as in Python
  kAnd,          // children
  kOr,           // children
  kConditional,  // children: condition, value, otherwise (null: undefined)
  kList,         // children
  kTuple,        // children
  kDict,         // children: key, value, key, value ...
  // Statements.
  kData,         // constant
  kOutput,       // children[0]
  kIf,           // children: conditions; bodies[i] belongs to children[i], a further one is else
  kFor,          // children: target, iterable, filter (may be null); bodies: body, else
  kSet,          // children: target, value
  kSetBlock,     // children: target, filter (may be null); bodies[0]
  kMacro,        // symbol, text, parameters; bodies[0]
  kCallBlock,    // children[0]: the call; parameters, bodies[0]: the caller
  kFilterBlock,  // children[0]: the filter; bodies[0]
  kWith,         // children: target, value, ...; bodies[0]
  kScope,        // bodies[0] in a scope of its own
  kBreak,
  kContinue,
  // Assignment targets, beside kName and kTuple.
  kNamespaceTarget,  // symbol . text
};

enum class Op : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
  kNot,
  kNegative,
  kPositive,
};

struct Keyword {
  std::string name;
  NodePtr value;
};

struct Parameter {
  uint32_t symbol;
  std::string name;
  NodePtr otherwise;  // null: none
};

struct Node {
  explicit Node(Kind k, uint32_t l) : kind(k), line(l) {}

  Kind kind;
  uint32_t line;
  uint32_t symbol = 0;
  uint32_t depth = 1;  // of the tree below, itself included
  std::string text;
  Value constant;  // a text constant refers to constant_text, which refers to `text`
  Text constant_text;
  const Callable* callable = nullptr;  // of filters and tests; null: unknown name in a branch that may never run
  std::vector<Op> ops;
  std::vector<NodePtr> children;
  std::vector<Keyword> keywords;
  std::vector<Parameter> parameters;
  std::vector<std::vector<NodePtr>> bodies;
  bool uses_varargs = false, uses_kwargs = false, uses_caller = false;  // kMacro
};

struct Tree {
  std::vector<NodePtr> body;
  std::vector<std::string> symbols;  // names of variables; a symbol is an index
};

}  // namespace baton::jinja
