// Requests for embeddings and ranks, and their answers: OpenAI's /v1/embeddings, Ollama's /api/embed and
// /api/embeddings, and /v1/rerank as Jina's and Cohere's clients ask it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "baton/serve/formats/body.h"

namespace baton::serve::formats {

constexpr size_t kInputsMax = 2048;               // of one request
constexpr size_t kInputIdsMax = size_t{1} << 20;  // of one input
using EmbeddingInput = std::variant<std::string, std::vector<int32_t>>;

// Who is answered.
enum class EmbeddingStyle : uint8_t { kOpenAi, kOllama, kOllamaOld };

struct EmbeddingRequest {
  EmbeddingStyle style = EmbeddingStyle::kOpenAi;
  std::string model;
  std::vector<EmbeddingInput> inputs;
  std::optional<uint32_t> dimensions;  // as many of the first, to length 1 again
  bool base64 = false;
  bool truncate = false;                   // an input longer than the context is cut; else it is refused
  std::optional<double> keep_alive;        // seconds that the model stays behind it; below 0: for ever
  std::optional<uint32_t> context_tokens;  // num_ctx
};
// `user` and `encoding_format` null are ignored.
tl::expected<EmbeddingRequest, ApiError> read_embeddings(const Json& body);
// `options` as /api/chat reads them, though nothing is drawn.
tl::expected<EmbeddingRequest, ApiError> read_ollama_embed(const Json& body);       // `input`
tl::expected<EmbeddingRequest, ApiError> read_ollama_embeddings(const Json& body);  // `prompt`

struct EmbeddingTail {
  std::string model;  // as the client asked for it
  uint64_t tokens = 0;
  double load_ms = 0, total_ms = 0;
};
// 400 for dimensions that the vectors do not have. `vectors`: one of each input, as the model gives them.
tl::expected<Json, ApiError> embeddings_body(const EmbeddingRequest& request, std::vector<std::vector<float>> vectors,
                                             const EmbeddingTail& tail);
// Little-endian f32.
std::string base64_of(std::span<const float> values);

struct RerankRequest {
  std::string model, query;
  std::vector<std::string> documents;
  std::optional<size_t> top;  // so many results
  bool return_documents = false;
};
// Documents: texts, or objects with a text. `max_tokens_per_doc`, `max_chunks_per_doc`, `truncation` are refused.
tl::expected<RerankRequest, ApiError> read_rerank(const Json& body);
// `scores`: one of each document. Best first; equal ones as they came.
Json rerank_body(const RerankRequest& request, std::span<const float> scores, const EmbeddingTail& tail,
                 const std::string& id);

}  // namespace baton::serve::formats
