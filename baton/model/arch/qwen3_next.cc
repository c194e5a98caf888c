// Qwen3-Next: the layers of Qwen3.5's mixtures. Folders have the inputs of gated DeltaNet fused by key head, GGUF files
// those of b and a (older ones all), and value heads in the folder's order.
#include "baton/model/arch/expert_parts.h"
#include "baton/model/arch/gated_delta_decoder.h"

namespace baton {
namespace {

template <size_t N>
constexpr std::array<TensorRole, N> in_file_order(std::array<TensorRole, N> roles) {
  for (TensorRole& role : roles) role.order = GgufOrder::kSame;
  return roles;
}
constexpr auto kRoles = join_roles(in_file_order(kGatedDeltaRoles), kFusedDeltaRoles, kExpertRoles, kSharedExpertRoles);

bool matches(const Container& container) {
  return is_gguf_of(container, "qwen3next") || is_folder_of(container, {"qwen3_next"});
}

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind != ContainerKind::kGguf)
    return read_gated_delta_config(container, true, {.context = 32768, .theta = 10000});
  BATON_TRY(ModelSpec spec, read_gated_delta_keys(container, "qwen3next", true));
  spec.head_map = HeadMap::kGrouped;
  return spec;
}

}  // namespace

extern const Architecture k_qwen3_next;
const Architecture k_qwen3_next = {"qwen3_next", "qwen3next", kRoles, matches, read_spec, build_gated_delta};

}  // namespace baton
