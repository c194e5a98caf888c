// The schemas of /openapi.json: of bodies, as their readers take them, and of answers, by their top-level fields.
#pragma once

#include <initializer_list>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

namespace baton::serve::openapi {

using Schema = nlohmann::ordered_json;

struct Field {
  std::string_view name, schema;
  bool required = false;  // others may be null, too
};
// An object that takes no fields but these.
Schema closed_object(std::span<const Field> fields);
void add_fields(Schema& object, std::span<const Field> fields);
// Words, by spaces: fields that change nothing, and such that only say nothing.
void add_ignored(Schema& object, std::string_view names);
void add_empty(Schema& object, std::string_view names);
// Fields of a chat that others have as they are.
void add_of_chat(Schema& object, std::string_view names);
// What Responses and Messages have of a chat's fields, beside what is theirs.
inline constexpr std::string_view kExtensions =
    "min_p seed presence_penalty frequency_penalty repetition_penalty logit_bias regex grammar ignore_eos "
    "stop_token_ids chat_template_kwargs";

// Of a POST's body; null: the path has none here.
Schema body_schema(std::string_view path);
Schema openai_body(std::string_view path);   // and the text side of models
Schema vectors_body(std::string_view path);  // embeddings and ranks
Schema anthropic_body(std::string_view path);
Schema ollama_body(std::string_view path);
Schema responses_body();
// What bodies refer to as "#/components/schemas/NAME".
Schema shared_schemas();

// {content type: {schema}} of what is answered with 200; null: not known here.
Schema answer_content(std::string_view method, std::string_view path);
// Of the query; empty: none.
Schema query_parameters(std::string_view path);

}  // namespace baton::serve::openapi
