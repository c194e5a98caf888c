// The table of routes.
#include "baton/serve/routes.h"

#include <string>

namespace baton::serve {
namespace {

constexpr Route kRoutes[] = {
    {"POST", "/v1/chat/completions", "An answer to a chat", nullptr, openai_chat},
    {"POST", "/v1/completions", "A text that goes on from a prompt", nullptr, openai_completions},
    {"POST", "/v1/embeddings", "Vectors of texts", embeddings},
    {"POST", "/v1/rerank", "Documents by how well they answer a query", rerank},
    {"POST", "/api/embed", "Vectors of texts, as Ollama has it", ollama_embed, ollama_chat},
    {"POST", "/api/embeddings", "The vector of a text, as Ollama had it", ollama_embeddings, ollama_chat},
    {"POST", "/v1/responses", "An answer, as OpenAI's Responses have it", nullptr, openai_responses},
    {"POST", "/v1/messages", "An answer, as Anthropic's Messages have it", nullptr, anthropic_messages},
    {"POST", "/v1/messages/count_tokens", "How many tokens such a request has", count_tokens, anthropic_messages},
    {"POST", "/api/chat", "An answer to a chat, as Ollama has it", nullptr, ollama_chat},
    {"POST", "/api/generate", "An answer to a prompt, as Ollama has it", nullptr, ollama_generate},
    {"GET", "/api/tags", "The models there are, as Ollama lists them", ollama_tags, ollama_chat},
    {"GET", "/api/ps", "Those that are loaded", ollama_ps, ollama_chat},
    {"POST", "/api/show", "One of them", ollama_show, ollama_chat},
    {"POST", "/api/pull", "Whether a model is here; else fetches it, where --allow-pull lets it", ollama_pull,
     ollama_chat},
    {"GET", "/api/version", "The version, as Ollama says it", ollama_version, ollama_chat, true},
    {"GET", "/v1/models", "The models there are", show_models},
    {"GET", "/v1/models/*", "One of them", show_model},
    {"GET", "/v1/routes", "Which unit would prefill a request and which decode it, and why", show_routes},
    {"POST", "/tokenize", "Text to token ids", tokenize},
    {"POST", "/detokenize", "Token ids to text", detokenize},
    {"POST", "/apply-template", "Messages as the model sees them", apply_template},
    {"GET", "/health", "Whether the process answers", show_health, nullptr, true},
    {"GET", "/ready", "Whether it takes requests", show_ready, nullptr, true},
    {"GET", "/metrics", "Counters, in Prometheus' text format", show_metrics},
    {"GET", "/slots", "How many requests run and wait", show_slots},
    {"GET", "/props", "Models, units, limits and machine", show_props},
    {"GET", "/version", "The version", show_version, nullptr, true},
    {"GET", "/openapi.json", "This list, by the OpenAPI specification", show_openapi, nullptr, true},
    {"GET", "/", "The page", show_page, nullptr, true},
    {"GET", "/index.html", "The page", show_page, nullptr, true},
    {"GET", "/page/*", "Its files", show_page, nullptr, true},
    {"GET", "/v1/timeline", "What happens to requests, live", show_timeline},
};

bool matches(const Route& route, std::string_view path) {
  if (!route.path.ends_with("/*")) return route.path == path;
  const std::string_view front = route.path.substr(0, route.path.size() - 1);
  return path.size() > front.size() && path.starts_with(front);
}

}  // namespace

std::span<const Route> routes() { return kRoutes; }

const Route* find_route(std::string_view method, std::string_view path, bool* known) {
  *known = false;
  if (method == "HEAD") method = "GET";
  for (const Route& route : kRoutes) {
    if (!matches(route, path)) continue;
    if (route.method == method) return &route;
    *known = true;
  }
  return nullptr;
}

std::string methods_of(std::string_view path) {
  std::string methods;
  for (const Route& route : kRoutes) {
    if (!matches(route, path)) continue;
    if (!methods.empty()) methods += ", ";
    methods += route.method == "GET" ? "GET, HEAD" : std::string(route.method);
  }
  return methods;
}

}  // namespace baton::serve
