// Qwen3.5 mixtures: Qwen3.5's layers, and in each of them experts and one that all tokens go through.
#include "baton/model/arch/expert_parts.h"
#include "baton/model/arch/gated_delta_decoder.h"

namespace baton {
namespace {

constexpr auto kRoles = join_roles(kGatedDeltaRoles, kExpertRoles, kSharedExpertRoles);

bool matches(const Container& container) {
  return is_gguf_of(container, "qwen35moe") || is_folder_of(container, {"qwen3_5_moe_text", "qwen3_5_moe"});
}

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind == ContainerKind::kGguf) return read_gated_delta_keys(container, "qwen35moe", true);
  return read_gated_delta_config(container, true);
}

}  // namespace

extern const Architecture k_qwen3_5_moe;
const Architecture k_qwen3_5_moe = {"qwen3_5_moe", "qwen35moe", kRoles, matches, read_spec, build_gated_delta};

}  // namespace baton
