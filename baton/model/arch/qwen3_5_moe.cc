// Qwen3.5 mixtures: Qwen3.5's layers, and in each of them experts and one that all tokens go through.
#include <fmt/format.h>

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
  const std::string file = (container.path / "config.json").string();
  const ConfigReader config(text_config_of(container), file);
  if (config.value("rope_parameters") == nullptr && config.value("rope_theta") == nullptr) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: field 'rope_parameters' is missing; it must say rope_theta", file));
  }
  BATON_TRY(ModelSpec spec, read_gated_delta_config(container, true));
  if (spec.routing == Routing::kSoftmaxOfChosen) return spec;
  return fail(Code::kUnsupported,
              fmt::format("{}: field 'norm_topk_prob' is false, and transformers does not look at it in models of this "
                          "kind: set it to true, or leave it out",
                          file));
}

}  // namespace

extern const Architecture k_qwen3_5_moe;
const Architecture k_qwen3_5_moe = {"qwen3_5_moe", "qwen35moe", kRoles, matches, read_spec, build_gated_delta};

}  // namespace baton
