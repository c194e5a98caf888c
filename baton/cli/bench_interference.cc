// `baton bench --interference`: prefill and decode side by side.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>

#include "baton/bench/interference.h"
#include "baton/bench/probes.h"
#include "baton/cli/bench_flags.h"
#include "baton/cli/model_flags.h"

namespace baton::cli {
namespace {

std::string speeds_cell(const Summary& summary) {
  return fmt::format("{:.1f} ({:.1f}-{:.1f})", summary.median, summary.low, summary.high);
}

OrderedJson interference_phase_json(const InterferencePhase& phase) {
  return {
      {"unit", phase.unit},
      {"alone_tps", phase.alone_tps.median},
      {"together_tps", phase.together_tps.median},
      {"share", phase.share()},
      {"spread", {{"alone_tps", summary_json(phase.alone_tps)}, {"together_tps", summary_json(phase.together_tps)}}}};
}

double p99_of(const InterferenceReport& report, MeanwhileWay way) {
  return report.rows[static_cast<size_t>(way)].p99_ms.median;
}

double p99_share(const InterferenceReport& report) {
  return p99_of(report, MeanwhileWay::kOverlap) / p99_of(report, MeanwhileWay::kSingle);
}

OrderedJson interference_json(const InterferenceReport& report, const InterferenceSettings& settings,
                              const std::string& model) {
  OrderedJson json;
  json["prompt_tokens"] = settings.prompt_tokens;
  json["rounds"] = settings.rounds;
  json["quality"] = report.emulated ? "emulated" : "measured";
  json["prefill"] = interference_phase_json(report.prefill);
  json["decode"] = interference_phase_json(report.decode);
  json["meanwhile"] = OrderedJson::array();
  for (const MeanwhileRow& row : report.rows) {
    const bool asks = row.way != MeanwhileWay::kAlone;
    json["meanwhile"].push_back(
        {{"strategy", to_string(row.way)},
         {"pair", row.pair},
         {"gaps", row.gaps},
         {"p50_ms", row.p50_ms.median},
         {"p99_ms", row.p99_ms.median},
         {"decode_tps", row.decode_tps.median},
         {"ttft_ms", asks ? OrderedJson(row.ttft_ms.median) : OrderedJson(nullptr)},
         {"spread", {{"p50_ms", summary_json(row.p50_ms)}, {"p99_ms", summary_json(row.p99_ms)}}}});
  }
  json["p99_overlap_of_single"] = p99_share(report);
  json["hand_over"] = {{"move_ms", report.move_ms.median},
                       {"visible_ms", report.visible_ms.median},
                       {"hidden_share", report.hidden_share.median}};
  json["model_filename"] = model;
  return json;
}

// `emulated`: units. What works beside one of them waits for its emulator, too.
std::string interference_text(const InterferenceReport& report, const InterferenceSettings& settings,
                              std::span<const std::string> emulated) {
  const auto mark = [&](std::string_view units) {
    for (size_t begin = 0; begin <= units.size(); begin = std::min(units.find('+', begin), units.size()) + 1) {
      const std::string_view unit = units.substr(begin, units.find('+', begin) - begin);
      if (std::find(emulated.begin(), emulated.end(), unit) != emulated.end()) return " (emulated)";
    }
    return "";
  };
  std::string text = "| phase | unit | alone t/s | together t/s | left |\n|---|---|---:|---:|---:|\n";
  for (const auto& [name, phase] : {std::pair("prefill", &report.prefill), std::pair("decode", &report.decode)}) {
    const std::string_view own = mark(phase->unit);
    // What a real unit has left beside an emulated one is the emulator's doing.
    text += fmt::format("| {} | {}{} | {} | {} | {:.2f}x{} |\n", name, phase->unit, own, speeds_cell(phase->alone_tps),
                        speeds_cell(phase->together_tps), phase->share(),
                        report.emulated && own.empty() ? " (beside an emulated unit)" : "");
  }
  text += fmt::format("\nBetween the tokens of an answer while a prompt of {} tokens is prefilled:\n\n",
                      settings.prompt_tokens);
  text += "| strategy | pair | p50 ms | p99 ms | decode t/s | the prompt's TTFT ms |\n|---|---|---:|---:|---:|---:|\n";
  for (const MeanwhileRow& row : report.rows) {
    text += fmt::format("| {} | {}{} | {} | {} | {} | {} |\n", to_string(row.way), row.pair, mark(row.pair),
                        speeds_cell(row.p50_ms), speeds_cell(row.p99_ms), speeds_cell(row.decode_tps),
                        row.way == MeanwhileWay::kAlone ? "-" : speeds_cell(row.ttft_ms));
  }
  text += fmt::format(
      "\np99 of overlap is {:.2f}x that of single; of a hand-over of {:.1f} ms, {:.2f} ms were waited for{}\n",
      p99_share(report), report.move_ms.median, report.visible_ms.median, report.emulated ? " (emulated)" : "");
  return text;
}

}  // namespace

int bench_interference(const BenchFlags& flags) {
  ModelFlags model;
  model.model = flags.model;
  model.prefill_unit = flags.prefill_on();
  model.decode_unit = flags.decode_on();
  model.threads = flags.threads;
  model.lora = flags.lora;
  if (flags.given("--unit")) model.via_unit = flags.unit;  // a third one, to be loaded too
  if (const auto settled = model.settle(); !settled) return report(settled.error()), kUsage;
  if (model.prefill_unit == model.decode_unit) {
    return report(Error{Code::kInvalidInput, "--interference: --prefill and --decode name two units"}), kUsage;
  }
  InterferenceSettings settings;
  settings.prefill = model.prefill_unit;
  settings.decode = model.decode_unit;
  settings.single = model.via_unit.empty() ? model.decode_unit : model.via_unit;
  settings.rounds = flags.repetitions;
  if (flags.given("--n-prompt")) settings.prompt_tokens = flags.prefill.front();
  if (flags.given("--n-gen")) settings.answer_tokens = flags.decode.front();
  auto runtime = model.open();
  if (!runtime) return report(runtime.error());
  if (const auto busy = busy_machine()) fmt::print(stderr, "baton: warning: {}\n", *busy);
  const auto done =
      measure_interference(**runtime, settings, [](std::string_view text) { progress(std::string(text)); });
  progress("");
  if (!done) return done.error().code == Code::kInvalidInput ? (report(done.error()), kUsage) : report(done.error());
  if (flags.output == "md") {
    print(interference_text(*done, settings, (*runtime)->emulated_units()));
  } else {
    print_json(interference_json(*done, settings, model.model));
  }
  return kOk;
}

}  // namespace baton::cli
