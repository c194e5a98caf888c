// BERT (sentence-transformers' MiniLM, BGE, E5 and GTE of that shape): learned positions, LayerNorm of each sum, GELU.
#include <algorithm>

#include "baton/model/arch/encoder.h"

namespace baton {
namespace {

constexpr auto kRoles = join_roles(kBertEndsRoles, kBertAttentionRoles, kBertNetworkRoles);

bool matches(const Container& container) {
  if (is_gguf_of(container, "bert")) return true;
  if (!is_folder_of(container, {"bert"})) return false;
  const auto positions = ConfigReader(container.config, "").text("position_embedding_type", "");
  return !positions || *positions != "alibi";  // jina_bert
}

// Also of RoBERTa, whose table begins with the first token's position there, and of DistilBERT, without token types.
Result<ModelSpec> read_keys(const Container& container) {
  const GgufReader keys(container, "bert");
  BATON_TRY(ModelSpec spec, start_encoder_keys(container, keys, false));
  spec.encoder.position_rows = spec.context_max;
  const TensorView* table = container.find("position_embd.weight");
  if (table != nullptr && table->shape.size() == 2) {
    spec.encoder.position_rows = static_cast<int32_t>(std::min<uint64_t>(table->shape[0], 1 << 20));
    spec.context_max = std::min(spec.context_max, spec.encoder.position_rows);
  }
  return finish_encoder_keys(keys, std::move(spec));
}

Result<ModelSpec> read_spec(const Container& container) {
  if (container.kind == ContainerKind::kGguf) return read_keys(container);
  const std::string file = (container.path / "config.json").string();
  const ConfigReader config(container.config, file);
  BATON_TRY(ModelSpec spec, start_encoder(config, file, {}));
  BATON_TRY(spec.token_types, config.integer("type_vocab_size", 1, 1 << 10, 2));
  return finish_encoder(config, file, {}, std::move(spec));
}

}  // namespace

extern const Architecture k_bert;
const Architecture k_bert = {"bert", "bert", kRoles, matches, read_spec, build_encoder};

}  // namespace baton
