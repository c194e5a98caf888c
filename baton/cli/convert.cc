// `baton convert FOLDER OUT.gguf`: a Hugging Face folder as a GGUF file.
#include "baton/tools/convert.h"

#include <fmt/format.h>

#include <memory>

#include "baton/base/clock.h"
#include "baton/cli/command.h"
#include "baton/cli/paths.h"
#include "baton/cli/progress.h"
#include "baton/cli/shared_flags.h"
#include "baton/hub/resolve.h"

namespace baton::cli {
namespace {

struct ConvertFlags {
  std::string model, source, out, type = "Q8_0";
  bool json = false;
};

std::string written_types() {
  std::string names;
  for (const Format& item : formats()) {
    if (item.encode != nullptr && item.ggml_id != kNoGgmlId)
      names += fmt::format("{}{}", names.empty() ? "" : ", ", item.name);
  }
  return names;
}

int run_conversion(ConvertFlags& flags) {
  if (!settle_arguments(flags.model, {&flags.source, &flags.out}, {"SOURCE", "OUT"})) return kUsage;
  const Format* format = format_by_name(flags.type);
  if (format == nullptr || format->encode == nullptr || format->ggml_id == kNoGgmlId) {
    fmt::print(stderr,
               "baton: --type {}: {}; there are: {}. Recipes as Q4_K_M are made in a second step, "
               "by 'baton quantize' from a BF16 file\n",
               flags.type,
               format != nullptr && format->ggml_id != kNoGgmlId ? "files of this type are read, but it is not written"
                                                                 : "no such type to write",
               written_types());
    return kUsage;
  }
  flags.source = hub::model_path(flags.source);
  const UsedPath paths[] = {{"SOURCE", flags.source, PathKind::kModel}, {"OUT", flags.out, PathKind::kOutput}};
  if (const Status status = check_paths(paths); !status) return report_usage(status.error());
  if (const Status there = hub::check_model(flags.source); !there) return report(there.error());
  ConvertOptions options;
  options.matrix_type = format->dtype;
  Progress meter("tensor");
  options.on_tensor = [&](size_t done, size_t total, std::string_view tensor) { meter.show(done, total, tensor); };
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  const auto report_of = convert_to_gguf(flags.source, flags.out, options);
  meter.clear();
  if (!report_of) return report(report_of.error());
  for (const std::string& lost : report_of->lost) fmt::print(stderr, "baton: not kept: {}\n", lost);
  const double seconds = ms_between(start_ns, clock.now_ns()) / 1e3;
  if (flags.json) {
    print_json({{"out", flags.out},
                {"type", format->name},
                {"tensors", report_of->tensors},
                {"bytes", report_of->bytes},
                {"seconds", seconds},
                {"notes", report_of->notes},
                {"lost", report_of->lost}});
    return kOk;
  }
  std::string text = fmt::format("{}: {} tensors, {} bytes, {} matrices, {:.1f} s\n", flags.out, report_of->tensors,
                                 report_of->bytes, format->name, seconds);
  for (const std::string& note : report_of->notes) text += fmt::format("note: {}\n", note);
  print(text);
  return kOk;
}

}  // namespace

std::unique_ptr<Command> add_convert(CLI::App& program) {
  CLI::App* app = program.add_subcommand("convert", "write a Hugging Face folder as a GGUF file");
  auto command = std::make_unique<FlagsCommand<ConvertFlags, run_conversion>>(app);
  ConvertFlags* flags = &command->flags;
  app->add_option("source", flags->source, fmt::format("folder with config.json and safetensors, {}", kOrName))
      ->type_name(kNamedType);
  app->add_option("out", flags->out, "file to write; one that exists is replaced");
  takes_path(app->add_option("-m,--model", flags->model, "SOURCE, when it is not the first argument"),
             PathKind::kModel);
  app->add_option("--type", flags->type, fmt::format("type of the matrices: {}", written_types()))
      ->capture_default_str();
  app->add_flag("--json", flags->json, "one JSON object instead of text");
  return command;
}

}  // namespace baton::cli
