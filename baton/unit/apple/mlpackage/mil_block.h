// Writes the block of a Core ML program op by op, with shapes inferred as it goes. Every parameter is a named constant,
// written once; constants of ten values or more are records of the weight file. All tensors are fp16. The statements
// depend only on the calls made. A wrong call is a bug of the caller (BATON_CHECK).
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/unit/apple/mil.h"
#include "baton/unit/apple/mil_blob.h"

namespace baton::apple {

using MilDims = std::vector<int64_t>;

class MilBlock {
 public:
  struct Value {
    int32_t index = -1;
  };

  // Borrows `weights`, which becomes the file `file` ("@model_path/weights/weight.bin").
  MilBlock(BlobWriter& weights, std::string file) : weights_(weights), file_(std::move(file)) {}

  const MilDims& dims(Value value) const { return at(value).type.dims; }
  int64_t dim(Value value, size_t axis) const { return dims(value)[axis]; }
  // Names of values made from here on begin with it: "layer_3_".
  void set_prefix(std::string prefix) { prefix_ = std::move(prefix); }

  Value input(std::string_view name, MilDims dims);
  // `part` of a weight, as a constant of shape `dims`.
  Result<Value> weight(std::string_view name, const Weight& weight, const MatrixPart& part, MilDims dims,
                       RangeReport* report);
  // A constant by its place: the same values under one key are written once.
  Value constant(const std::string& key, MilDims dims, const std::function<float(size_t index)>& value);
  Value scalar(float value);

  Value conv(std::string_view name, Value x, Value weight, int64_t groups);
  Value matmul(std::string_view name, Value x, Value y, bool transpose_x, bool transpose_y);
  Value unary(std::string_view op, std::string_view name, Value x);  // "sigmoid", "silu", "exp", "relu"
  Value binary(std::string_view op, std::string_view name, Value x,
               Value y);  // "add", "mul", ..., numpy's broadcasting
  Value softmax(std::string_view name, Value x, int64_t axis);
  Value layer_norm(std::string_view name, Value x, int64_t axis, float epsilon);
  Value concat(std::string_view name, std::span<const Value> values, int64_t axis);
  // `count` from `begin` along one axis; all of it gives x itself.
  Value slice(std::string_view name, Value x, int64_t axis, int64_t begin, int64_t count);
  // The same shape gives x itself.
  Value reshape(std::string_view name, Value x, MilDims dims);
  Value transpose(std::string_view name, Value x, MilDims permutation);
  // The value under a name that is kept as it is: outputs.
  void output(std::string_view name, Value x);

  // What was written. The block is empty afterwards.
  MilFunction take() &&;
  size_t ops() const { return ops_; }

 private:
  struct Entry {
    std::string name;
    MilTensorType type;
  };

  const Entry& at(Value value) const;
  std::string unique(std::string_view name);
  Value add(std::string name, MilTensorType type);
  Value literal(std::string name, MilLiteral value);
  // Constants of parameters.
  std::string integers(const MilDims& values);
  std::string integer(int64_t value);
  std::string boolean(bool value);
  std::string text(std::string_view value);
  std::string parameter(const std::string& key, MilLiteral value);
  Value op(std::string_view op, std::string_view name, MilDims dims,
           std::vector<std::pair<std::string, std::vector<std::string>>> arguments);

  BlobWriter& weights_;
  std::string file_, prefix_;
  std::vector<Entry> entries_;
  std::map<std::string, int32_t, std::less<>> names_;           // how often a name was asked for
  std::map<std::string, std::string, std::less<>> parameters_;  // key of a parameter's constant to its name
  std::map<std::string, Value, std::less<>> constants_;
  MilFunction function_;
  size_t ops_ = 0;
};

}  // namespace baton::apple
