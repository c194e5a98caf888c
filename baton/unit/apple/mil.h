// MIL text as a tree: what the parser makes of a program before any rule beyond its grammar is checked.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"

namespace baton::apple {

enum class MilType : uint8_t { kFp16, kFp32, kInt8, kUint8, kInt32, kUint64, kBool, kString };
std::string_view to_string(MilType type);
// Bytes of one element in a port or weight file; 0 for bool and string.
uint64_t element_bytes(MilType type);

// tensor<fp16, [1, 8, 1, 32]>; or a bare fp16, which is the scalar of dialect 2.
struct MilTensorType {
  MilType type = MilType::kFp16;
  std::vector<int64_t> dims;  // -1: not a number
  bool bare = false;

  bool operator==(const MilTensorType& other) const { return type == other.type && dims == other.dims; }
};
std::string to_string(const MilTensorType& type);

// Shape of `dims` as one number; empty when it overflows or a dim is unknown.
std::optional<uint64_t> element_count(const std::vector<int64_t>& dims);

// A typed value: numbers (bools as 0 and 1), strings, or a place in a weight file.
struct MilLiteral {
  MilTensorType type;
  std::vector<double> numbers;
  std::vector<std::string> strings;
  bool in_file = false;
  std::string path;     // "@model_path/weights/l00_q.bin"
  uint64_t offset = 0;  // of the metadata record
};

struct MilArgument {
  enum class Kind : uint8_t { kName, kNames, kLiteral, kNote };  // kNote: read and dropped
  std::string parameter;
  Kind kind = Kind::kName;
  std::vector<std::string> names;  // one for kName
  MilLiteral literal;
  uint32_t line = 0;
};

// type name = op(arguments)[attributes];
struct MilStatement {
  MilTensorType type;
  std::string name;
  std::string op;
  std::vector<MilArgument> arguments;
  std::vector<MilArgument> attributes;
  uint32_t line = 0;
};

struct MilPort {
  MilTensorType type;
  std::string name;
  uint32_t line = 0;
};

struct MilFunction {
  std::string name;
  std::string opset;
  std::vector<MilPort> inputs;
  std::vector<MilStatement> statements;
  std::vector<std::string> outputs;
  uint32_t line = 0;
};

struct MilProgram {
  std::string version;
  bool has_build_info = false;
  bool typed_build_info = false;  // its strings have types of their own: nobody has run such a program
  // Lines where a scalar is written in the form of dialect 1 (tensor<T, []>) and of dialect 2 (T); 0: nowhere.
  uint32_t dialect1_line = 0, dialect2_line = 0;
  std::vector<MilFunction> functions;
};

// Limits that keep reading bounded whatever the text says.
inline constexpr uint64_t kMilTextBytesMax = 8u << 20;
inline constexpr uint32_t kMilStatementsMax = 20000;
inline constexpr uint32_t kMilListItemsMax = 1u << 18;

// Errors name rule, line and column. A text that ends early, holds a zero byte or passes a limit is a syntax error.
Result<MilProgram> parse_mil(std::string_view text);

}  // namespace baton::apple
