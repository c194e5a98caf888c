// Decoders of Qwen3.5's kind: gated DeltaNet layers, gated full-attention layers among them, and in each layer a
// network or experts. A family is a file with its roles, its GGUF name and one of these readers.
#pragma once

#include <array>
#include <string>

#include "baton/model/arch.h"
#include "baton/model/arch/dense_decoder.h"

namespace baton {

// All but the network's.
inline constexpr std::array<TensorRole, 24> kGatedDeltaRoles = {
    {{"embed", "embed_tokens.weight", "token_embd.weight"},
     {"norm", "norm.weight", "output_norm.weight", TensorRule::kNorm},
     {"head", "lm_head.weight", "output.weight"},
     {"layers.{}.norm1", "layers.{}.input_layernorm.weight", "blk.{}.attn_norm.weight", TensorRule::kNorm},
     {"layers.{}.norm2", "layers.{}.post_attention_layernorm.weight", "blk.{}.post_attention_norm.weight",
      TensorRule::kNorm},
     // Full attention: q holds [query | gate] per head.
     {"layers.{}.attn.q", "layers.{}.self_attn.q_proj.weight", "blk.{}.attn_q.weight"},
     {"layers.{}.attn.k", "layers.{}.self_attn.k_proj.weight", "blk.{}.attn_k.weight"},
     {"layers.{}.attn.v", "layers.{}.self_attn.v_proj.weight", "blk.{}.attn_v.weight"},
     {"layers.{}.attn.o", "layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
     {"layers.{}.attn.q_norm", "layers.{}.self_attn.q_norm.weight", "blk.{}.attn_q_norm.weight", TensorRule::kNorm},
     {"layers.{}.attn.k_norm", "layers.{}.self_attn.k_norm.weight", "blk.{}.attn_k_norm.weight", TensorRule::kNorm},
     // Gated DeltaNet.
     {"layers.{}.delta.qkv", "layers.{}.linear_attn.in_proj_qkv.weight", "blk.{}.attn_qkv.weight", TensorRule::kMatrix,
      GgufOrder::kValueRowsAfterKeys},
     {"layers.{}.delta.z", "layers.{}.linear_attn.in_proj_z.weight", "blk.{}.attn_gate.weight", TensorRule::kMatrix,
      GgufOrder::kValueRows},
     {"layers.{}.delta.b", "layers.{}.linear_attn.in_proj_b.weight", "blk.{}.ssm_beta.weight", TensorRule::kMatrix,
      GgufOrder::kValueHeads},
     {"layers.{}.delta.a", "layers.{}.linear_attn.in_proj_a.weight", "blk.{}.ssm_alpha.weight", TensorRule::kMatrix,
      GgufOrder::kValueHeads},
     {"layers.{}.delta.conv", "layers.{}.linear_attn.conv1d.weight", "blk.{}.ssm_conv1d.weight", TensorRule::kConv,
      GgufOrder::kValueRowsAfterKeys},
     {"layers.{}.delta.decay", "layers.{}.linear_attn.A_log", "blk.{}.ssm_a", TensorRule::kDecay,
      GgufOrder::kValueHeads},
     {"layers.{}.delta.dt", "layers.{}.linear_attn.dt_bias", "blk.{}.ssm_dt.bias", TensorRule::kVector,
      GgufOrder::kValueHeads},
     {"layers.{}.delta.norm", "layers.{}.linear_attn.norm.weight", "blk.{}.ssm_norm.weight", TensorRule::kVector},
     {"layers.{}.delta.o", "layers.{}.linear_attn.out_proj.weight", "blk.{}.ssm_out.weight", TensorRule::kMatrix,
      GgufOrder::kValueColumns},
     {"layers.{}.attn.q.bias", "layers.{}.self_attn.q_proj.bias", "blk.{}.attn_q.bias", TensorRule::kVector},
     {"layers.{}.attn.k.bias", "layers.{}.self_attn.k_proj.bias", "blk.{}.attn_k.bias", TensorRule::kVector},
     {"layers.{}.attn.v.bias", "layers.{}.self_attn.v_proj.bias", "blk.{}.attn_v.bias", TensorRule::kVector},
     {"layers.{}.attn.o.bias", "layers.{}.self_attn.o_proj.bias", "blk.{}.attn_output.bias", TensorRule::kVector}}};

// Matrices that files of one family have together, by key head: queries, keys, values and z of its value heads below
// each other, and b above a. Where a file has them, those of kGatedDeltaRoles are not looked for.
inline constexpr std::array<TensorRole, 2> kFusedDeltaRoles = {
    {{"layers.{}.delta.qkvz", "layers.{}.linear_attn.in_proj_qkvz.weight", "blk.{}.ssm_in.weight"},
     {"layers.{}.delta.ba", "layers.{}.linear_attn.in_proj_ba.weight", "blk.{}.ssm_ba.weight"}}};

// What stands for fields that are absent.
struct GatedDeltaDefaults {
  int32_t context = 262144;
  float theta = 1e7f;
};

// Of config.json and of GGUF keys; `experts`: in each layer, a shared one among them.
Result<ModelSpec> read_gated_delta_config(const Container& container, bool experts,
                                          const GatedDeltaDefaults& usual = {});
Result<ModelSpec> read_gated_delta_keys(const Container& container, const std::string& architecture, bool experts);

Status build_gated_delta(ModelBuilder& builder);

}  // namespace baton
