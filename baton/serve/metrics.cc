// Counters and histograms behind one lock, taken once a request.
#include "baton/serve/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cmath>
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

void Histogram::write(MetricsText& to, const std::string& name, std::string_view help,
                      const MetricsText::Labels& labels) const {
  to.describe(name, "histogram", help);
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

Metrics::Metrics()
    : first_token_(kFirstToken),
      between_tokens_(kBetween),
      total_(kWhole),
      queue_(kWhole),
      prefill_(kWhole),
      decode_(kWhole),
      bridge_(kBridge),
      started_s_(std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count()) {
  for (const char* reason : {"stop", "length", "tool_calls", "cancelled", "error"}) finished_[reason] = 0;
}

void Metrics::count_answer(const Observed& observed, std::span<const RequestStats* const> choices) {
  const std::lock_guard lock(mutex_);
  ++finished_[std::string(observed.finished)];
  queue_.observe(observed.queue_s);
  total_.observe(observed.total_s);
  if (observed.generated_tokens > 0) first_token_.observe(observed.first_token_s);
  prompt_tokens_ += observed.prompt_tokens;
  cached_tokens_ += observed.cached_tokens;
  generated_tokens_ += observed.generated_tokens;
  for (const RequestStats* stats : choices) {
    prefill_.observe(stats->prefill_ms / 1000);
    double decode_ms = 0;
    for (const float ms : stats->token_ms) {
      between_tokens_.observe(ms / 1000.0);
      decode_ms += ms;
    }
    if (stats->generated_tokens > 0) decode_.observe(decode_ms / 1000);
    const BridgeStats& bridge = stats->bridge;
    if (bridge.kind != BridgeKind::kNone) bridge_.observe(bridge.ms / 1000);
    bridge_bytes_ += bridge.bytes;
    verified_ += bridge.verified ? 1 : 0;
    verify_failures_ += bridge.proof_failed ? 1 : 0;
    if (!stats->fallback.empty()) ++fallbacks_[stats->prefill.asked + "\n" + stats->decode.asked];
  }
}

void Metrics::count_refused(std::string_view reason) {
  const std::lock_guard lock(mutex_);
  ++refused_[std::string(reason)];
}

void Metrics::write_counters(MetricsText& to, const MetricsText::Labels& model) const {
  const auto with = [&](std::string_view label, std::string_view text) {
    auto labels = model;
    labels.emplace_back(label, text);
    return labels;
  };
  const auto counter = [&](const char* name, const char* help, uint64_t number) {
    to.describe(name, "counter", help);
    to.value(name, model, static_cast<double>(number));
  };
  counter("vllm:prompt_tokens_total", "Tokens of prompts.", prompt_tokens_);
  counter("vllm:generation_tokens_total", "Tokens of answers.", generated_tokens_);
  counter("vllm:prefix_cache_queries_total", "Tokens of prompts that were looked for in the cache.", prompt_tokens_);
  counter("vllm:prefix_cache_hits_total", "Tokens of prompts that were found there.", cached_tokens_);
  to.describe("vllm:request_success_total", "counter", "Requests that ended, by how.");
  for (const auto& [reason, count] : finished_)
    to.value("vllm:request_success_total", with("finished_reason", reason), static_cast<double>(count));
  to.describe("baton_requests_refused_total", "counter", "Requests that were refused for want of room, by reason.");
  for (const auto& [reason, count] : refused_)
    to.value("baton_requests_refused_total", {{"reason", reason}}, static_cast<double>(count));
}

void Metrics::write_bridge(MetricsText& to, const MetricsText::Labels& model) const {
  bridge_.write(to, "baton_bridge_seconds", "Time of hand-overs.", model);
  const auto counter = [&](const char* name, const char* help, uint64_t number) {
    to.describe(name, "counter", help);
    to.value(name, model, static_cast<double>(number));
  };
  counter("baton_bridge_bytes_total", "Bytes of states that were carried.", bridge_bytes_);
  counter("baton_bridge_verified_total", "Answers whose state reached the level of proof that was asked for.",
          verified_);
  counter("baton_bridge_verify_failures_total", "Hand-overs that were outside of what the proof allows.",
          verify_failures_);
  to.describe("baton_fallback_total", "counter", "Answers that the decode unit had to do more for than asked.");
  for (const auto& [units, count] : fallbacks_) {
    auto labels = model;
    labels.emplace_back("from", std::string_view(units).substr(0, units.find('\n')));
    labels.emplace_back("to", std::string_view(units).substr(units.find('\n') + 1));
    to.value("baton_fallback_total", labels, static_cast<double>(count));
  }
}

namespace {

void write_models(MetricsText& to, const std::vector<ModelGauges>& models) {
  const auto each = [&](const char* name, const char* kind, const char* help, auto value) {
    to.describe(name, kind, help);
    for (const ModelGauges& model : models)
      to.value(name, {{"model_name", model.name}}, static_cast<double>(value(model)));
  };
  double loaded = 0;
  for (const ModelGauges& model : models) loaded += model.loaded ? 1 : 0;
  to.describe("baton_models_loaded", "gauge", "Models that are loaded.");
  to.value("baton_models_loaded", {}, loaded);
  each("baton_model_bytes", "gauge", "What a model takes of the budget, 0 while it is not loaded.",
       [](const ModelGauges& model) { return model.bytes; });
  each("baton_model_in_use", "gauge", "Requests that keep it loaded.",
       [](const ModelGauges& model) { return model.in_use; });
  each("baton_model_waiting", "gauge", "Requests that wait for it to be loaded.",
       [](const ModelGauges& model) { return model.waiting; });
  each("baton_model_loads_total", "counter", "How often it was loaded.",
       [](const ModelGauges& model) { return model.loads; });
  each("baton_model_evictions_total", "counter", "How often it was given up for another.",
       [](const ModelGauges& model) { return model.evictions; });
}

}  // namespace

std::string Metrics::text(std::string_view model, const Gauges& gauges) const {
  const std::lock_guard lock(mutex_);
  MetricsText to;
  const MetricsText::Labels labels = {{"model_name", model}};
  const auto gauge = [&](const char* name, const char* help, double number) {
    to.describe(name, "gauge", help);
    to.value(name, labels, number);
  };
  const double states = static_cast<double>(gauges.state_bytes + gauges.checkpoint_bytes);
  gauge("vllm:num_requests_running", "Requests that the engine works at.", static_cast<double>(gauges.running));
  gauge("vllm:num_requests_waiting", "Requests that wait.", static_cast<double>(gauges.waiting));
  gauge("vllm:kv_cache_usage_perc", "Share of the bound of all states that is taken, 0 to 1.",
        gauges.state_bytes_max > 0 ? states / static_cast<double>(gauges.state_bytes_max) : 0);
  gauge("baton_state_bytes", "Bytes of states of running requests.", static_cast<double>(gauges.state_bytes));
  gauge("baton_checkpoint_bytes", "Bytes of states at rest.", static_cast<double>(gauges.checkpoint_bytes));
  gauge("baton_checkpoints", "States at rest that requests may begin from.", static_cast<double>(gauges.checkpoints));
  write_counters(to, labels);
  first_token_.write(to, "vllm:time_to_first_token_seconds", "From arrival to the first token.", labels);
  between_tokens_.write(to, "vllm:inter_token_latency_seconds", "From token to token.", labels);
  total_.write(to, "vllm:e2e_request_latency_seconds", "From arrival to the end.", labels);
  queue_.write(to, "vllm:request_queue_time_seconds", "Of waiting, in the server and the engine.", labels);
  prefill_.write(to, "vllm:request_prefill_time_seconds", "Of prefill steps.", labels);
  decode_.write(to, "vllm:request_decode_time_seconds", "From the first token to the last.", labels);
  write_bridge(to, labels);
  if (!gauges.models.empty()) write_models(to, gauges.models);
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
