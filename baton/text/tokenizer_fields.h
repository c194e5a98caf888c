// Typed access to the JSON of tokenizer files, with the field in the error, and the readers that several kinds share.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
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
// A part that may be a Sequence: its members in order.
Result<std::vector<const json*>> sequence_of(const json& part, std::string_view list_key, std::string_view where);

Status check_size(std::string_view text, std::string_view file);
Result<AddedToken> read_added(const json& part, std::string_view where);
// tokenizer_config.json as an object; and what it says of special tokens, to the spec.
Result<json> parse_tokenizer_config(std::string_view text);
Status read_tokenizer_config(std::string_view text, TokenizerSpec* spec);
// Model, normalizer, pre_tokenizer and decoder of a WordPiece file.
Status read_word_piece(const json& file, const TokenizerFile& parts, TokenizerSpec* spec);

}  // namespace baton::tokenizer_fields
