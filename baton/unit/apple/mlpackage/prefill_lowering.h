// Private to the lowering of layers to Core ML programs: what its parts share.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/unit/apple/mlpackage/prefill_graph.h"

namespace baton::apple {

class PrefillLowering {
 public:
  PrefillLowering(const Model& model, const LayerRange& layers, const PrefillShape& shape, MilBlock& block,
                  RangeReport* report)
      : model_(model), layers_(layers), shape_(shape), block_(block), report_(report) {}

  Status run();

 private:
  using Value = MilBlock::Value;

  Status inputs();
  Status op(const Op& op);
  Status linear(const Op& op);
  Status bias(const Op& op);
  Status norm(const Op& op);
  Status conv(const Op& op);
  Status delta(const Op& op);
  void split_pairs(const Op& op);
  void rope(const Op& op);
  void attend(const Op& op);

  // delta.cc
  struct DeltaOperands;
  Status delta_operands(const Op& op, DeltaOperands* out);
  Value delta_heads(std::string_view name, Value x, int64_t first, int64_t heads, int64_t width);
  Value delta_keys(const Op& op, std::string_view name, int64_t first, float scale);
  Value delta_inverse(Value lower);
  Value delta_chunks(const Op& op, const DeltaOperands& operands, std::vector<Value>* outputs);

  // x scaled by 1 / sqrt(mean x^2 + epsilon) along `axis`: layer_norm of [x, -x], whose mean is 0, halved again.
  // Nothing is squared in fp16 outside the norm.
  Value rms(std::string_view name, Value x, int64_t axis, float epsilon);
  // A vector of the model as [1, C, 1, 1] or [1, 1, C, 1].
  Result<Value> vector(std::string_view name, WeightId id, MilDims dims);
  void state_output(SlotId slot, Value value);

  const Weight& weight(WeightId id) const { return model_.weights[static_cast<size_t>(id)]; }
  int64_t width(RegisterId id) const { return model_.program.registers[static_cast<size_t>(id)].width; }
  // A register's value; one that is carried larger is divided first.
  Value get(RegisterId id);
  // For readers that do the division themselves; `*factor` is what the value is too large by.
  Value get_carried(RegisterId id, float* factor) const;
  void set(RegisterId id, Value value, float factor = 1) {
    registers_[static_cast<size_t>(id)] = value;
    factors_[static_cast<size_t>(id)] = factor;
  }

  const Model& model_;
  const LayerRange layers_;
  const PrefillShape shape_;
  MilBlock& block_;
  RangeReport* report_;
  std::vector<Value> registers_, states_;  // by register, by slot
  std::vector<float> factors_;             // by register
  std::vector<std::pair<std::string, Value>> outputs_;
  Value keep_, past_keep_, cos_, sin_;
  Value mask_;   // [1, 1, S, P + S], added to scores; made when first needed
  Value place_;  // [1, 1, taps - 1, S + taps - 1]: where the columns of a conv state go
};

}  // namespace baton::apple
