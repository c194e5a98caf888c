// What the commands of the program share: exit codes, output rules, and the flags of model, units and sampling.
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

#include "baton/api/runtime.h"
#include "baton/cli/progress.h"

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
std::unique_ptr<Command> add_units(CLI::App& program);
std::unique_ptr<Command> add_inspect(CLI::App& program);
std::unique_ptr<Command> add_convert(CLI::App& program);
std::unique_ptr<Command> add_quantize(CLI::App& program);
std::unique_ptr<Command> add_imatrix(CLI::App& program);
std::unique_ptr<Command> add_export(CLI::App& program);
std::unique_ptr<Command> add_bench(CLI::App& program);
std::unique_ptr<Command> add_state(CLI::App& program);
std::unique_ptr<Command> add_perplexity(CLI::App& program);
std::unique_ptr<Command> add_ladder(CLI::App& program);

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
// Leveled logs on stderr: warnings always, `verbose` also what was loaded and skipped. Once, before the first log line.
void start_logs(bool verbose);
// A line of progress on stderr, only when it is a terminal.
void progress(std::string_view text);

// Flags of -m, units, threads and context. `model` empty: the bundled model.
struct ModelFlags {
  std::string model;
  // As parse_unit() reads them; empty: the other one, or "cpu"; no via unit. Settled: what the runtime calls them.
  std::string prefill_unit, via_unit, decode_unit;
  std::string strategy;  // empty: by the units
  std::string verify = "off";
  uint32_t threads = 0;
  uint32_t context = 4096;
  bool verbose = false;
  bool bundled = false;  // settled: no model was asked for, and `model` is the bundled one

  void add_to(CLI::App& app);
  // Fills the defaults; kInvalidInput for a strategy, unit or option that does not exist. Warns of more threads than
  // processors. Once.
  Status settle();
  Result<std::unique_ptr<Runtime>> open() const;
  void apply(Request& request) const;

 private:
  Status settle_units();
  Status settle_strategy();

  CLI::Option* context_option_ = nullptr;
  std::vector<std::string> units_;  // to load, the decode unit first
};

struct SamplingFlags {
  float temperature = 0.0f;  // run: the same answer each time; chat sets its own
  int32_t top_k = 40;
  float top_p = 0.95f;
  float min_p = 0.05f;
  float repeat_penalty = 1.0f, presence_penalty = 0.0f, frequency_penalty = 0.0f;
  int32_t repeat_last_n = 64;
  int64_t seed = -1;  // -1: from the clock
  int32_t predict = -1;
  bool ignore_eos = false;
  std::vector<std::string> stops;

  void add_to(CLI::App& app);
  uint64_t settled_seed();  // fixes `seed` when it is -1
  void apply(Request& request) const;
  OrderedJson json() const;  // what the draws follow
};

// The model that comes with the program: $BATON_MODELS, else beside the build or the installation. kNotFound says where
// it was looked for. Warns when BATON_MODELS is no folder.
Result<std::filesystem::path> bundled_model();

// What a shell reports for the signal that asked to end: kInterrupted for SIGINT, 143 for SIGTERM, 129 for SIGHUP.
int interrupted_code();

// Counts Ctrl-C while in scope. The first asks the current work to stop (a double press asks no more than that), the
// third ends the program with kInterrupted. With kTerminateToo a request to end (SIGTERM, SIGHUP) is taken as a Ctrl-C,
// for work that leaves files behind. Outside of any scope, and while `end_at_once`, the first one ends the program.
// Temporary files are removed either way.
class InterruptScope {
 public:
  enum Signals { kInterruptOnly, kTerminateToo };
  explicit InterruptScope(Signals signals = kInterruptOnly);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;
  bool interrupted() const;  // or nobody reads what is printed
  void clear();
  // For stretches that cannot be asked to stop and leave nothing to keep: loading, reading and encoding a prompt.
  void end_at_once(bool ends);

 private:
  const Signals signals_;
};

// Called before a third Ctrl-C ends the program: what puts a terminal back, safe in a signal handler. Null: nothing.
void at_forced_exit(void (*restore)());

// For Runtime::prepare_proof: what is measured and what cannot be proven is said on stderr. Borrows both; `meter` is
// made when measuring begins.
ProofEvents proof_events(const InterruptScope& interrupts, std::optional<Progress>& meter);
// What the units were asked for and did not give, and what was to be proven and was not, on stderr.
void log_warnings(const Completion& completion);
// The figures of one answer: as JSON fields, and as lines for people.
OrderedJson figures_json(const Completion& completion);
// `model`: who answered.
std::string figures_text(const Completion& completion, std::string_view model);
// The last part of a model's path.
std::string model_name(const std::filesystem::path& model);

}  // namespace baton::cli
