// The fields of llama-bench under its names, then ours.
#include "baton/cli/speed_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "baton/api/units.h"

namespace baton::cli {
namespace {

std::string percent(const std::optional<double>& share) { return share ? fmt::format("{:.1f}", *share) : "-"; }

template <class T>
OrderedJson value_or_null(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

// Null: not told.
OrderedJson load_json(const WeightLoad& load) {
  if (load.bytes == 0) return nullptr;
  return {{"weight_bytes", load.bytes},
          {"seconds", load.seconds},
          {"bytes_per_second", static_cast<double>(load.bytes) / load.seconds},
          {"packing_seconds", load.packing_seconds},
          {"waiting_seconds", load.waiting_seconds},
          {"link_bytes_per_second",
           load.link_bytes_per_second > 0 ? OrderedJson(load.link_bytes_per_second) : OrderedJson(nullptr)}};
}

OrderedJson phase_json(const std::string& asked, const Placement& placement) {
  if (placement.ran.empty()) return nullptr;
  return {{"asked", asked},
          {"ran", placement.ran},
          {"evidence", placement.text()},
          {"warning", text_or_null(placement.warning)},
          {"load", load_json(placement.load)}};
}

OrderedJson rate_json(const Rate& rate) {
  return {{"what", rate.what}, {"median", rate.median}, {"low", rate.low}, {"high", rate.high}};
}

OrderedJson shares_json(const LimitShares& shares) {
  OrderedJson json;
  json["bandwidth_percent"] = value_or_null(shares.bandwidth);
  json["peak_percent"] = value_or_null(shares.peak);
  json["read_limit"] = shares.bandwidth ? rate_json(shares.read) : OrderedJson(nullptr);
  json["arithmetic_limits"] = OrderedJson::array();
  for (const Rate& rate : shares.arithmetic) json["arithmetic_limits"].push_back(rate_json(rate));
  return json;
}

// Of a test of both phases on two units; else null.
OrderedJson phase_shares_json(const SpeedRow& row, bool split) {
  if (!split || row.prefill.ran.empty() || row.decode.ran.empty()) return nullptr;
  return {{"prefill", shares_json(row.prefill_shares)}, {"decode", shares_json(row.decode_shares)}};
}

// The fields of llama-bench under its names, then ours.
OrderedJson row_json(const SpeedRow& row, const SpeedRunner& bench, const BenchFlags& flags) {
  const Model& model = bench.model();
  std::vector<int64_t> nanoseconds;
  for (const double seconds : row.result.seconds) nanoseconds.push_back(static_cast<int64_t>(seconds * 1e9));
  const Summary time = summarize(row.result.seconds);
  OrderedJson json;
  json["model_filename"] = flags.model;
  if (!flags.lora.empty()) json["lora"] = flags.lora;
  json["model_type"] = model.spec.name;
  json["model_size"] = model.weight_bytes();
  json["model_n_params"] = model.parameter_count();
  json["backends"] = bench.backend();
  json["n_threads"] = bench.threads(row);
  json["n_prompt"] = row.test.prefill_tokens;
  json["n_gen"] = row.test.decode_tokens;
  json["n_depth"] = row.test.depth;
  json["avg_ns"] = static_cast<int64_t>(time.mean * 1e9);
  json["stddev_ns"] = static_cast<int64_t>(time.deviation * 1e9);
  json["avg_ts"] = row.speed.mean;
  json["stddev_ts"] = row.speed.deviation;
  json["samples_ns"] = nanoseconds;
  json["samples_ts"] = row.result.tokens_per_second;
  json["test"] = row.test.name();
  json["n_sequences"] = row.test.sequences;
  json["repetitions"] = flags.repetitions;
  json["median_ts"] = row.speed.median;
  json["low_ts"] = row.speed.low;
  json["high_ts"] = row.speed.high;
  json["quality"] = row.emulated ? "emulated" : "measured";
  json["prefill"] = phase_json(flags.prefill_on(), row.prefill);
  json["decode"] = phase_json(flags.decode_on(), row.decode);
  json.update(shares_json(row.shares));
  json["phase_shares"] = phase_shares_json(row, bench.prefill_name() != bench.decode_name());
  json["joules_per_token"] = value_or_null(row.result.joules_per_token);
  json["energy"] = OrderedJson::array();
  for (const EnergyReading& reading : row.result.energy)
    json["energy"].push_back({{"source", reading.source}, {"joules", reading.joules}});
  json["energy_runs"] = row.result.energy.empty() ? OrderedJson(nullptr) : OrderedJson(row.result.energy_runs);
  json["energy_reason"] = text_or_null(row.energy_reason);
  json["clocks"] = OrderedJson::array();
  for (const ClockFall& fall : row.clocks) {
    json["clocks"].push_back({{"text", fall.text()},
                              {"source", fall.source},
                              {"sm_mhz_max", fall.mhz_max},
                              {"sm_mhz_lowest", fall.mhz_lowest},
                              {"nvml_reasons", fall.reasons}});
  }
  json["peak_memory_bytes"] = value_or_null(row.peak_memory_bytes);
  json["tokens_hash"] = fmt::format("{:016x}", row.result.tokens_hash);
  json["check"] = {{"status", row.check.status},
                   {"reference", kSpeedReference},
                   {"why", text_or_null(row.check.why)},
                   {"tokens", row.check.tokens.checked},
                   {"near_ties", row.check.tokens.near_ties},
                   {"lead_max", row.check.lead_max}};
  return json;
}

std::string size_text(uint64_t bytes) {
  const double mib = static_cast<double>(bytes) / (1 << 20);
  return mib >= 1024 ? fmt::format("{:.2f} GiB", mib / 1024) : fmt::format("{:.2f} MiB", mib);
}
std::string count_text(uint64_t count) {
  const double millions = static_cast<double>(count) / 1e6;
  return millions >= 1000 ? fmt::format("{:.2f} B", millions / 1000) : fmt::format("{:.2f} M", millions);
}

// Fits 110 columns: what all rows share stands above the table, and JSON has the whole hash.
constexpr std::string_view kMdFormat = "| {:<20} | {:>20} | {:>11} | {:>6} | {:>8} | {:<18} |\n";

// What a unit keeps keys and values in, where its words say it.
std::string kv_of(const std::string& unit) {
  const auto choice = parse_unit(unit);
  const std::string_view said = choice ? choice->options.text(kKvOption) : std::string_view();
  return std::string(said.empty() ? "f16" : said);
}

// Empty where it is f16.
std::string kv_text(const BenchFlags& flags) {
  const std::string first = kv_of(flags.prefill_on()), then = kv_of(flags.decode_on());
  if (first == "f16" && then == "f16") return "";
  return first == then ? fmt::format(", KV {}", then) : fmt::format(", KV {}, then {}", first, then);
}

// A line where a unit has other options than that: they are what was measured.
std::string asked_text(const BenchFlags& flags) {
  const std::string prefill = flags.prefill_on(), decode = flags.decode_on();
  const auto has_options = [](const std::string& unit) {
    auto choice = parse_unit(unit);
    if (choice) choice->options.leave_out(kKvOption);
    return choice && !choice->options.words().empty();
  };
  if (!has_options(prefill) && !has_options(decode)) return "";
  return fmt::format("asked for: {}{}\n", prefill, prefill == decode ? "" : ", then " + decode);
}

std::string md_head(const SpeedRow& row, const SpeedRunner& bench, const BenchFlags& flags) {
  const std::string left(3, '-'), right = "--:";
  return fmt::format("{}: {}, {} parameters; {}, {} threads{}\n{}\n{}\n", bench.model().spec.name,
                     size_text(bench.model().weight_bytes()), count_text(bench.model().parameter_count()),
                     bench.backend() + (row.emulated ? " (emulated)" : ""), bench.threads(row), kv_text(flags),
                     bench.placed(), asked_text(flags)) +
         fmt::format(kMdFormat, "test", "t/s", "% bandwidth", "% peak", "J/tok", "tokens") +
         fmt::format(kMdFormat, left, right, right, right, right, left);
}

std::string md_row(const SpeedRow& row) {
  // One sample has no spread.
  const bool several = row.result.tokens_per_second.size() > 1;
  const std::string spread = several ? fmt::format(" \u00b1 {:.2f}", row.speed.deviation) : "";
  const std::string speed = fmt::format("{:.2f}{}{}", row.speed.median, spread, row.emulated ? " emulated" : "");
  const std::string joules =
      row.result.joules_per_token ? fmt::format("{:.4g}", *row.result.joules_per_token) : "unknown";
  return fmt::format(kMdFormat, row.test.name(), speed, percent(row.shares.bandwidth), percent(row.shares.peak), joules,
                     fmt::format("{:08x} {}", row.result.tokens_hash >> 32, row.check.status));
}

constexpr const char* kCsvFields[] = {"model_filename",    "model_type",
                                      "model_size",        "model_n_params",
                                      "backends",          "n_threads",
                                      "n_prompt",          "n_gen",
                                      "n_depth",           "avg_ns",
                                      "stddev_ns",         "avg_ts",
                                      "stddev_ts",         "test",
                                      "n_sequences",       "repetitions",
                                      "median_ts",         "low_ts",
                                      "high_ts",           "quality",
                                      "prefill_on",        "decode_on",
                                      "bandwidth_percent", "peak_percent",
                                      "joules_per_token",  "peak_memory_bytes",
                                      "tokens_hash",       "check_status"};

std::string csv_cell(const OrderedJson& value) {
  if (value.is_null()) return "";
  if (!value.is_string()) return value.dump();
  std::string text = "\"";
  for (const char c : value.get<std::string>()) text += c == '"' ? "\"\"" : std::string(1, c);
  return text + "\"";
}

std::string csv_row(OrderedJson json) {
  for (const char* phase : {"prefill", "decode"})
    json[fmt::format("{}_on", phase)] = json[phase].is_null() ? OrderedJson(nullptr) : json[phase]["ran"];
  json["check_status"] = json["check"]["status"];
  std::vector<std::string> cells;
  for (const char* field : kCsvFields) cells.push_back(csv_cell(json[field]));
  return fmt::format("{}\n", fmt::join(cells, ","));
}

}  // namespace

SpeedTable::SpeedTable(const BenchFlags& flags) : flags_(flags) {
  if (flags.output == "csv") print(fmt::format("{}\n", fmt::join(kCsvFields, ",")));
}

void SpeedTable::add(const SpeedRow& row, const SpeedRunner& bench) {
  const OrderedJson json = row_json(row, bench, flags_);
  if (flags_.output == "md") {
    if (!headed_) print(md_head(row, bench, flags_));
    headed_ = true;
    print(md_row(row));
  } else if (flags_.output == "csv") {
    print(csv_row(json));
  } else if (flags_.output == "jsonl") {
    print_json(json);
  } else {
    rows_.push_back(json);
  }
}

void SpeedTable::add(const LoadRow& load) {
  const Summary ms = summarize(load.ms);
  const Summary peak = summarize(load.peak_memory_bytes);
  if (flags_.output == "md" || flags_.output == "csv") {
    // No speed: it is not a row of the table.
    const std::string line = fmt::format(
        "load to first token of {} on {}: {:.0f} ms ({:.0f} to {:.0f}){}, peak memory {:.0f} MiB\n", kLoadPrompt,
        flags_.prefill_on(), ms.median, ms.low, ms.high, load.emulated ? " emulated" : "", peak.median / (1 << 20));
    if (flags_.output == "md") {
      print(line + "\n");
    } else {
      fmt::print(stderr, "{}", line);
    }
    return;
  }
  OrderedJson json;
  json["model_filename"] = flags_.model;
  json["test"] = fmt::format("load+pp{}", kLoadPrompt);
  json["asked"] = flags_.prefill_on();
  json["quality"] = load.emulated ? "emulated" : "measured";
  json["repetitions"] = load.ms.size();
  json["load_ms"] = ms.median;
  json["low_ms"] = ms.low;
  json["high_ms"] = ms.high;
  json["samples_ms"] = load.ms;
  json["peak_memory_bytes"] = static_cast<uint64_t>(peak.median);
  json["first_token"] = load.token;
  if (flags_.output == "jsonl") {
    print_json(json);
  } else {
    rows_.push_back(json);
  }
}

void SpeedTable::finish() {
  if (flags_.output == "json") print_json(rows_);
}

}  // namespace baton::cli
