// The program: commands, exit codes, and the last place where anything can be caught.
#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <string>
#include <vector>

#include "baton/base/file.h"
#include "baton/cli/bench_flags.h"
#include "baton/cli/command.h"
#include "baton/cli/page_info.h"

namespace baton::cli {
namespace {

int run_program(int argc, char** argv) {
  CLI::App program("baton: prefill on one compute unit, decode on another, with the state verified on the way",
                   "baton");
  program.set_version_flag("--version", std::string("baton " BATON_VERSION));
  program.require_subcommand(1);
  program.failure_message([](const CLI::App*, const CLI::Error& error) {
    return fmt::format("baton: {}\nRun with --help for more information.\n", error.what());
  });
  const std::unique_ptr<Command> commands[] = {add_run(program),     add_chat(program),       add_units(program),
                                               add_inspect(program), add_convert(program),    add_quantize(program),
                                               add_imatrix(program), add_export(program),     add_bench(program),
                                               add_state(program),   add_perplexity(program), add_ladder(program)};
  remember_command(argc, argv);
  std::vector<std::string> words = bench_words({argv + 1, argv + argc});
  std::reverse(words.begin(), words.end());
  try {
    program.parse(words);
  } catch (const CLI::ParseError& error) {
    return program.exit(error, std::cout, std::cerr) == 0 ? kOk : kUsage;
  }
  for (const auto& command : commands) {
    if (command->chosen()) return command->run();
  }
  return kUsage;
}

}  // namespace
}  // namespace baton::cli

int main(int argc, char** argv) {
  baton::install_bus_error_message();
  try {
    return baton::cli::run_program(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("baton: out of memory\n", stderr);
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "baton: unexpected: %s\n", exception.what());
  }
  return baton::cli::kFailed;
}
