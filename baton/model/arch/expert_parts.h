// Experts in place of a layer's network: their roles, what configurations and keys say of them, and their ops. The
// shared expert, which all tokens go through, is a network of ops that every unit has; its gate is one value a token.
#pragma once

#include <array>
#include <string>

#include "baton/model/arch.h"
#include "baton/model/config_reader.h"
#include "baton/model/model_builder.h"

namespace baton {

// Published folders have a tensor for each expert, those that transformers fuses one for all, gate above up in each
// expert's part; GGUF has one for all, newer files gate and up in one as well.
inline constexpr std::array<TensorRole, 6> kExpertRoles = {
    {{"layers.{}.experts.router", "layers.{}.mlp.gate.weight", "blk.{}.ffn_gate_inp.weight"},
     {"layers.{}.experts.gate", "layers.{}.mlp.experts.{}.gate_proj.weight", "blk.{}.ffn_gate_exps.weight"},
     {"layers.{}.experts.up", "layers.{}.mlp.experts.{}.up_proj.weight", "blk.{}.ffn_up_exps.weight"},
     {"layers.{}.experts.down", "layers.{}.mlp.experts.{}.down_proj.weight", "blk.{}.ffn_down_exps.weight"},
     {"layers.{}.experts.gate_up", "layers.{}.mlp.experts.gate_up_proj", "blk.{}.ffn_gate_up_exps.weight"},
     {"layers.{}.experts.down_fused", "layers.{}.mlp.experts.down_proj", "blk.{}.ffn_down_exps.weight"}}};
inline constexpr std::array<TensorRole, 4> kSharedExpertRoles = {
    {{"layers.{}.shared.switch", "layers.{}.mlp.shared_expert_gate.weight", "blk.{}.ffn_gate_inp_shexp.weight"},
     {"layers.{}.shared.gate", "layers.{}.mlp.shared_expert.gate_proj.weight", "blk.{}.ffn_gate_shexp.weight"},
     {"layers.{}.shared.up", "layers.{}.mlp.shared_expert.up_proj.weight", "blk.{}.ffn_up_shexp.weight"},
     {"layers.{}.shared.down", "layers.{}.mlp.shared_expert.down_proj.weight", "blk.{}.ffn_down_shexp.weight"}}};

// Into spec.experts and what stands beside it, and spec.intermediate. Refused: layers without experts among others,
// routers other than softmax. `normalized`: where no field says whether the chosen weights are divided by their sum.
Status read_experts(const ConfigReader& config, const std::string& file, bool shared, bool normalized, ModelSpec& spec);
Status read_experts(const GgufReader& keys, const std::string& file, bool shared, ModelSpec& spec);

// Not more for a token than there are.
Status check_expert_counts(const ModelSpec& spec, const std::string& file);

// out = what the experts of `in` make of it, and the shared one where spec.shared_width is not 0. Made once for a
// model.
class ExpertNetwork {
 public:
  explicit ExpertNetwork(ModelBuilder& builder);
  Status add(RegisterId in, RegisterId out, int32_t layer) const;

 private:
  Status add_shared(RegisterId in, RegisterId out, int32_t layer) const;

  ModelBuilder& builder_;
  RegisterId gate_ = -1, up_ = -1, result_ = -1, switch_ = -1;  // of the shared expert
};

}  // namespace baton
