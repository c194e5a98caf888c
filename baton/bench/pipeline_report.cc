// Text and JSON of pipeline rows and of the published comparison.
#include "baton/bench/pipeline_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson median_or_null(const std::optional<Summary>& summary) {
  return summary ? OrderedJson(summary->median) : OrderedJson(nullptr);
}
template <class T>
OrderedJson json_or_null(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson phase_json(const PhaseReport& phase) {
  return {{"asked", phase.asked},
          {"ran", phase.ran.empty() ? OrderedJson(nullptr) : OrderedJson(phase.ran)},
          {"evidence", phase.evidence}};
}

std::string spread_text(const std::optional<Summary>& summary, int digits) {
  if (!summary) return "?";
  if (summary->low == summary->high) return fmt::format("{:.{}f}", summary->median, digits);
  return fmt::format("{:.{}f} ({:.{}f}-{:.{}f})", summary->median, digits, summary->low, digits, summary->high, digits);
}

std::string number_text(const std::optional<double>& value, int digits) {
  return value ? fmt::format("{:.{}f}", *value, digits) : "?";
}

std::string unit_text(const PhaseReport& phase) {
  if (phase.ran.empty()) return phase.asked + " (did not run)";
  return phase.asked == phase.ran ? phase.ran : fmt::format("{} -> {}", phase.asked, phase.ran);
}

std::string row_text(const PipelineRow& row) {
  const double megabytes = row.peak_memory_bytes ? static_cast<double>(*row.peak_memory_bytes) * 1e-6 : 0;
  return fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", row.pipeline,
                     row.prompt_tokens, unit_text(row.prefill), unit_text(row.decode), spread_text(row.ttft_ms, 1),
                     spread_text(row.prefill_tps, 1), spread_text(row.decode_tps, 1),
                     row.bridge_ms ? fmt::format("{:.2f}", row.bridge_ms->median) : "?",
                     row.bridge_bytes ? fmt::format("{}", *row.bridge_bytes) : "?",
                     row.peak_memory_bytes ? fmt::format("{:.0f}", megabytes) : "?", number_text(row.watts, 2),
                     number_text(row.joules, 2), to_string(row.time), to_string(row.energy), row.runs);
}

template <class T>
std::vector<T> distinct(std::span<const PipelineRow> rows, T PipelineRow::*member) {
  std::vector<T> values;
  for (const PipelineRow& row : rows) {
    if (std::find(values.begin(), values.end(), row.*member) == values.end()) values.push_back(row.*member);
  }
  return values;
}

// The layout of the source tables: a line for each prompt, a column for each pipeline.
std::string pivot(std::string_view name, std::span<const PipelineRow> rows, std::optional<Summary> PipelineRow::*member,
                  Phases phases) {
  const auto pipelines = distinct(rows, &PipelineRow::pipeline);
  auto prompts = distinct(rows, &PipelineRow::prompt_tokens);
  std::sort(prompts.begin(), prompts.end());
  std::string text = fmt::format("\n{}\n\n| tokens |", name), line = "|---:|";
  for (const std::string& pipeline : pipelines) {
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const PipelineRow& r) { return r.pipeline == pipeline; });
    text += fmt::format(" {} |", pipeline_label(*row));
    line += "---:|";
  }
  text += "\n" + line + "\n";
  for (const uint32_t tokens : prompts) {
    text += fmt::format("| {} |", tokens);
    for (const std::string& pipeline : pipelines) {
      const auto row = std::find_if(rows.begin(), rows.end(), [&](const PipelineRow& r) {
        return r.pipeline == pipeline && r.prompt_tokens == tokens;
      });
      const std::optional<Summary> value = row != rows.end() ? (*row).*member : std::nullopt;
      text += value ? fmt::format(" {:.1f}{} |", value->median, emulated(*row, phases) ? " emulated" : "") : " |";
    }
    text += "\n";
  }
  return text;
}

std::string proof_text(std::span<const PipelineRow> rows) {
  std::string text = "\n| pipeline | phase | asked | ran | evidence |\n|---|---|---|---|---|\n";
  for (const std::string& pipeline : distinct(rows, &PipelineRow::pipeline)) {
    const auto row =
        std::find_if(rows.begin(), rows.end(), [&](const PipelineRow& r) { return r.pipeline == pipeline; });
    for (const auto& [phase, report] : {std::pair("prefill", row->prefill), std::pair("decode", row->decode)})
      text += fmt::format("| {} | {} | {} | {} | {} |\n", pipeline, phase, report.asked,
                          report.ran.empty() ? "nothing" : report.ran, report.evidence);
  }
  return text;
}

// Four digits, or all before the point: 54.23, 705.3, 25372.
std::string four_digits(double value) {
  return std::fabs(value) < 1000 ? fmt::format("{:.4g}", value) : fmt::format("{:.0f}", value);
}

// Predicted rows of one kind, for the summary.
struct Group {
  PublishedRow first;
  double low = 0, high = 0;
  std::string_view why;
};

std::vector<Group> wrong_groups(std::span<const Comparison> rows) {
  std::vector<Group> groups;
  for (const Comparison& item : rows) {
    if (item.row.calibrates || std::fabs(item.deviation) <= kDeviationStated) continue;
    const std::string_view why = explanation(item.row);
    const auto found = std::find_if(groups.begin(), groups.end(), [&](const Group& group) {
      return group.first.source == item.row.source && group.first.shape == item.row.shape &&
             group.first.pipeline == item.row.pipeline && group.first.quantity == item.row.quantity && group.why == why;
    });
    if (found == groups.end()) {
      groups.push_back({item.row, item.deviation, item.deviation, why});
    } else {
      found->low = std::min(found->low, item.deviation);
      found->high = std::max(found->high, item.deviation);
    }
  }
  return groups;
}

double median_deviation(std::span<const Comparison> rows, bool calibrates) {
  std::vector<double> values;
  for (const Comparison& item : rows) {
    if (item.row.calibrates == calibrates && item.row.doubt.empty()) values.push_back(std::fabs(item.deviation));
  }
  return values.empty() ? 0 : quantile(values, 0.5);
}

}  // namespace

std::string pipeline_label(const PipelineRow& row) {
  const std::string &prefill = row.prefill.ran, &decode = row.decode.ran;
  const std::string ran = prefill == decode ? decode : fmt::format("{} -> {}", prefill, decode);
  return row.runs == 0 || ran == row.pipeline ? row.pipeline : fmt::format("{}, ran on {}", row.pipeline, ran);
}

bool emulated(const PipelineRow& row, Phases phases) {
  return (phases != Phases::kDecode && row.prefill.emulated) || (phases != Phases::kPrefill && row.decode.emulated);
}

OrderedJson rows_json(std::span<const PipelineRow> rows) {
  OrderedJson json = OrderedJson::array();
  for (const PipelineRow& row : rows) {
    json.push_back({{"pipeline", row.pipeline},
                    {"prefill", phase_json(row.prefill)},
                    {"decode", phase_json(row.decode)},
                    {"prompt_tokens", row.prompt_tokens},
                    {"ttft_ms", median_or_null(row.ttft_ms)},
                    {"prefill_tps", median_or_null(row.prefill_tps)},
                    {"decode_tps", median_or_null(row.decode_tps)},
                    {"bridge_ms", median_or_null(row.bridge_ms)},
                    {"bridge_bytes", json_or_null(row.bridge_bytes)},
                    {"peak_memory_bytes", json_or_null(row.peak_memory_bytes)},
                    {"watts", json_or_null(row.watts)},
                    {"joules", json_or_null(row.joules)},
                    {"quality", {{"time", to_string(row.time)}, {"energy", to_string(row.energy)}}}});
  }
  return json;
}

std::string report_text(const ReportTitle& title, const PipelineReport& report) {
  std::string text = fmt::format("{}\n{}\n{}\n", title.model, title.machine, title.note);
  if (!report.rows.empty()) {
    text +=
        "\n| pipeline | tokens | prefill | decode | TTFT ms | prefill t/s | decode t/s | bridge ms | bridge bytes | "
        "peak MB | W "
        "| J | time | energy | runs |\n|---|---:|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---|---|---:|\n";
    for (const PipelineRow& row : report.rows) text += row_text(row);
    text += pivot("TTFT, ms", report.rows, &PipelineRow::ttft_ms, Phases::kBoth);
    text += pivot("Prefill, tokens/s", report.rows, &PipelineRow::prefill_tps, Phases::kPrefill);
    text += pivot("Decode, tokens/s", report.rows, &PipelineRow::decode_tps, Phases::kDecode);
    text += proof_text(report.rows);
  }
  for (const SkippedPipeline& skipped : report.skipped)
    text += fmt::format("\nskipped {}: {}\n", skipped.pipeline, skipped.reason);
  return text;
}

std::string published_text(std::span<const Comparison> rows) {
  std::string text =
      "\nPublished figures beside emulated ones. Sources: H hybrid-ane-mlx-bench, B hybird-batch-prefill-on-ane, F "
      "ane field guide.\n\n| source | chip | model | weights | pipeline | tokens | what | published | emulated | "
      "deviation "
      "| row |\n"
      "|---|---|---|---|---|---:|---|---:|---:|---:|---|\n";
  for (const Comparison& item : rows) {
    const PublishedRow& row = item.row;
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {:+.0f} % | {} |\n", row.source, row.chip,
                        row.shape, to_string(row.weights), row.pipeline, row.tokens, to_string(row.quantity), row.value,
                        four_digits(item.predicted), 100 * item.deviation,
                        row.calibrates ? "calibrates" : (row.doubt.empty() ? "predicted" : "doubtful"));
  }
  return text + published_summary(rows);
}

std::string published_summary(std::span<const Comparison> rows) {
  const auto count = [&](auto matches) { return std::count_if(rows.begin(), rows.end(), matches); };
  const auto calibrating = count([](const Comparison& c) { return c.row.calibrates; });
  const auto doubtful = count([](const Comparison& c) { return !c.row.calibrates && !c.row.doubt.empty(); });
  const auto predicted = count([](const Comparison& c) { return !c.row.calibrates && c.row.doubt.empty(); });
  const auto close = count([](const Comparison& c) {
    return !c.row.calibrates && c.row.doubt.empty() && std::fabs(c.deviation) <= kDeviationStated;
  });
  std::string text = fmt::format(
      "\n{} published rows: {} calibrate (median deviation {:.0f} %), {} are predicted ({:.0f} %; {} within {:.0f} %), "
      "{} are "
      "doubtful by the source's own account. All predictions are emulated.\n",
      rows.size(), calibrating, 100 * median_deviation(rows, true), predicted, 100 * median_deviation(rows, false),
      close, 100 * kDeviationStated, doubtful);
  text += fmt::format("\nWrong by more than {:.0f} %:\n", 100 * kDeviationStated);
  for (const Group& group : wrong_groups(rows)) {
    const std::string range = group.low == group.high
                                  ? fmt::format("{:+.0f}", 100 * group.low)
                                  : fmt::format("{:+.0f} to {:+.0f}", 100 * group.low, 100 * group.high);
    text += fmt::format("- {} {} {} {}: {} %: {}\n", group.first.source, group.first.shape, group.first.pipeline,
                        to_string(group.first.quantity), range, group.why);
  }
  return text;
}

OrderedJson published_json(std::span<const Comparison> rows) {
  OrderedJson json = OrderedJson::array();
  for (const Comparison& item : rows) {
    const PublishedRow& row = item.row;
    const std::string_view why = explanation(row);
    json.push_back({{"source", row.source},
                    {"chip", row.chip},
                    {"model", row.shape},
                    {"weights", to_string(row.weights)},
                    {"pipeline", row.pipeline},
                    {"prompt_tokens", row.tokens},
                    {"quantity", to_string(row.quantity)},
                    {"published", row.value},
                    {"emulated", item.predicted},
                    {"deviation", item.deviation},
                    {"calibrates", row.calibrates},
                    {"doubt", row.doubt.empty() ? OrderedJson(nullptr) : OrderedJson(row.doubt)},
                    {"why", std::fabs(item.deviation) > kDeviationStated && !why.empty() ? OrderedJson(why)
                                                                                         : OrderedJson(nullptr)}});
  }
  return json;
}

}  // namespace baton
