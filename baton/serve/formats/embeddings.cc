// Embeddings and ranks: https://platform.openai.com/docs/api-reference/embeddings,
// https://docs.cohere.com/reference/rerank
#include "baton/serve/formats/embeddings.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <numeric>

#include "baton/serve/formats/ollama.h"

namespace baton::serve::formats {
namespace {

std::optional<std::vector<int32_t>> ids_of(const Json& list) {
  if (!list.is_array() || list.empty() || list.size() > kInputIdsMax) return std::nullopt;
  std::vector<int32_t> ids;
  ids.reserve(list.size());
  for (const Json& id : list) {
    if (!id.is_number_integer()) return std::nullopt;
    const bool fits = id.is_number_unsigned() ? id.get<uint64_t>() <= INT32_MAX : id.get<int64_t>() >= 0;
    if (!fits) return std::nullopt;
    ids.push_back(id.get<int32_t>());
  }
  return ids;
}

// A text, tokens, or a list of either. `may_be_ids`: tokens are taken.
void read_inputs(Body& body, const char* name, bool may_be_ids, std::vector<EmbeddingInput>& to) {
  const Json* given = body.take(name);
  const char* takes = may_be_ids ? "a text, a list of token ids, or a list of these" : "a text, or a list of texts";
  if (given == nullptr) return body.put(name, fmt::format("is missing: it takes {}", takes));
  const bool one =
      given->is_string() || (may_be_ids && given->is_array() && !given->empty() && (*given)[0].is_number());
  const Json list = one ? Json::array({*given}) : *given;
  if (!list.is_array() || list.empty())
    return body.put(name, fmt::format("is {}: it takes {}", shown_value(*given), takes));
  if (list.size() > kInputsMax)
    return body.put(name, fmt::format("has {} inputs: at most {} of them fit a request", list.size(), kInputsMax));
  for (size_t i = 0; i < list.size(); ++i) {
    const std::string where = one ? name : fmt::format("{}[{}]", name, i);
    if (list[i].is_string() && !list[i].get_ref<const std::string&>().empty()) {
      to.emplace_back(list[i].get<std::string>());
    } else if (auto ids = may_be_ids ? ids_of(list[i]) : std::nullopt) {
      to.emplace_back(*std::move(ids));
    } else {
      return body.put(where.c_str(), fmt::format("is {}: it takes a text{} of at least one", shown_value(list[i]),
                                                 may_be_ids ? ", or a list of token ids," : ""));
    }
  }
}

// The first of a vector, to length 1.
void shorten(std::vector<float>& vector, size_t dimensions) {
  vector.resize(dimensions);
  double squares = 0;
  for (const float value : vector) squares += double{value} * value;
  if (squares <= 0) return;
  const double scale = 1 / std::sqrt(squares);
  for (float& value : vector) value = static_cast<float>(value * scale);
}

tl::expected<EmbeddingRequest, ApiError> read_ollama_any(const Json& json, bool old) {
  Body body(json);
  EmbeddingRequest made;
  made.style = old ? EmbeddingStyle::kOllamaOld : EmbeddingStyle::kOllama;
  made.model = body.text("model").value_or("");
  if (made.model.empty()) body.put("model", "is missing: it takes the name of a model");
  made.context_tokens = take_options(body);
  made.keep_alive = take_keep_alive(body);
  if (old) {
    if (const auto prompt = body.text("prompt"); prompt && !prompt->empty()) {
      made.inputs.emplace_back(*prompt);
    } else {
      body.put("prompt", "is missing: it takes a text");
    }
    made.truncate = true;
  } else {
    read_inputs(body, "input", false, made.inputs);
    made.truncate = body.flag("truncate").value_or(true);
    if (const auto dimensions = body.whole("dimensions", 1, 1 << 20))
      made.dimensions = static_cast<uint32_t>(*dimensions);
  }
  if (auto end = body.end(); !end) return tl::unexpected(std::move(end).error());
  return made;
}

}  // namespace

tl::expected<EmbeddingRequest, ApiError> read_embeddings(const Json& json) {
  Body body(json);
  EmbeddingRequest made;
  body.ignore({"user"});
  made.model = body.text("model").value_or("");
  read_inputs(body, "input", true, made.inputs);
  if (const auto dimensions = body.whole("dimensions", 1, 1 << 20))
    made.dimensions = static_cast<uint32_t>(*dimensions);
  const std::string format = body.text("encoding_format").value_or("float");
  if (format != "float" && format != "base64")
    body.put("encoding_format", fmt::format("is {}: it takes float or base64", shown_value(Json(format))));
  made.base64 = format == "base64";
  if (auto end = body.end(); !end) return tl::unexpected(std::move(end).error());
  return made;
}

tl::expected<EmbeddingRequest, ApiError> read_ollama_embed(const Json& body) { return read_ollama_any(body, false); }

tl::expected<EmbeddingRequest, ApiError> read_ollama_embeddings(const Json& body) {
  return read_ollama_any(body, true);
}

std::string base64_of(std::span<const float> values) {
  constexpr char kLetters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  const size_t size = values.size() * 4;
  const auto byte = [&](size_t at) -> uint32_t {
    return at < size ? std::bit_cast<uint32_t>(values[at / 4]) >> (at % 4 * 8) & 0xFF : 0;
  };
  std::string text;
  text.reserve((size + 2) / 3 * 4);
  for (size_t at = 0; at < size; at += 3) {
    const uint32_t three = byte(at) << 16 | byte(at + 1) << 8 | byte(at + 2);
    for (int part = 3; part >= 0; --part) text += kLetters[three >> (part * 6) & 63];
  }
  // As many as there were no bytes for.
  for (size_t missing = (3 - size % 3) % 3, i = 0; i < missing; ++i) text[text.size() - 1 - i] = '=';
  return text;
}

tl::expected<Json, ApiError> embeddings_body(const EmbeddingRequest& request, std::vector<std::vector<float>> vectors,
                                             const EmbeddingTail& tail) {
  for (std::vector<float>& vector : vectors) {
    if (!std::all_of(vector.begin(), vector.end(), [](float value) { return std::isfinite(value); }))
      return tl::unexpected(ApiError{.status = 500, .message = "the model gave no numbers", .type = "server_error"});
    if (!request.dimensions || *request.dimensions == vector.size()) continue;
    if (*request.dimensions > vector.size()) {
      return refusal("dimensions", fmt::format("'dimensions' is {}: the model's vectors have {}", *request.dimensions,
                                               vector.size()));
    }
    shorten(vector, *request.dimensions);
  }
  if (request.style == EmbeddingStyle::kOllamaOld)
    return Json{{"embedding", vectors.empty() ? Json::array() : Json(vectors.front())}};
  if (request.style == EmbeddingStyle::kOllama) {
    const auto nanoseconds = [](double ms) { return static_cast<uint64_t>(std::max(0.0, ms) * 1e6); };
    return Json{{"model", tail.model},
                {"embeddings", vectors},
                {"total_duration", nanoseconds(tail.total_ms)},
                {"load_duration", nanoseconds(tail.load_ms)},
                {"prompt_eval_count", tail.tokens}};
  }
  Json data = Json::array();
  for (size_t i = 0; i < vectors.size(); ++i) {
    data.push_back({{"object", "embedding"},
                    {"index", i},
                    {"embedding", request.base64 ? Json(base64_of(vectors[i])) : Json(vectors[i])}});
  }
  return Json{{"object", "list"},
              {"data", std::move(data)},
              {"model", tail.model},
              {"usage", {{"prompt_tokens", tail.tokens}, {"total_tokens", tail.tokens}}}};
}

tl::expected<RerankRequest, ApiError> read_rerank(const Json& json) {
  Body body(json);
  RerankRequest made;
  body.ignore({"user"});
  body.never({"max_tokens_per_doc", "max_chunks_per_doc", "truncation", "rank_fields"},
             "documents are ranked whole, leave it out");
  made.model = body.text("model").value_or("");
  made.query = body.text("query").value_or("");
  if (made.query.empty()) body.put("query", "is missing: it takes a text");
  made.return_documents = body.flag("return_documents").value_or(false);
  for (const char* name : {"top_n", "top_k"}) {
    if (const auto top = body.whole(name, 1, INT32_MAX)) made.top = static_cast<size_t>(*top);
  }
  const char* field = json.is_object() && !json.contains("documents") && json.contains("texts") ? "texts" : "documents";
  const Json* documents = body.take(field);
  if (documents == nullptr || !documents->is_array() || documents->empty() || documents->size() > kInputsMax) {
    body.put(field, fmt::format("is {}: it takes a list of 1 to {} texts",
                                documents == nullptr ? "missing" : shown_value(*documents), kInputsMax));
  }
  for (size_t i = 0; !body.failed() && i < documents->size(); ++i) {
    const Json& document = (*documents)[i];
    const bool object = document.is_object() && document.size() == 1 && document.contains("text");
    const Json& text = object ? document["text"] : document;
    if (!text.is_string()) {
      body.put(fmt::format("{}[{}]", field, i).c_str(),
               fmt::format("is {}: it takes a text, or {{\"text\": TEXT}}", shown_value(document)));
    } else {
      made.documents.push_back(text.get<std::string>());
    }
  }
  if (auto end = body.end(); !end) return tl::unexpected(std::move(end).error());
  return made;
}

Json rerank_body(const RerankRequest& request, std::span<const float> scores, const EmbeddingTail& tail,
                 const std::string& id) {
  std::vector<size_t> order(std::min(scores.size(), request.documents.size()));
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return scores[a] > scores[b]; });
  if (request.top && *request.top < order.size()) order.resize(*request.top);
  Json results = Json::array();
  for (const size_t index : order) {
    Json result = {{"index", index}, {"relevance_score", scores[index]}};
    if (request.return_documents) result["document"] = {{"text", request.documents[index]}};
    results.push_back(std::move(result));
  }
  return {{"id", "rerank-" + id},
          {"object", "list"},
          {"model", tail.model},
          {"results", std::move(results)},
          {"usage", {{"prompt_tokens", tail.tokens}, {"total_tokens", tail.tokens}}}};
}

}  // namespace baton::serve::formats
