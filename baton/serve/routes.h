// What is answered where: one table, from which /openapi.json is made too.
#pragma once

#include <span>
#include <string>
#include <string_view>

#include "baton/serve/app.h"

namespace baton::serve {

// On a thread of the HTTP server: must not wait. What takes a while goes through Service::post.
using Handle = void (*)(App& app, const ExchangePtr& exchange, const Caller& caller);

struct Route {
  std::string_view method, path;  // a path that ends with '/' and '*' stands for all that begin so
  std::string_view summary;
  Handle handle;                            // null: an answer of `protocol`
  const Protocol& (*protocol)() = nullptr;  // also the form of errors; null: OpenAI's
  bool open = false;                        // without a key
};

std::span<const Route> routes();
// Null: none. `known`: the path is one of another method. HEAD finds what GET does.
const Route* find_route(std::string_view method, std::string_view path, bool* known);
// Of a path: "GET, HEAD"; empty: there is no such path.
std::string methods_of(std::string_view path);

// By file; see routes.cc.
void show_models(App& app, const ExchangePtr& exchange, const Caller& caller);
void show_model(App& app, const ExchangePtr& exchange, const Caller& caller);
void show_routes(App& app, const ExchangePtr& exchange, const Caller& caller);
void ollama_tags(App& app, const ExchangePtr& exchange, const Caller& caller);
void ollama_ps(App& app, const ExchangePtr& exchange, const Caller& caller);
void ollama_show(App& app, const ExchangePtr& exchange, const Caller& caller);
void ollama_pull(App& app, const ExchangePtr& exchange, const Caller& caller);
void ollama_version(App& app, const ExchangePtr& exchange, const Caller& caller);
void count_tokens(App& app, const ExchangePtr& exchange, const Caller& caller);
void tokenize(App& app, const ExchangePtr& exchange, const Caller& caller);
void detokenize(App& app, const ExchangePtr& exchange, const Caller& caller);
void apply_template(App& app, const ExchangePtr& exchange, const Caller& caller);
void embeddings(App& app, const ExchangePtr& exchange, const Caller& caller);
void rerank(App& app, const ExchangePtr& exchange, const Caller& caller);
void ollama_embed(App& app, const ExchangePtr& exchange, const Caller& caller);
void ollama_embeddings(App& app, const ExchangePtr& exchange, const Caller& caller);
void show_health(App& app, const ExchangePtr& exchange, const Caller& caller);
void show_ready(App& app, const ExchangePtr& exchange, const Caller& caller);
void show_metrics(App& app, const ExchangePtr& exchange, const Caller& caller);
void show_slots(App& app, const ExchangePtr& exchange, const Caller& caller);
void show_props(App& app, const ExchangePtr& exchange, const Caller& caller);
void show_version(App& app, const ExchangePtr& exchange, const Caller& caller);
void show_openapi(App& app, const ExchangePtr& exchange, const Caller& caller);
void show_page(App& app, const ExchangePtr& exchange, const Caller& caller);
void show_timeline(App& app, const ExchangePtr& exchange, const Caller& caller);

}  // namespace baton::serve
