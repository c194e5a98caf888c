// `baton imatrix MODEL --text FILE -o OUT.gguf`: an importance matrix for `baton quantize --imatrix`.
#include "baton/tools/imatrix.h"

#include <fmt/format.h>

#include <memory>

#include "baton/api/units.h"
#include "baton/base/clock.h"
#include "baton/cli/command.h"
#include "baton/cli/interrupt.h"
#include "baton/cli/paths.h"
#include "baton/cli/progress.h"
#include "baton/cli/shared_flags.h"
#include "baton/hub/resolve.h"
#include "baton/tools/perplexity.h"

namespace baton::cli {
namespace {

struct ImatrixFlags {
  std::string model, text, out, unit = "cpu";
  uint64_t chunks = 0;
  uint32_t window = 512, threads = 0;
  bool json = false;
};

Result<ImportanceMatrix> measure(const ImatrixFlags& flags, const InterruptScope& interrupt) {
  BATON_OK(hub::check_model(flags.model));
  BATON_TRY(const TextModel model, load_text_model(flags.model));
  BATON_TRY(const auto text, read_perplexity_text(model, flags.text));
  ImportanceOptions options;
  options.window = flags.window;
  options.chunks_max = flags.chunks;
  options.window_start = text.window_start;
  options.unit = flags.unit;
  options.threads = flags.threads;
  Progress meter("chunk");
  options.on_chunk = [&](uint64_t done, uint64_t total) { meter.show(done, total); };
  options.stopped = [&] { return interrupt.interrupted(); };
  BATON_TRY(auto matrix, measure_importance(model.model, text.ids, options));
  matrix.datasets = {flags.text};
  return matrix;
}

int run_imatrix(const ImatrixFlags& flags) {
  if (flags.model.empty()) {
    fmt::print(stderr, "baton: no model; give a GGUF file as an argument or with -m\n");
    return kUsage;
  }
  const auto unit = parse_unit(flags.unit);
  if (!unit) return report_unit(unit.error());
  const std::string name(unit->entry->name);
  if (name != "cpu" && name != "ref") {
    fmt::print(stderr, "baton: --unit {}: does not show what its matrices read; there are: cpu, ref\n", name);
    return kUsage;
  }
  const InterruptScope interrupt;
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  const auto matrix = measure(flags, interrupt);
  if (!matrix) return report(matrix.error());
  if (const Status written = write_importance(*matrix, flags.out); !written) return report(written.error());
  const double seconds = ms_between(start_ns, clock.now_ns()) / 1e3;
  if (flags.json) {
    print_json({{"out", flags.out},
                {"unit", name},
                {"entries", matrix->entries.size()},
                {"chunks", matrix->chunks},
                {"chunk_tokens", matrix->chunk_tokens},
                {"seconds", seconds}});
    return kOk;
  }
  print(fmt::format("{}: {} matrices, {} chunks of {} tokens on {}, {:.1f} s\n", flags.out, matrix->entries.size(),
                    matrix->chunks, matrix->chunk_tokens, name, seconds));
  return kOk;
}

}  // namespace

std::unique_ptr<Command> add_imatrix(CLI::App& program) {
  CLI::App* app = program.add_subcommand("imatrix", "measure which inputs of each matrix matter, for 'quantize'");
  auto command = std::make_unique<FlagsCommand<ImatrixFlags, run_imatrix>>(app);
  ImatrixFlags* flags = &command->flags;
  add_model(*app, flags->model, fmt::format("GGUF file, best in BF16, F16 or F32, {}", kOrName));
  takes_path(app->add_option("-f,--text,--file", flags->text, "text like the one the model will be used on"),
             PathKind::kFile)
      ->required();
  takes_path(app->add_option("-o,--out,--output-file", flags->out,
                             "file to write, in llama.cpp's GGUF format; one that exists is replaced"),
             PathKind::kOutput)
      ->required();
  app->add_option("--chunks", flags->chunks, "chunks at most (default: all)")->check(CLI::Range(1, 1 << 30));
  app->add_option("-w,--window,-c,--ctx-size", flags->window, "tokens of a chunk; each starts from an empty state")
      ->capture_default_str()
      ->check(CLI::Range(2, 1 << 20));
  app->add_option("--unit", flags->unit, "cpu, or ref: plain f32 loops, many times slower, the oracle")
      ->capture_default_str();
  add_threads(*app, flags->threads);
  app->add_flag("--json", flags->json, "one JSON object instead of text");
  return command;
}

}  // namespace baton::cli
