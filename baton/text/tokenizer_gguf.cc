// A TokenizerSpec from GGUF's tokenizer.ggml keys.
#include <fmt/format.h>

#include <limits>

#include "baton/text/tokenizer_spec.h"

namespace baton {
namespace {

Result<int32_t> to_id(std::optional<int64_t> id, std::string_view key, size_t count) {
  if (!id) return -1;
  // Writers without such a token leave -1, as 32 or 64 bits.
  if (*id == -1 || *id == std::numeric_limits<uint32_t>::max()) return -1;
  if (*id < 0 || static_cast<uint64_t>(*id) >= count) {
    return fail(Code::kInvalidInput,
                fmt::format("tokenizer.ggml.{} is {}: the vocabulary has {} tokens", key, *id, count));
  }
  return static_cast<int32_t>(*id);
}

Status fill_kinds(const GgufTokenizerKeys& keys, TokenizerSpec* spec) {
  if (keys.token_types.empty()) return {};
  if (keys.token_types.size() != keys.tokens.size()) {
    return fail(Code::kInvalidInput, fmt::format("tokenizer.ggml.token_type has {} entries, tokenizer.ggml.tokens {}",
                                                 keys.token_types.size(), keys.tokens.size()));
  }
  spec->kinds.reserve(keys.token_types.size());
  for (size_t id = 0; id < keys.token_types.size(); ++id) {
    const int32_t type = keys.token_types[id];
    if (type < 0 || type > 6) {
      return fail(Code::kInvalidInput, fmt::format("tokenizer.ggml.token_type[{}] is {}: known are 1 to 6", id, type));
    }
    const TokenKind kind = type == 0 ? TokenKind::kNormal : static_cast<TokenKind>(type);
    spec->kinds.push_back(kind);
    if ((kind != TokenKind::kControl && kind != TokenKind::kUserDefined) || keys.tokens[id].empty()) continue;
    AddedToken added;
    added.id = static_cast<int32_t>(id);
    added.text = keys.tokens[id];
    added.special = kind == TokenKind::kControl;
    spec->added.push_back(std::move(added));
  }
  return {};
}

// Of two characters or more, each of which stands for a byte: only merges lead there.
bool has_long_tokens(const TokenizerSpec& spec) {
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    if (!spec.kinds.empty() && spec.kinds[id] != TokenKind::kNormal) continue;
    const auto begins = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; };
    if (std::count_if(spec.tokens[id].begin(), spec.tokens[id].end(), begins) > 1) return true;
  }
  return false;
}

}  // namespace

Result<TokenizerSpec> tokenizer_spec_from_gguf(const GgufTokenizerKeys& keys) {
  if (keys.model != "gpt2") {
    return fail(Code::kUnsupported,
                fmt::format("tokenizer.ggml.model '{}': only byte-level BPE ('gpt2') can be read", keys.model));
  }
  if (keys.tokens.empty()) return fail(Code::kInvalidInput, "tokenizer.ggml.tokens is missing or empty");
  if (keys.tokens.size() > static_cast<size_t>(kTokensMax)) {
    return fail(Code::kInvalidInput,
                fmt::format("tokenizer.ggml.tokens has {} entries: at most {}", keys.tokens.size(), kTokensMax));
  }
  TokenizerSpec spec;
  BATON_TRY(PretokenizerPreset preset, pretokenizer_preset(keys.pre));
  spec.pretokenizer = std::move(preset.steps);
  spec.normalize_nfc = keys.normalize_nfc.value_or(preset.normalize_nfc);
  spec.add_prefix_space = keys.add_prefix_space.value_or(false);
  spec.ignore_merges = preset.ignore_merges;
  spec.merges_complete = false;
  spec.tokens = keys.tokens;
  BATON_OK(fill_kinds(keys, &spec));

  if (keys.merges.empty() && has_long_tokens(spec)) {
    return fail(Code::kInvalidInput,
                "tokenizer.ggml.merges is missing: without merges every text would become single bytes");
  }
  spec.merges.reserve(keys.merges.size());
  for (size_t rank = 0; rank < keys.merges.size(); ++rank) {
    const std::string_view merge = keys.merges[rank];
    const size_t space = merge.find(' ', 1);
    if (space == std::string_view::npos || space + 1 == merge.size()) {
      return fail(Code::kInvalidInput, fmt::format("tokenizer.ggml.merges[{}] is '{}': not two parts", rank, merge));
    }
    spec.merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
  }

  const size_t count = keys.tokens.size();
  BATON_TRY(spec.bos_id, to_id(keys.bos_id, "bos_token_id", count));
  BATON_TRY(spec.eos_id, to_id(keys.eos_id, "eos_token_id", count));
  BATON_TRY(spec.pad_id, to_id(keys.pad_id, "padding_token_id", count));
  // unknown_token_id is checked but not used: a byte-level vocabulary that is whole has no unknown bytes, and where it
  // is not whole an error is better than a wrong token.
  BATON_OK(to_id(keys.unk_id, "unknown_token_id", count));
  BATON_TRY(const int32_t eot_id, to_id(keys.eot_id, "eot_token_id", count));
  BATON_TRY(const int32_t eom_id, to_id(keys.eom_id, "eom_token_id", count));
  for (const int32_t id : {eot_id, eom_id}) {
    if (id >= 0) spec.stop_ids.push_back(id);
  }
  // The flag of the file wins over what the name of the split rule implies.
  spec.add_bos = keys.add_bos.value_or(preset.add_bos && spec.bos_id >= 0);
  spec.add_eos = keys.add_eos.value_or(false);
  return spec;
}

}  // namespace baton
