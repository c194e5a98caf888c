// Which number format each tensor of a GGUF file gets when it is quantized. The rules are those of llama.cpp's
// quantizer (ggml 0.25.3, 2026), so that a recipe's name means the same tensors here and there; older releases treat
// `attn_qkv` differently. Pure functions over names and shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/model/container.h"

namespace baton {

// H4_K_M is our own, for hybrid models: within the size of Q4_K_M it starts lower everywhere and raises classes of
// tensors in the order of what a bit more of them gains (docs/quantization.md has the measurements).
struct Recipe {
  std::string_view name;  // "Q4_K_M"
  DType base;             // of tensors without a rule of their own
  uint32_t file_type;     // general.file_type
  std::string_view summary;
};

// The smallest first. A name without "_S", "_M" or "_L" is the "_M" of its family, as llama.cpp's tool takes it.
std::span<const Recipe> recipes();
const Recipe* recipe_by_name(std::string_view name);  // null when unknown; upper and lower case are the same

// What the rules look at, beside the tensors.
struct RecipeFacts {
  uint64_t layers = 0;
  uint64_t heads = 0, kv_heads = 0;  // of the first layer
  uint64_t experts = 0;
  bool is_70b = false;          // llama.cpp's name for 80 layers with grouped queries, which get better `attn_v`
  bool has_importance = false;  // an importance matrix will be used
};
// kInvalidInput when the keys of the architecture are missing or of another kind.
Result<RecipeFacts> recipe_facts(const GgufMetadata& gguf);

struct RecipeTensor {
  std::string_view name;
  DType dtype = DType::kF32;    // as stored
  std::vector<uint64_t> shape;  // outermost first
  std::optional<DType> fixed;   // asked for by the user; the fallback for short rows still applies
};

struct TypeChoice {
  DType dtype = DType::kF32;
  DType wanted = DType::kF32;  // by the recipe; another one than dtype when the rows do not fit its blocks
};

// False for vectors, norms, convolutions, routers and the like, which keep their type.
bool is_quantizable(const RecipeTensor& tensor);

// `tensors` in the order of recipe_order: some rules count tensors of one kind. `pure`: the base type for every matrix.
std::vector<TypeChoice> choose_types(const Recipe& recipe, bool pure, const RecipeFacts& facts,
                                     std::span<const RecipeTensor> tensors);

// llama.cpp's order of tensors in a file: those without a layer, then by layer number, by name within.
bool recipe_order(std::string_view a, std::string_view b);

}  // namespace baton
