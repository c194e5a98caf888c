// The page of a ladder: plots in SVG, the table, the verdict; styles inside, no scripts and nothing fetched.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/bench/html.h"
#include "baton/bench/ladder_report.h"

namespace baton {
namespace {

constexpr std::string_view kStyle =
    ":root{color-scheme:light dark;--ink:#222;--soft:#666;--line:#ccc;--front:#1b6ca8;--rest:#999;--paper:#fff}"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e6e6;--soft:#aaa;--line:#444;--front:#6db8f2;--rest:#888;"
    "--paper:#161616}}"
    "body{font:15px/1.5 system-ui,sans-serif;max-width:72em;margin:2em auto;padding:0 1em;color:var(--ink);"
    "background:var(--paper)}"
    "table{border-collapse:collapse;margin:1em 0}td,th{border:1px solid var(--line);padding:.2em .6em;text-align:left;"
    "font-size:13px}td.n{text-align:right;font-variant-numeric:tabular-nums}tr.f td:first-child{font-weight:bold}"
    ".note{color:var(--soft)}svg{max-width:100%;height:auto}svg text{fill:var(--ink);font:12px system-ui,sans-serif}"
    "svg .soft{fill:var(--soft)}svg .grid{stroke:var(--line);stroke-width:1}svg .front{fill:var(--front);"
    "stroke:var(--front)}svg .rest{fill:none;stroke:var(--rest);stroke-width:1.5}svg .path{fill:none;"
    "stroke:var(--front);stroke-dasharray:4 4}";

constexpr double kWidth = 820, kHeight = 430, kLeft = 70, kRight = 30, kTop = 20, kBottom = 50;

// KL divergence on a log axis; zero (the source) stands on the bottom line.
class QualityAxis {
 public:
  explicit QualityAxis(const LadderReport& report) {
    double least = 0, most = 0;
    for (const LadderRow& row : report.rows) {
      const double kld = row.quality.kld.value;
      if (!(kld > 0)) continue;
      least = least > 0 ? std::min(least, kld) : kld;
      most = std::max(most, kld);
    }
    if (least <= 0) least = most = 1e-3;
    low_ = std::floor(std::log10(least) - 0.3);
    high_ = std::max(std::ceil(std::log10(most) + 0.05), low_ + 1);
  }
  double at(double kld) const {
    const double position = kld > 0 ? std::clamp((std::log10(kld) - low_) / (high_ - low_), 0.0, 1.0) : 0;
    return kHeight - kBottom - position * (kHeight - kTop - kBottom);
  }
  std::string svg() const {
    std::string text;
    for (double power = low_; power <= high_ + 1e-9; power += 1) {
      const double y = at(std::pow(10.0, power));
      text += fmt::format(
          "<line class=\"grid\" x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/><text class=\"soft\" x=\"{}\" "
          "y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
          kLeft, y, kWidth - kRight, y, kLeft - 8, y + 4, std::pow(10.0, power));
    }
    return text +
           fmt::format("<text class=\"soft\" x=\"{}\" y=\"{}\">mean KL divergence, nats (lower is closer)</text>\n",
                       kLeft + 6, kTop - 6);
  }

 private:
  double low_ = -4, high_ = 0;  // powers of ten
};

class LinearAxis {
 public:
  LinearAxis(double most, std::string name) : most_(most > 0 ? most * 1.08 : 1), name_(std::move(name)) {}
  double at(double value) const { return kLeft + value / most_ * (kWidth - kLeft - kRight); }
  std::string svg() const {
    std::string text;
    double step = std::pow(10.0, std::floor(std::log10(most_ / 2)));
    if (most_ / step > 10) step *= 2;
    for (double value = 0; value <= most_; value += step) {
      text += fmt::format("<text class=\"soft\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:g}</text>\n", at(value),
                          kHeight - kBottom + 18, value);
    }
    return text + fmt::format("<text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kWidth - kRight,
                              kHeight - 10, html_escaped(name_));
  }

 private:
  double most_;
  std::string name_;
};

double decode_median(const LadderRow& row) {
  return row.speed.decode_tps.empty() ? 0 : quantile(row.speed.decode_tps, 0.5);
}

std::string tooltip(const LadderRow& row) {
  std::string text = fmt::format("{}: {:.2f} MB, {:.2f} bits per weight, KL divergence {:.5f}, same top token {:.2f} %",
                                 row.type, static_cast<double>(row.bytes) * 1e-6, row.bits_per_weight,
                                 row.quality.kld.value, 100 * row.quality.top1.value);
  if (!row.speed.decode_tps.empty()) text += fmt::format(", decode {:.1f} t/s", decode_median(row));
  return fmt::format("<title>{}</title>", html_escaped(text));
}

std::string plot(std::string_view label, const std::string& inside) {
  return fmt::format("<svg viewBox=\"0 0 {} {}\" width=\"{}\" role=\"img\" aria-label=\"{}\">\n{}</svg>\n", kWidth,
                     kHeight, kWidth, html_escaped(label), inside);
}

// A mark and its name; names of neighbours go above and below in turn.
std::string mark(const LadderReport& report, size_t i, double x, double y, double radius, size_t turn) {
  const LadderRow& row = report.rows[i];
  const double text_y = turn % 2 == 0 ? y - radius - 5 : y + radius + 13;
  return fmt::format(
      "<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"{}>{}</circle><text x=\"{:.1f}\" y=\"{:.1f}\" "
      "text-anchor=\"middle\">{}</text>\n",
      report.verdict.standings[i].pareto ? "front" : "rest", x, y, radius,
      report.verdict.standings[i].pareto ? " fill-opacity=\"0.55\"" : "", tooltip(row), x, text_y,
      html_escaped(row.is_source ? row.type + " (source)" : row.type));
}

std::vector<size_t> drawn(const LadderReport& report) {
  std::vector<size_t> rows;
  for (size_t i = 0; i < report.rows.size(); ++i) {
    if (report.rows[i].same_as.empty()) rows.push_back(i);
  }
  return rows;
}

std::string size_plot(const LadderReport& report) {
  const QualityAxis quality(report);
  double most = 0, fastest = 0;
  for (const LadderRow& row : report.rows) {
    most = std::max(most, static_cast<double>(row.bytes) * 1e-6);
    fastest = std::max(fastest, decode_median(row));
  }
  const LinearAxis size(most, "file size, MB");
  std::string inside = quality.svg() + size.svg(), path;
  // The front in this plane: from the smallest file on, what is closer than all before.
  const std::vector<size_t> rows = drawn(report);
  double closest = INFINITY;
  for (auto i = rows.rbegin(); i != rows.rend(); ++i) {
    const LadderRow& row = report.rows[*i];
    if (!(row.quality.kld.value < closest)) continue;
    closest = row.quality.kld.value;
    path += fmt::format("{:.1f},{:.1f} ", size.at(static_cast<double>(row.bytes) * 1e-6), quality.at(closest));
  }
  inside += fmt::format("<polyline class=\"path\" points=\"{}\"/>\n", path);
  size_t turn = 0;
  for (const size_t i : rows) {
    const LadderRow& row = report.rows[i];
    const double radius = fastest > 0 ? std::max(3.0, 12 * std::sqrt(decode_median(row) / fastest)) : 5;
    inside += mark(report, i, size.at(static_cast<double>(row.bytes) * 1e-6), quality.at(row.quality.kld.value), radius,
                   turn++);
  }
  return plot("file size against KL divergence", inside);
}

std::string speed_plot(const LadderReport& report) {
  const QualityAxis quality(report);
  double most = 0;
  for (const LadderRow& row : report.rows) {
    if (!row.speed.decode_tps.empty()) most = std::max(most, summarize(row.speed.decode_tps).quartile_high);
  }
  const LinearAxis speed(most, "decode, tokens/s (bar: quartiles)");
  std::string inside = quality.svg() + speed.svg();
  size_t turn = 0;
  for (const size_t i : drawn(report)) {
    const LadderRow& row = report.rows[i];
    const Summary summary = summarize(row.speed.decode_tps);
    const double y = quality.at(row.quality.kld.value);
    inside += fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
                          report.verdict.standings[i].pareto ? "front" : "rest", speed.at(summary.quartile_low), y,
                          speed.at(summary.quartile_high), y);
    inside += mark(report, i, speed.at(summary.median), y, 5, turn++);
  }
  return plot("decode speed against KL divergence", inside);
}

std::string speed_cell(const std::vector<double>& values) {
  if (values.empty()) return "<td class=\"n\">-</td>";
  const Summary summary = summarize(values);
  return fmt::format("<td class=\"n\">{:.1f} ({:.1f}-{:.1f})</td>", summary.median, summary.quartile_low,
                     summary.quartile_high);
}

std::string measured_cell(const Measured& measured, int digits) {
  return fmt::format("<td class=\"n\">{:.{}f} \u00b1 {:.{}f}</td>", measured.value, digits,
                     measured.error_windows >= 0 ? measured.error_windows : measured.error, digits);
}

std::string row_html(const LadderReport& report, size_t i) {
  const LadderRow& row = report.rows[i];
  const LadderStanding& standing = report.verdict.standings[i];
  const PairedQuality& quality = row.quality;
  std::string place = standing.pareto ? "on the front" : "";
  if (standing.challenged_by)
    place += fmt::format(", perhaps by chance ({})", report.rows[*standing.challenged_by].type);
  if (standing.dominated_by) place = fmt::format("dominated by {}", report.rows[*standing.dominated_by].type);
  if (!row.same_as.empty()) place = fmt::format("the same tensors as {}", row.same_as);
  std::string html = fmt::format("<tr{}><td>{}</td><td class=\"n\">{:.2f}</td><td class=\"n\">{:.2f}</td>",
                                 standing.pareto ? " class=\"f\"" : "",
                                 html_escaped(row.is_source ? row.type + " (source)" : row.type),
                                 static_cast<double>(row.bytes) * 1e-6, row.bits_per_weight);
  html += fmt::format("<td class=\"n\">{:.4f}</td>", quality.ppl.value);
  html += measured_cell(quality.delta_ppl, 4) + measured_cell(quality.kld, 5);
  html +=
      fmt::format("<td class=\"n\">{:.4f}</td><td class=\"n\">{:.2f}</td>", quality.kld_p99, 100 * quality.top1.value);
  html += speed_cell(row.speed.prefill_tps) + speed_cell(row.speed.decode_tps);
  html += row.peak_memory_bytes
              ? fmt::format("<td class=\"n\">{:.1f}</td>", static_cast<double>(*row.peak_memory_bytes) * 1e-6)
              : std::string("<td>unknown</td>");
  html += row.speed.decode_joules_per_token
              ? fmt::format("<td class=\"n\">{:.3f}</td>", *row.speed.decode_joules_per_token)
              : std::string("<td>unknown</td>");
  return html + fmt::format("<td>{}</td></tr>\n", html_escaped(place));
}

std::string list(const std::vector<std::string>& lines) {
  std::string html = "<ul>\n";
  for (const std::string& line : lines) html += fmt::format("<li>{}</li>\n", html_escaped(line));
  return html + "</ul>\n";
}

}  // namespace

std::string ladder_html(const LadderReport& report) {
  std::string html = fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/><meta name=\"viewport\" "
      "content=\"width=device-width\"/><title>baton: ladder of {}</title>\n<style>{}</style></head>\n<body>\n"
      "<h1>Quantized copies of {}</h1>\n",
      html_escaped(report.model), kStyle, html_escaped(report.model));
  html += "<h2>Verdict</h2>\n" + list(verdict_text(report.points, report.verdict));
  html += fmt::format(
      "<h2>Size and quality</h2>\n<p class=\"note\">Filled: on the Pareto front of size, KL divergence and decode "
      "speed. "
      "Dashed: the front of size and KL divergence alone.{}</p>\n",
      report.verdict.has_speed ? " Area: decode speed." : "");
  html += size_plot(report);
  if (report.verdict.has_speed) html += "<h2>Speed and quality</h2>\n" + speed_plot(report);
  html +=
      "<h2>All rows</h2>\n<table><tr><th>type</th><th>MB</th><th>bits per weight</th><th>PPL</th><th>difference</th>"
      "<th>KL divergence</th><th>99 %</th><th>same top %</th><th>prefill t/s</th><th>decode t/s</th><th>memory MB</th>"
      "<th>decode J/token</th><th>place</th></tr>\n";
  for (size_t i = 0; i < report.rows.size(); ++i) html += row_html(report, i);
  html += "</table>\n<h2>How it was measured</h2>\n" + list(ladder_notes(report));
  return html + "</body></html>\n";
}

}  // namespace baton
