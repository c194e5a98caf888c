// The document has a schema of all that goes in and out, and its fields are those that the readers take.
#include "baton/serve/openapi.h"

#include <gtest/gtest.h>

#include <cctype>
#include <functional>
#include <set>
#include <string>

#include "baton/serve/formats/anthropic.h"
#include "baton/serve/formats/embeddings.h"
#include "baton/serve/formats/ollama.h"
#include "baton/serve/formats/ollama_models.h"
#include "baton/serve/protocol.h"
#include "baton/serve/routes.h"

namespace baton::serve {
namespace {

std::string lower(std::string_view text) {
  std::string made(text);
  for (char& c : made) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return made;
}

const Json* at(const Json& json, const std::string& pointer) {
  const Json::json_pointer path(pointer);
  return json.contains(path) ? &json.at(path) : nullptr;
}

void find_references(const Json& json, std::set<std::string>& to) {
  if (json.is_object() && json.contains("$ref") && json["$ref"].is_string()) to.insert(json["$ref"]);
  if (!json.is_structured()) return;
  for (const Json& part : json) find_references(part, to);
}

// What is wrong with a body's schema; empty: nothing.
std::string wrong_body(const Json* body) {
  if (body == nullptr || !body->is_object() || body->value("type", Json()) != "object") return "no schema of its body";
  if (body->value("additionalProperties", Json()) != false) return "a body of any fields";
  if (!body->contains("properties") || (*body)["properties"].empty()) return "a body without fields";
  for (const Json& name : body->value("required", Json::array())) {
    if (!(*body)["properties"].contains(name.get<std::string>())) return "a required field that is none";
  }
  return {};
}

std::string wrong_operation(const Json& document, const Route& route) {
  std::string path(route.path);
  if (path.ends_with("/*")) path.replace(path.size() - 1, 1, "{name}");
  if (!document["paths"].contains(path) || !document["paths"][path].contains(lower(route.method)))
    return "no operation";
  const Json& operation = document["paths"][path][lower(route.method)];
  if (route.method == "POST") {
    if (auto wrong = wrong_body(at(operation, "/requestBody/content/application~1json/schema")); !wrong.empty())
      return wrong;
  }
  const Json* answers = at(operation, "/responses/200/content");
  if (answers == nullptr || answers->empty()) return "no schema of its answer";
  for (const Json& answer : *answers) {
    if (!answer.contains("schema") || !answer["schema"].contains("type")) return "no schema of an answer";
  }
  std::set<std::string> references;
  find_references(operation, references);
  for (const std::string& reference : references) {
    if (at(document, reference.substr(1)) == nullptr) return "a reference to nothing: " + reference;
  }
  return {};
}

TEST(OpenApi, EachOperationHasSchemas) {
  const Json document = openapi_document();
  for (const Route& route : routes()) EXPECT_EQ(wrong_operation(document, route), "") << route.path;
  std::set<std::string> references;
  find_references(document["components"], references);
  for (const std::string& reference : references) EXPECT_NE(at(document, reference.substr(1)), nullptr) << reference;
}

TEST(OpenApi, AMissingOneIsFound) {
  bool known = false;
  const Route& chat = *find_route("POST", "/api/chat", &known);
  const auto forged = [&](const std::function<void(Json & operation)>& change) {
    Json document = openapi_document();
    change(document["paths"]["/api/chat"]["post"]);
    return wrong_operation(document, chat);
  };
  EXPECT_EQ(forged([](Json&) {}), "");
  EXPECT_NE(forged([](Json& operation) { operation.erase("requestBody"); }), "");
  EXPECT_NE(forged([](Json& operation) { operation["responses"]["200"].erase("content"); }), "");
  const auto body = [](Json& operation) -> Json& {
    return operation["requestBody"]["content"]["application/json"]["schema"];
  };
  EXPECT_NE(forged([&](Json& operation) { body(operation).erase("additionalProperties"); }), "");
  EXPECT_NE(forged([&](Json& operation) { body(operation)["properties"].clear(); }), "");
  EXPECT_NE(forged([&](Json& operation) { body(operation)["required"].push_back("none"); }), "");
  EXPECT_NE(forged([&](Json& operation) { body(operation)["properties"]["x"]["$ref"] = "#/components/none"; }), "");
}

// "": taken; else the error's code, or "refused".
template <class Read>
std::function<std::string(const Json&)> told_by(Read read) {
  return [read](const Json& body) -> std::string {
    const auto made = read(body);
    if (made) return {};
    return made.error().code.empty() ? "refused" : made.error().code;
  };
}
std::function<std::string(const Json&)> told_by_protocol(const Protocol& (*protocol)()) {
  return told_by([protocol](const Json& body) { return protocol().read(body); });
}

struct Reader {
  const char* path;
  const char* least;  // a body that is taken, of required fields alone, or nearly
  std::function<std::string(const Json&)> tell;
};

std::vector<Reader> readers() {
  constexpr const char* kChat = R"({"messages": [{"role": "user", "content": "a"}]})";
  return {
      {"/v1/chat/completions", kChat, told_by_protocol(openai_chat)},
      {"/v1/completions", R"({"prompt": "a"})", told_by_protocol(openai_completions)},
      {"/v1/responses", R"({"input": "a"})", told_by_protocol(openai_responses)},
      {"/v1/messages", R"({"max_tokens": 1, "messages": [{"role": "user", "content": "a"}]})",
       told_by_protocol(anthropic_messages)},
      {"/v1/messages/count_tokens", kChat, told_by(formats::read_count_tokens)},
      {"/api/chat", R"({"model": "m", "messages": [{"role": "user", "content": "a"}]})", told_by_protocol(ollama_chat)},
      {"/api/generate", R"({"model": "m", "prompt": "a"})", told_by_protocol(ollama_generate)},
      {"/api/embed", R"({"model": "m", "input": "a"})", told_by(formats::read_ollama_embed)},
      {"/api/embeddings", R"({"model": "m", "prompt": "a"})", told_by(formats::read_ollama_embeddings)},
      {"/api/show", R"({"model": "m"})", told_by(formats::read_show)},
      {"/api/pull", R"({"model": "m"})", told_by(formats::read_pull)},
      {"/v1/embeddings", R"({"input": "a"})", told_by(formats::read_embeddings)},
      {"/v1/rerank", R"({"query": "a", "documents": ["a"]})", told_by(formats::read_rerank)}};
}

TEST(OpenApi, FieldsAreThoseOfTheReaders) {
  const Json document = openapi_document();
  const auto schema_of = [&](const char* path) -> const Json& {
    return document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"];
  };
  std::set<std::string> names = {"no_such_field"};
  for (const Reader& reader : readers()) {
    for (const auto& [name, schema] : schema_of(reader.path)["properties"].items()) names.insert(name);
  }
  for (const Reader& reader : readers()) {
    const Json& schema = schema_of(reader.path);
    const Json least = Json::parse(reader.least);
    ASSERT_EQ(reader.tell(least), "") << reader.path;
    for (const std::string& name : names) {
      Json body = least;
      if (body.contains(name)) continue;
      // Of rerank one name of the documents or the other.
      if (name == "texts" && std::string_view(reader.path) == "/v1/rerank") continue;
      body[name] = nullptr;
      EXPECT_EQ(reader.tell(body), schema["properties"].contains(name) ? "" : "unknown_parameter")
          << reader.path << " " << name;
    }
    for (const Json& name : schema.value("required", Json::array())) {
      Json body = least;
      body.erase(name.get<std::string>());
      EXPECT_NE(reader.tell(body), "") << reader.path << " without " << name;
    }
  }
}

TEST(OpenApi, WhatMayBeLeftOut) {
  const Json document = openapi_document();
  const Json& chat =
      document["paths"]["/v1/chat/completions"]["post"]["requestBody"]["content"]["application/json"]["schema"];
  EXPECT_EQ(chat["required"], Json::array({"messages"}));
  EXPECT_EQ(chat["properties"]["model"]["type"], Json::array({"string", "null"}));
  EXPECT_EQ(chat["properties"]["messages"]["type"], "array");
  const Json& parameters = document["paths"]["/v1/routes"]["get"]["parameters"];
  ASSERT_EQ(parameters.size(), 4u);
  EXPECT_EQ(parameters[1]["name"], "prompt_tokens");
  EXPECT_EQ(parameters[1]["schema"]["default"], 1024);
  EXPECT_EQ(document["paths"]["/v1/timeline"]["get"]["parameters"][0]["name"], "once");
  EXPECT_TRUE(document["paths"]["/v1/messages"]["post"]["responses"]["200"]["content"].contains("text/event-stream"));
}

}  // namespace
}  // namespace baton::serve
