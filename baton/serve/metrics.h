// What is counted, in Prometheus' text format (https://prometheus.io/docs/instrumenting/exposition_formats/): names
// after vLLM's where it has them, ours begin with "baton_".
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/engine/request.h"
#include "baton/http/server.h"
#include "baton/serve/access_log.h"

namespace baton::serve {

// `name{labels}` and a value; a label's text is escaped.
class MetricsText {
 public:
  using Labels = std::vector<std::pair<std::string_view, std::string_view>>;
  void describe(std::string_view name, std::string_view kind, std::string_view help);
  void value(std::string_view name, const Labels& labels, double number);
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

class Histogram {
 public:
  // `bounds`: rising; must live as long.
  explicit Histogram(std::span<const double> bounds) : bounds_(bounds), counts_(bounds.size() + 1) {}
  void observe(double value);
  // Its lines, but for what describes them.
  void write(MetricsText& to, const std::string& name, const MetricsText::Labels& labels) const;

 private:
  std::span<const double> bounds_;
  std::vector<uint64_t> counts_;
  uint64_t count_ = 0;
  double sum_ = 0;
};

// Of one answered request. Seconds.
struct Observed {
  std::string_view finished;  // "stop", "length", "tool_calls", "cancelled", "error"
  bool emulated = false;      // a unit that had a part in it is
  double queue_s = 0, first_token_s = 0, total_s = 0;
  uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
};

// Of one model.
struct ModelGauges {
  std::string name;
  uint64_t bytes = 0, in_use = 0, waiting = 0;
  uint64_t loads = 0, evictions = 0;
  bool loaded = false, vectors = false;
  std::string prefill_unit = {}, decode_unit = {};
  std::vector<std::string> emulated_units = {};
  // Of one that writes text: requests, and states while it is loaded.
  uint64_t requests_running = 0, requests_waiting = 0;
  uint64_t state_bytes = 0, state_bytes_max = 0, checkpoint_bytes = 0, checkpoints = 0;
};

// What is so now, beside what was counted.
struct Gauges {
  uint64_t running = 0, waiting = 0;
  http::Counts http = {};
  std::optional<AccessLog::Counts> access_log = {};
  uint64_t state_bytes = 0, checkpoint_bytes = 0, checkpoints = 0;  // of all models
  std::vector<ModelGauges> models = {};
};

// Any thread.
class Metrics {
 public:
  Metrics();
  void count_answer(const std::string& model, const Observed& observed, std::span<const RequestStats* const> choices);
  void count_refused(std::string_view reason);  // one of a few words
  std::string text(const Gauges& gauges) const;

 private:
  // Of one model: those that emulated units had a part in, and the others.
  struct Answers {
    Answers();
    Histogram first_token, between_tokens, total, queue, prefill, decode, bridge;
    std::map<std::string, uint64_t, std::less<>> finished, fallbacks;
    uint64_t prompt_tokens = 0, cached_tokens = 0, generated_tokens = 0;
    uint64_t bridge_bytes = 0, verified = 0, verify_failures = 0;
  };
  struct Row {
    MetricsText::Labels labels;
    const Answers* of;
  };
  using Rows = std::vector<Row>;
  Rows rows_of(const std::vector<ModelGauges>& models) const;
  static void write_counters(MetricsText& to, const Rows& rows);
  static void write_histograms(MetricsText& to, const Rows& rows);

  mutable std::mutex mutex_;
  std::map<std::pair<std::string, bool>, Answers> answers_;  // by the model's name, and whether they are emulated
  std::map<std::string, uint64_t, std::less<>> refused_;
  double started_s_ = 0;
};

}  // namespace baton::serve
