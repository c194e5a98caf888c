// Qwen3.5 dense: three gated DeltaNet layers to one gated full-attention layer.
#include "baton/model/arch/gated_delta_decoder.h"

namespace baton {
namespace {

constexpr auto kRoles = join_roles(kGatedDeltaRoles, kNetworkRoles, kNetworkBiasRoles);

bool matches(const Container& container) {
  return is_gguf_of(container, "qwen35") || is_folder_of(container, {"qwen3_5_text", "qwen3_5"});
}

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind == ContainerKind::kGguf) return read_gated_delta_keys(container, "qwen35", false);
  return read_gated_delta_config(container, false);
}

}  // namespace

extern const Architecture k_qwen3_5;
const Architecture k_qwen3_5 = {"qwen3_5", "qwen35", kRoles, matches, read_spec, build_gated_delta};

}  // namespace baton
