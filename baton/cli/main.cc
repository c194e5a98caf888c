// The program: commands, exit codes, and the last place where anything can be caught.
#include <fmt/format.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <new>
#include <optional>
#include <sstream>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include <unistd.h>

#include "baton/base/file.h"
#include "baton/base/memory_reserve.h"
#include "baton/base/output_file.h"
#include "baton/base/terminal.h"
#include "baton/cli/bench_flags.h"
#include "baton/cli/command.h"
#include "baton/cli/page_info.h"
#include "baton/cli/paths.h"
#include "baton/cli/usage.h"

namespace baton::cli {
namespace {

// Variables that people set for an answer's arithmetic, which only an option changes: ignoring them would give another
// answer than was asked for.
std::optional<std::string> ignored_variable() {
  constexpr std::pair<const char*, const char*> kVariables[] = {
      {"BATON_CPU_KERNELS", "cpu:kernels=..."},      {"BATON_ANE", "ane:NAME=VALUE,..."},
      {"BATON_COREML", "coreml:device=emulator"},    {"BATON_COREML_UNITS", "coreml:units=..."},
      {"BATON_COREML_SEQ", "coreml:lengths=64+256"}, {"BATON_COREML_TIMEOUT", "coreml:timeout=..."},
      {"BATON_COREML_CACHE", "coreml:cache=FOLDER"},
  };
  for (const auto& [name, option] : kVariables) {
    if (const char* value = std::getenv(name); value == nullptr || *value == '\0') continue;
    return fmt::format("{} is set, and no unit reads it: unset it and ask for {} (baton units --help-options)", name,
                       option);
  }
  return std::nullopt;
}

int run_program(int argc, char** argv) {
  CLI::App program("baton: prefill on one compute unit, decode on another, with the state verified on the way",
                   "baton");
  program.set_version_flag("--version", std::string("baton " BATON_VERSION));
  program.require_subcommand(1);
  const std::unique_ptr<Command> commands[] = {
      add_run(program),     add_chat(program),       add_batch(program),   add_units(program),  add_inspect(program),
      add_convert(program), add_quantize(program),   add_imatrix(program), add_export(program), add_bench(program),
      add_state(program),   add_perplexity(program), add_ladder(program),  add_embed(program),  add_serve(program),
      add_ps(program),      add_pull(program),       add_ls(program),      add_rm(program)};
  remember_command(argc, argv);
  decorate_help(program);
  std::vector<std::string> words = bench_words({argv + 1, argv + argc});
  const auto refuse = [](const std::string& why) {
    fmt::print(stderr, "baton: {}\nRun with --help for more information.\n", terminal_safe(why, kMessageShownMax));
    return kUsage;
  };
  if (const auto problem = usage_problem(program, words)) return refuse(*problem);
  try {
    program.parse(std::vector<std::string>(words.rbegin(), words.rend()));
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() != 0) return refuse(usage_text(program, error, words));
    std::ostringstream text;  // of --help and --version
    program.exit(error, text, text);
    print(text.str());
    return kOk;
  }
  if (const Status paths = check_paths(program); !paths) {
    return paths.error().code == Code::kInvalidInput ? refuse(paths.error().message) : report(paths.error());
  }
  if (const auto variable = ignored_variable()) return refuse(*variable);
  start_logs(false);
  for (const auto& command : commands) {
    if (command->chosen()) return command->run();
  }
  return kUsage;
}

// Where nothing can be unwound: in the end of an object, before `main`, in a thread of a library.
[[noreturn]] void end_at_once() {
  try {
    if (std::current_exception()) throw;
    if (!memory_was_refused()) std::abort();  // else thrown through what must not throw
  } catch (const std::bad_alloc&) {
  } catch (...) {
    std::abort();
  }
  constexpr std::string_view kWhy = "baton: out of memory\n";
  [[maybe_unused]] const auto said = ::write(STDERR_FILENO, kWhy.data(), kWhy.size());
  remove_temporary_files();
  ::_exit(kFailed);
}

// Before all that takes memory, so that nothing of it ends the program with a signal.
[[gnu::constructor(101)]] void expect_no_memory() {
  std::set_terminate(end_at_once);
  install_memory_reserve();
}

}  // namespace
}  // namespace baton::cli

int main(int argc, char** argv) {
  baton::cli::begin_output();
  baton::install_bus_error_message();
  baton::install_end_signals();
  int code = baton::cli::kFailed;
  try {
    code = baton::cli::run_program(argc, argv);
  } catch (const std::bad_alloc&) {
    std::fputs("baton: out of memory\n", stderr);
  } catch (const std::system_error& error) {
    std::fprintf(stderr, "baton: the system refused: %s (threads: fewer with -t, or ulimit -u)\n", error.what());
  } catch (const std::exception& exception) {
    std::fprintf(stderr, "baton: unexpected: %s\n", exception.what());
  }
  return baton::cli::end_output(code);
}
