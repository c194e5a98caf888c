// Phi-3, Phi-3.5 and Phi-4, mini too: Llama's blocks whose queries, keys and values are one matrix, and gate and up
// another; positions of a part of each head, longrope.
#include <fmt/format.h>

#include "baton/model/arch/dense_decoder.h"

namespace baton {
namespace {

constexpr std::array<TensorRole, 7> kMatrices = {
    {{"layers.{}.attn.q", "layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight"},
     {"layers.{}.attn.k", "layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight"},
     {"layers.{}.attn.v", "layers.{}.self_attn.qkv_proj.weight", "blk.{}.attn_qkv.weight"},
     {"layers.{}.attn.o", "layers.{}.self_attn.o_proj.weight", "blk.{}.attn_output.weight"},
     {"layers.{}.mlp.gate", "layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight"},
     {"layers.{}.mlp.up", "layers.{}.mlp.gate_up_proj.weight", "blk.{}.ffn_up.weight"},
     {"layers.{}.mlp.down", "layers.{}.mlp.down_proj.weight", "blk.{}.ffn_down.weight"}}};
constexpr auto kRoles = join_roles(ends_roles(), kNormRoles, kMatrices);

bool matches(const Container& container) { return is_gguf_of(container, "phi3") || is_folder_of(container, {"phi3"}); }

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind == ContainerKind::kGguf) {
    const GgufReader keys(container, "phi3");
    BATON_TRY(ModelSpec spec, start_keys(container, keys, {}));
    spec.blocks.fused_qkv = spec.blocks.fused_gate_up = true;
    BATON_OK(read_windows(keys, container, 0, spec));
    return finish_keys(container, keys, std::move(spec));
  }
  const std::string file = (container.path / "config.json").string();
  const Json& text = text_config_of(container);
  const ConfigReader config(text, file);
  BATON_TRY(ModelSpec spec, start_config(config, file, {.context = 4096, .eps = 1e-5f}));
  spec.blocks.fused_qkv = spec.blocks.fused_gate_up = true;
  BATON_OK(check_activation(config, file));
  BATON_OK(read_windows(config, file, spec));
  // Of Phi-4-mini's file: all layers attend in full.
  for (const char* field : {"full_attn_mod", "interpolate_factor"}) {
    BATON_TRY(const int32_t value, config.integer(field, 0, 1 << 20, 1));
    if (value != 1)
      return fail(Code::kUnsupported, fmt::format("{}: field '{}' is {}; it must be 1", file, field, value));
  }
  return finish_config(container, config, text, std::move(spec));
}

}  // namespace

extern const Architecture k_phi3;
const Architecture k_phi3 = {"phi3", "phi3", kRoles, matches, read_spec, build_decoder};

}  // namespace baton
