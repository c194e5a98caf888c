// An architecture is data: how to recognise its files, read its hyper-parameters, name its tensors and lay out its
// Program. One file in arch/, one line in arch_list.inc.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "baton/model/model.h"

namespace baton {

class ModelBuilder;

// What a tensor's values mean in each container; the builder turns all of them into the Program's convention.
enum class TensorRule : uint8_t {
  kMatrix,  // used as stored
  kTurned,  // [in, out] in Hugging Face files, turned here (GPT-2's Conv1D); GGUF holds [out, in]
  // [experts, in, out] in Hugging Face files, turned here (Llama 4's); GGUF holds [experts, out, in]
  kTurnedExperts,
  kVector,    // 1-D, to f32
  kNorm,      // 1-D, zero-centred in Hugging Face files (+1 here); MLX and GGUF files have the 1 folded in
  kRawNorm,   // 1-D, zero-centred in Hugging Face and MLX files (+1 here); GGUF files have the 1 folded in (Gemma)
  kFirstRow,  // 2-D, its first row to f32
  kDecay,     // Hugging Face and MLX hold A_log (-exp here); GGUF holds -exp(A_log)
  kConv,      // depthwise kernel: [C, 1, K] Hugging Face, [C, K, 1] MLX, [C, K] GGUF; to f32 [C, K]
};

// Which of a tensor's parts move when a Hugging Face file becomes a GGUF file.
enum class GgufOrder : uint8_t {
  kSame,
  kValueRowsAfterKeys,  // rows past the first 2 * key_heads * key_dim, in groups of value_dim: grouped -> tiled
  kValueRows,           // all rows, in groups of value_dim
  kValueHeads,          // one row (or element) per value head
  kValueColumns,        // columns, in groups of value_dim
  kRotaryRowsQ,         // llama: per query head, halves become adjacent pairs
  kRotaryRowsK,         // llama: per kv head
};

// One role of a tensor. `{}` is the layer number. `hugging_face` is without the prefix ("model." and its variants).
struct TensorRole {
  std::string_view ours;          // "layers.{}.attn.q"
  std::string_view hugging_face;  // "layers.{}.self_attn.q_proj.weight"
  std::string_view gguf;          // "blk.{}.attn_q.weight"
  TensorRule rule = TensorRule::kMatrix;
  GgufOrder order = GgufOrder::kSame;
};

struct Architecture {
  std::string_view name;
  std::string_view gguf_name;  // general.architecture
  std::span<const TensorRole> roles;
  bool (*matches)(const Container& container);
  Result<ModelSpec> (*read_spec)(const Container& container);
  // Adds weights, registers, slots and ops for a validated spec.
  Status (*build)(ModelBuilder& builder);
};

std::span<const Architecture* const> architectures();
// Null when no architecture matches.
const Architecture* architecture_of(const Container& container);

}  // namespace baton
