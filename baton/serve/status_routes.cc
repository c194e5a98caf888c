// What is said of the server itself.
#include <fmt/format.h>

#include "baton/serve/openapi.h"
#include "baton/serve/routes.h"

namespace baton::serve {
namespace {

Json usage_json(App& app) {
  const Gauges now = app.service().gauges();
  return {{"running", now.running},
          {"waiting", now.waiting},
          {"state_bytes", now.state_bytes},
          {"checkpoints", now.checkpoints},
          {"checkpoint_bytes", now.checkpoint_bytes}};
}

}  // namespace

void show_health(App& /*app*/, const ExchangePtr& exchange, const Caller& /*caller*/) {
  exchange->respond(json_response(200, {{"status", "ok"}}));
}

void show_ready(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  const bool ready = app.service().ready();
  exchange->respond(json_response(ready ? 200 : 503, {{"ready", ready}}));
}

void show_metrics(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  Service& service = app.service();
  Gauges gauges = service.gauges();
  gauges.http = app.connections();
  if (const AccessLog* log = app.options().access_log) gauges.access_log = log->counts();
  const ServedModel* model = service.models().find("");
  exchange->respond({200,
                     {{"content-type", "text/plain; version=0.0.4; charset=utf-8"}},
                     service.metrics().text(model != nullptr ? model->name() : "", gauges)});
}

// llama.cpp's list, as far as there are such things: a slot is a request that may run.
void show_slots(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  const uint64_t running = app.service().counts().running;
  const ServedModel* model = app.service().models().find("");
  Json slots = Json::array();
  for (uint32_t i = 0; i < app.service().options().parallel; ++i) {
    slots.push_back({{"id", i},
                     {"n_ctx", model != nullptr ? model->runtime().context_tokens() : 0},
                     {"is_processing", i < running}});
  }
  exchange->respond(json_response(200, slots));
}

void show_props(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  Service& service = app.service();
  Json models = Json::array();
  for (const auto& model : service.models().all()) {
    const Runtime& runtime = model->runtime();
    const Request& units = model->defaults();
    const auto& chat = runtime.text().chat_template;
    models.push_back({{"id", model->name()},
                      {"aliases", model->setup().aliases},
                      {"architecture_name", runtime.model().spec.name},
                      {"parameters", runtime.model().parameter_count()},
                      {"bytes", runtime.model().weight_bytes()},
                      {"context", runtime.context_tokens()},
                      {"prefill_unit", units.prefill_unit},
                      {"decode_unit", units.decode_unit},
                      {"strategy", units.strategy},
                      {"load_ms", runtime.load_ms()},
                      {"chat_template", chat ? Json(chat->source()) : Json(nullptr)}});
  }
  exchange->respond(json_response(200, {{"build_info", "baton " BATON_VERSION},
                                        {"total_slots", service.options().parallel},
                                        {"queue_max", service.options().queue_max},
                                        {"models", std::move(models)},
                                        {"usage", usage_json(app)},
                                        {"machine", app.options().machine}}));
}

void show_version(App& /*app*/, const ExchangePtr& exchange, const Caller& /*caller*/) {
  exchange->respond(json_response(200, {{"name", "baton"}, {"version", BATON_VERSION}}));
}

void show_openapi(App& /*app*/, const ExchangePtr& exchange, const Caller& /*caller*/) {
  exchange->respond(json_response(200, openapi_document()));
}

void show_timeline(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  Timeline& timeline = app.service().timeline();
  Json models = Json::array();
  for (const auto& model : app.service().models().all()) {
    const Request& units = model->defaults();
    models.push_back({{"id", model->name()},
                      {"prefill_unit", units.prefill_unit},
                      {"decode_unit", units.decode_unit},
                      {"strategy", units.strategy}});
  }
  Json snapshot = {{"now_ms", timeline.now_ms()},
                   {"started", timeline.started()},
                   {"usage", usage_json(app)},
                   {"models", std::move(models)},
                   {"events", nullptr}};
  const std::string* once = exchange->request().parameter("once");
  if (once == nullptr || *once == "0") {
    if (exchange->request().method != "HEAD") return timeline.listen(exchange, std::move(snapshot));
    exchange->begin(200, {{"content-type", "text/event-stream"}, {"cache-control", "no-store"}});
    return exchange->end();
  }
  snapshot["events"] = timeline.events();
  exchange->respond(json_response(200, snapshot));
}

}  // namespace baton::serve
