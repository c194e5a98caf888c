// RoBERTa and XLM-R (multilingual E5, BGE-M3): BERT whose first token has the position behind the padding token's id.
// GGUF files of them are BERT's, without the rows before.
#include <fmt/format.h>

#include "baton/model/arch/encoder.h"

namespace baton {
namespace {

constexpr auto kRoles = join_roles(kBertEndsRoles, kBertAttentionRoles, kBertNetworkRoles);

bool matches(const Container& container) { return is_folder_of(container, {"roberta", "xlm-roberta", "camembert"}); }

Result<ModelSpec> read_spec(const Container& container) {
  const std::string file = (container.path / "config.json").string();
  const ConfigReader config(container.config, file);
  BATON_TRY(ModelSpec spec, start_encoder(config, file, {}));
  BATON_TRY(spec.token_types, config.integer("type_vocab_size", 1, 1 << 10, 1));
  BATON_TRY(const int32_t padding, config.integer("pad_token_id", 0, spec.vocab - 1, 1));
  spec.encoder.first_position = padding + 1;
  spec.context_max -= spec.encoder.first_position;
  if (spec.context_max < 1) {
    return fail(Code::kInvalidInput,
                fmt::format("{}: max_position_embeddings {} leaves no position behind pad_token_id {}", file,
                            spec.encoder.position_rows, padding));
  }
  return finish_encoder(config, file, {}, std::move(spec));
}

}  // namespace

extern const Architecture k_roberta;
const Architecture k_roberta = {"roberta", "bert", kRoles, matches, read_spec, build_encoder};

}  // namespace baton
