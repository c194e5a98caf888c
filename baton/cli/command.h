// What the commands of the program share: exit codes and output rules.
// Results go to stdout, progress and logs to stderr; no colour or bars off a terminal.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "baton/base/status.h"

namespace baton::cli {

// kReaderGone: who read stdout left (as SIGPIPE is reported by a shell); nothing is printed then.
enum ExitCode : int { kOk = 0, kFailed = 1, kUsage = 2, kInterrupted = 130, kReaderGone = 141 };

using OrderedJson = nlohmann::ordered_json;

// One command: owns the values of its flags, and knows what to do when its sub-command was chosen.
class Command {
 public:
  explicit Command(const CLI::App* app) : app_(app) {}
  virtual ~Command() = default;
  bool chosen() const { return app_->parsed(); }
  virtual int run() = 0;  // an ExitCode

 private:
  const CLI::App* app_;
};

// kRun: a function that takes the flags and returns an ExitCode.
template <class Flags, auto kRun>
class FlagsCommand final : public Command {
 public:
  using Command::Command;
  int run() override { return kRun(flags); }
  Flags flags{};
};

std::unique_ptr<Command> add_run(CLI::App& program);
std::unique_ptr<Command> add_chat(CLI::App& program);
std::unique_ptr<Command> add_batch(CLI::App& program);
std::unique_ptr<Command> add_units(CLI::App& program);
std::unique_ptr<Command> add_inspect(CLI::App& program);
std::unique_ptr<Command> add_convert(CLI::App& program);
std::unique_ptr<Command> add_quantize(CLI::App& program);
std::unique_ptr<Command> add_imatrix(CLI::App& program);
std::unique_ptr<Command> add_export(CLI::App& program);
std::unique_ptr<Command> add_bench(CLI::App& program);
std::unique_ptr<Command> add_serve(CLI::App& program);
std::unique_ptr<Command> add_ps(CLI::App& program);
std::unique_ptr<Command> add_pull(CLI::App& program);
std::unique_ptr<Command> add_ls(CLI::App& program);
std::unique_ptr<Command> add_rm(CLI::App& program);
std::unique_ptr<Command> add_state(CLI::App& program);
std::unique_ptr<Command> add_perplexity(CLI::App& program);
std::unique_ptr<Command> add_ladder(CLI::App& program);
std::unique_ptr<Command> add_embed(CLI::App& program);

// "baton: <message>" on stderr; kFailed.
int report(const Error& error);
// The same for an error in what was asked for: kUsage when it is kInvalidInput.
int report_usage(const Error& error);
// The same for an error of create_unit: kUsage when there is no such unit or option.
int report_unit(const Error& error);
// One JSON value and a newline on stdout. Text that is not UTF-8 is shown with U+FFFD.
void print_json(const OrderedJson& value);
// null when there is none.
OrderedJson text_or_null(const std::string& text);
// To stdout, unbuffered; the only way there. False when it could not be written, now or before: then nothing more is,
// the work at hand is to end at its next step (InterruptScope tells it so), and the program ends with kFailed or
// kReaderGone.
bool print(std::string_view text);
bool output_lost();
// At the program's start and end. `end_output` gives the exit code: `code` (interrupted_code() for kInterrupted),
// unless output was lost.
void begin_output();
int end_output(int code);
// Token ids of --ids: "1,2,3" with optional spaces.
Result<std::vector<int32_t>> parse_ids(std::string_view text);
// Leveled logs on stderr: warnings always, `verbose` also what was loaded and skipped. The program calls it before any
// command, as what logs without it does so on stdout; a command with --verbose once more.
void start_logs(bool verbose);
// A line of progress on stderr, only when it is a terminal.
void progress(std::string_view text);

}  // namespace baton::cli
