// Running pipelines through the runtime, as `baton run` does.
#include "baton/bench/pipelines.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "baton/api/runtime.h"
#include "baton/api/units.h"
#include "baton/base/clock.h"
#include "baton/base/random.h"
#include "baton/base/terminal.h"
#include "baton/bench/energy_meter.h"
#include "baton/bench/probes.h"
#include "baton/model/container.h"

namespace baton {
namespace {

constexpr std::string_view kBest = "gpu";
constexpr size_t kNameBytesMax = 60;  // of a pipeline: a table's column

std::string name_in(const std::string& asked) { return asked.substr(0, asked.find(':')); }

// With options, which is what makes units worth sharing: kernels of the neural engine are limited per process.
std::set<std::string> optioned(const Pipeline& pipeline) {
  std::set<std::string> texts = {pipeline.prefill, pipeline.decode};
  std::erase_if(texts, [](const std::string& text) { return text.find(':') == std::string::npos; });
  return texts;
}

Result<std::string> field(const Json& item, const char* name, std::string_view where) {
  const auto found = item.find(name);
  if (found == item.end() || !found->is_string() || found->get_ref<const std::string&>().empty())
    return fail(Code::kInvalidInput, fmt::format("{}: '{}' is missing or not a text", where, name));
  return found->get<std::string>();
}

// The choice that `asked` stands for.
Result<UnitChoice> settled_unit(const std::string& asked) {
  if (name_in(asked) != kBest) return parse_unit(asked);
  std::vector<std::string_view> names;
  for (const UnitEntry* entry : unit_entries()) {
    if (entry->create({})) names.push_back(entry->name);  // is on this machine
  }
  const std::string_view best = best_decode_unit(names);
  if (best.empty()) return fail(Code::kNotFound, "no unit that decodes");
  return parse_unit(std::string(best) + asked.substr(kBest.size()));
}

std::vector<int32_t> prompt_of(uint32_t count, int32_t vocab) {
  Random random(17);
  std::vector<int32_t> ids(count);
  for (int32_t& id : ids) id = static_cast<int32_t>(random.below(static_cast<uint64_t>(vocab)));
  return ids;
}

// One pipeline on a runtime that is loaded.
struct Loaded {
  const Pipeline* pipeline;
  std::string prefill, decode;  // units that stand for what was asked
  Runtime* runtime = nullptr;
};

// A runtime with the units of all these pipelines.
Result<std::unique_ptr<Runtime>> open_runtime(std::span<const Pipeline* const> pipelines,
                                              const PipelineSettings& settings) {
  RuntimeOptions runtime;
  runtime.model = settings.model;
  runtime.threads = settings.threads;
  for (const Pipeline* pipeline : pipelines) {
    for (const std::string& asked : {pipeline->decode, pipeline->prefill}) {
      BATON_TRY(const UnitChoice unit, settled_unit(asked));
      if (std::find(runtime.units.begin(), runtime.units.end(), unit.text()) == runtime.units.end())
        runtime.units.push_back(unit.text());
    }
  }
  return Runtime::open(runtime);
}

struct Samples {
  std::vector<double> ttft_ms, prefill_tps, decode_tps, bridge_ms, joules, seconds;
};

std::optional<Summary> summary_of(const std::vector<double>& values) {
  return values.empty() ? std::nullopt : std::optional<Summary>(summarize(values));
}

CompletionRequest request_of(const Loaded& loaded, const PipelineSettings& settings, uint32_t tokens) {
  Runtime& runtime = *loaded.runtime;
  CompletionRequest request{runtime.make_request(prompt_of(tokens, runtime.model().spec.vocab)), {}};
  request.request.max_new_tokens = settings.decode_tokens;
  request.request.ignore_eos = true;
  request.request.sampler.temperature = 0;
  request.request.prefill_unit = loaded.prefill;
  request.request.decode_unit = loaded.decode;
  return request;
}

PhaseReport phase_of(const std::string& asked, const PhaseStats& phase, const std::string& fallback) {
  return {asked, phase.ran, fallback.empty() ? phase.evidence : phase.evidence + "; fallback: " + fallback,
          phase.emulated};
}

Result<PipelineRow> run_prompt(const Loaded& loaded, const PipelineSettings& settings, uint32_t tokens,
                               const std::function<void(std::string_view)>& progress) {
  const std::string& name = loaded.pipeline->name;
  PipelineRow row;
  row.pipeline = name;
  row.prompt_tokens = tokens;
  Samples samples;
  EnergyMeter meter;
  const SteadyClock clock;
  reset_peak_memory();
  uint32_t runs = settings.runs;
  for (uint32_t i = 0; i <= runs; ++i) {
    progress(
        fmt::format("{}, {} tokens, {}", name, tokens, i == 0 ? "first run" : fmt::format("run {} of {}", i, runs)));
    meter.start();
    const int64_t start = clock.now_ns();
    BATON_TRY(const Completion done,
              loaded.runtime->complete(
                  request_of(loaded, settings, tokens), [](std::string_view) {}, [] { return false; }));
    const double seconds = ms_between(start, clock.now_ns()) / 1e3;
    const RequestStats& stats = done.stats;
    row.prefill = phase_of(name_in(loaded.pipeline->prefill), stats.prefill, stats.fallback);
    row.decode = phase_of(name_in(loaded.pipeline->decode), stats.decode, "");
    if (i == 0) {
      const bool emulated = row.prefill.emulated || row.decode.emulated;
      row.time = emulated ? Quality::kEmulated : Quality::kMeasured;
      if (!emulated) continue;
      runs = settings.emulated_runs - 1;  // needs no warm-up: this was the first
    }
    samples.ttft_ms.push_back(stats.ttft_ms);
    if (stats.prefill_tps > 0) samples.prefill_tps.push_back(stats.prefill_tps);
    if (stats.decode_tps > 0) samples.decode_tps.push_back(stats.decode_tps);
    samples.bridge_ms.push_back(stats.bridge.ms);
    row.bridge_bytes = stats.bridge.bytes;
    samples.seconds.push_back(seconds);
    if (const auto joules = meter.joules()) samples.joules.push_back(*joules);
  }
  row.runs = static_cast<uint32_t>(samples.ttft_ms.size());
  row.ttft_ms = summary_of(samples.ttft_ms);
  row.prefill_tps = summary_of(samples.prefill_tps);
  row.decode_tps = summary_of(samples.decode_tps);
  row.bridge_ms = summary_of(samples.bridge_ms);
  row.peak_memory_bytes = peak_memory_bytes();
  if (samples.joules.size() == samples.seconds.size() && !samples.joules.empty()) {
    row.joules = summarize(samples.joules).median;
    row.watts = *row.joules / summarize(samples.seconds).median;
    row.energy = Quality::kMeasured;
  }
  return row;
}

}  // namespace

std::vector<Pipeline> preset_pipelines() {
  return {
      {"gpu", "gpu", "gpu"},
      {"coreml-hybrid", "coreml", "gpu"},
      {"ane", "ane:dispatch=sequential", "ane:dispatch=sequential"},
      {"ane-hybrid", "ane:dispatch=sequential", "gpu"},
      {"ane-batch", "ane:dispatch=batch", "gpu"},
  };
}

std::string_view best_decode_unit(std::span<const std::string_view> names) {
  for (const std::string_view wanted : {"metal", "cuda", "vulkan", "gpu", "cpu"}) {
    if (std::find(names.begin(), names.end(), wanted) != names.end()) return wanted;
  }
  return "";
}

std::string_view to_string(Quality quality) {
  switch (quality) {
    case Quality::kMeasured:
      return "measured";
    case Quality::kEmulated:
      return "emulated";
    case Quality::kUnknown:
      break;
  }
  return "unknown";
}

Result<std::vector<Pipeline>> parse_pipelines(std::string_view text, std::string_view file) {
  const Json json = Json::parse(text, nullptr, false);
  if (!json.is_array() || json.empty())
    return fail(
        Code::kInvalidInput,
        fmt::format("{}: not a JSON list of pipelines: [{{\"name\": ..., \"prefill\": ..., \"decode\": ...}}]", file));
  std::vector<Pipeline> pipelines;
  for (const Json& item : json) {
    const std::string where = fmt::format("{}: pipeline {}", file, pipelines.size());
    if (!item.is_object()) return fail(Code::kInvalidInput, where + " is not an object");
    Pipeline pipeline;
    BATON_TRY(pipeline.name, field(item, "name", where));
    BATON_TRY(pipeline.prefill, field(item, "prefill", where));
    BATON_TRY(pipeline.decode, field(item, "decode", where));
    const std::string& name = pipeline.name;
    if (name.find_first_of(" \t\n|,") != std::string::npos || terminal_safe(name, kNameBytesMax) != name) {
      return fail(Code::kInvalidInput,
                  fmt::format("{}: 'name' has more than {} bytes, or blanks, commas, bars or control "
                              "characters in it",
                              where, kNameBytesMax));
    }
    if (std::any_of(pipelines.begin(), pipelines.end(), [&](const Pipeline& p) { return p.name == pipeline.name; }))
      return fail(Code::kInvalidInput, fmt::format("{}: the name '{}' is there twice", where, pipeline.name));
    for (const auto& [key, value] : item.items()) {
      static_cast<void>(value);
      if (key == "name" || key == "prefill" || key == "decode") continue;
      return fail(Code::kInvalidInput, fmt::format("{}: '{}' is not known", where, key));
    }
    pipelines.push_back(std::move(pipeline));
  }
  return pipelines;
}

std::vector<std::vector<size_t>> shared_groups(std::span<const Pipeline> pipelines) {
  std::vector<std::vector<size_t>> groups;
  for (size_t i = 0; i < pipelines.size(); ++i) {
    const std::set<std::string> own = optioned(pipelines[i]);
    const bool same = i > 0 && !own.empty() && own == optioned(pipelines[i - 1]);
    if (!same) groups.emplace_back();
    groups.back().push_back(i);
  }
  return groups;
}

namespace {

void run_prompts(const Loaded& loaded, const PipelineSettings& settings, uint64_t context,
                 const std::function<void(std::string_view)>& progress, PipelineReport* report) {
  for (const uint32_t tokens : settings.prompt_tokens) {
    const std::string what = fmt::format("{}, {} tokens", loaded.pipeline->name, tokens);
    if (tokens + settings.decode_tokens > context) {
      report->skipped.push_back({what, fmt::format("the model's context is {} tokens", context)});
      continue;
    }
    auto row = run_prompt(loaded, settings, tokens, progress);
    if (row) {
      report->rows.push_back(*std::move(row));
    } else {
      const Code code = row.error().code;
      report->skipped.push_back({what, row.error().message, code == Code::kDevice || code == Code::kInternal});
    }
  }
}

}  // namespace

Result<PipelineReport> run_pipelines(std::span<const Pipeline> pipelines, const PipelineSettings& settings,
                                     const std::function<void(std::string_view)>& progress) {
  uint64_t context = 0;
  {
    BATON_TRY(const auto model, load_model(settings.model));
    context = static_cast<uint64_t>(model->spec.context_max);
  }
  PipelineReport report;
  for (const std::vector<size_t>& group : shared_groups(pipelines)) {
    std::vector<const Pipeline*> members;
    for (const size_t i : group) members.push_back(&pipelines[i]);
    progress(fmt::format("{}: loading", members[0]->name));
    auto shared = open_runtime(members, settings);
    report.loads += shared.has_value();
    for (const Pipeline* pipeline : members) {
      std::unique_ptr<Runtime> own;
      if (!shared && members.size() > 1) {
        // What one of them cannot have must not stop the others.
        auto alone = open_runtime({&pipeline, 1}, settings);
        if (!alone) {
          report.skipped.push_back({pipeline->name, alone.error().message});
          continue;
        }
        ++report.loads;
        own = std::move(*alone);
      } else if (!shared) {
        report.skipped.push_back({pipeline->name, shared.error().message});
        continue;
      }
      Loaded loaded{pipeline, "", "", own != nullptr ? own.get() : shared->get()};
      BATON_TRY(const UnitChoice prefill, settled_unit(pipeline->prefill));
      BATON_TRY(const UnitChoice decode, settled_unit(pipeline->decode));
      const std::vector<std::string> names = names_of(std::vector<UnitChoice>{prefill, decode});
      loaded.prefill = names[0];
      loaded.decode = names[1];
      run_prompts(loaded, settings, context, progress, &report);
    }
  }
  return report;
}

}  // namespace baton
