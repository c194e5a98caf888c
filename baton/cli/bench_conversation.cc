// `baton bench --conversation`: a row for each turn of each way.
#include <fmt/format.h>

#include "baton/api/units.h"
#include "baton/bench/conversation.h"
#include "baton/bench/probes.h"
#include "baton/cli/bench_flags.h"
#include "baton/cli/model_flags.h"

namespace baton::cli {
namespace {

// What is kept between turns, of all conversations; older ones make room.
constexpr uint64_t kCheckpointBytes = uint64_t{2} << 30;

OrderedJson row_json(const ConversationRow& row, const BenchFlags& flags, const std::string& energy_reason) {
  OrderedJson json;
  json["strategy"] = to_string(row.way);
  json["pair"] = row.pair;
  json["turn"] = row.turn;
  json["prompt_tokens"] = row.prompt_tokens;
  json["cached_tokens"] = row.cached_tokens;
  json["replayed_tokens"] = row.replayed_tokens;
  json["ttft_ms"] = row.ttft_ms.median;
  json["hand_over_ms"] = row.hand_over_ms.median;
  json["decode_tps"] = row.decode_tps.median;
  json["total_ms"] = row.total_ms.median;
  json["joules"] = row.joules ? OrderedJson(*row.joules) : OrderedJson(nullptr);
  json["energy_reason"] = row.joules ? OrderedJson(nullptr) : OrderedJson(energy_reason);
  json["quality"] = row.emulated ? "emulated" : "measured";
  json["rounds"] = row.rounds;
  json["pause_ms"] = flags.pause_ms;
  json["spread"] = {{"ttft_ms", summary_json(row.ttft_ms)},
                    {"hand_over_ms", summary_json(row.hand_over_ms)},
                    {"decode_tps", summary_json(row.decode_tps)},
                    {"total_ms", summary_json(row.total_ms)}};
  json["model_filename"] = flags.model;
  if (!flags.lora.empty()) json["lora"] = flags.lora;
  return json;
}

std::string cell(const Summary& summary) {
  return fmt::format("{:.1f} ({:.1f}-{:.1f})", summary.median, summary.low, summary.high);
}

std::string table(const ConversationReport& report) {
  std::string text =
      "| strategy | pair | turn | prompt | cached | replayed | TTFT ms | hand-over ms | decode t/s | total ms | J | |\n"
      "|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|\n";
  for (const ConversationRow& row : report.rows) {
    text += fmt::format("| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |\n", to_string(row.way), row.pair,
                        row.turn, row.prompt_tokens, row.cached_tokens, row.replayed_tokens, cell(row.ttft_ms),
                        cell(row.hand_over_ms), cell(row.decode_tps), cell(row.total_ms),
                        row.joules ? fmt::format("{:.2f}", *row.joules) : "unknown", row.emulated ? "emulated" : "");
  }
  return text;
}

}  // namespace

int bench_conversation(const BenchFlags& given) {
  BenchFlags flags = given;
  ModelFlags model;
  model.model = flags.model;
  model.prefill_unit = flags.prefill_on();
  model.decode_unit = flags.decode_on();
  model.threads = flags.threads;
  model.lora = flags.lora;
  const auto prefill = parse_unit(model.prefill_unit);
  if (const auto settled = model.settle(); !settled) return report(settled.error()), kUsage;
  flags.model = model.model;
  EngineLimits limits;
  limits.checkpoint_bytes_max = kCheckpointBytes;
  auto runtime = model.open(limits);
  if (!runtime) return report(runtime.error());
  if (const auto busy = busy_machine()) fmt::print(stderr, "baton: warning: {}\n", *busy);
  ConversationSettings settings;
  settings.shape = {flags.turns, flags.input_tokens, flags.answer_tokens, flags.pause_ms};
  settings.prefill = model.prefill_unit;
  settings.decode = model.decode_unit;
  settings.only_prefills = prefill && prefill->entry->only_prefills;
  settings.rounds = flags.repetitions;
  const auto done =
      measure_conversation(**runtime, settings, [](std::string_view text) { progress(std::string(text)); });
  progress("");
  if (!done) return done.error().code == Code::kInvalidInput ? (report(done.error()), kUsage) : report(done.error());
  if (!done->energy_reason.empty()) fmt::print(stderr, "baton: joules unknown: {}\n", done->energy_reason);
  if (flags.output == "md") {
    print(table(*done));
    return kOk;
  }
  OrderedJson rows = OrderedJson::array();
  for (const ConversationRow& row : done->rows) rows.push_back(row_json(row, flags, done->energy_reason));
  if (flags.output == "json") print_json(rows);
  for (const auto& row : rows) {
    if (flags.output == "jsonl") print_json(row);
  }
  return kOk;
}

}  // namespace baton::cli
