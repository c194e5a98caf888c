// `baton bench -m MODEL`: tests in the columns of llama-bench, and to the right of them who did it, the shares of this
// machine's limits, joules, and whether the tokens were right.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <optional>
#include <set>

#include "baton/api/calibration.h"
#include "baton/api/text_model.h"
#include "baton/api/units.h"
#include "baton/bench/energy_meter.h"
#include "baton/bench/probes.h"
#include "baton/bench/roofline.h"
#include "baton/bench/runner.h"
#include "baton/bench/stats.h"
#include "baton/cli/bench_flags.h"
#include "baton/cli/child.h"
#include "baton/cli/child_memory.h"
#include "baton/unit/host/kernel_sets.h"

namespace baton::cli {
namespace {

constexpr const char* kReference = "ref";
// A check may take about this long, at the rate of the reference on a modest core.
constexpr double kCheckSecondsMax = 5, kReferenceOperations = 10e9;
constexpr double kBoundsSecondsMax = 30;  // of measuring the check's bounds, once for a model
constexpr uint32_t kLoadPrompt = 13;

struct Check {
  std::string status;  // "checked" or "unchecked"
  std::string why;     // of "unchecked"
  TokenCheck tokens;
  double lead_max = 0;  // of the reference's choice over the one checked: more is no near tie
};

struct Row {
  SpeedTest test;
  SpeedResult result;
  Summary speed;
  LimitShares shares;
  Check check;
  Placement prefill, decode;  // `ran` empty: the test has no such phase
  std::optional<uint64_t> peak_memory_bytes;
  bool emulated = false;
  std::string energy_reason;  // why there are no joules
};

struct LoadRow {
  std::vector<double> ms;
  std::vector<double> peak_memory_bytes;
  int32_t token = 0;
};

std::string lower_word(const Placement& placement) {
  if (placement.ran.empty()) return "-";
  return fmt::format("{}: {}", placement.ran, placement.arithmetic);
}

std::string percent(const std::optional<double>& share) { return share ? fmt::format("{:.1f}", *share) : "-"; }

class SpeedBench {
 public:
  explicit SpeedBench(const BenchFlags& flags) : flags_(flags) {}

  // An exit code, when it cannot go on.
  std::optional<int> open() {
    std::vector<UnitChoice> choices;
    for (const std::string& text : {flags_.prefill_on(), flags_.decode_on()}) {
      auto choice = parse_unit(text);
      if (!choice) return report_unit(choice.error());
      choices.push_back(*std::move(choice));
    }
    names_ = names_of(choices);
    if (const auto code = create(choices[0], prefill_unit_)) return code;
    if (split()) {
      if (const auto code = create(choices[1], decode_unit_)) return code;
    }
    auto text = load_text_model(flags_.model);
    if (!text) return report(text.error());
    model_ = text->model;
    sequences_ = calibration_sequences(*text);
    auto prefill = prefill_unit_->load(model_, flags_.threads);
    if (!prefill) return report(prefill.error());
    prefill_ = *std::move(prefill);
    if (split()) {
      auto decode = decode_unit_->load(model_, flags_.threads);
      if (!decode) return report(decode.error());
      decode_ = *std::move(decode);
    }
    if (!meter_.available()) fmt::print(stderr, "baton: J/tok unknown: {}\n", meter_.reason());
    return std::nullopt;
  }

  Result<Row> run(SpeedTest test) {
    test.text = sequences_[0];  // what the check's bounds were measured over
    Row row;
    row.test = test;
    const SpeedUnits units{*prefill_, decode(), decode_caps().decode_seats_max};
    SpeedOptions options;
    options.warm_up = false;
    options.settle = !flags_.no_warmup;
    options.repetitions = 1;
    SpeedResult first;
    if (!flags_.no_warmup) {
      BATON_TRY(first, measure_speed(units, test, options));
      BATON_TRY(row.check, check(test, first));
    }
    options.repetitions = flags_.repetitions;
    options.meter = &meter_;
    options.on_run = [&](uint32_t done) { progress(fmt::format("{} {}/{}", test.name(), done, flags_.repetitions)); };
    BATON_TRY(row.result, measure_speed(units, test, options));
    progress("");
    row.peak_memory_bytes = peak_memory_bytes();
    if (flags_.no_warmup) {
      BATON_TRY(row.check, check(test, row.result));
    } else if (row.result.tokens_hash != first.tokens_hash) {
      return fail(Code::kInternal,
                  fmt::format("{}: the timed runs generated other tokens than the first", test.name()));
    }
    row.speed = summarize(row.result.tokens_per_second);
    if (test.prefill_tokens > 0) row.prefill = prefill_->placement();
    if (test.decode_tokens > 0) row.decode = decode().placement();
    row.emulated = row.prefill.emulated || row.decode.emulated;
    if (row.emulated) {  // the host's energy says nothing of the device
      row.result.energy.clear();
      row.result.joules_per_token.reset();
    }
    if (!row.result.joules_per_token) row.energy_reason = row.emulated ? "the unit is emulated" : meter_.reason();
    BATON_OK(add_shares(row));
    return row;
  }

  const Model& model() const { return *model_; }
  const std::string& prefill_name() const { return names_[0]; }
  const std::string& decode_name() const { return names_[1]; }
  std::string backend() const { return split() ? prefill_name() + "+" + decode_name() : prefill_name(); }
  uint32_t threads(const Row& row) const {
    const uint32_t said = std::max(row.prefill.threads, row.decode.threads);
    return said > 0 ? said : flags_.threads > 0 ? flags_.threads : physical_cores();
  }
  // What the shares are of, once each.
  const std::set<std::string>& limit_texts() const { return limit_texts_; }
  // "prefill on cpu: avx512-vnni kernels; decode on the same"
  std::string placed() const {
    const std::string prefill = lower_word(prefill_->placement());
    const std::string decode = split() ? lower_word(decode_->placement()) : "the same";
    return fmt::format("prefill on {}; decode on {}", prefill, decode);
  }
  std::string warnings() const {
    std::string text = prefill_->placement().warning;
    if (split() && !decode_->placement().warning.empty())
      text += (text.empty() ? "" : "; ") + decode_->placement().warning;
    return text;
  }

 private:
  bool split() const { return prefill_name() != decode_name(); }
  Executor& decode() { return split() ? *decode_ : *prefill_; }
  const Caps& decode_caps() const { return split() ? decode_unit_->caps() : prefill_unit_->caps(); }

  static std::optional<int> create(const UnitChoice& choice, std::unique_ptr<Unit>& unit) {
    auto created = choice.create();
    if (!created) return report_unit(created.error());
    unit = *std::move(created);
    return std::nullopt;
  }

  Result<Check> check(const SpeedTest& test, const SpeedResult& result) {
    const auto unchecked = [](std::string why) { return Check{"unchecked", std::move(why), {}, 0}; };
    if (flags_.no_check) return unchecked("--no-check");
    if (prefill_name() == kReference && !split()) return unchecked("it is the reference");
    const double tokens = static_cast<double>(test.sequences) *
                          (static_cast<double>(test.depth) + test.prefill_tokens + test.decode_tokens);
    const double seconds = 2 * static_cast<double>(model_->parameter_count()) * tokens / kReferenceOperations;
    if (seconds > kCheckSecondsMax)
      return unchecked(fmt::format("about {:.0f} s of ref, more than {:.0f}", seconds, kCheckSecondsMax));
    progress(fmt::format("{}: checking the tokens", test.name()));
    BATON_TRY(const auto unit, create_unit(kReference));
    BATON_TRY(const auto reference, unit->load(model_, flags_.threads));
    BATON_OK(measure_lead(*reference));
    if (!lead_max_) return unchecked(why_no_lead_);
    BATON_TRY(const TokenCheck tokens_checked, check_generated(*reference, test, result, *lead_max_));
    return Check{"checked", "", tokens_checked, *lead_max_};
  }

  // What a choice may lie below the reference's, from the model's file of bounds or measured now: lead_max_, or why
  // there is none.
  Status measure_lead(Executor& reference) {
    if (lead_max_ || !why_no_lead_.empty()) return {};
    BATON_TRY(const Fingerprints prints, model_->fingerprints());
    auto store = BoundsStore::open(flags_.model, prints, digest_sequences(sequences_));
    const std::string from = split() ? prefill_->arithmetic() + "+" + decode_->arithmetic() : prefill_->arithmetic();
    auto honest = store.find(BoundsStore::kMargins, from, reference.arithmetic());
    if (!honest) {
      double tokens = 0;
      for (const auto& ids : sequences_) tokens += static_cast<double>(std::min(ids.size(), kAnswerTokensMax));
      if (2 * static_cast<double>(model_->parameter_count()) * tokens / kReferenceOperations > kBoundsSecondsMax) {
        why_no_lead_ = fmt::format("bounds not measured, and ref would take more than {:.0f} s", kBoundsSecondsMax);
        return {};
      }
      progress("");
      fmt::print(stderr, "baton: measuring what honest choices differ by, once for this model: it is kept\n");
      BATON_TRY(const MarginBounds margins, measure_margins(*prefill_, decode(), reference, sequences_));
      if (!margins.useful()) {
        why_no_lead_ =
            fmt::format("a logit's lead differs from ref's by up to {:.3g}: times {}, no wrong choice would show",
                        margins.largest, kBoundFactor);
        return {};
      }
      honest.emplace().logits.largest = margins.largest;
      if (const auto kept = store.add(BoundsStore::kMargins, from, reference.arithmetic(), *honest); !kept) {
        fmt::print(stderr, "baton: the measured bounds could not be kept: {}\n", kept.error().message);
      }
    }
    lead_max_ = kBoundFactor * honest->logits.largest;
    return {};
  }

  // Shares are of what the host's kernels can do: for phases that these did.
  Status add_shares(Row& row) {
    if (flags_.no_limits || row.emulated) return {};
    const Placement& any = row.prefill.ran.empty() ? row.decode : row.prefill;
    if (!row.decode.ran.empty() && row.decode.kernels != any.kernels) return {};
    const host::Kernels* kernels = host::kernels_by_name(any.kernels);
    if (kernels == nullptr) return {};
    progress("measuring this machine's limits");
    if (!limits_ || limits_->threads() != threads(row)) limits_ = std::make_unique<Limits>(threads(row));
    const double seconds = static_cast<double>(row.test.tokens()) / row.speed.median;
    BATON_TRY(row.shares, limit_shares(*model_, row.test, seconds, *kernels, *limits_));
    progress("");
    const auto note = [&](const Rate& rate, const char* what) {
      limit_texts_.insert(fmt::format("{} {:.1f} G{}/s ({:.1f} to {:.1f})", rate.what, rate.median * 1e-9, what,
                                      rate.low * 1e-9, rate.high * 1e-9));
    };
    if (row.shares.bandwidth) note(row.shares.read, "B");
    for (const Rate& rate : row.shares.arithmetic) note(rate, "OP");
    return {};
  }

  const BenchFlags& flags_;
  std::vector<std::string> names_;  // of the two units
  std::shared_ptr<const Model> model_;
  std::unique_ptr<Unit> prefill_unit_, decode_unit_;
  std::unique_ptr<Executor> prefill_, decode_;
  EnergyMeter meter_;
  std::unique_ptr<Limits> limits_;
  std::set<std::string> limit_texts_;
  std::vector<std::vector<int32_t>> sequences_;  // a text, then its pieces
  std::optional<double> lead_max_;
  std::string why_no_lead_;
};

template <class T>
OrderedJson value_or_null(const std::optional<T>& value) {
  return value ? OrderedJson(*value) : OrderedJson(nullptr);
}

OrderedJson phase_json(const std::string& asked, const Placement& placement) {
  if (placement.ran.empty()) return nullptr;
  return {{"asked", asked},
          {"ran", placement.ran},
          {"evidence", placement.text()},
          {"warning", text_or_null(placement.warning)}};
}

OrderedJson rate_json(const Rate& rate) {
  return {{"what", rate.what}, {"median", rate.median}, {"low", rate.low}, {"high", rate.high}};
}

// The fields of llama-bench under its names, then ours.
OrderedJson row_json(const Row& row, const SpeedBench& bench, const BenchFlags& flags) {
  const Model& model = bench.model();
  std::vector<int64_t> nanoseconds;
  for (const double seconds : row.result.seconds) nanoseconds.push_back(static_cast<int64_t>(seconds * 1e9));
  const Summary time = summarize(row.result.seconds);
  OrderedJson json;
  json["model_filename"] = flags.model;
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
  json["prefill"] = phase_json(bench.prefill_name(), row.prefill);
  json["decode"] = phase_json(bench.decode_name(), row.decode);
  json["bandwidth_percent"] = value_or_null(row.shares.bandwidth);
  json["peak_percent"] = value_or_null(row.shares.peak);
  json["read_limit"] = row.shares.bandwidth ? rate_json(row.shares.read) : OrderedJson(nullptr);
  json["arithmetic_limits"] = OrderedJson::array();
  for (const Rate& rate : row.shares.arithmetic) json["arithmetic_limits"].push_back(rate_json(rate));
  json["joules_per_token"] = value_or_null(row.result.joules_per_token);
  json["energy"] = OrderedJson::array();
  for (const EnergyReading& reading : row.result.energy)
    json["energy"].push_back({{"source", reading.source}, {"joules", reading.joules}});
  json["energy_reason"] = text_or_null(row.energy_reason);
  json["peak_memory_bytes"] = value_or_null(row.peak_memory_bytes);
  json["tokens_hash"] = fmt::format("{:016x}", row.result.tokens_hash);
  json["check"] = {{"status", row.check.status},
                   {"reference", kReference},
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

std::string md_head(const Row& row, const SpeedBench& bench) {
  const std::string left(3, '-'), right = "--:";
  return fmt::format("{}: {}, {} parameters; {}, {} threads\n{}\n\n", bench.model().spec.name,
                     size_text(bench.model().weight_bytes()), count_text(bench.model().parameter_count()),
                     bench.backend(), bench.threads(row), bench.placed()) +
         fmt::format(kMdFormat, "test", "t/s", "% bandwidth", "% peak", "J/tok", "tokens") +
         fmt::format(kMdFormat, left, right, right, right, right, left);
}

std::string md_row(const Row& row) {
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

// A row's output, and the rows of a JSON list at the end.
class Table {
 public:
  explicit Table(const BenchFlags& flags) : flags_(flags) {
    if (flags.output == "csv") print(fmt::format("{}\n", fmt::join(kCsvFields, ",")));
  }
  void add(const Row& row, const SpeedBench& bench) {
    const OrderedJson json = row_json(row, bench, flags_);
    if (flags_.output == "md") {
      if (!headed_) print(md_head(row, bench));
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
  void add(const LoadRow& load) {
    const Summary ms = summarize(load.ms);
    const Summary peak = summarize(load.peak_memory_bytes);
    if (flags_.output == "md" || flags_.output == "csv") {
      // No speed: it is not a row of the table.
      fmt::print(flags_.output == "md" ? stdout : stderr,
                 "load to first token of {}: {:.0f} ms ({:.0f} to {:.0f}), peak memory {:.0f} MiB\n{}", kLoadPrompt,
                 ms.median, ms.low, ms.high, peak.median / (1 << 20), flags_.output == "md" ? "\n" : "");
      return;
    }
    OrderedJson json;
    json["model_filename"] = flags_.model;
    json["test"] = fmt::format("load+pp{}", kLoadPrompt);
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
  void finish() {
    if (flags_.output == "json") print_json(rows_);
  }

 private:
  const BenchFlags& flags_;
  bool headed_ = false;
  OrderedJson rows_ = OrderedJson::array();
};

Result<LoadRow> measure_load(const BenchFlags& flags) {
  std::vector<std::string> words = {program_file().string(), "bench", "--load-child", "-m", flags.model, "--unit",
                                    flags.prefill_on()};
  if (flags.threads > 0) words.insert(words.end(), {"-t", std::to_string(flags.threads)});
  LoadRow row;
  for (uint32_t i = 0; i < flags.repetitions; ++i) {
    progress(fmt::format("load {}/{}", i + 1, flags.repetitions));
    BATON_TRY(const ChildRun run, run_child(words));
    const size_t line = run.output.find('\n');
    const auto first = OrderedJson::parse(run.output.substr(0, line), nullptr, false);
    const auto second = OrderedJson::parse(run.output.substr(std::min(line + 1, run.output.size())), nullptr, false);
    if (!first.is_object() || !second.is_object() || !first.contains("first_token"))
      return fail(Code::kInternal, "the child of --load printed something else");
    row.ms.push_back(run.first_line_ms);
    row.token = first["first_token"].get<int32_t>();
    if (second["peak_memory_bytes"].is_number()) row.peak_memory_bytes.push_back(second["peak_memory_bytes"]);
  }
  progress("");
  if (row.peak_memory_bytes.empty()) row.peak_memory_bytes.push_back(std::nan(""));
  return row;
}

// kInvalidInput for a --pg that is not two counts.
Result<std::vector<SpeedTest>> tests_of(const BenchFlags& flags) {
  std::vector<SpeedTest> kinds;
  for (const uint32_t tokens : flags.prefill) kinds.push_back({.prefill_tokens = tokens});
  for (const uint32_t tokens : flags.decode) kinds.push_back({.decode_tokens = tokens});
  for (const std::string& both : flags.both) {
    SpeedTest test;
    const char* const end = both.data() + both.size();
    auto [at, error] = std::from_chars(both.data(), end, test.prefill_tokens);
    if (error == std::errc() && at != end && *at == ',')
      std::tie(at, error) = [&, from = at + 1] {
        const auto second = std::from_chars(from, end, test.decode_tokens);
        return std::pair(second.ptr, second.ec);
      }();
    if (error != std::errc() || at != end || test.prefill_tokens == 0 || test.decode_tokens == 0)
      return fail(Code::kInvalidInput, fmt::format("--pg {}: two counts above 0, as in 512,128", both));
    kinds.push_back(test);
  }
  std::vector<SpeedTest> tests;
  for (const uint32_t depth : flags.depth) {
    for (const uint32_t sequences : flags.sequences) {
      for (SpeedTest test : kinds) {
        test.depth = depth;
        test.sequences = sequences;
        if (test.tokens() > 0) tests.push_back(test);
      }
    }
  }
  return tests;
}

int run_tests(const BenchFlags& flags, const std::vector<SpeedTest>& tests, Table& table) {
  SpeedBench bench(flags);
  if (const auto code = bench.open()) return *code;
  if (const auto busy = busy_machine()) fmt::print(stderr, "baton: warning: {}\n", *busy);
  for (const SpeedTest& test : tests) {
    auto row = bench.run(test);
    if (!row) {
      progress("");
      return row.error().code == Code::kInvalidInput ? (report(row.error()), kUsage) : report(row.error());
    }
    if (!row->check.why.empty() && !flags.no_check)
      fmt::print(stderr, "baton: {}: tokens unchecked: {}\n", test.name(), row->check.why);
    table.add(*row, bench);
  }
  for (const std::string& text : bench.limit_texts()) fmt::print(stderr, "baton: limit: {}\n", text);
  if (const std::string warning = bench.warnings(); !warning.empty())
    fmt::print(stderr, "baton: warning: {}\n", warning);
  return kOk;
}

}  // namespace

int bench_speed(const BenchFlags& given) {
  BenchFlags flags = given;
  if (flags.model.empty()) {
    const auto bundled = bundled_model();
    if (!bundled) return report(bundled.error());
    flags.model = bundled->string();
  }
  const auto tests = tests_of(flags);
  if (!tests) return report(tests.error()), kUsage;
  if (tests->empty() && !flags.load) {
    fmt::print(stderr, "baton: no test: -p 0 and -n 0 leave nothing\n");
    return kUsage;
  }
  Table table(flags);
  if (flags.load) {  // first: while this process is small
    const auto load = measure_load(flags);
    if (!load) return report(load.error());
    table.add(*load);
  }
  if (!tests->empty()) {
    if (const int code = run_tests(flags, *tests, table); code != kOk) return code;
  }
  table.finish();
  return kOk;
}

int bench_load_child(const BenchFlags& flags) {
  auto unit = create_unit(flags.unit);
  if (!unit) return report(unit.error());
  auto text = load_text_model(flags.model);  // with its tokenizer, as an answer needs it
  if (!text) return report(text.error());
  const int32_t vocab = text->model->program.vocab;
  auto executor = (*unit)->load(text->model, flags.threads);
  if (!executor) return report(executor.error());
  auto state = (*executor)->new_state(kLoadPrompt + 1);
  if (!state) return report(state.error());
  std::vector<float> logits(static_cast<size_t>(vocab));
  const auto ids = prompt_ids({.prefill_tokens = kLoadPrompt}, 0, vocab);
  if (const auto done = (*executor)->prefill(**state, ids, logits); !done) return report(done.error());
  print_json({{"first_token", std::max_element(logits.begin(), logits.end()) - logits.begin()}});
  const auto peak = peak_memory_bytes();
  print_json({{"peak_memory_bytes", value_or_null(peak)}});
  return kOk;
}

}  // namespace baton::cli
