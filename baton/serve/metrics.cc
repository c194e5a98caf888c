// Counters and histograms behind one lock, taken once a request.
#include "baton/serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <functional>
#include <iterator>

namespace baton::serve {
namespace {

// vLLM's, less the ends that no machine of ours reaches.
constexpr double kFirstToken[] = {0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5,
                                  0.75,  1.0,   2.5,  5.0,  7.5,  10,   20,   40,  80,   160};
constexpr double kBetween[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2,
                               0.3,   0.4,    0.5,   0.75, 1.0,   2.5,  5.0,   10,  20,   40};
constexpr double kWhole[] = {0.01, 0.05, 0.1, 0.3, 0.5, 0.8, 1.0, 1.5, 2.0, 2.5, 5.0,
                             10,   15,   20,  30,  40,  50,  60,  120, 240, 480, 960};
constexpr double kBridge[] = {0.0001, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5};

std::string escaped(std::string_view text) {
  std::string made;
  for (const char c : text) {
    if (c == '\\' || c == '"') made += '\\';
    if (c == '\n') {
      made += "\\n";
    } else {
      made += c;
    }
  }
  return made;
}

using Labels = MetricsText::Labels;

// What an emulated unit had a part in carries the word; a label that is not there is an empty one.
Labels labels_of(const ModelGauges& model, bool emulated) {
  Labels labels = {{"model_name", model.name}};
  if (emulated) labels.emplace_back("emulated", "true");
  return labels;
}

Labels with(Labels labels, const Labels& more) {
  labels.insert(labels.end(), more.begin(), more.end());
  return labels;
}

}  // namespace

void MetricsText::describe(std::string_view name, std::string_view kind, std::string_view help) {
  fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, kind);
}

void MetricsText::value(std::string_view name, const Labels& labels, double number) {
  std::string inside;
  for (const auto& [label, text] : labels)
    inside += fmt::format("{}{}=\"{}\"", inside.empty() ? "" : ",", label, escaped(text));
  fmt::format_to(std::back_inserter(text_), "{}{}{}{} {}\n", name, inside.empty() ? "" : "{", inside,
                 inside.empty() ? "" : "}", number);
}

void Histogram::observe(double value) {
  if (!std::isfinite(value)) return;
  ++counts_[static_cast<size_t>(std::lower_bound(bounds_.begin(), bounds_.end(), value) - bounds_.begin())];
  ++count_;
  sum_ += value;
}

void Histogram::write(MetricsText& to, const std::string& name, const MetricsText::Labels& labels) const {
  uint64_t below = 0;
  for (size_t i = 0; i < counts_.size(); ++i) {
    below += counts_[i];
    const std::string bound = i < bounds_.size() ? fmt::format("{}", bounds_[i]) : "+Inf";
    auto bounded = labels;
    bounded.emplace_back("le", bound);
    to.value(name + "_bucket", bounded, static_cast<double>(below));
  }
  to.value(name + "_sum", labels, sum_);
  to.value(name + "_count", labels, static_cast<double>(count_));
}

Metrics::Answers::Answers()
    : first_token(kFirstToken),
      between_tokens(kBetween),
      total(kWhole),
      queue(kWhole),
      prefill(kWhole),
      decode(kWhole),
      bridge(kBridge) {
  for (const char* reason : {"stop", "length", "tool_calls", "cancelled", "error"}) finished[reason] = 0;
}

Metrics::Metrics()
    : started_s_(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count()) {}

void Metrics::count_answer(const std::string& model, const Observed& observed,
                           std::span<const RequestStats* const> choices) {
  const std::lock_guard lock(mutex_);
  Answers& of = answers_[{model, observed.emulated}];
  ++of.finished[std::string(observed.finished)];
  of.queue.observe(observed.queue_s);
  of.total.observe(observed.total_s);
  if (observed.generated_tokens > 0) of.first_token.observe(observed.first_token_s);
  of.prompt_tokens += observed.prompt_tokens;
  of.cached_tokens += observed.cached_tokens;
  of.generated_tokens += observed.generated_tokens;
  for (const RequestStats* stats : choices) {
    of.prefill.observe(stats->prefill_ms / 1000);
    double decode_ms = 0;
    for (const float ms : stats->token_ms) {
      of.between_tokens.observe(ms / 1000.0);
      decode_ms += ms;
    }
    if (stats->generated_tokens > 0) of.decode.observe(decode_ms / 1000);
    const BridgeStats& bridge = stats->bridge;
    if (bridge.kind != BridgeKind::kNone) of.bridge.observe(bridge.ms / 1000);
    of.bridge_bytes += bridge.bytes;
    of.verified += bridge.verified ? 1 : 0;
    of.verify_failures += bridge.proof_failed ? 1 : 0;
    if (!stats->fallback.empty()) ++of.fallbacks[stats->prefill.unit + "\n" + stats->decode.unit];
  }
}

void Metrics::count_refused(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  ++refused_[std::string(reason)];
}

void Metrics::write_counters(MetricsText& to, const Rows& rows) {
  const auto counter = [&](const char* name, const char* help, uint64_t Answers::*number) {
    to.describe(name, "counter", help);
    for (const auto& [labels, of] : rows) to.value(name, labels, static_cast<double>(of->*number));
  };
  counter("vllm:prompt_tokens_total", "Tokens of prompts.", &Answers::prompt_tokens);
  counter("vllm:generation_tokens_total", "Tokens of answers.", &Answers::generated_tokens);
  counter("vllm:prefix_cache_queries_total", "Tokens of prompts that were looked for in the cache.",
          &Answers::prompt_tokens);
  counter("vllm:prefix_cache_hits_total", "Tokens of prompts that were found there.", &Answers::cached_tokens);
  to.describe("vllm:request_success_total", "counter", "Requests that ended, by how.");
  for (const auto& [labels, of] : rows) {
    for (const auto& [reason, count] : of->finished)
      to.value("vllm:request_success_total", with(labels, {{"finished_reason", reason}}), static_cast<double>(count));
  }
  counter("baton_bridge_bytes_total", "Bytes of states that were carried.", &Answers::bridge_bytes);
  counter("baton_bridge_verified_total", "Answers whose state reached the level of proof that was asked for.",
          &Answers::verified);
  counter("baton_bridge_verify_failures_total", "Hand-overs that were outside of what the proof allows.",
          &Answers::verify_failures);
  to.describe("baton_fallback_total", "counter", "Answers that the decode unit had to do more for than asked.");
  for (const auto& [labels, of] : rows) {
    for (const auto& [units, count] : of->fallbacks) {
      const std::string_view both = units;
      to.value("baton_fallback_total",
               with(labels, {{"from", both.substr(0, both.find('\n'))}, {"to", both.substr(both.find('\n') + 1)}}),
               static_cast<double>(count));
    }
  }
}

void Metrics::write_histograms(MetricsText& to, const Rows& rows) {
  const auto histogram = [&](const char* name, const char* help, Histogram Answers::*values) {
    to.describe(name, "histogram", help);
    for (const auto& [labels, of] : rows) (of->*values).write(to, name, labels);
  };
  histogram("vllm:time_to_first_token_seconds", "From arrival to the first token.", &Answers::first_token);
  histogram("vllm:inter_token_latency_seconds", "From token to token.", &Answers::between_tokens);
  histogram("vllm:e2e_request_latency_seconds", "From arrival to the end.", &Answers::total);
  histogram("vllm:request_queue_time_seconds", "Of waiting, in the server and the engine.", &Answers::queue);
  histogram("vllm:request_prefill_time_seconds", "Of prefill steps.", &Answers::prefill);
  histogram("vllm:request_decode_time_seconds", "From the first token to the last.", &Answers::decode);
  histogram("baton_bridge_seconds", "Time of hand-overs.", &Answers::bridge);
}

namespace {

using EachModel = std::function<double(const ModelGauges&)>;

void write_each(MetricsText& to, const std::vector<ModelGauges>& models, bool vectors_too, const char* name,
                const char* kind, const char* help, const EachModel& value) {
  to.describe(name, kind, help);
  for (const ModelGauges& model : models) {
    if (vectors_too || !model.vectors) to.value(name, labels_of(model, !model.emulated_units.empty()), value(model));
  }
}

void write_requests(MetricsText& to, const std::vector<ModelGauges>& models) {
  const auto gauge = [&](const char* name, const char* help, const EachModel& value) {
    write_each(to, models, false, name, "gauge", help, value);
  };
  const auto number = [](uint64_t ModelGauges::*field) {
    return [field](const ModelGauges& model) { return static_cast<double>(model.*field); };
  };
  gauge("vllm:num_requests_running", "Requests that the engine works at.", number(&ModelGauges::requests_running));
  gauge("vllm:num_requests_waiting", "Requests that wait.", number(&ModelGauges::requests_waiting));
  gauge("vllm:kv_cache_usage_perc", "Share of the bound of its states that is taken, 0 to 1.",
        [](const ModelGauges& model) {
          const auto states = static_cast<double>(model.state_bytes + model.checkpoint_bytes);
          return model.state_bytes_max > 0 ? states / static_cast<double>(model.state_bytes_max) : 0;
        });
  gauge("baton_state_bytes", "Bytes of states of running requests.", number(&ModelGauges::state_bytes));
  gauge("baton_checkpoint_bytes", "Bytes of states at rest.", number(&ModelGauges::checkpoint_bytes));
  gauge("baton_checkpoints", "States at rest that requests may begin from.", number(&ModelGauges::checkpoints));
}

void write_models(MetricsText& to, const std::vector<ModelGauges>& models) {
  const auto each = [&](const char* name, const char* kind, const char* help, uint64_t ModelGauges::*field) {
    write_each(to, models, true, name, kind, help,
               [field](const ModelGauges& model) { return static_cast<double>(model.*field); });
  };
  double loaded = 0;
  for (const ModelGauges& model : models) loaded += model.loaded ? 1 : 0;
  to.describe("baton_models_loaded", "gauge", "Models that are loaded.");
  to.value("baton_models_loaded", {}, loaded);
  each("baton_model_bytes", "gauge", "What a model takes of the budget, 0 while it is not loaded.",
       &ModelGauges::bytes);
  each("baton_model_in_use", "gauge", "Requests that keep it loaded.", &ModelGauges::in_use);
  each("baton_model_waiting", "gauge", "Requests that wait for it to be loaded.", &ModelGauges::waiting);
  each("baton_model_loads_total", "counter", "How often it was loaded.", &ModelGauges::loads);
  each("baton_model_evictions_total", "counter", "How often it was given up for another.", &ModelGauges::evictions);
}

void write_units(MetricsText& to, const std::vector<ModelGauges>& models) {
  to.describe("baton_unit_info", "gauge", "Always 1: the unit that requests of a model ask for, of each phase.");
  for (const ModelGauges& model : models) {
    if (model.vectors) continue;
    for (const auto& [phase, unit] :
         {std::pair("prefill", &model.prefill_unit), std::pair("decode", &model.decode_unit)}) {
      const auto& emulated = model.emulated_units;
      const bool is = std::find(emulated.begin(), emulated.end(), *unit) != emulated.end();
      to.value("baton_unit_info",
               {{"model_name", model.name}, {"phase", phase}, {"unit", *unit}, {"emulated", is ? "true" : "false"}}, 1);
    }
  }
}

}  // namespace

// Of a model that has answered nothing, zeros.
Metrics::Rows Metrics::rows_of(const std::vector<ModelGauges>& models) const {
  static const Answers kNone;
  Rows rows;
  for (const ModelGauges& model : models) {
    if (model.vectors) continue;
    bool any = false;
    for (const bool emulated : {false, true}) {
      const auto found = answers_.find({model.name, emulated});
      if (found == answers_.end()) continue;
      rows.push_back({labels_of(model, emulated), &found->second});
      any = true;
    }
    if (!any) rows.push_back({labels_of(model, !model.emulated_units.empty()), &kNone});
  }
  return rows;
}

std::string Metrics::text(const Gauges& gauges) const {
  const std::lock_guard lock(mutex_);
  MetricsText to;
  const Rows rows = rows_of(gauges.models);
  write_requests(to, gauges.models);
  write_counters(to, rows);
  write_histograms(to, rows);
  to.describe("baton_requests_refused_total", "counter", "Requests that were refused for want of room, by reason.");
  for (const auto& [reason, count] : refused_)
    to.value("baton_requests_refused_total", {{"reason", reason}}, static_cast<double>(count));
  write_models(to, gauges.models);
  write_units(to, gauges.models);
  to.describe("baton_http_connections", "gauge", "Open connections.");
  to.value("baton_http_connections", {}, static_cast<double>(gauges.http.connections));
  to.describe("baton_http_connections_total", "counter", "Connections that were accepted.");
  to.value("baton_http_connections_total", {}, static_cast<double>(gauges.http.accepted));
  to.describe("baton_http_connections_refused_total", "counter", "Connections past the limit.");
  to.value("baton_http_connections_refused_total", {}, static_cast<double>(gauges.http.refused));
  to.describe("baton_http_bad_requests_total", "counter", "Requests that were no HTTP, or past its limits.");
  to.value("baton_http_bad_requests_total", {}, static_cast<double>(gauges.http.bad_requests));
  if (gauges.access_log) {
    to.describe("baton_access_log_lines_total", "counter", "Lines of the access log.");
    to.value("baton_access_log_lines_total", {}, static_cast<double>(gauges.access_log->lines));
    to.describe("baton_access_log_dropped_lines_total", "counter", "Lines that it had no room for.");
    to.value("baton_access_log_dropped_lines_total", {}, static_cast<double>(gauges.access_log->dropped));
  }
  to.describe("baton_build_info", "gauge", "Always 1.");
  to.value("baton_build_info", {{"version", BATON_VERSION}}, 1);
  to.describe("process_start_time_seconds", "gauge", "Seconds since 1970.");
  to.value("process_start_time_seconds", {}, started_s_);
  return to.take();
}

}  // namespace baton::serve
