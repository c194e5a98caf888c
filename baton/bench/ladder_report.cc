// Text and JSON of a ladder.
#include "baton/bench/ladder_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace baton {
namespace {

using OrderedJson = nlohmann::ordered_json;

OrderedJson finite(double value) { return std::isfinite(value) ? OrderedJson(value) : OrderedJson(nullptr); }
OrderedJson error_json(double error) { return error < 0 ? OrderedJson(nullptr) : finite(error); }
template <class T>
OrderedJson value_or_null(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}
OrderedJson text_or_null(const std::string& text) { return text.empty() ? OrderedJson(nullptr) : OrderedJson(text); }

OrderedJson median_or_null(const std::vector<double>& values) {
  return values.empty() ? OrderedJson(nullptr) : OrderedJson(summarize(values).median);
}
OrderedJson spread_json(const std::vector<double>& values) {
  if (values.empty()) return nullptr;
  const Summary summary = summarize(values);
  return {{"low", summary.low},
          {"quartile_low", summary.quartile_low},
          {"quartile_high", summary.quartile_high},
          {"high", summary.high},
          {"samples", values}};
}

OrderedJson interval_json(const DifferenceInterval& interval) {
  if (!interval.known)
    return {{"value", finite(interval.value)}, {"low", nullptr}, {"high", nullptr}, {"differs", nullptr}};
  return {{"value", finite(interval.value)},
          {"low", finite(interval.low)},
          {"high", finite(interval.high)},
          {"differs", interval.differs()}};
}
OrderedJson interval_json(const std::optional<RatioInterval>& interval) {
  if (!interval) return nullptr;
  if (!interval->known) return {{"ratio", interval->ratio}, {"low", nullptr}, {"high", nullptr}, {"differs", nullptr}};
  return {
      {"ratio", interval->ratio}, {"low", interval->low}, {"high", interval->high}, {"differs", interval->differs()}};
}

std::string error_text(const Measured& measured, int digits) {
  return fmt::format("{:.{}f}", measured.error_windows >= 0 ? measured.error_windows : measured.error, digits);
}

std::string speed_text(const std::vector<double>& values) {
  if (values.empty()) return "-";
  const Summary summary = summarize(values);
  return fmt::format("{:.1f} ({:.1f}-{:.1f})", summary.median, summary.quartile_low, summary.quartile_high);
}

std::string front_text(const LadderReport& report, size_t i) {
  const LadderStanding& standing = report.verdict.standings[i];
  if (!report.rows[i].same_as.empty()) return "= " + report.rows[i].same_as;
  if (!standing.pareto) return "";
  return standing.challenged_by ? "yes?" : "yes";
}

std::string row_text(const LadderReport& report, size_t i) {
  const LadderRow& row = report.rows[i];
  const PairedQuality& quality = row.quality;
  std::string text = fmt::format("| {} | {:.2f} | {:.2f} | {:.4f} |", row.is_source ? row.type + " (source)" : row.type,
                                 static_cast<double>(row.bytes) * 1e-6, row.bits_per_weight, quality.ppl.value);
  if (row.is_source) {
    text += " | | |";
  } else {
    text += fmt::format(" {:+.4f} \u00b1 {} | {:.6f} \u00b1 {} | {:.2f} |", quality.delta_ppl.value,
                        error_text(quality.delta_ppl, 4), quality.kld.value, error_text(quality.kld, 6),
                        100 * quality.top1.value);
  }
  text += fmt::format(" {} | {} |", speed_text(row.speed.prefill_tps), speed_text(row.speed.decode_tps));
  text += row.peak_memory_bytes ? fmt::format(" {:.1f} |", static_cast<double>(*row.peak_memory_bytes) * 1e-6)
                                : std::string(" unknown |");
  text += row.speed.decode_joules_per_token ? fmt::format(" {:.3f} |", *row.speed.decode_joules_per_token)
                                            : std::string(" unknown |");
  return text + fmt::format(" {} |\n", front_text(report, i));
}

std::string types_text(const LadderRow& row) {
  std::string text;
  for (const auto& [type, count] : row.tensors) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, type);
  return text;
}

}  // namespace

nlohmann::ordered_json ladder_json(const LadderReport& report) {
  OrderedJson rows = OrderedJson::array();
  const LadderAdvice advice = advise(report.points, report.verdict);
  for (size_t i = 0; i < report.rows.size(); ++i) {
    const LadderRow& row = report.rows[i];
    const PairedQuality& quality = row.quality;
    const LadderStanding& standing = report.verdict.standings[i];
    const auto name_or_null = [&](const std::optional<size_t>& which) {
      return which ? OrderedJson(report.rows[*which].type) : OrderedJson(nullptr);
    };
    OrderedJson json;
    json["type"] = row.type;
    json["bytes"] = row.bytes;
    json["ppl"] = finite(quality.ppl.value);
    json["dppl"] = finite(quality.delta_ppl.value);
    json["dppl_error"] = finite(quality.delta_ppl.error);
    json["kld_mean"] = finite(quality.kld.value);
    json["top1"] = finite(quality.top1.value);
    json["prefill_tps"] = median_or_null(row.speed.prefill_tps);
    json["decode_tps"] = median_or_null(row.speed.decode_tps);
    json["pareto"] = standing.pareto;
    json["recommended"] = advice.take == i;

    json["source"] = row.is_source;
    json["bits_per_weight"] = row.bits_per_weight;
    json["recipe_hash"] = text_or_null(row.recipe_hash);
    json["same_as"] = text_or_null(row.same_as);
    json["tensors"] = row.tensors;
    json["notes"] = row.notes;
    json["file"] = text_or_null(row.file.string());
    json["ppl_error"] = finite(quality.ppl.error);
    json["ppl_error_windows"] = error_json(quality.ppl.error_windows);
    json["dppl_error_windows"] = error_json(quality.delta_ppl.error_windows);
    json["ppl_ratio"] = finite(quality.ratio.value);
    json["ppl_ratio_error"] = finite(quality.ratio.error);
    json["ppl_ratio_error_windows"] = error_json(quality.ratio.error_windows);
    json["kld_mean_error"] = finite(quality.kld.error);
    json["kld_mean_error_windows"] = error_json(quality.kld.error_windows);
    json["kld_median"] = finite(quality.kld_median);
    json["kld_p99"] = finite(quality.kld_p99);
    json["kld_p999"] = finite(quality.kld_p999);
    json["kld_max"] = finite(quality.kld_max);
    json["top1_error"] = finite(quality.top1.error);
    json["top1_error_windows"] = error_json(quality.top1.error_windows);
    json["rms_dp"] = finite(quality.rms_delta_p.value);
    json["rms_dp_error"] = finite(quality.rms_delta_p.error);
    json["prefill_tps_spread"] = spread_json(row.speed.prefill_tps);
    json["decode_tps_spread"] = spread_json(row.speed.decode_tps);
    json["prefill_joules_per_token"] = value_or_null(row.speed.prefill_joules_per_token);
    json["decode_joules_per_token"] = value_or_null(row.speed.decode_joules_per_token);
    json["peak_memory_bytes"] = value_or_null(row.peak_memory_bytes);
    json["dominated_by"] = name_or_null(standing.dominated_by);
    json["challenged_by"] = name_or_null(standing.challenged_by);
    json["against_next_larger"] = nullptr;
    for (const LadderComparison& item : report.verdict.neighbours) {
      if (item.smaller != i) continue;
      json["against_next_larger"] = {{"type", report.rows[item.larger].type},
                                     {"kld_mean", interval_json(item.kld)},
                                     {"nll_mean", interval_json(item.nll)},
                                     {"prefill_tps", interval_json(item.prefill)},
                                     {"decode_tps", interval_json(item.decode)}};
    }
    json["confidence"] = report.verdict.confidence;
    json["model"] = report.model;
    json["model_path"] = report.source.string();
    json["unit"] = report.unit;
    json["ran"] = report.ran;
    json["evidence"] = row.evidence;
    json["speed_quality"] = row.speed.decode_tps.empty()
                                ? OrderedJson(nullptr)
                                : OrderedJson(report.verdict.emulated ? "emulated" : "measured");
    json["text"] = report.text.string();
    json["window"] = report.window;
    json["counted_from"] = report.counted_from;
    json["windows"] = report.windows;
    json["counted"] = report.counted;
    json["prefill_tokens"] = report.prefill_tokens;
    json["decode_tokens"] = report.decode_tokens;
    json["rounds"] = report.rounds;
    rows.push_back(json);
  }
  return rows;
}

std::vector<std::string> ladder_notes(const LadderReport& report) {
  std::vector<std::string> notes;
  notes.push_back(
      fmt::format("Quality: {} of {} tokens of {}, windows of {}, tokens {} to {} of each counted; each type against "
                  "{} on the same "
                  "tokens. Errors are standard errors of the paired values by windows.",
                  report.counted, report.text_tokens, report.text.filename().string(), report.window,
                  report.counted_from, report.window - 1, report.model));
  if (report.rounds > 0) {
    notes.push_back(
        fmt::format("Speed: prefill of {} tokens, decode of {}, tokens/s; medians (and quartiles) of {} round{}, each "
                    "over all types "
                    "in turn, on {} ({}).",
                    report.prefill_tokens, report.decode_tokens, report.rounds, report.rounds == 1 ? "" : "s",
                    report.ran, report.rows.front().evidence));
  } else {
    notes.push_back("Speed: not measured.");
  }
  if (std::any_of(report.rows.begin(), report.rows.end(), [](const LadderRow& row) { return row.peak_memory_bytes; })) {
    notes.push_back(
        "Memory: largest resident memory of a process of its own that runs the file, the mapped file's pages "
        "included.");
  }
  if (std::any_of(report.verdict.standings.begin(), report.verdict.standings.end(),
                  [](const LadderStanding& standing) { return standing.challenged_by.has_value(); }))
    notes.push_back("yes?: on the front by a difference that may be chance; see the verdict.");
  if (!report.energy_missing.empty()) notes.push_back(fmt::format("Energy is unknown: {}.", report.energy_missing));
  for (const LadderRow& row : report.rows) {
    if (!row.notes.empty())
      notes.push_back(fmt::format("{}: {}. In all: {}.", row.type, fmt::join(row.notes, "; "), types_text(row)));
  }
  for (const std::string& note : report.notes) notes.push_back(note);
  return notes;
}

std::string ladder_text(const LadderReport& report) {
  const std::string_view label = report.verdict.emulated ? " (emulated)" : "";
  std::string text = fmt::format(
      "{} on {}{}\n\n| type | size MB | bits/weight | PPL | dPPL | KL divergence | same top % | prefill t/s{} | decode "
      "t/s{} "
      "| memory MB | decode J/token | front |\n|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n",
      report.model, report.unit, label, label, label);
  for (size_t i = 0; i < report.rows.size(); ++i) text += row_text(report, i);
  text += "\n";
  for (const std::string& note : ladder_notes(report)) text += note + "\n";
  text += "\n";
  for (const std::string& line : verdict_text(report.points, report.verdict)) text += "- " + line + "\n";
  return text + "\n" + advise(report.points, report.verdict).text + "\n";
}

}  // namespace baton
