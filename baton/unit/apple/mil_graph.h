// A MIL program after all rules were checked: typed values and ops in order, ready to be run by the emulator.
// Everything a runner needs is resolved here; nothing in a Graph has to be checked again.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/unit/apple/mil.h"
#include "baton/unit/apple/rule.h"

namespace baton::apple {

enum class OpCode : uint8_t {
  kConv,
  kMatmul,
  kLinear,
  kAdd,
  kSub,
  kMul,
  kRealDiv,
  kMaximum,
  kMinimum,
  kPow,
  kSqrt,
  kRsqrt,
  kExp,
  kLog,
  kTanh,
  kSigmoid,
  kSilu,
  kRelu,
  kGelu,
  kSoftmax,
  kLayerNorm,
  kReduceSum,
  kReduceMean,
  kReduceMax,
  kConcat,
  kSlice,
  kReshape,
  kTranspose,
  kCast,
  kTile,
};

enum class GeluMode : uint8_t { kExact, kTanh, kSigmoid };

struct GraphValue {
  std::string name;
  MilTensorType type;
  bool is_const = false, is_input = false;
  uint32_t uses = 0;
  // Constants: numbers as written, or fp16/fp32/int8 elements in a weight file, or fp16 computed from other constants.
  std::vector<double> numbers;
  std::vector<std::string> strings;
  std::span<const std::byte> file_data;
  std::vector<uint16_t> computed;
};

struct GraphOp {
  OpCode code;
  std::string name;
  uint32_t line = 0;
  int32_t out = -1;             // indices into Graph::values
  std::vector<int32_t> inputs;  // x, y; conv and linear: x, weight(, bias); layer_norm: x(, gamma, beta); concat: all
  // conv: stride h, w; dilation h, w; slice: begin per dim; transpose: perm; reduce, layer_norm: axes; tile: repeats
  std::vector<int64_t> list;
  std::vector<int64_t> list2;  // conv: pad top, bottom, left, right; slice: step per dim
  int64_t axis = 0;            // softmax, concat
  int64_t groups = 1;          // conv
  bool transpose_x = false, transpose_y = false;
  float epsilon = 0;
  GeluMode gelu = GeluMode::kExact;
};

struct Graph {
  std::vector<GraphValue> values;
  std::vector<GraphOp> ops;
  // In the order the device binds them: ascending byte order of names.
  std::vector<int32_t> inputs, outputs;
  uint64_t weight_bytes = 0;      // in weight files
  uint64_t activation_bytes = 0;  // of all results and inputs, fp16
  uint64_t flops = 0;             // 2 per multiply-add of conv, matmul and linear

  const MilTensorType& type(int32_t value) const { return values[static_cast<size_t>(value)].type; }
};

// Weight files by the path written in the text ("@model_path/weights/l00_q.bin").
using WeightFiles = std::map<std::string, std::span<const std::byte>, std::less<>>;

// Checks the rules of MIL text and weight files (docs/ane.md, 2, 12, 13, 17 to 28) and resolves one function of the
// program. The graph borrows the bytes of `files`. Errors name rule, line and operation.
Result<Graph> check_mil(const MilProgram& program, const WeightFiles& files, Diagnostics& diagnostics,
                        size_t function = 0);

// Bytes of a port on a surface: N * C * H * (W * element rounded up to 64).
uint64_t port_bytes(const MilTensorType& type);
// Bytes from one row of W values to the next.
uint64_t port_row_bytes(const MilTensorType& type);

}  // namespace baton::apple
