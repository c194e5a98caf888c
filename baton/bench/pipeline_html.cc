// The page: tables and bars, styles inside, no scripts and nothing fetched.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/bench/html.h"
#include "baton/bench/pipeline_report.h"

namespace baton {
namespace {

constexpr std::string_view kStyle =
    "body{font:15px/1.5 system-ui,sans-serif;max-width:70em;margin:2em auto;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid #ccc;padding:.2em "
    ".6em;text-align:left;font-size:13px}"
    "td.n{text-align:right;font-variant-numeric:tabular-nums}"
    ".bar{display:grid;grid-template-columns:16em 1fr;gap:.6em;margin:.15em 0;align-items:center;font-size:13px}"
    ".bar i{display:block;height:1.1em;background:#3b6ea5}.bar i.e{background:repeating-linear-gradient(45deg,#c98a2b "
    "0 6px,"
    "#e0b168 6px 12px)}.bar b{font-weight:normal;white-space:nowrap}.bar span{display:flex;gap:.5em;align-items:center}"
    ".note{color:#555}.wrong{color:#a33}";

struct Bar {
  std::string label;
  double value = 0;
  bool emulated = false;
};

std::string bars(std::string_view title, const std::vector<Bar>& all, std::string_view unit) {
  double most = 0;
  for (const Bar& bar : all) most = std::max(most, bar.value);
  if (most <= 0) return "";
  std::string html = fmt::format("<h3>{}</h3>\n", html_escaped(title));
  for (const Bar& bar : all) {
    html += fmt::format("<div class=\"bar\"><b>{}</b><span><i{} style=\"width:{:.1f}%\"></i>{:.4g} {}{}</span></div>\n",
                        html_escaped(bar.label), bar.emulated ? " class=\"e\"" : "", 75 * bar.value / most, bar.value,
                        unit, bar.emulated ? " emulated" : "");
  }
  return html;
}

std::string row_bars(std::string_view title, std::span<const PipelineRow> rows,
                     std::optional<Summary> PipelineRow::*member, std::string_view unit) {
  std::vector<Bar> all;
  for (const PipelineRow& row : rows) {
    const auto& value = row.*member;
    if (value)
      all.push_back({fmt::format("{}, {} tokens", row.pipeline, row.prompt_tokens), value->median,
                     row.time == Quality::kEmulated});
  }
  return bars(title, all, unit);
}

std::string cell(const std::optional<Summary>& summary) {
  if (!summary) return "<td class=\"n\">?</td>";
  return fmt::format("<td class=\"n\">{:.1f} ({:.1f}-{:.1f})</td>", summary->median, summary->low, summary->high);
}
std::string cell(const std::optional<double>& value) {
  return value ? fmt::format("<td class=\"n\">{:.2f}</td>", *value) : "<td class=\"n\">?</td>";
}
std::string cell(const std::optional<uint64_t>& value) {
  return value ? fmt::format("<td class=\"n\">{}</td>", *value) : "<td class=\"n\">?</td>";
}

std::string row_html(const PipelineRow& row) {
  const auto phase = [](const PhaseReport& report) {
    return fmt::format("<td>{} &rarr; {}<br><span class=\"note\">{}</span></td>", html_escaped(report.asked),
                       html_escaped(report.ran), html_escaped(report.evidence));
  };
  std::string html =
      fmt::format("<tr><td>{}</td><td class=\"n\">{}</td>", html_escaped(row.pipeline), row.prompt_tokens);
  html += phase(row.prefill) + phase(row.decode);
  html +=
      cell(row.ttft_ms) + cell(row.prefill_tps) + cell(row.decode_tps) + cell(row.bridge_ms) + cell(row.bridge_bytes);
  html += cell(row.peak_memory_bytes) + cell(row.watts) + cell(row.joules);
  return html + fmt::format("<td>{}</td><td>{}</td><td class=\"n\">{}</td></tr>\n", to_string(row.time),
                            to_string(row.energy), row.runs);
}

std::string published_html(std::span<const Comparison> rows) {
  std::string html =
      "<h2>Published figures beside emulated ones</h2>\n<table><tr><th>source</th><th>chip</th><th>model</th>"
      "<th>pipeline</th><th>tokens</th><th>what</th><th>published</th><th>emulated</th><th>deviation</th><th>row</th></"
      "tr>\n";
  for (const Comparison& item : rows) {
    const PublishedRow& row = item.row;
    const bool wrong = std::fabs(item.deviation) > kDeviationStated;
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td>"
        "<td class=\"n\">{:.4g}</td><td class=\"n{}\">{:+.0f} %</td><td>{}</td></tr>\n",
        row.source, row.chip, row.shape, row.pipeline, row.tokens, to_string(row.quantity), row.value, item.predicted,
        wrong ? " wrong" : "", 100 * item.deviation,
        row.calibrates ? "calibrates" : (row.doubt.empty() ? "predicted" : "doubtful"));
  }
  return html + "</table>\n";
}

}  // namespace

std::string report_html(const ReportTitle& title, const PipelineReport& report, std::span<const Comparison> published) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>baton: "
      "pipelines</title>\n<style>{}</style></head>"
      "<body>\n<h1>Prefill and decode by pipeline</h1>\n<p>{}<br>{}</p>\n<p class=\"note\">{}</p>\n",
      kStyle, html_escaped(title.model), html_escaped(title.machine), html_escaped(title.note));
  html += row_bars("Time to first token", report.rows, &PipelineRow::ttft_ms, "ms");
  html += row_bars("Prefill", report.rows, &PipelineRow::prefill_tps, "tokens/s");
  html += row_bars("Decode", report.rows, &PipelineRow::decode_tps, "tokens/s");
  if (!report.rows.empty()) {
    html +=
        "<h2>All rows</h2>\n<p class=\"note\">Medians, lowest and highest in brackets; ? is not known.</p>\n<table><tr>"
        "<th>pipeline</th><th>tokens</th><th>prefill</th><th>decode</th><th>TTFT ms</th><th>prefill t/s</th><th>decode "
        "t/s</th>"
        "<th>bridge ms</th><th>bridge bytes</th><th>peak bytes</th><th>W</th><th>J</th><th>time</th><th>energy</th>"
        "<th>runs</th></tr>\n";
    for (const PipelineRow& row : report.rows) html += row_html(row);
    html += "</table>\n";
  }
  for (const SkippedPipeline& skipped : report.skipped)
    html += fmt::format("<p class=\"note\">Skipped {}: {}</p>\n", html_escaped(skipped.pipeline),
                        html_escaped(skipped.reason));
  if (!published.empty())
    html += published_html(published) +
            fmt::format("<pre style=\"white-space:pre-wrap\">{}</pre>\n", html_escaped(published_summary(published)));
  return html + "</body></html>\n";
}

}  // namespace baton
