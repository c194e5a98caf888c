// Vectors and ranks: /v1/embeddings, /v1/rerank, and Ollama's /api/embed and /api/embeddings.
#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "baton/serve/answer_figures.h"
#include "baton/serve/body.h"
#include "baton/serve/formats/embeddings.h"
#include "baton/serve/request_note.h"
#include "baton/serve/routes.h"

namespace baton::serve {
namespace {

using Answered = tl::expected<Json, ApiError>;

ApiError busy() {
  return {.status = 429,
          .message = "too many requests wait for this: ask again later",
          .type = "rate_limit_error",
          .code = "overloaded"};
}
ApiError ending() {
  return {.status = 503, .message = "the server is ending", .type = "server_error", .code = "unavailable"};
}

double ms_since(std::chrono::steady_clock::time_point from) {
  return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - from).count();
}

tl::unexpected<ApiError> of_embedder(const Error& error, std::string_view param) {
  ApiError made = openai::api_error(error, param);
  made.message = without_paths(made.message);
  return tl::unexpected(std::move(made));
}

tl::expected<PooledModel*, ApiError> embedder_of(const ModelPool& models, const std::string& name) {
  constexpr std::string_view kLatest = ":latest";  // as Ollama's clients write what has no other version
  const std::string_view bare =
      std::string_view(name).substr(0, name.size() - (name.ends_with(kLatest) ? kLatest.size() : 0));
  for (const std::string_view each : {std::string_view(name), bare}) {
    if (PooledModel* found = models.find_embedder(each)) return found;
  }
  const bool writes = models.find(name) != nullptr;
  std::string names;
  for (const auto& each : models.all()) {
    if (each->facts().vectors) names += (names.empty() ? "" : ", ") + each->name();
  }
  return tl::unexpected(
      ApiError{.status = writes ? 400 : 404,
               .message = fmt::format(
                   "{}; those that make vectors: {}",
                   writes ? "this model writes text" : fmt::format("the model '{}' is not here", name.substr(0, 100)),
                   names.empty() ? "none (baton serve --embed MODEL)" : names),
               .param = "model",
               .code = "model_not_found"});
}

std::optional<double> keep_alive_of(const formats::EmbeddingRequest& request) { return request.keep_alive; }
std::optional<double> keep_alive_of(const formats::RerankRequest& /*request*/) { return std::nullopt; }

Answered make_vectors(Embedder& embedder, const http::Exchange& exchange, formats::EmbeddingRequest& request) {
  const auto context = static_cast<uint64_t>(embedder.model().spec.context_max);
  if (request.context_tokens.value_or(0) > context) {
    return tl::unexpected(ApiError{
        .message = fmt::format("'options.num_ctx' is {}: the context holds {}", *request.context_tokens, context),
        .param = "options.num_ctx"});
  }
  EmbedRequest asked;
  asked.inputs = std::move(request.inputs);
  asked.truncates = request.truncate;
  auto made = embedder.embed(asked, [&exchange] { return exchange.gone(); });
  const char* field = request.style == formats::EmbeddingStyle::kOllamaOld ? "prompt" : "input";
  if (!made) return of_embedder(made.error(), field);
  if (RequestNote* note = note_of(exchange)) note->count_vectors(request.model, made->tokens_all);
  return formats::embeddings_body(request, std::move(made->vectors),
                                  {request.model, made->tokens_all, 0, ms_since(exchange.request().arrived)});
}

Answered make_ranks(Embedder& embedder, const http::Exchange& exchange, formats::RerankRequest& request) {
  uint64_t tokens = 0;
  auto scores =
      embedder.rerank(request.query, request.documents, false, &tokens, [&exchange] { return exchange.gone(); });
  if (!scores) return of_embedder(scores.error(), "documents");
  if (RequestNote* note = note_of(exchange)) note->count_vectors(request.model, tokens);
  return formats::rerank_body(request, *scores, {request.model, tokens, 0, ms_since(exchange.request().arrived)},
                              exchange.request().id);
}

// False: too much waits there.
template <class Request>
bool post_vectors(ModelLease lease, const ExchangePtr& exchange, const Protocol* protocol,
                  Answered (*make)(Embedder& embedder, const http::Exchange& exchange, Request& request),
                  Request&& request) {
  auto& served = lease.as<ServedEmbedder>();
  return served.post(
      [exchange, protocol, make, request = std::move(request)](Embedder& embedder) mutable {
        if (exchange->gone()) return;
        const Answered answered = make(embedder, *exchange, request);
        if (exchange->gone()) return;
        if (!answered) return respond_error(*exchange, protocol, answered.error());
        exchange->respond(json_response(200, *answered));
      },
      std::move(lease));
}

// The body on a reader, its vectors on the model's thread.
template <class Request>
void answer_vectors(App& app, const ExchangePtr& exchange, const Protocol* protocol,
                    tl::expected<Request, ApiError> (*read)(const Json& body),
                    Answered (*make)(Embedder& embedder, const http::Exchange& exchange, Request& request)) {
  Service& service = app.service();
  if (!service.ready()) return respond_error(*exchange, protocol, ending());
  const bool posted = service.post(exchange->request().body.size(), [&service, exchange, protocol, read, make] {
    if (exchange->gone()) return;
    auto body = parse_body(exchange->request().body);
    if (!body) return respond_error(*exchange, protocol, body.error());
    auto request = read(*body);
    if (!request) return respond_error(*exchange, protocol, request.error());
    const auto served = embedder_of(service.models(), request->model);
    if (!served) return respond_error(*exchange, protocol, served.error());
    if (request->model.empty()) request->model = (*served)->name();
    service.with_model(**served, exchange,
                       [&service, exchange, protocol, make, request = *std::move(request)](auto lease) mutable {
                         if (!lease) return respond_error(*exchange, protocol, lease.error(), kRetryMs);
                         if (const auto keep = keep_alive_of(request))
                           service.models().keep(lease->model(), keep_alive_ms(*keep));
                         if (!post_vectors(*std::move(lease), exchange, protocol, make, std::move(request)))
                           respond_error(*exchange, protocol, busy(), service.retry_after_ms());
                       });
  });
  if (!posted) respond_error(*exchange, protocol, busy());
}

}  // namespace

void embeddings(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  answer_vectors(app, exchange, nullptr, formats::read_embeddings, make_vectors);
}
void rerank(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  answer_vectors(app, exchange, nullptr, formats::read_rerank, make_ranks);
}
void ollama_embed(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  answer_vectors(app, exchange, &ollama_chat(), formats::read_ollama_embed, make_vectors);
}
void ollama_embeddings(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  answer_vectors(app, exchange, &ollama_chat(), formats::read_ollama_embeddings, make_vectors);
}

}  // namespace baton::serve
