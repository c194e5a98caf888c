// `response_format`, and the extensions `regex` and `grammar`.
#include "baton/api/openai_fields.h"
#include "baton/grammar/gbnf.h"
#include "baton/grammar/regex.h"

namespace baton::openai {
namespace {

using Format = tl::expected<AnswerFormat, ApiError>;

// A text that is an expression or a grammar.
Format text_format(AnswerFormat::Kind kind, const Json* value, const std::string& where, size_t bytes_max) {
  if (value == nullptr || !value->is_string() || value->get_ref<const std::string&>().empty()) {
    return refuse(where,
                  fmt::format("'{}' is {}: it takes a text", where, value == nullptr ? "missing" : shown(*value)));
  }
  const std::string& text = value->get_ref<const std::string&>();
  if (text.size() > bytes_max) {
    return refuse(where, fmt::format("'{}' has {} bytes: at most {}", where, text.size(), bytes_max));
  }
  return AnswerFormat{.kind = kind, .text = text};
}

bool is_schema_name(const Json& name) {
  if (!name.is_string()) return false;
  const std::string& text = name.get_ref<const std::string&>();
  return !text.empty() && text.size() <= 64 && std::all_of(text.begin(), text.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' || c == '-';
  });
}

// {"name": ..., "schema": {...}, "strict": ...}. `strict` may be false: the schema is followed all the same.
Format schema_format(const Json* given) {
  const std::string where = "response_format.json_schema";
  if (given == nullptr || !given->is_object()) {
    return refuse(where, fmt::format("'{}' is {}: it takes an object with 'name' and 'schema'", where,
                                     given == nullptr ? "missing" : shown(*given)));
  }
  if (auto known = only_fields(*given, where, {"name", "description", "schema", "strict"}); !known)
    return tl::unexpected(std::move(known).error());
  const Fields fields(*given);
  if (const Json* name = fields.find("name"); name != nullptr && !is_schema_name(*name)) {
    return refuse(where + ".name", fmt::format("'{}.name' takes 1 to 64 letters, digits, '_' and '-'", where));
  }
  if (const Json* strict = fields.find("strict"); strict != nullptr && !strict->is_boolean()) {
    return refuse(where + ".strict", fmt::format("'{}.strict' is {}: it takes true or false", where, shown(*strict)));
  }
  const Json* schema = fields.find("schema");
  if (schema == nullptr || !(schema->is_object() || schema->is_boolean())) {
    return refuse(where + ".schema", fmt::format("'{}.schema' is {}: it takes a JSON schema", where,
                                                 schema == nullptr ? "missing" : shown(*schema)));
  }
  return AnswerFormat{.kind = AnswerFormat::Kind::kJsonSchema, .schema = *schema};
}

// Of a format the fields that its type has.
tl::expected<void, ApiError> check_format_fields(const Json& given, const Json& type, const std::string& where) {
  if (type == "text") return only_fields(given, where, {"type"});
  if (type == "json_object") return only_fields(given, where, {"type", "schema"});
  if (type == "json_schema") return only_fields(given, where, {"type", "json_schema"});
  if (type == "regex") return only_fields(given, where, {"type", "regex", "pattern"});
  return only_fields(given, where, {"type", "grammar"});
}

Format response_format(const Json& given) {
  const std::string where = "response_format";
  if (!given.is_object()) return refuse(where, fmt::format("'{}' is {}: it takes an object", where, shown(given)));
  const Fields fields(given);
  const Json* type = fields.find("type");
  if (type == nullptr) return refuse(where + ".type", "'response_format.type' is missing");
  constexpr std::string_view kTypes[] = {"text", "json_object", "json_schema", "regex", "grammar"};
  if (type->is_string() && among(kTypes, type->get_ref<const std::string&>())) {
    if (auto known = check_format_fields(given, *type, where); !known) return tl::unexpected(std::move(known).error());
  }
  if (*type == "text") return AnswerFormat();
  if (*type == "json_object") {
    // Ollama's and llama.cpp's form: a schema beside it.
    if (const Json* schema = fields.find("schema"); schema != nullptr && schema->is_object()) {
      return AnswerFormat{.kind = AnswerFormat::Kind::kJsonSchema, .schema = *schema};
    }
    return AnswerFormat{.kind = AnswerFormat::Kind::kJsonObject};
  }
  if (*type == "json_schema") return schema_format(fields.find("json_schema"));
  if (*type == "regex") {
    const char* name = fields.find("regex") != nullptr ? "regex" : "pattern";
    return text_format(AnswerFormat::Kind::kRegex, fields.find(name), where + "." + name, grammar::kRegexBytesMax);
  }
  if (*type == "grammar") {
    return text_format(AnswerFormat::Kind::kGrammar, fields.find("grammar"), where + ".grammar",
                       grammar::kGbnfBytesMax);
  }
  return refuse(where + ".type",
                fmt::format("'response_format.type' is {}: it takes text, json_object, json_schema, regex or grammar",
                            shown(*type)));
}

}  // namespace

tl::expected<AnswerFormat, ApiError> read_format(const Json& body) {
  const Fields fields(body);
  const Json *response = fields.find("response_format"), *regex = fields.find("regex"), *gbnf = fields.find("grammar");
  AnswerFormat format;
  if (response != nullptr) {
    auto read = response_format(*response);
    if (!read) return read;
    format = *std::move(read);
  }
  for (const char* name : {"regex", "grammar"}) {
    const Json* value = fields.find(name);
    if (value == nullptr) continue;
    if (format.kind != AnswerFormat::Kind::kAny || (regex != nullptr && gbnf != nullptr)) {
      return refuse(name,
                    fmt::format("'{}' stands beside another format: one of response_format, regex and grammar", name));
    }
  }
  if (regex != nullptr) return text_format(AnswerFormat::Kind::kRegex, regex, "regex", grammar::kRegexBytesMax);
  if (gbnf != nullptr) return text_format(AnswerFormat::Kind::kGrammar, gbnf, "grammar", grammar::kGbnfBytesMax);
  return format;
}

}  // namespace baton::openai
