// SmolLM3: Llama's blocks, every fourth layer without positions.
#include <fmt/format.h>

#include "baton/model/arch/dense_decoder.h"

namespace baton {
namespace {

constexpr auto kRoles =
    join_roles(ends_roles(), kNormRoles, attention_roles(GgufOrder::kRotaryRowsQ, GgufOrder::kRotaryRowsK),
               qkv_bias_roles(GgufOrder::kRotaryRowsQ, GgufOrder::kRotaryRowsK), kOutputBiasRole, kNetworkRoles,
               kNetworkBiasRoles);

bool matches(const Container& container) {
  return is_gguf_of(container, "smollm3") || is_folder_of(container, {"smollm3"});
}

void leave_out_every(int32_t interval, ModelSpec& spec) {
  for (int32_t layer = 0; layer < spec.layers; ++layer)
    spec.blocks.positions.push_back((layer + 1) % interval == 0 ? Positions::kNone : Positions::kRope);
}

// no_rope_layers: 1 for a layer that has positions, by its name the other way round.
Status read_positions(const ConfigReader& config, const std::string& file, ModelSpec& spec) {
  BATON_TRY(const int32_t interval, config.integer("no_rope_layer_interval", 1, 1024, 4));
  const Json* layers = config.value("no_rope_layers");
  if (layers == nullptr) {
    leave_out_every(interval, spec);
    return {};
  }
  if (!layers->is_array() || layers->size() != static_cast<size_t>(spec.layers)) {
    return fail(Code::kInvalidInput, fmt::format("{}: no_rope_layers must be a list with one entry for each of {} "
                                                 "layers",
                                                 file, spec.layers));
  }
  for (const Json& layer : *layers) {
    if (layer != 0 && layer != 1) {
      return fail(Code::kInvalidInput, fmt::format("{}: no_rope_layers[{}] is {}; it must be 0 or 1", file,
                                                   spec.blocks.positions.size(), layer.dump()));
    }
    spec.blocks.positions.push_back(layer == 0 ? Positions::kNone : Positions::kRope);
  }
  return {};
}

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind == ContainerKind::kGguf) {
    const GgufReader keys(container, "smollm3");
    BATON_TRY(ModelSpec spec, start_keys(container, keys, {}));
    spec.rope_pairing = RopePairing::kAdjacent;
    leave_out_every(4, spec);
    return finish_keys(container, keys, std::move(spec));
  }
  const std::string file = (container.path / "config.json").string();
  const Json& text = text_config_of(container);
  const ConfigReader config(text, file);
  BATON_TRY(ModelSpec spec, start_config(config, file, {.kv_heads = 4, .context = 32768, .theta = 2e6f, .tied = true}));
  BATON_OK(check_activation(config, file));
  BATON_OK(read_positions(config, file, spec));
  BATON_OK(read_switched_windows(config, file, spec));
  return finish_config(container, config, text, std::move(spec));
}

}  // namespace

extern const Architecture k_smollm3;
const Architecture k_smollm3 = {"smollm3", "smollm3", kRoles, matches, read_spec, build_decoder};

}  // namespace baton
