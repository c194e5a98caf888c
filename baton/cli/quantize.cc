// `baton quantize IN OUT TYPE`: a GGUF file in other number formats.
#include "baton/tools/quantize.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>

#include "baton/base/clock.h"
#include "baton/cli/command.h"
#include "baton/cli/paths.h"
#include "baton/cli/progress.h"
#include "baton/cli/shared_flags.h"
#include "baton/hub/resolve.h"

namespace baton::cli {
namespace {

struct QuantizeFlags {
  std::string model, source, out, type, importance;
  std::vector<std::string> rules;
  bool pure = false, allow_requantize = false, json = false;
  uint32_t threads = 0;
};

// "REGEX=TYPE"; the pattern may hold '='.
Result<TensorTypeRule> parse_rule(const std::string& text) {
  const size_t at = text.rfind('=');
  if (at == std::string::npos || at == 0) {
    return fail(Code::kInvalidInput, fmt::format("--tensor-type {}: must be PATTERN=TYPE", text));
  }
  const Format* format = format_by_name(text.substr(at + 1));
  if (format == nullptr || format->encode == nullptr || format->ggml_id == kNoGgmlId) {
    std::string names;
    for (const Format& item : formats()) {
      if (item.encode != nullptr && item.ggml_id != kNoGgmlId)
        names += fmt::format("{}{}", names.empty() ? "" : ", ", item.name);
    }
    return fail(Code::kInvalidInput,
                fmt::format("--tensor-type {}: no such type to write; there are: {}", text, names));
  }
  if (const Status pattern = check_pattern(text.substr(0, at)); !pattern)
    return fail(Code::kInvalidInput, fmt::format("--tensor-type {}: {}", text, pattern.error().message));
  return TensorTypeRule{text.substr(0, at), format->dtype};
}

int run_quantize(QuantizeFlags& flags) {
  if (!settle_arguments(flags.model, {&flags.source, &flags.out, &flags.type}, {"IN", "OUT", "TYPE"})) return kUsage;
  if (const Status known = check_quantize_type(flags.type); !known) {
    report(known.error());
    return kUsage;
  }
  flags.source = hub::model_path(flags.source);
  std::vector<UsedPath> paths = {{"IN", flags.source, PathKind::kModel}, {"OUT", flags.out, PathKind::kOutput}};
  if (!flags.importance.empty()) paths.push_back({"--imatrix", flags.importance, PathKind::kFile});
  if (const Status status = check_paths(paths); !status) return report_usage(status.error());
  if (const Status there = hub::check_model(flags.source); !there) return report(there.error());
  QuantizeOptions options;
  options.type = flags.type;
  options.pure = flags.pure;
  options.allow_requantize = flags.allow_requantize;
  options.threads = flags.threads;
  for (const std::string& text : flags.rules) {
    const auto rule = parse_rule(text);
    if (!rule) {
      report(rule.error());
      return kUsage;
    }
    options.rules.push_back(*rule);
  }
  Progress meter("tensor");
  options.on_tensor = [&](size_t done, size_t total, std::string_view tensor) { meter.show(done, total, tensor); };
  std::optional<ImportanceMatrix> importance;
  if (!flags.importance.empty()) {
    auto read = read_importance(flags.importance);
    if (!read) return report(read.error());
    importance = *std::move(read);
    options.importance = &*importance;
  }
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  const auto done = quantize_to_gguf(flags.source, flags.out, options);
  meter.clear();
  if (!done) return report(done.error());
  const double seconds = ms_between(start_ns, clock.now_ns()) / 1e3;
  if (flags.json) {
    OrderedJson types = OrderedJson::object();
    for (const auto& [type, count] : done->types) types[type] = count;
    print_json({{"out", flags.out},
                {"type", flags.type},
                {"recipe_hash", done->recipe_hash},
                {"tensors", done->tensors},
                {"types", types},
                {"bytes_in", done->bytes_in},
                {"bytes", done->bytes},
                {"seconds", seconds},
                {"notes", done->notes}});
    return kOk;
  }
  std::string text =
      fmt::format("{}: {} tensors, {} bytes ({:.1f} % of the source's), {} [{}], {:.1f} s\n", flags.out, done->tensors,
                  done->bytes, 100.0 * static_cast<double>(done->bytes) / static_cast<double>(done->bytes_in),
                  flags.type, done->recipe_hash, seconds);
  for (const auto& [type, count] : done->types) text += fmt::format("  {:6} {}\n", type, count);
  for (const std::string& note : done->notes) text += fmt::format("note: {}\n", note);
  print(text);
  return kOk;
}

}  // namespace

std::unique_ptr<Command> add_quantize(CLI::App& program) {
  CLI::App* app = program.add_subcommand("quantize", "write a GGUF file's tensors in other number formats");
  auto command = std::make_unique<FlagsCommand<QuantizeFlags, run_quantize>>(app);
  QuantizeFlags* flags = &command->flags;
  app->add_option("in", flags->source, fmt::format("GGUF file, best in BF16, F16 or F32, {}", kOrName))
      ->type_name(kNamedType);
  app->add_option("out", flags->out, "file to write; one that exists is replaced");
  app->add_option("type", flags->type, fmt::format("no default; one of {}", fmt::join(quantize_types(), ", ")));
  takes_path(app->add_option("-m,--model", flags->model, "IN, when it is not the first argument"), PathKind::kModel);
  app->add_option("--tensor-type", flags->rules, "PATTERN=TYPE: a type for the tensors whose name matches")
      ->allow_extra_args(false);
  takes_path(
      app->add_option("--imatrix", flags->importance, "importance matrix, of 'baton imatrix' or llama.cpp's tool"),
      PathKind::kFile);
  app->add_flag("--pure", flags->pure, "every matrix in the recipe's main type, without its exceptions");
  app->add_flag("--allow-requantize", flags->allow_requantize, "take a file that is quantized already");
  add_threads(*app, flags->threads);
  app->add_flag("--json", flags->json, "one JSON object instead of text");
  return command;
}

}  // namespace baton::cli
