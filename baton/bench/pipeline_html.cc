// The page of pipelines: one plot a figure, grouped by prompt, then the tables.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/bench/html.h"
#include "baton/bench/human.h"
#include "baton/bench/pipeline_report.h"

namespace baton {
namespace {

// A row of a plot is text at its own size beside a track whose marks are placed in percent: it is as readable on a
// phone, where the track goes below the text.
constexpr std::string_view kPipelineStyle =
    ".row{display:grid;grid-template-columns:16em 1fr 13em;gap:.2em .8em;align-items:center;font-size:13px;"
    "padding:.1em 0}.row b{font-weight:normal}.track{position:relative;height:1.1em;background:var(--faint)}"
    ".track u{position:absolute;top:0;bottom:0;width:1px;background:var(--line)}"
    ".track s{position:absolute;top:calc(50% - 1px);height:2px;background:var(--mark)}"
    ".track i{position:absolute;top:calc(50% - 5px);width:10px;height:10px;margin-left:-5px;border-radius:50%;"
    "background:var(--mark);border:2px solid var(--mark)}"
    "i.e{background:var(--paper)!important;border-color:var(--other)!important}s.e{background:var(--other)!important}"
    ".key i{display:inline-block;width:10px;height:10px;border-radius:50%;background:var(--mark);"
    "border:2px solid var(--mark);margin:0 .3em 0 .8em}"
    ".scale{position:relative;height:1.4em;font-size:12px;color:var(--soft)}"
    ".scale span{position:absolute;transform:translateX(-50%);white-space:nowrap}h3{font-size:1em;margin:.8em 0 .2em}"
    "@media(max-width:640px){.row{grid-template-columns:minmax(8em,1fr) auto}.row .track,.row "
    ".scale{grid-column:1/3;grid-row:2}"
    ".row.axis b,.row.axis em{display:none}.scale span.minor{display:none}}";

struct Mark {
  uint32_t tokens = 0;
  std::string label;
  Summary value;
  bool emulated = false;
};

// Powers of ten, with 2 and 5 between them where they are few.
class LogAxis {
 public:
  explicit LogAxis(const std::vector<Mark>& marks) {
    double least = INFINITY, most = 0;
    for (const Mark& mark : marks) {
      least = std::min(least, mark.value.low);
      most = std::max(most, mark.value.high);
    }
    low_ = std::log10(least) - 0.08;
    high_ = std::max(std::log10(most) + 0.08, low_ + 0.5);
  }
  double percent(double value) const { return 100 * (std::log10(value) - low_) / (high_ - low_); }
  struct Tick {
    double value;
    bool minor;
  };
  std::vector<Tick> ticks() const {
    std::vector<Tick> all;
    for (int power = static_cast<int>(std::floor(low_)); power <= std::ceil(high_); ++power) {
      for (const int step : {1, 2, 5}) {
        if (step > 1 && high_ - low_ > 3) continue;
        const double value = step * std::pow(10.0, power);
        if (percent(value) >= 0 && percent(value) <= 100) all.push_back({value, step > 1 && high_ - low_ > 1});
      }
    }
    return all;
  }

 private:
  double low_ = 0, high_ = 1;
};

using Text = std::string (*)(double);

std::string range_text(const Summary& value, Text text) {
  if (value.low == value.high) return text(value.median);
  return fmt::format("{} ({} to {})", text(value.median), text(value.low), text(value.high));
}

std::string track(const Mark& mark, const LogAxis& axis) {
  const char* kind = mark.emulated ? " class=\"e\"" : "";
  std::string html = "<span class=\"track\">";
  for (const LogAxis::Tick& tick : axis.ticks())
    html += fmt::format("<u style=\"left:{:.2f}%\"></u>", axis.percent(tick.value));
  const double low = axis.percent(mark.value.low), high = axis.percent(mark.value.high);
  if (high > low) html += fmt::format("<s{} style=\"left:{:.2f}%;width:{:.2f}%\"></s>", kind, low, high - low);
  return html + fmt::format("<i{} style=\"left:{:.2f}%\"></i></span>", kind, axis.percent(mark.value.median));
}

std::string plot(std::string_view title, std::string_view better, std::vector<Mark> marks, Text text) {
  std::erase_if(marks, [](const Mark& mark) { return !(mark.value.low > 0); });
  if (marks.empty()) return "";
  std::stable_sort(marks.begin(), marks.end(), [](const Mark& a, const Mark& b) { return a.tokens < b.tokens; });
  const LogAxis axis(marks);
  std::string html =
      fmt::format("<h2>{}</h2>\n<p class=\"note\">{}; logarithmic scale.</p>\n", html_escaped(title), better);
  uint32_t tokens = 0;
  for (const Mark& mark : marks) {
    if (mark.tokens != tokens) html += fmt::format("<h3>{} tokens of prompt</h3>\n", mark.tokens);
    tokens = mark.tokens;
    html += fmt::format("<div class=\"row\"><b>{}</b>{}<span>{}{}</span></div>\n", html_escaped(mark.label),
                        track(mark, axis), range_text(mark.value, text), mark.emulated ? " emulated" : "");
  }
  html += "<div class=\"row axis\"><b></b><span class=\"scale\">";
  for (const LogAxis::Tick& tick : axis.ticks())
    html += fmt::format("<span{} style=\"left:{:.2f}%\">{}</span>", tick.minor ? " class=\"minor\"" : "",
                        axis.percent(tick.value), text(tick.value));
  return html + "</span><em></em></div>\n";
}

std::string row_plot(std::string_view title, std::string_view better, std::span<const PipelineRow> rows,
                     std::optional<Summary> PipelineRow::*member, Phases phases, Text text) {
  std::vector<Mark> marks;
  for (const PipelineRow& row : rows) {
    if (!(row.*member)) continue;
    marks.push_back({row.prompt_tokens, pipeline_label(row), *(row.*member), emulated(row, phases)});
  }
  return plot(title, better, std::move(marks), text);
}

std::string cell(const std::string& text) { return "<td class=\"n\">" + text + "</td>"; }
std::string cell(const std::optional<Summary>& summary, Text text) {
  return cell(summary ? range_text(*summary, text) : "?");
}

std::string units_html(std::span<const PipelineRow> rows) {
  std::vector<std::string> seen;
  std::string html =
      "<table><tr><th>pipeline</th><th>phase</th><th>asked for</th><th>ran on</th><th>how that is known</th></tr>\n";
  for (const PipelineRow& row : rows) {
    if (std::find(seen.begin(), seen.end(), row.pipeline) != seen.end()) continue;
    seen.push_back(row.pipeline);
    for (const auto& [phase, report] : {std::pair("prefill", &row.prefill), std::pair("decode", &row.decode)})
      html += fmt::format(
          "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"w\">{}</td></tr>\n", html_escaped(row.pipeline),
          phase, html_escaped(report->asked),
          html_escaped(report->ran.empty() ? "nothing" : report->ran) + (report->emulated ? ", emulated" : ""),
          html_escaped(report->evidence));
  }
  return "<details><summary>Which unit was asked for, which ran, and how that is known</summary>\n" +
         html_scroll(html + "</table>") + "</details>\n";
}

std::string rows_html(std::span<const PipelineRow> rows) {
  std::vector<const PipelineRow*> order;
  for (const PipelineRow& row : rows) order.push_back(&row);
  std::stable_sort(order.begin(), order.end(),
                   [](const PipelineRow* a, const PipelineRow* b) { return a->prompt_tokens < b->prompt_tokens; });
  std::string html =
      "<table><tr><th>prompt tokens</th><th>pipeline</th><th>first token</th><th>prefill, tokens/s</th><th>decode, "
      "tokens/s</th><th>bridge</th><th>state moved</th><th>peak memory</th><th>W</th><th>J</th><th>time</th>"
      "<th>energy</th><th>runs</th></tr>\n";
  for (const PipelineRow* row : order) {
    html +=
        fmt::format("<tr><td class=\"n\">{}</td><td>{}</td>", row->prompt_tokens, html_escaped(pipeline_label(*row)));
    html += cell(row->ttft_ms, milliseconds_text) + cell(row->prefill_tps, three_digits) +
            cell(row->decode_tps, three_digits) + cell(row->bridge_ms, milliseconds_text);
    html += cell(row->bridge_bytes ? bytes_text(*row->bridge_bytes) : "?") +
            cell(row->peak_memory_bytes ? bytes_text(*row->peak_memory_bytes) : "?") +
            cell(row->watts ? three_digits(*row->watts) : "?") + cell(row->joules ? three_digits(*row->joules) : "?");
    html += fmt::format("<td>{}</td><td>{}</td>", to_string(row->time), to_string(row->energy)) +
            cell(row->runs > 0 ? fmt::format("{}", row->runs) : "none") + "</tr>\n";
  }
  return "<h2>All rows</h2>\n<p class=\"note\">Medians (lowest to highest); ? is not known.</p>\n" +
         html_scroll(html + "</table>");
}

std::string published_html(std::span<const Comparison> rows) {
  std::string html =
      "<table><tr><th>source</th><th>chip</th><th>model</th><th>pipeline</th><th>tokens</th><th>what</th>"
      "<th>published</th><th>emulated</th><th>deviation</th><th>row</th></tr>\n";
  for (const Comparison& item : rows) {
    const PublishedRow& row = item.row;
    const bool wrong = std::fabs(item.deviation) > kDeviationStated;
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td class=\"n\">{}</td><td>{}</td><td class=\"n\">{}</td>"
        "<td class=\"n\">{}</td><td class=\"n{}\">{:+.0f} %</td><td>{}</td></tr>\n",
        row.source, row.chip, row.shape, row.pipeline, row.tokens, to_string(row.quantity), row.value,
        three_digits(item.predicted), wrong ? " wrong" : "", 100 * item.deviation,
        row.calibrates ? "calibrates" : (row.doubt.empty() ? "predicted" : "doubtful"));
  }
  return fmt::format("<h2>Published figures beside emulated ones</h2>\n<pre style=\"white-space:pre-wrap\">{}</pre>\n",
                     html_escaped(published_summary(rows))) +
         fmt::format("<details><summary>All {} rows</summary>\n", rows.size()) + html_scroll(html + "</table>") +
         "</details>\n";
}

}  // namespace

std::string report_html(const ReportTitle& title, const PipelineReport& report, std::span<const Comparison> published,
                        const PageInfo& info) {
  std::string html = html_head("Prefill and decode by pipeline", kPipelineStyle, {title.model, title.machine}, info);
  html += fmt::format("<p class=\"note\">{}</p>\n", html_escaped(title.note));
  html +=
      "<p class=\"note key\">Dots are medians, lines reach from the lowest to the highest run.<i></i>ran on this "
      "machine<i class=\"e\"></i>emulated</p>\n";
  html += row_plot("Time to first token", "Shorter is better", report.rows, &PipelineRow::ttft_ms, Phases::kBoth,
                   milliseconds_text);
  html += row_plot("Prefill, tokens/s", "More is better", report.rows, &PipelineRow::prefill_tps, Phases::kPrefill,
                   three_digits);
  html += row_plot("Decode, tokens/s", "More is better", report.rows, &PipelineRow::decode_tps, Phases::kDecode,
                   three_digits);
  if (!report.rows.empty()) html += rows_html(report.rows) + units_html(report.rows);
  for (const SkippedPipeline& skipped : report.skipped)
    html += fmt::format("<p class=\"note\">Skipped {}: {}</p>\n", html_escaped(skipped.pipeline),
                        html_escaped(skipped.reason));
  if (!published.empty()) html += published_html(published);
  return html + html_tail();
}

}  // namespace baton
