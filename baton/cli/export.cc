// `baton export coreml MODEL OUT`: the prefill of a model as Core ML packages.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <memory>

#include "baton/api/units.h"
#include "baton/base/clock.h"
#include "baton/cli/command.h"
#include "baton/cli/paths.h"
#include "baton/cli/shared_flags.h"
#include "baton/hub/resolve.h"
#include "baton/unit/apple/mlpackage/export.h"

namespace baton::cli {
namespace {

struct ExportFlags {
  std::string source, out, model;
  std::vector<int32_t> seqs = {64, 256, 512};
  int32_t past = 0, chunks = 0;
  bool json = false;
};

std::string check_length(const std::string& text) {
  int32_t length = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), length);
  const bool number = error == std::errc() && end == text.data() + text.size();
  return number && length > 0 && length % 8 == 0 ? "" : fmt::format("'{}' is not a multiple of 8", text);
}

int run_export(ExportFlags& flags) {
  if (!settle_arguments(flags.model, {&flags.source, &flags.out}, {"MODEL", "OUT"})) return kUsage;
  std::sort(flags.seqs.begin(), flags.seqs.end());
  flags.seqs.erase(std::unique(flags.seqs.begin(), flags.seqs.end()), flags.seqs.end());
  flags.source = hub::model_path(flags.source);
  if (const Status there = hub::check_model(flags.source); !there) return report(there.error());
  const auto model = load_model(flags.source);
  if (!model) return report(model.error());
  if (const auto chunks = apple::plan_chunks(**model, flags.chunks); !chunks)
    return report_usage(Error(chunks.error()).in("--chunks"));
  apple::ExportOptions options;
  for (const int32_t seq : flags.seqs) options.shapes.push_back({seq, flags.past});
  options.chunks = flags.chunks;
  options.on_package = [](const std::string& name, size_t done, size_t total) {
    progress(fmt::format("{}/{} {}", done + 1, total, name));
  };
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  const auto report_of = apple::export_packages(**model, options, flags.out);
  progress("");
  if (!report_of) {
    Error refused = report_of.error();
    const auto can = units_that_can((*model)->program);
    if (refused.code == Code::kUnsupported && !can.empty())
      refused.message += fmt::format("; units that can run the model: {}", fmt::join(can, ", "));
    return report(refused);
  }
  const double seconds = ms_between(start_ns, clock.now_ns()) / 1e3;
  const apple::RangeReport& range = report_of->range;
  OrderedJson packages = OrderedJson::array();
  std::string text;
  for (const apple::ExportedPackage& item : report_of->packages) {
    packages.push_back({{"path", item.path.string()},
                        {"seq", item.shape.seq},
                        {"past", item.shape.past},
                        {"first_layer", item.layers.begin},
                        {"last_layer", item.layers.end - 1},
                        {"ops", item.ops},
                        {"weight_bytes", item.weight_bytes},
                        {"model_bytes", item.model_bytes}});
    text += fmt::format("{}  layers {}-{}, {} ops, {} bytes of weights\n", item.path.string(), item.layers.begin,
                        item.layers.end - 1, item.ops, item.weight_bytes);
  }
  if (flags.json) {
    print_json(
        {{"packages", packages},
         {"seconds", seconds},
         {"weights", {{"values", range.values}, {"abs_max", range.abs_max}, {"below_fp16_normal", range.subnormals}}},
         {"run_on_apple_hardware", false}});
    return kOk;
  }
  if (range.noteworthy()) {
    text += fmt::format("note: {} of {} weights are below 2^-14; some engines take them as 0\n", range.subnormals,
                        range.values);
  }
  text += fmt::format("{} package{}, {:.1f} s; not yet run on Apple hardware\n", report_of->packages.size(),
                      report_of->packages.size() == 1 ? "" : "s", seconds);
  print(text);
  return kOk;
}

}  // namespace

std::unique_ptr<Command> add_export(CLI::App& program) {
  CLI::App* app = program.add_subcommand("export", "write a model in the format of another runtime");
  app->require_subcommand(1);
  CLI::App* coreml = app->add_subcommand("coreml", "prefill as Core ML packages (not yet run on Apple hardware)");
  auto command = std::make_unique<FlagsCommand<ExportFlags, run_export>>(app);
  ExportFlags* flags = &command->flags;
  takes_path(coreml->add_option("model", flags->source, fmt::format("GGUF file, Hugging Face folder, {}", kOrName)),
             PathKind::kModel);
  takes_path(coreml->add_option("out", flags->out, "folder for the packages"), PathKind::kFolder);
  takes_path(coreml->add_option("-m,--model", flags->model, "MODEL, when it is not the first argument"),
             PathKind::kModel);
  coreml->add_option("--seq", flags->seqs, "lengths in tokens, each a multiple of 8")
      ->delimiter(',')
      ->allow_extra_args(false)
      ->check(CLI::Validator(check_length, "", "length"))
      ->default_str("64,256,512");
  coreml->add_option("--past", flags->past, "tokens of state that may come before; 0: from the start")
      ->capture_default_str();
  coreml->add_option("--chunks", flags->chunks, "packages the layers are split in; 0: by size")
      ->capture_default_str()
      ->check(CLI::Range(0, apple::kPackageChunksMax));
  coreml->add_flag("--json", flags->json, "one JSON object instead of text");
  return command;
}

}  // namespace baton::cli
