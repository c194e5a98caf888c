// Mistral, and Ministral with windows in some layers: Llama's blocks. Their GGUF files are of architecture llama, and
// llama.cc reads those.
#include "baton/model/arch/dense_decoder.h"

namespace baton {
namespace {

constexpr auto kRoles = join_roles(ends_roles(), kNormRoles,
                                   attention_roles(GgufOrder::kRotaryRowsQ, GgufOrder::kRotaryRowsK), kNetworkRoles);

bool matches(const Container& container) { return is_folder_of(container, {"mistral", "ministral"}); }

Result<ModelSpec> read_spec(const Container& container) {
  const std::string file = (container.path / "config.json").string();
  const Json& text = text_config_of(container);
  const ConfigReader config(text, file);
  BATON_TRY(ModelSpec spec, start_config(config, file, {.kv_heads = 8, .context = 131072}));
  BATON_OK(check_activation(config, file));
  BATON_OK(read_windows(config, file, spec, 4096));
  return finish_config(container, config, text, std::move(spec));
}

}  // namespace

extern const Architecture k_mistral;
const Architecture k_mistral = {"mistral", "llama", kRoles, matches, read_spec, build_decoder};

}  // namespace baton
