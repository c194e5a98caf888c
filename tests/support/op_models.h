// Tiny hand-made Models around one op each, with random shapes and weights: embed -> (linears) -> op -> identity head,
// so that the logits are the op's output. What conformance tests run on every unit.
#pragma once

#include <memory>
#include <string>

#include "baton/base/random.h"
#include "baton/model/model.h"

namespace baton::test {

struct OpModel {
  std::shared_ptr<const Model> model;
  std::string description;  // shapes, for failure messages
};

// `dtype` is the type of the matrix under test (kEmbed, kLinear, kHead); other ops use f32.
OpModel make_op_model(OpKind kind, DType dtype, Random& random);
// The op whose trait it is, with it; `dtype` of experts.
OpModel make_trait_model(OpTrait trait, Random& random, DType dtype = DType::kF32);
// Of experts of which each token chooses `used_least` (at most 9) or more.
OpModel make_experts_model(int32_t used_least, DType dtype, bool gated_input, Random& random);
OpKind kind_of(OpTrait trait);

}  // namespace baton::test
