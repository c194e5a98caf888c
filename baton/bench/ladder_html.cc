// The page of a ladder: plots in SVG, the table, the verdict; styles inside, no scripts and nothing fetched.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/bench/html.h"
#include "baton/bench/ladder_report.h"

namespace baton {
namespace {

constexpr std::string_view kLadderStyle =
    "tr.f td:first-child{font-weight:bold}.scroll svg{width:100%;min-width:640px;height:auto;display:block}"
    "svg text{fill:var(--ink);font:12px system-ui,sans-serif}svg .soft{fill:var(--soft)}"
    "svg .grid{stroke:var(--line);stroke-width:1}svg .front{fill:var(--mark);stroke:var(--mark)}"
    "svg .rest{fill:none;stroke:var(--rest);stroke-width:1.5}svg .path{fill:none;stroke:var(--mark);"
    "stroke-dasharray:4 4}";

constexpr double kWidth = 820, kHeight = 430, kLeft = 70, kRight = 30, kTop = 20, kBottom = 50;

// KL divergence on a log axis; zero (the source) has a line of its own below.
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
    low_ = std::floor(std::log10(least));
    high_ = std::max(std::log10(most) + 0.2, low_ + 1);
  }
  double at(double kld) const {
    const double position = kld > 0 ? std::log10(kld) : low_ - kZero;
    return kHeight - kBottom - (position - low_ + kZero) / (high_ - low_ + kZero) * (kHeight - kTop - kBottom);
  }
  std::string svg() const {
    std::string text = line(0);
    for (double power = low_; power <= high_; power += 1) text += line(std::pow(10.0, power));
    return text +
           fmt::format("<text class=\"soft\" x=\"{}\" y=\"{}\">mean KL divergence, nats (lower is closer)</text>\n",
                       kLeft + 6, kTop - 6);
  }

 private:
  static constexpr double kZero = 0.4;  // decades between the line of zero and the lowest power

  std::string line(double kld) const {
    return fmt::format(
        "<line class=\"grid\" x1=\"{}\" y1=\"{:.1f}\" x2=\"{}\" y2=\"{:.1f}\"/><text class=\"soft\" x=\"{}\" "
        "y=\"{:.1f}\" text-anchor=\"end\">{:g}</text>\n",
        kLeft, at(kld), kWidth - kRight, at(kld), kLeft - 8, at(kld) + 4, kld);
  }

  double low_ = -4, high_ = 0;  // powers of ten
};

// Logarithmic: a source of twice the size does not press the others into a corner.
class LogAxis {
 public:
  LogAxis(double least, double most, std::string name) : name_(std::move(name)) {
    const double room = most > least ? 0.06 * std::log(most / least) : 0.1;
    low_ = std::log(std::max(least, 1e-9)) - room;
    high_ = std::log(std::max(most, 1e-9)) + room;
  }
  double at(double value) const {
    return kLeft + (std::log(std::max(value, 1e-9)) - low_) / (high_ - low_) * (kWidth - kLeft - kRight);
  }
  std::string svg() const {
    std::string text;
    // Round numbers, nowhere nearer to each other than their text is wide: steps of about a tenth of the range, or 1, 2
    // and 5 times powers of ten where it is wide.
    const double from = std::exp(low_), to = std::exp(high_), step = nice(0.1 * (to - from));
    const bool wide = to > 6 * from;
    double last = -INFINITY;
    for (double value = wide ? nice(from) : std::ceil(from / step) * step; value <= to;
         value = wide ? nice(1.01 * value) : value + step) {
      if (at(value) - last < kNumberWidth) continue;
      last = at(value);
      text += fmt::format("<text class=\"soft\" x=\"{:.1f}\" y=\"{}\" text-anchor=\"middle\">{:.6g}</text>\n", last,
                          kHeight - kBottom + 18, value);
    }
    return text + fmt::format("<text class=\"soft\" x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>\n", kWidth - kRight,
                              kHeight - 10, html_escaped(name_));
  }

 private:
  static constexpr double kNumberWidth = 40;
  // The next of 1, 2, 5 times a power of ten.
  static double nice(double value) {
    const double power = std::pow(10.0, std::floor(std::log10(std::max(value, 1e-9))));
    for (const double step : {1.0, 2.0, 5.0}) {
      if (value <= step * power) return step * power;
    }
    return 10 * power;
  }

  double low_ = 0, high_ = 1;
  std::string name_;
};

// Names beside marks, each at the nearest of some places where it covers no mark and no other name.
class Labels {
 public:
  void cover(double x, double y, double radius) { boxes_.push_back({x - radius, y - radius, x + radius, y + radius}); }
  std::string place(const std::string& name, double x, double y, double radius) {
    const double width = kLetter * static_cast<double>(name.size());
    Box best{};
    double left = 0, top = 0;
    bool found = false;
    for (int ring = 0; ring < kRings && !found; ++ring) {
      const double gap = radius + 4 + ring * kLine;
      const double lefts[] = {x - width / 2, x - width / 2, x + gap, x - gap - width, x + gap, x - gap - width};
      const double tops[] = {y - gap - kLine,       y + gap, y - kLine / 2, y - kLine / 2, y - kLine * (ring + 1),
                             y - kLine * (ring + 1)};
      for (int i = 0; i < 6 && !found; ++i) {
        best = {lefts[i], tops[i], lefts[i] + width, tops[i] + kLine};
        found = is_free(best);
        left = lefts[i];
        top = tops[i];
      }
    }
    boxes_.push_back(best);
    const double middle_x = std::clamp(x, left, left + width), middle_y = std::clamp(y, top, top + kLine);
    const double distance = std::hypot(middle_x - x, middle_y - y) - radius;
    const std::string leader =
        distance < kLine ? ""
                         : fmt::format("<line class=\"grid\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>",
                                       x, y, middle_x, middle_y);
    return leader +
           fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\">{}</text>\n", left, top + kLine - 3, html_escaped(name));
  }

 private:
  static constexpr double kLetter = 7.3, kLine = 14;
  static constexpr int kRings = 12;
  struct Box {
    double left, top, right, bottom;
  };
  bool is_free(const Box& box) const {
    if (box.left < kLeft || box.right > kWidth || box.top < kTop || box.bottom > kHeight - kBottom + 6) return false;
    return std::none_of(boxes_.begin(), boxes_.end(), [&](const Box& other) {
      return box.left < other.right && other.left < box.right && box.top < other.bottom && other.top < box.bottom;
    });
  }

  std::vector<Box> boxes_;
};

double decode_median(const LadderRow& row) {
  return row.speed.decode_tps.empty() ? 0 : quantile(row.speed.decode_tps, 0.5);
}

std::string tooltip(const LadderRow& row) {
  std::string text = fmt::format("{}: {:.2f} MB, {:.2f} bits per weight, KL divergence {:.5f}, same top token {:.2f} %",
                                 row.type, static_cast<double>(row.bytes) * 1e-6, row.bits_per_weight,
                                 row.quality.kld.value, 100 * row.quality.top1.value);
  if (!row.speed.decode_tps.empty())
    text += fmt::format(", decode {:.1f} t/s{}", decode_median(row), row.emulated ? " (emulated)" : "");
  return fmt::format("<title>{}</title>", html_escaped(text));
}

std::string plot(std::string_view label, const std::string& inside) {
  return html_scroll(fmt::format("<svg viewBox=\"0 0 {} {}\" role=\"img\" aria-label=\"{}\">\n{}</svg>", kWidth,
                                 kHeight, html_escaped(label), inside));
}

struct Mark {
  size_t row = 0;
  double x = 0, y = 0;
};
constexpr double kRadius = 5;

std::string marks_svg(const LadderReport& report, const std::vector<Mark>& marks) {
  Labels labels;
  for (const Mark& mark : marks) labels.cover(mark.x, mark.y, kRadius);
  std::string circles, names;
  for (const Mark& mark : marks) {
    const LadderRow& row = report.rows[mark.row];
    const bool pareto = report.verdict.standings[mark.row].pareto;
    circles += fmt::format("<circle class=\"{}\" cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"{:.1f}\"{}>{}</circle>\n",
                           pareto ? "front" : "rest", mark.x, mark.y, kRadius, pareto ? " fill-opacity=\"0.55\"" : "",
                           tooltip(row));
    names += labels.place(row.is_source ? row.type + " (source)" : row.type, mark.x, mark.y, kRadius);
  }
  return names + circles;
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
  double least = INFINITY, most = 0;
  for (const LadderRow& row : report.rows) {
    least = std::min(least, static_cast<double>(row.bytes) * 1e-6);
    most = std::max(most, static_cast<double>(row.bytes) * 1e-6);
  }
  const LogAxis size(least, most, "file size, MB (logarithmic)");
  std::string path;
  // The front in this plane: from the smallest file on, what is closer than all before.
  const std::vector<size_t> rows = drawn(report);
  double closest = INFINITY;
  for (auto i = rows.rbegin(); i != rows.rend(); ++i) {
    const LadderRow& row = report.rows[*i];
    if (!(row.quality.kld.value < closest)) continue;
    closest = row.quality.kld.value;
    path += fmt::format("{:.1f},{:.1f} ", size.at(static_cast<double>(row.bytes) * 1e-6), quality.at(closest));
  }
  std::vector<Mark> marks;
  for (const size_t i : rows) {
    const LadderRow& row = report.rows[i];
    marks.push_back({i, size.at(static_cast<double>(row.bytes) * 1e-6), quality.at(row.quality.kld.value)});
  }
  return plot("file size against KL divergence", quality.svg() + size.svg() +
                                                     fmt::format("<polyline class=\"path\" points=\"{}\"/>\n", path) +
                                                     marks_svg(report, marks));
}

std::string speed_plot(const LadderReport& report) {
  const QualityAxis quality(report);
  double least = INFINITY, most = 0;
  for (const LadderRow& row : report.rows) {
    least = std::min(least, summarize(row.speed.decode_tps).quartile_low);
    most = std::max(most, summarize(row.speed.decode_tps).quartile_high);
  }
  const LogAxis speed(least, most, "decode, tokens/s (logarithmic; bar: quartiles)");
  std::string bars;
  std::vector<Mark> marks;
  for (const size_t i : drawn(report)) {
    const LadderRow& row = report.rows[i];
    const Summary summary = summarize(row.speed.decode_tps);
    const double y = quality.at(row.quality.kld.value);
    bars += fmt::format("<line class=\"{}\" x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\"/>\n",
                        report.verdict.standings[i].pareto ? "front" : "rest", speed.at(summary.quartile_low), y,
                        speed.at(summary.quartile_high), y);
    marks.push_back({i, speed.at(summary.median), y});
  }
  return plot("decode speed against KL divergence", quality.svg() + speed.svg() + bars + marks_svg(report, marks));
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
  html += measured_cell(quality.delta_ppl, 4) + measured_cell(quality.kld, 6);
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

std::string ladder_html(const LadderReport& report, const PageInfo& info) {
  const LadderAdvice advice = advise(report.points, report.verdict);
  std::vector<std::string> facts = {
      fmt::format("Text: {}, {} tokens compared in {} windows", report.text.filename().string(), report.counted,
                  report.windows),
      fmt::format("Unit: {} ({})", report.ran, report.rows.empty() ? "" : report.rows.front().evidence)};
  std::string html = html_head(fmt::format("Quantized copies of {}", report.model), kLadderStyle, facts, info);
  html += fmt::format("<p class=\"take\">{}</p>\n", html_escaped(advice.text));
  html += fmt::format(
      "<h2>Size and quality</h2>\n<p class=\"note\">Filled: on the Pareto front of size{}. Dashed: the front of size "
      "and "
      "KL divergence alone. Below left is better.</p>\n",
      report.verdict.has_speed ? ", KL divergence and decode speed" : " and KL divergence");
  html += size_plot(report);
  if (report.verdict.has_speed) {
    html += "<h2>Speed and quality</h2>\n<p class=\"note\">Below right is better.</p>\n" + speed_plot(report);
  }
  const std::string_view label = report.verdict.emulated ? " (emulated)" : "";
  std::string table = fmt::format(
      "<table><tr><th>type</th><th>MB</th><th>bits per weight</th><th>PPL</th><th>difference</th>"
      "<th>KL divergence</th><th>99 %</th><th>same top %</th><th>prefill t/s{}</th><th>decode t/s{}</th><th>memory "
      "MB</th>"
      "<th>decode J/token</th><th>place</th></tr>\n",
      label, label);
  for (size_t i = 0; i < report.rows.size(); ++i) table += row_html(report, i);
  html += "<h2>All rows</h2>\n" + html_scroll(table + "</table>");
  html += "<h2>What the differences say</h2>\n" + list(verdict_text(report.points, report.verdict));
  html += "<details><summary>How it was measured</summary>\n" + list(ladder_notes(report)) + "</details>\n";
  return html + html_tail();
}

}  // namespace baton
