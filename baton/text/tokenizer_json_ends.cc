// What the post_processor of a tokenizer.json puts around a text.
#include <fmt/format.h>

#include "baton/base/terminal.h"
#include "baton/text/tokenizer_fields.h"

namespace baton::tokenizer_fields {
namespace {

// The id of a TemplateProcessing special token: its entry under special_tokens lists exactly one.
Result<int32_t> template_token(const json& part, const std::string& name) {
  constexpr std::string_view kWhere = "post_processor TemplateProcessing";
  const json* tokens = member(part, "special_tokens");
  const json* token = tokens == nullptr ? nullptr : member(*tokens, name);
  const json* ids = token == nullptr ? nullptr : member(*token, "ids");
  if (ids == nullptr || !ids->is_array() || ids->size() != 1) {
    return bad(kWhere, fmt::format("special token '{}' must have one id", name));
  }
  return id_of((*ids)[0], kWhere);
}

Status read_template(const json& part, TokenizerSpec* spec, int32_t* first, int32_t* last) {
  constexpr std::string_view kWhere = "post_processor TemplateProcessing";
  const json* single = member(part, "single");
  if (single == nullptr || !single->is_array()) return bad(kWhere, "'single' must be a list");
  bool saw_text = false;
  for (const json& item : *single) {
    if (member(item, "Sequence") != nullptr) {
      if (saw_text) return bad(kWhere, "'single' names the text twice");
      saw_text = true;
      continue;
    }
    const json* special = member(item, "SpecialToken");
    if (special == nullptr) return bad(kWhere, "an item of 'single' is neither Sequence nor SpecialToken");
    BATON_TRY(const std::string name, text_of(*special, "id", kWhere));
    BATON_TRY(const int32_t id, template_token(part, name));
    int32_t* where = saw_text ? last : first;
    if (*where >= 0) {
      return fail(Code::kUnsupported,
                  fmt::format("{}: more than one token {} the text", kWhere, saw_text ? "after" : "before"));
    }
    *where = id;
  }
  if (!saw_text) return bad(kWhere, "'single' has no Sequence: the text itself would be left out");
  spec->add_bos = *first >= 0;
  spec->add_eos = *last >= 0;
  return {};
}

// A token of BertProcessing: its text and its id.
Result<int32_t> named_id(const json& part, std::string_view key) {
  const json* token = member(part, key);
  if (token == nullptr || !token->is_array() || token->size() != 2) {
    return bad("post_processor BertProcessing", fmt::format("'{}' must be a text and an id", key));
  }
  return id_of((*token)[1], "post_processor BertProcessing");
}

}  // namespace

Status read_post_processor(const json* part, TokenizerSpec* spec, int32_t* first, int32_t* last) {
  if (part == nullptr) return {};
  BATON_TRY(const std::vector<const json*> parts, sequence_of(*part, "processors", "post_processor"));
  std::string around;
  for (const json* one : parts) {
    BATON_TRY(const std::string type, type_of(*one, "post_processor"));
    if (type == "ByteLevel") continue;
    if (!around.empty() && (*first >= 0 || *last >= 0)) {
      return fail(Code::kUnsupported,
                  fmt::format("post_processor: {} behind {}: both put tokens around the text; one is supported",
                              terminal_safe(type, 80), around));
    }
    around = type;
    if (type == "BertProcessing" || type == "RobertaProcessing") {
      BATON_TRY(*first, named_id(*one, "cls"));
      BATON_TRY(*last, named_id(*one, "sep"));
      spec->add_bos = spec->add_eos = true;
      continue;
    }
    if (type != "TemplateProcessing") return unsupported("post_processor", type);
    BATON_OK(read_template(*one, spec, first, last));
  }
  return {};
}

}  // namespace baton::tokenizer_fields
