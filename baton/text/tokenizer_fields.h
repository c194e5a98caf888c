// Typed access to the JSON of tokenizer files, with the field in the error, and the readers that several kinds share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/text/tokenizer_file.h"
#include "baton/text/tokenizer_spec.h"

namespace baton::tokenizer_fields {

using nlohmann::json;

tl::unexpected<Error> bad(std::string_view where, std::string_view what);
// A kind of a part that nothing here can do.
tl::unexpected<Error> unsupported(std::string_view where, std::string_view type);
// Null when absent or null.
const json* member(const json& object, std::string_view key);
Result<std::string> text_of(const json& object, std::string_view key, std::string_view where);
Result<bool> flag_of(const json& object, std::string_view key, bool otherwise, std::string_view where);
Result<int32_t> id_of(const json& value, std::string_view where);
Result<std::string> type_of(const json& part, std::string_view where);
// An Error naming a field that is neither null nor one of these: what it stands for would be left out in silence.
Status check_fields(const json& object, std::span<const std::string_view> known, std::string_view where);
// A part that may be a Sequence: its members in order, with no fields but those that their types have.
Result<std::vector<const json*>> sequence_of(const json& part, std::string_view list_key, std::string_view where);

Status check_size(std::string_view text, std::string_view file);
Result<AddedToken> read_added(const json& part, std::string_view where);
// tokenizer_config.json as an object; and what it says of special tokens, to the spec.
Result<json> parse_tokenizer_config(std::string_view text);
Status read_tokenizer_config(std::string_view text, TokenizerSpec* spec);
// The parts of a tokenizer.json, to the spec; null: none. A model of bytes has a ByteLevel step among its
// pre-tokenizers.
Status read_normalizer(const json* part, TokenizerSpec* spec);
Status read_pretokenizer(const json* part, TokenizerSpec* spec, bool* byte_level);
// What a decoder does is known from the model; spaces that it drops in front go to `leading_spaces`.
Status read_decoder(const json* part, std::string_view model, size_t* leading_spaces);
// add_prefix_space and prepend_scheme of a Metaspace.
Result<PrefixRule> prefix_rule_of(const json& part, std::string_view where);
Status read_post_processor(const json* part, TokenizerSpec* spec, int32_t* first, int32_t* last);
// The model of a WordPiece file.
Status read_word_piece(const json& model, const TokenizerFile& parts, TokenizerSpec* spec);
// transformers makes tokenizers of BERT's classes of their vocabulary and tokenizer_config.json alone, whatever else
// tokenizer.json says. `bert_model`: where no class is named, the model's is one of them.
bool is_bert_class(const json& config, bool bert_model);
Status read_bert_class(const json& config, std::string_view vocab_file, TokenizerSpec* spec);

}  // namespace baton::tokenizer_fields
