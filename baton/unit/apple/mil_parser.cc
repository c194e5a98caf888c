// Recursive descent over MIL text (docs/ane.md, grammar). Depth is bounded by the grammar: nothing in it nests without
// limit except lists inside literals, which are limited to the rank of a tensor.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "baton/base/bytes.h"
#include "baton/unit/apple/mil.h"
#include "baton/unit/apple/mil_lexer.h"
#include "baton/unit/apple/rule.h"

namespace baton::apple {
namespace {

constexpr std::array<std::string_view, 8> kTypeNames = {"fp16",  "fp32",   "int8", "uint8",
                                                        "int32", "uint64", "bool", "string"};
constexpr uint32_t kListDepthMax = 5, kNoteDepthMax = 12;

std::optional<MilType> type_named(std::string_view name) {
  for (size_t i = 0; i < kTypeNames.size(); ++i) {
    if (kTypeNames[i] == name) return static_cast<MilType>(i);
  }
  return std::nullopt;
}

class Parser {
 public:
  explicit Parser(std::string_view text) : lexer_(text) {}
  Result<MilProgram> parse();

 private:
  const MilToken& token() const { return lexer_.token(); }
  bool is_mark(char c) const { return token().kind == MilToken::Kind::kMark && token().text[0] == c; }
  bool is_word(std::string_view word) const { return token().kind == MilToken::Kind::kName && token().text == word; }
  Status expect(char c);
  Status expect_word(std::string_view word);
  Result<bool> skip_if(char c);
  Result<std::string> read_name(std::string_view what);
  // item() until `close`, separated by commas; an empty list is allowed.
  template <class Item>
  Status list(char close, Item&& item);

  Status program_attribute();
  Status function();
  Result<MilPort> port();
  Result<MilStatement> statement();
  Result<MilArgument> argument(bool attribute);
  Result<MilTensorType> tensor_type();
  Result<MilLiteral> literal();
  Result<MilLiteral> bare_literal();
  Status literal_items(MilLiteral* out, uint32_t depth);
  Status literal_item(MilLiteral* out);
  Status blob_file(MilLiteral* out);
  bool is_note() const;
  Status note_type(uint32_t depth);
  Status note_value(uint32_t depth);
  Status note();
  void note_scalar(const MilTensorType& type, uint32_t line);

  MilLexer lexer_;
  MilProgram program_;
  uint32_t typed_notes_ = 0;  // values inside notes that have types of their own
};

Status Parser::expect(char c) {
  if (!is_mark(c)) return lexer_.error(fmt::format("'{}'", c));
  return lexer_.advance();
}

Status Parser::expect_word(std::string_view word) {
  if (!is_word(word)) return lexer_.error(fmt::format("'{}'", word));
  return lexer_.advance();
}

Result<bool> Parser::skip_if(char c) {
  if (!is_mark(c)) return false;
  BATON_OK(lexer_.advance());
  return true;
}

Result<std::string> Parser::read_name(std::string_view what) {
  if (token().kind != MilToken::Kind::kName) return lexer_.error(what);
  std::string name(token().text);
  BATON_OK(lexer_.advance());
  return name;
}

template <class Item>
Status Parser::list(char close, Item&& item) {
  BATON_TRY(bool done, skip_if(close));
  for (uint32_t count = 0; !done; ++count) {
    if (count >= kMilListItemsMax) return lexer_.error("a shorter list");
    BATON_OK(item());
    BATON_TRY(done, skip_if(close));
    if (!done) BATON_OK(expect(','));
  }
  return {};
}

// Which dialect a scalar is written in: tensor<T, []> or T.
void Parser::note_scalar(const MilTensorType& type, uint32_t line) {
  if (type.bare && program_.dialect2_line == 0) program_.dialect2_line = line;
  if (!type.bare && type.dims.empty() && program_.dialect1_line == 0) program_.dialect1_line = line;
}

// tensor<type, [d0, d1]> or a bare type.
Result<MilTensorType> Parser::tensor_type() {
  MilTensorType type;
  const uint32_t line = token().line;
  const bool tensor = is_word("tensor");
  if (tensor) {
    BATON_OK(lexer_.advance());
    BATON_OK(expect('<'));
  }
  const auto known = token().kind == MilToken::Kind::kName ? type_named(token().text) : std::nullopt;
  if (!known)
    return lexer_.error("a type: tensor<fp16, [...]>, fp16, fp32, int8, uint8, int32, uint64, bool or string");
  type.type = *known;
  BATON_OK(lexer_.advance());
  type.bare = !tensor;
  if (tensor) {
    BATON_OK(expect(','));
    BATON_OK(expect('['));
    const auto item = [&]() -> Status {
      if (type.dims.size() >= 16) return lexer_.error("fewer dimensions");
      const double value = token().number;
      const bool whole =
          token().kind == MilToken::Kind::kNumber && value >= 1 && value <= 0x1p40 && std::floor(value) == value;
      const bool unknown = is_mark('?') || token().kind == MilToken::Kind::kName;
      if (!whole && !unknown) return lexer_.error("a positive dimension");
      type.dims.push_back(whole ? static_cast<int64_t>(value) : -1);
      return lexer_.advance();
    };
    BATON_OK(list(']', item));
    BATON_OK(expect('>'));
  }
  note_scalar(type, line);
  return type;
}

// Whether a number can be of the type: whole and in range for integers.
bool fits(MilType type, double value) {
  const auto whole = [&](double low, double high) {
    return value >= low && value <= high && std::floor(value) == value;
  };
  switch (type) {
    case MilType::kInt8:
      return whole(-128, 127);
    case MilType::kUint8:
      return whole(0, 255);
    case MilType::kInt32:
      return whole(-0x1p31, 0x1p31 - 1);
    case MilType::kUint64:
      return whole(0, 0x1p52);
    case MilType::kFp16:
    case MilType::kFp32:
      return std::fabs(value) <= 3.4e38;
    case MilType::kBool:
    case MilType::kString:
      return false;
  }
  return false;
}

Status Parser::literal_item(MilLiteral* out) {
  if (out->numbers.size() + out->strings.size() >= kMilListItemsMax) return lexer_.error("fewer values");
  const MilType type = out->type.type;
  if (type == MilType::kString && token().kind == MilToken::Kind::kString) {
    out->strings.emplace_back(token().text);
  } else if (type == MilType::kBool && (is_word("true") || is_word("false"))) {
    out->numbers.push_back(is_word("true") ? 1 : 0);
  } else if (token().kind == MilToken::Kind::kNumber && fits(type, token().number)) {
    out->numbers.push_back(token().number);
  } else {
    return lexer_.error(fmt::format("a value of type {}", to_string(type)));
  }
  return lexer_.advance();
}

// A value, or lists of values nested as deep as a tensor has dimensions.
Status Parser::literal_items(MilLiteral* out, uint32_t depth) {
  BATON_TRY(const bool open, skip_if('['));
  if (!open) return literal_item(out);
  if (depth >= kListDepthMax) return lexer_.error("a list that is less deep");
  return list(']', [&] { return literal_items(out, depth + 1); });
}

// BLOBFILE(path = <string>, offset = <uint64>)
Status Parser::blob_file(MilLiteral* out) {
  out->in_file = true;
  BATON_OK(lexer_.advance());
  BATON_OK(expect('('));
  bool has_path = false, has_offset = false;
  const auto item = [&]() -> Status {
    BATON_TRY(const std::string key, read_name("path or offset"));
    BATON_OK(expect('='));
    MilLiteral value;
    value.type.type = key == "path" ? MilType::kString : MilType::kUint64;
    const bool typed = token().kind == MilToken::Kind::kName;
    if (typed) {
      BATON_TRY(value.type, tensor_type());
      BATON_OK(expect('('));
    }
    BATON_OK(literal_item(&value));
    if (typed) BATON_OK(expect(')'));
    if (key == "path" && value.type.type == MilType::kString) {
      out->path = value.strings[0];
      has_path = true;
    } else if (key == "offset" && value.type.type == MilType::kUint64) {
      out->offset = static_cast<uint64_t>(value.numbers[0]);
      has_offset = true;
    } else {
      return lexer_.error("path as a string and offset as a uint64 in BLOBFILE");
    }
    return {};
  };
  BATON_OK(list(')', item));
  if (!has_path || !has_offset) return lexer_.error("path and offset in BLOBFILE");
  return {};
}

// type(value), type([values]) or type(BLOBFILE(...)); the count of values is checked against the type.
Result<MilLiteral> Parser::literal() {
  MilLiteral out;
  BATON_TRY(out.type, tensor_type());
  BATON_OK(expect('('));
  if (is_word("BLOBFILE")) {
    BATON_OK(blob_file(&out));
  } else {
    BATON_OK(literal_items(&out, 0));
    const auto count = element_count(out.type.dims);
    const bool dynamic = !count.has_value();
    if (!dynamic && *count != out.numbers.size() + out.strings.size()) {
      return lexer_.error(fmt::format("{} values for {}", *count, to_string(out.type)));
    }
  }
  BATON_OK(expect(')'));
  return out;
}

// A value without a type: true, "same", 1, 0.5, [1, 1]. Its type is guessed: whole numbers are int32, others fp16.
Result<MilLiteral> Parser::bare_literal() {
  MilLiteral out;
  const bool list = is_mark('[');
  out.type.type = MilType::kFp32;
  if (token().kind == MilToken::Kind::kString) out.type.type = MilType::kString;
  if (is_word("true") || is_word("false")) out.type.type = MilType::kBool;
  BATON_OK(literal_items(&out, 0));
  const size_t count = out.numbers.size() + out.strings.size();
  if (list) out.type.dims = {static_cast<int64_t>(count)};
  if (out.type.type == MilType::kFp32) {
    const bool whole =
        std::all_of(out.numbers.begin(), out.numbers.end(), [](double value) { return fits(MilType::kInt32, value); });
    out.type.type = whole && count > 0 ? MilType::kInt32 : MilType::kFp16;
  }
  return out;
}

// ---- Notes: attributes that the system's printer adds and no program needs. Their types may be dicts, lists and
// tuples, and what is inside their values has no types of its own.

bool Parser::is_note() const {
  constexpr std::string_view kTypes[] = {"dict", "list", "tuple", "fp64", "int64", "int16", "uint16", "uint32"};
  return token().kind == MilToken::Kind::kName &&
         std::find(std::begin(kTypes), std::end(kTypes), token().text) != std::end(kTypes);
}

// dict<K, V>, list<T, N>, tuple<T, ...>, a scalar or a tensor.
Status Parser::note_type(uint32_t depth) {
  if (depth >= kNoteDepthMax) return lexer_.error("a type that is less deep");
  const bool sized = is_word("list"), nested = sized || is_word("dict") || is_word("tuple");
  if (!nested && is_note()) return lexer_.advance();
  if (!nested) {
    BATON_TRY(const MilTensorType type, tensor_type());
    static_cast<void>(type);
    return {};
  }
  BATON_OK(lexer_.advance());
  BATON_OK(expect('<'));
  return list('>', [&]() -> Status {
    const bool size = sized && (token().kind == MilToken::Kind::kNumber || is_mark('?'));
    return size ? lexer_.advance() : note_type(depth + 1);
  });
}

// A number, string, bool or name, a typed value, or groups of them in (), [] or {}.
Status Parser::note_value(uint32_t depth) {
  if (depth >= kNoteDepthMax) return lexer_.error("a value that is less deep");
  for (const auto& [open, close] : {std::pair{'(', ')'}, std::pair{'[', ']'}, std::pair{'{', '}'}}) {
    BATON_TRY(const bool opened, skip_if(open));
    if (opened) return list(close, [&] { return note_value(depth + 1); });
  }
  const bool typed =
      is_note() || is_word("tensor") || (token().kind == MilToken::Kind::kName && type_named(token().text).has_value());
  if (typed) {
    ++typed_notes_;
    BATON_OK(note_type(depth));
    BATON_OK(expect('('));
    return list(')', [&] { return note_value(depth + 1); });
  }
  const MilToken::Kind kind = token().kind;
  if (kind != MilToken::Kind::kNumber && kind != MilToken::Kind::kString && kind != MilToken::Kind::kName)
    return lexer_.error("a value");
  return lexer_.advance();
}

// type(value)
Status Parser::note() {
  BATON_OK(note_type(0));
  BATON_OK(expect('('));
  return list(')', [&] { return note_value(0); });
}

// name = value. Values in a call are kept as literals, for the rule that refuses them in strict mode.
Result<MilArgument> Parser::argument(bool attribute) {
  MilArgument out;
  out.line = token().line;
  BATON_TRY(out.parameter, read_name("a parameter"));
  BATON_OK(expect('='));
  const MilToken::Kind kind = token().kind;
  out.kind = MilArgument::Kind::kLiteral;
  if (is_mark('(')) {
    out.kind = MilArgument::Kind::kNames;
    BATON_OK(lexer_.advance());
    const auto item = [&]() -> Status {
      BATON_TRY(std::string name, read_name("a name"));
      out.names.push_back(std::move(name));
      return {};
    };
    BATON_OK(list(')', item));
  } else if (attribute && is_note()) {
    out.kind = MilArgument::Kind::kNote;
    BATON_OK(note());
  } else if (kind == MilToken::Kind::kNumber || kind == MilToken::Kind::kString || is_mark('[') || is_word("true") ||
             is_word("false")) {
    BATON_TRY(out.literal, bare_literal());
  } else if (attribute || is_word("tensor") || (kind == MilToken::Kind::kName && type_named(token().text))) {
    BATON_TRY(out.literal, literal());
  } else {
    out.kind = MilArgument::Kind::kName;
    BATON_TRY(std::string name, read_name("a name or a value"));
    out.names.push_back(std::move(name));
  }
  return out;
}

Result<MilStatement> Parser::statement() {
  MilStatement out;
  out.line = token().line;
  BATON_TRY(out.type, tensor_type());
  BATON_TRY(out.name, read_name("the name of a result"));
  BATON_OK(expect('='));
  BATON_TRY(out.op, read_name("an operation"));
  BATON_OK(expect('('));
  const auto input = [&]() -> Status {
    BATON_TRY(MilArgument next, argument(false));
    out.arguments.push_back(std::move(next));
    return {};
  };
  BATON_OK(list(')', input));
  BATON_TRY(const bool attributes, skip_if('['));
  if (attributes) {
    const auto attribute = [&]() -> Status {
      BATON_TRY(MilArgument next, argument(true));
      out.attributes.push_back(std::move(next));
      return {};
    };
    BATON_OK(list(']', attribute));
  }
  if (is_mark('{')) {
    return fail(rule_error(Rule::kControlFlow, fmt::format("line {}: '{}' has blocks; programs here are straight lines",
                                                           out.line, out.op)));
  }
  BATON_OK(expect(';'));
  return out;
}

Result<MilPort> Parser::port() {
  MilPort out;
  out.line = token().line;
  BATON_TRY(out.type, tensor_type());
  BATON_TRY(out.name, read_name("the name of an input"));
  return out;
}

// func main<ios16>(inputs) { statements } -> (outputs);
Status Parser::function() {
  MilFunction out;
  out.line = token().line;
  BATON_OK(expect_word("func"));
  BATON_TRY(out.name, read_name("the name of a function"));
  BATON_OK(expect('<'));
  BATON_TRY(out.opset, read_name("an opset"));
  BATON_OK(expect('>'));
  BATON_OK(expect('('));
  const auto input = [&]() -> Status {
    BATON_TRY(MilPort next, port());
    out.inputs.push_back(std::move(next));
    return {};
  };
  BATON_OK(list(')', input));
  BATON_TRY(const bool attributes, skip_if('['));
  if (attributes) {
    const auto attribute = [&]() -> Status {
      BATON_TRY(const std::string key, read_name("an attribute of the function"));
      static_cast<void>(key);
      BATON_OK(expect('='));
      return note();
    };
    BATON_OK(list(']', attribute));
  }
  BATON_OK(expect('{'));
  while (!is_mark('}')) {
    if (out.statements.size() >= kMilStatementsMax) return lexer_.error("fewer statements");
    BATON_TRY(MilStatement next, statement());
    out.statements.push_back(std::move(next));
  }
  BATON_OK(lexer_.advance());
  if (token().kind != MilToken::Kind::kArrow) return lexer_.error("'->'");
  BATON_OK(lexer_.advance());
  BATON_OK(expect('('));
  const auto output = [&]() -> Status {
    BATON_TRY(std::string name, read_name("the name of an output"));
    out.outputs.push_back(std::move(name));
    return {};
  };
  BATON_OK(list(')', output));
  BATON_OK(expect(';'));
  program_.functions.push_back(std::move(out));
  return {};
}

// [buildInfo = dict<K, V>({{key, value}, ...})], and whatever else stands there. Every program that is known to run on
// a Mac writes the strings bare, without types of their own; which ones they are does not matter.
Status Parser::program_attribute() {
  const bool build_info = is_word("buildInfo");
  BATON_TRY(const std::string key, read_name("buildInfo"));
  static_cast<void>(key);
  BATON_OK(expect('='));
  if (build_info && !is_word("dict")) return lexer_.error("'dict'");
  program_.has_build_info = program_.has_build_info || build_info;
  const uint32_t typed_before = typed_notes_;
  BATON_OK(note());
  if (build_info && typed_notes_ != typed_before) program_.typed_build_info = true;
  return {};
}

Result<MilProgram> Parser::parse() {
  BATON_OK(lexer_.advance());
  BATON_OK(expect_word("program"));
  BATON_OK(expect('('));
  if (token().kind != MilToken::Kind::kNumber) return lexer_.error("a version");
  program_.version = token().text;
  BATON_OK(lexer_.advance());
  BATON_OK(expect(')'));
  BATON_TRY(const bool has_attributes, skip_if('['));
  if (has_attributes) BATON_OK(list(']', [&] { return program_attribute(); }));
  BATON_OK(expect('{'));
  while (!is_mark('}')) {
    if (program_.functions.size() >= 64) return lexer_.error("fewer functions");
    BATON_OK(function());
  }
  BATON_OK(lexer_.advance());
  if (token().kind != MilToken::Kind::kEnd) return lexer_.error("the end of the text");
  return std::move(program_);
}

}  // namespace

std::string_view to_string(MilType type) { return kTypeNames[static_cast<size_t>(type)]; }

uint64_t element_bytes(MilType type) {
  switch (type) {
    case MilType::kFp16:
      return 2;
    case MilType::kFp32:
    case MilType::kInt32:
      return 4;
    case MilType::kInt8:
    case MilType::kUint8:
      return 1;
    case MilType::kUint64:
      return 8;
    case MilType::kBool:
    case MilType::kString:
      return 0;
  }
  return 0;
}

std::string to_string(const MilTensorType& type) {
  if (type.bare) return std::string(to_string(type.type));
  std::string out = fmt::format("tensor<{}, [", to_string(type.type));
  for (size_t i = 0; i < type.dims.size(); ++i) out += fmt::format("{}{}", i > 0 ? ", " : "", type.dims[i]);
  return out + "]>";
}

std::optional<uint64_t> element_count(const std::vector<int64_t>& dims) {
  uint64_t count = 1;
  for (const int64_t dim : dims) {
    if (dim < 0 || !checked_mul(count, static_cast<uint64_t>(dim), &count)) return std::nullopt;
  }
  return count;
}

Result<MilProgram> parse_mil(std::string_view text) {
  if (text.empty()) return fail(rule_error(Rule::kTextMissing, "the MIL text is empty"));
  if (text.size() > kMilTextBytesMax) {
    return fail(
        rule_error(Rule::kSyntax, fmt::format("{} bytes of MIL text, more than {}", text.size(), kMilTextBytesMax)));
  }
  return Parser(text).parse();
}

}  // namespace baton::apple
