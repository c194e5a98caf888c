// Pipelines on this machine, or emulated beside the published figures.
#include "baton/cli/bench_pipelines.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <unistd.h>

#include <algorithm>

#include "baton/base/bytes.h"
#include "baton/base/file.h"
#include "baton/base/machine.h"
#include "baton/base/output_file.h"
#include "baton/bench/pipeline_report.h"
#include "baton/bench/probes.h"
#include "baton/cli/model_flags.h"
#include "baton/cli/page_info.h"
#include "baton/cli/paths.h"
#include "baton/hub/resolve.h"

namespace baton::cli {
namespace {

constexpr std::string_view kShapeDefault = "qwen3.5-0.8b";
constexpr size_t kListBytesMax = 1 << 20;

Result<std::vector<Pipeline>> wanted_pipelines(const PipelineFlags& flags) {
  std::vector<Pipeline> all = preset_pipelines();
  if (!flags.file.empty()) {
    BATON_TRY(const std::string text, read_file(flags.file, kListBytesMax));
    BATON_TRY(all, parse_pipelines(text, flags.file));
  }
  if (flags.only.empty()) return all;
  std::vector<Pipeline> some;
  for (const std::string& name : flags.only) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const Pipeline& p) { return p.name == name; });
    if (found == all.end()) {
      std::vector<std::string> names;
      for (const Pipeline& pipeline : all) names.push_back(pipeline.name);
      return fail(Code::kInvalidInput, fmt::format("no pipeline '{}'; there are: {}", name, fmt::join(names, ", ")));
    }
    some.push_back(*found);
  }
  return some;
}

// A line now and then; on a terminal one line that is overwritten.
void progress_line(std::string_view text) {
  if (::isatty(2) != 0) return progress(text);
  fmt::print(stderr, "{}\n", text);
}

std::string machine_text() {
  const Machine machine = this_machine();
  return fmt::format("{}, {} cores, {:.1f} GB", machine.processor, machine.cores,
                     static_cast<double>(machine.memory_bytes) * 1e-9);
}

Status write_outputs(const PipelineFlags& flags, const ReportTitle& title, const PipelineReport& report,
                     std::span<const Comparison> published) {
  if (!flags.html.empty())
    BATON_OK(write_output(flags.html, as_bytes(report_html(title, report, published, page_info())), kModeShared));
  if (!flags.published.empty())
    BATON_OK(write_output(flags.published, as_bytes(published_json(published).dump(2) + "\n"), kModeShared));
  return {};
}

int show(const PipelineFlags& flags, const PipelineRun& run, const ReportTitle& title, const PipelineReport& report,
         std::span<const Comparison> published) {
  if (const auto written = write_outputs(flags, title, report, published); !written)
    return cli::report(written.error());
  if (run.output == "md") {
    print(report_text(title, report) + (published.empty() ? "" : published_text(published)));
  } else {
    for (const SkippedPipeline& skipped : report.skipped)
      fmt::print(stderr, "skipped {}: {}\n", skipped.pipeline, skipped.reason);
    const OrderedJson rows = rows_json(report.rows);
    if (run.output == "json") print_json(rows);
    for (const auto& row : rows) {
      if (run.output == "jsonl") print_json(row);
    }
  }
  bool failed = report.rows.empty();
  for (const SkippedPipeline& skipped : report.skipped) {
    if (skipped.failed) fmt::print(stderr, "baton: {}: {}\n", skipped.pipeline, skipped.reason);
    failed = failed || skipped.failed;
  }
  if (report.rows.empty()) fmt::print(stderr, "baton: nothing was measured\n");
  return failed ? kFailed : kOk;
}

Result<std::string> model_path(const PipelineRun& run) {
  if (!run.model.empty()) return run.model;
  BATON_TRY(const auto bundled, bundled_model());
  return bundled.string();
}

int run_here(const PipelineFlags& flags, const PipelineRun& run) {
  const auto pipelines = wanted_pipelines(flags);
  if (!pipelines) {
    fmt::print(stderr, "baton: {}\n", pipelines.error().message);
    return pipelines.error().code == Code::kInvalidInput ? kUsage : kFailed;
  }
  const auto path = model_path(run);
  if (!path) return report(path.error());
  PipelineSettings settings;
  settings.model = *path;
  if (!run.prompt_tokens.empty()) settings.prompt_tokens = run.prompt_tokens;
  std::sort(settings.prompt_tokens.begin(), settings.prompt_tokens.end());
  if (run.decode_tokens > 0) settings.decode_tokens = run.decode_tokens;
  if (run.runs > 0) settings.runs = settings.emulated_runs = run.runs;
  settings.threads = run.threads;
  if (const auto busy = busy_machine()) fmt::print(stderr, "baton: warning: {}\n", *busy);
  const auto done = run_pipelines(*pipelines, settings, progress_line);
  if (::isatty(2) != 0) progress("");
  if (!done) return report(done.error());
  const ReportTitle title{
      fmt::format("model: {}, {} tokens decoded", name_of_path(*path), settings.decode_tokens),
      "machine: " + machine_text(),
      "Wall time on this machine, medians (lowest-highest). Where a unit is emulated the time is of the emulator, "
      "not of the device. W and J: the processor packages, other programs included; ?: not known."};
  return show(flags, run, title, *done, {});
}

PipelineRow emulated_row(const Pipeline& pipeline, const Predictor::Times& times, std::string_view chip,
                         uint32_t tokens) {
  const auto once = [](double value) { return std::optional<Summary>(summarize({&value, 1})); };
  const std::string evidence = fmt::format("emulated {}: computed, nothing ran", chip);
  PipelineRow row;
  row.pipeline = pipeline.name;
  row.prefill = {pipeline.prefill, "", evidence + (pipeline.prefill == "coreml" ? ", as if Core ML used the GPU" : ""),
                 true};
  row.decode = {pipeline.decode, "", evidence, true};
  row.prompt_tokens = tokens;
  row.ttft_ms = once(times.ttft_ms);
  row.prefill_tps = once(times.prefill_tps);
  row.decode_tps = once(times.decode_tps);
  row.bridge_ms = once(times.bridge_ms);
  row.bridge_bytes = times.bridge_bytes;
  row.peak_memory_bytes = times.memory_bytes;
  row.watts = times.watts;
  row.joules = times.joules;
  row.time = Quality::kEmulated;
  row.energy = times.joules ? Quality::kEmulated : Quality::kUnknown;
  return row;
}

Result<std::vector<Comparison>> published_of(std::string_view chip) {
  BATON_TRY(std::vector<Comparison> rows, compare_published());
  std::erase_if(rows, [&](const Comparison& item) { return item.row.chip != chip; });
  return rows;
}

int emulate(const PipelineFlags& flags, const PipelineRun& run) {
  auto predictor = Predictor::create(flags.emulate);
  if (!predictor) {
    fmt::print(stderr, "baton: --emulate: {}\n", predictor.error().message);
    return kUsage;
  }
  std::shared_ptr<const Model> model;
  ModelShape shape = *model_shape(kShapeDefault);
  if (!run.model.empty()) {
    if (const Status there = hub::check_model(run.model); !there) return report(there.error());
    auto loaded = load_model(run.model);
    if (!loaded) return report(loaded.error());
    model = *std::move(loaded);
    shape = shape_of(*model);
  }
  PipelineReport done;
  std::vector<uint32_t> prompts = run.prompt_tokens.empty() ? PipelineSettings().prompt_tokens : run.prompt_tokens;
  std::sort(prompts.begin(), prompts.end());
  for (const Pipeline& pipeline : preset_pipelines()) {
    if (!flags.only.empty() && std::find(flags.only.begin(), flags.only.end(), pipeline.name) == flags.only.end())
      continue;
    for (const uint32_t tokens : prompts) {
      const auto times = predictor->times(pipeline.name, shape, GpuWeights::kBf16, tokens);
      if (times) {
        done.rows.push_back(emulated_row(pipeline, *times, flags.emulate, tokens));
      } else {
        done.skipped.push_back({fmt::format("{}, {} tokens", pipeline.name, tokens), times.error().message});
      }
    }
  }
  const auto published = published_of(flags.emulate);
  if (!published) return report(published.error());
  const ReportTitle title{
      fmt::format(
          "model: {} ({:.2f} G parameters), 200 tokens decoded; assumed: 16-bit weights, 2 bytes moved for each",
          shape.name, static_cast<double>(parameters(shape)) * 1e-9),
      fmt::format("machine: {}, emulated; {}", flags.emulate, predictor->chip().basis),
      "Every figure is emulated: computed from sizes and published measurements of others. Nothing ran. Core ML "
      "is taken to run on the GPU, as the source found. The comparison below has other figures for the same model: "
      "there each row counts the bytes its source moves, 10 for each weight of the 0.8B (f32 arithmetic on 16-bit "
      "weights). docs/pipelines.md says what the model is."};
  return show(flags, run, title, done, *published);
}

}  // namespace

void PipelineFlags::add_to(CLI::App& app) {
  app.add_flag("--pipelines", chosen,
               "run the pipelines gpu, coreml-hybrid, ane, ane-hybrid and ane-batch, those whose units exist");
  takes_path(app.add_option("--pipelines-file", file,
                            "pipelines of your own: JSON [{\"name\": .., \"prefill\": .., \"decode\": ..}]"),
             PathKind::kFile);
  app.add_option("--only", only, "names of the pipelines to run")->delimiter(',')->allow_extra_args(false);
  app.add_option("--emulate", emulate,
                 "run nothing: what they would do on a chip (m2-ultra, ...), beside the published figures");
  takes_path(app.add_option("--html", html, "write a page with charts to this file"), PathKind::kOutput);
  takes_path(app.add_option("--published", published,
                            "with --emulate: write the comparison with the published figures as JSON to this file"),
             PathKind::kOutput);
}

int bench_pipelines(const PipelineFlags& flags, const PipelineRun& run) {
  if (!flags.published.empty() && flags.emulate.empty()) {
    fmt::print(stderr, "baton: --published needs --emulate\n");
    return kUsage;
  }
  return flags.emulate.empty() ? run_here(flags, run) : emulate(flags, run);
}

}  // namespace baton::cli
