// Writes MIL text for the neural engine's in-memory path, in the one form every source agrees on (docs/ane.md): fp16
// tensors [1, C, 1, W], one input, one output, every parameter a named const, weights by reference into a weight file.
// The text depends only on the calls made: same calls, same bytes. Not yet run on Apple hardware.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"

namespace baton::apple {

enum class MilDialect : uint8_t {
  kIos16,  // program(1.0), tensor<T, []> scalars: macOS 13 and later; what to use
  kIos18,  // program(1.3), bare scalars: macOS 15 and later
};

enum class MilUnary : uint8_t { kSigmoid, kSilu, kTanh, kRelu, kExp, kSqrt };
enum class MilBinary : uint8_t { kAdd, kSub, kMul, kMaximum, kMinimum };

// One function `main`. A wrong call (shapes that do not fit, a name used twice or with other characters than
// [a-z0-9_]) is remembered and returned by finish(); values made after it are placeholders.
class MilWriter {
 public:
  struct Value {
    int32_t index = -1;
  };

  explicit MilWriter(MilDialect dialect = MilDialect::kIos16) : dialect_(dialect) {}

  // fp16 [1, channels, 1, columns]. Columns must be a multiple of 32: rows of ports are 64 bytes.
  Value input(std::string_view name, int64_t channels, int64_t columns);
  // fp16 [out, in, 1, 1] in the file `path` ("weights/l00_q.bin", below the model's folder), record at `offset`.
  Value conv_weight(std::string_view name, int64_t out, int64_t in, std::string_view path, uint64_t offset);
  // fp16 [1, channels, 1, 1], the same way.
  Value channel_weight(std::string_view name, int64_t channels, std::string_view path, uint64_t offset);
  // An fp16 scalar, written exactly.
  Value scalar(std::string_view name, float value);

  Value conv(std::string_view name, Value x, Value weight);
  Value unary(std::string_view name, MilUnary op, Value x);
  // Same shape, or y a scalar or [1, C, 1, 1].
  Value binary(std::string_view name, MilBinary op, Value x, Value y);
  // Along channels.
  Value concat(std::string_view name, std::span<const Value> values);
  Value slice_channels(std::string_view name, Value x, int64_t begin, int64_t count);

  // The text, with `output` as its only output.
  Result<std::string> finish(Value output) &&;

  int64_t channels(Value value) const { return at(value).channels; }

 private:
  enum class Kind : uint8_t { kActivation, kConvWeight, kChannelWeight, kScalar };
  struct Entry {
    std::string name;
    Kind kind = Kind::kActivation;
    int64_t channels = 0, columns = 0;  // of a conv weight: out, in
    bool from_op = false;
  };

  const Entry& at(Value value) const;
  bool good(Value value, Kind kind, std::string_view name);
  void wrong(std::string message);
  Value add(std::string_view name, Kind kind, int64_t channels, int64_t columns, bool from_op);
  void op(Value value, std::string_view name, std::string_view arguments);
  std::string scalar_type(std::string_view type) const;
  void named_const(std::string_view name, std::string_view type, std::string_view value);
  void file_const(std::string_view name, std::string_view type, std::string_view path, uint64_t offset);
  void conv_constants();
  void concat_constants();

  MilDialect dialect_;
  std::vector<Entry> entries_;
  std::vector<std::string> consts_;  // names already given to constants
  std::string inputs_, body_;
  std::optional<Error> error_;
  bool has_conv_constants_ = false, has_concat_constants_ = false;
};

}  // namespace baton::apple
