// /v1/embeddings, /api/embed, /v1/rerank: bodies and answers.
#include "baton/serve/formats/embeddings.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "baton/serve/formats_driver.h"

namespace baton::serve::formats {
namespace {

EmbeddingRequest read_embeddings_of(std::string_view body) {
  auto read = read_embeddings(Json::parse(body));
  EXPECT_TRUE(read) << (read ? "" : read.error().message);
  return read ? *std::move(read) : EmbeddingRequest{};
}

template <class Read>
std::string refused_by(Read read, std::string_view body) {
  const auto made = read(Json::parse(body));
  if (made) return "accepted";
  EXPECT_EQ(made.error().status, 400);
  EXPECT_NE(made.error().message.find(made.error().param), std::string::npos) << made.error().message;
  return made.error().param;
}

TEST(Embeddings, Inputs) {
  using Ids = std::vector<int32_t>;
  const auto inputs = [](const char* input) {
    return read_embeddings_of(std::string(R"({"model": "m", "input": )") + input + "}").inputs;
  };
  EXPECT_EQ(inputs(R"("a")"), (std::vector<EmbeddingInput>{"a"}));
  EXPECT_EQ(inputs(R"(["a", "b"])"), (std::vector<EmbeddingInput>{"a", "b"}));
  EXPECT_EQ(inputs("[1, 2]"), (std::vector<EmbeddingInput>{Ids{1, 2}}));
  EXPECT_EQ(inputs(R"([[1], "b", [2, 3]])"), (std::vector<EmbeddingInput>{Ids{1}, "b", Ids{2, 3}}));
  const EmbeddingRequest more =
      read_embeddings_of(R"({"model": "m", "input": "a", "encoding_format": "base64", "dimensions": 8, "user": "u"})");
  EXPECT_TRUE(more.base64);
  EXPECT_EQ(more.dimensions, 8u);
  EXPECT_FALSE(more.truncate);
}

TEST(Embeddings, FieldsThatAreRefusedAreNamed) {
  const std::pair<const char*, const char*> cases[] = {
      {R"({"model": "m"})", "input"},
      {R"({"input": []})", "input"},
      {R"({"input": ""})", "input"},
      {R"({"input": ["a", ""]})", "input[1]"},
      {R"({"input": [[]]})", "input[0]"},
      {R"({"input": [1, "a"]})", "input"},
      {R"({"input": [-1]})", "input"},
      {R"({"input": [4294967296]})", "input"},
      {R"({"input": [1.5]})", "input"},
      {R"({"input": ["a", 5]})", "input[1]"},
      {R"({"input": {"text": "a"}})", "input"},
      {R"({"input": "a", "encoding_format": "int8"})", "encoding_format"},
      {R"({"input": "a", "dimensions": 0})", "dimensions"},
      {R"({"input": "a", "truncate": true})", "truncate"},
  };
  for (const auto& [body, field] : cases) EXPECT_EQ(refused_by(read_embeddings, body), field) << body;
  Json many = {{"input", Json::array()}};
  for (size_t i = 0; i <= kInputsMax; ++i) many["input"].push_back("a");
  EXPECT_EQ(refused_by(read_embeddings, many.dump()), "input");
  EXPECT_EQ(refused_by(read_ollama_embed, R"({"model": "m", "input": [1, 2]})"), "input[0]");
  EXPECT_EQ(refused_by(read_ollama_embed, R"({"input": "a"})"), "model");
  constexpr std::pair<const char*, const char*> kOptions[] = {{R"({"nonsense": 1})", "options.nonsense"},
                                                              {R"({"temperature": 9})", "options.temperature"},
                                                              {R"({"mirostat": 1})", "options.mirostat"},
                                                              {"5", "options"}};
  for (const auto& [options, field] : kOptions) {
    const std::string body = R"({"model": "m", "input": "a", "options": )" + std::string(options) + "}";
    EXPECT_EQ(refused_by(read_ollama_embed, body), field);
  }
  const auto read = read_ollama_embed(
      Json::parse(R"({"model": "m", "input": "a", "options": {"num_ctx": 512, "temperature": 0, "num_gpu": 1}})"));
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->context_tokens, 512u);
  EXPECT_EQ(refused_by(read_ollama_embeddings, R"({"model": "m", "input": "a"})"), "prompt");
}

TEST(Embeddings, Answers) {
  EmbeddingRequest request = read_embeddings_of(R"({"model": "m", "input": ["a", "b"]})");
  const EmbeddingTail tail{.model = "m", .tokens = 3, .load_ms = 1, .total_ms = 2};
  EXPECT_EQ(*embeddings_body(request, {{0.5f, -1}, {1, 2}}, tail), Json::parse(R"({"object": "list", "data": [
      {"object": "embedding", "index": 0, "embedding": [0.5, -1.0]},
      {"object": "embedding", "index": 1, "embedding": [1.0, 2.0]}], "model": "m",
      "usage": {"prompt_tokens": 3, "total_tokens": 3}})"));
  // What Python's base64.b64encode(struct.pack("<2f", 0.5, -1)) says.
  EXPECT_EQ(base64_of(std::vector<float>{0.5f, -1}), "AAAAPwAAgL8=");
  EXPECT_EQ(base64_of(std::vector<float>{1}), "AACAPw==");
  EXPECT_EQ(base64_of(std::vector<float>{1, 2, 3}), "AACAPwAAAEAAAEBA");
  request.base64 = true;
  EXPECT_EQ((*embeddings_body(request, {{0.5f, -1}}, tail))["data"][0]["embedding"], "AAAAPwAAgL8=");
  request.base64 = false;
  request.dimensions = 2;
  EXPECT_EQ((*embeddings_body(request, {{3, 4, 12}}, tail))["data"][0]["embedding"], Json::array({3.0f / 5, 4.0f / 5}));
  request.dimensions = 4;
  EXPECT_EQ(embeddings_body(request, {{3, 4, 12}}, tail).error().param, "dimensions");
  EXPECT_EQ(embeddings_body(request, {{std::numeric_limits<float>::quiet_NaN()}}, tail).error().status, 500);
}

TEST(Embeddings, OllamasAnswers) {
  const auto request = read_ollama_embed(Json::parse(R"({"model": "m", "input": "a", "keep_alive": "5m"})"));
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_TRUE(request->truncate);
  EXPECT_EQ(*embeddings_body(*request, {{1, 2}}, {.model = "m", .tokens = 3, .load_ms = 1, .total_ms = 2}),
            Json::parse(R"({"model": "m", "embeddings": [[1.0, 2.0]], "total_duration": 2000000,
                            "load_duration": 1000000, "prompt_eval_count": 3})"));
  const auto old = read_ollama_embeddings(Json::parse(R"({"model": "m", "prompt": "a"})"));
  ASSERT_TRUE(old);
  EXPECT_EQ(*embeddings_body(*old, {{1, 2}}, {}), Json::parse(R"({"embedding": [1.0, 2.0]})"));
}

TEST(Rerank, BodiesAndAnswers) {
  const auto request = read_rerank(Json::parse(R"({"model": "m", "query": "q", "documents": ["a", {"text": "b"}, "c"],
      "top_n": 2, "return_documents": true})"));
  ASSERT_TRUE(request) << request.error().message;
  EXPECT_EQ(request->documents, (std::vector<std::string>{"a", "b", "c"}));
  EXPECT_EQ(rerank_body(*request, std::vector<float>{0.25f, 0.5f, 0.5f}, {.model = "m", .tokens = 7}, "x"),
            Json::parse(R"({"id": "rerank-x", "object": "list", "model": "m", "results": [
                {"index": 1, "relevance_score": 0.5, "document": {"text": "b"}},
                {"index": 2, "relevance_score": 0.5, "document": {"text": "c"}}],
                "usage": {"prompt_tokens": 7, "total_tokens": 7}})"));
  const std::pair<const char*, const char*> cases[] = {
      {R"({"query": "q"})", "documents"},
      {R"({"query": "q", "documents": []})", "documents"},
      {R"({"query": "q", "documents": [5]})", "documents[0]"},
      {R"({"query": "q", "documents": ["a"], "top_n": 0})", "top_n"},
      {R"({"documents": ["a"]})", "query"},
      {R"({"query": "q", "documents": ["a"], "max_chunks_per_doc": 5})", "max_chunks_per_doc"},
      {R"({"query": "q", "documents": ["a"], "no_such": 5})", "no_such"},
  };
  for (const auto& [body, field] : cases) EXPECT_EQ(refused_by(read_rerank, body), field) << body;
}

}  // namespace
}  // namespace baton::serve::formats
