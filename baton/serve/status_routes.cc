// What is said of the server itself.
#include <fmt/format.h>

#include <algorithm>

#include "baton/serve/answer_figures.h"
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

Json model_props(const ModelStatus& status) {
  const ModelFacts& facts = status.model.facts();
  Json made = {{"id", facts.name},
               {"aliases", facts.aliases},
               {"architecture_name", facts.title},
               {"parameters", facts.parameters},
               {"bytes", facts.weight_bytes},
               {"state_bytes_max", facts.state_bytes_max},
               {"context", facts.context_tokens},
               {"state", status.loaded    ? "loaded"
                         : status.loading ? "loading"
                                          : "absent"},
               {"in_use", status.leases},
               {"waiting", status.waiting},
               {"load_ms", status.load_ms},
               {"unloads_in_s", nullptr}};
  if (status.unloads_in) made["unloads_in_s"] = static_cast<double>(status.unloads_in->count()) / 1000;
  if (facts.vectors) return made;
  made.update(Json{{"prefill_unit", facts.prefill_unit},
                   {"decode_unit", facts.decode_unit},
                   {"strategy", facts.strategy},
                   {"chat_template", facts.chat_template.empty() ? Json(nullptr) : Json(facts.chat_template)}});
  say_emulated(made, facts.emulated_units);
  return made;
}

}  // namespace

void show_health(App& /*app*/, const ExchangePtr& exchange, const Caller& /*caller*/) {
  exchange->respond(json_response(200, {{"status", "ok"}}));
}

void show_ready(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  const std::vector<Service::Lost> lost = app.service().lost_units();
  // A model that refuses all that ask for no unit keeps the server from being ready: it must be loaded again.
  const bool ready = app.service().ready() &&
                     std::none_of(lost.begin(), lost.end(), [](const Service::Lost& each) { return each.refuses; });
  Json made = {{"ready", ready}};
  for (const Service::Lost& each : lost)
    made["lost_units"].push_back({{"model", each.model}, {"unit", each.unit}, {"reason", without_paths(each.why)}});
  exchange->respond(json_response(ready ? 200 : 503, made));
}

void show_metrics(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  Service& service = app.service();
  Gauges gauges = service.gauges();
  gauges.http = app.connections();
  if (const AccessLog* log = app.options().access_log) gauges.access_log = log->counts();
  gauges.models = service.model_gauges();
  exchange->respond(
      {200, {{"content-type", "text/plain; version=0.0.4; charset=utf-8"}}, service.metrics().text(gauges)});
}

// llama.cpp's list, as far as there are such things: a slot is a request that may run.
void show_slots(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  const uint64_t running = app.service().counts().running;
  const PooledModel* model = app.service().models().find("");
  Json slots = Json::array();
  for (uint32_t i = 0; i < app.service().options().parallel; ++i) {
    slots.push_back(
        {{"id", i}, {"n_ctx", model != nullptr ? model->facts().context_tokens : 0}, {"is_processing", i < running}});
  }
  exchange->respond(json_response(200, slots));
}

void show_props(App& app, const ExchangePtr& exchange, const Caller& /*caller*/) {
  Service& service = app.service();
  const ModelPool& pool = service.models();
  Json models = Json::array(), vectors = Json::array();
  for (const ModelStatus& status : pool.status())
    (status.model.facts().vectors ? vectors : models).push_back(model_props(status));
  const bool bounded = pool.budget() != UINT64_MAX;
  exchange->respond(json_response(
      200,
      {{"build_info", "baton " BATON_VERSION},
       {"total_slots", service.options().parallel},
       {"queue_max", service.options().queue_max},
       {"models", std::move(models)},
       {"embedding_models", std::move(vectors)},
       {"memory", {{"budget_bytes", bounded ? Json(pool.budget()) : Json(nullptr)}, {"loaded_bytes", pool.bytes()}}},
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
    const ModelFacts& facts = model->facts();
    if (facts.vectors) continue;
    models.push_back({{"id", facts.name},
                      {"prefill_unit", facts.prefill_unit},
                      {"decode_unit", facts.decode_unit},
                      {"strategy", facts.strategy}});
    say_emulated(models.back(), facts.emulated_units);
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
