// baton-apple-check: runs every probe in a process of its own, prints a JSON line for each on stdout as it ends and a
// line for people on stderr, and a verdict (docs/apple_check.md).
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "baton/base/bytes.h"
#include "baton/base/clock.h"
#include "tests/support/apple_check/probe.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

extern char** environ;

namespace baton::apple {

std::vector<Probe> probes() {
  std::vector<Probe> all;
  for (const auto& part : {form_probes(), kernel_probes(), system_probes()})
    all.insert(all.end(), part.begin(), part.end());
  return all;
}

namespace {

struct Flags {
  CheckContext context;
  std::string json, probe, program;
  std::vector<std::string> only;
  uint32_t timeout = 0;  // seconds; 0: each probe's own
};

// One system fact by its sysctl name; empty elsewhere.
std::string system_fact([[maybe_unused]] const char* name) {
#if defined(__APPLE__)
  char text[256] = {};
  size_t bytes = sizeof(text) - 1;
  if (::sysctlbyname(name, text, &bytes, nullptr, 0) == 0) return text;
#endif
  return "";
}

// The child: one probe, one line.
int run_probe(const Flags& flags) {
  for (const Probe& probe : probes()) {
    if (probe.name != flags.probe) continue;
    CheckContext context = flags.context;
    context.folder =
        std::filesystem::temp_directory_path() / fmt::format("baton_apple_check_{}", static_cast<int>(::getpid()));
    std::error_code ignored;
    std::filesystem::create_directories(context.folder, ignored);
    const auto result = probe.run(context, probe.name);
    std::filesystem::remove_all(context.folder, ignored);
    const OrderedJson json = result ? *result : OrderedJson{{"ok", false}, {"error", result.error().message}};
    fmt::print("{}\n", json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace));
    return 0;
  }
  fmt::print(stderr, "baton-apple-check: no probe '{}'\n", flags.probe);
  return 2;
}

struct Ended {
  std::string output;
  int status = 0;
  bool timed_out = false, started = true;
};

// Runs this program again with `arguments`; what it wrote, until it ends or the time is over.
Ended run_child(const std::string& program, std::vector<std::string> arguments, uint32_t seconds) {
  Ended ended;
  int ends[2] = {-1, -1};
  if (::pipe(ends) != 0) return {"", 0, false, false};
  ::fcntl(ends[0], F_SETFD, FD_CLOEXEC);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, ends[1], 1);
  posix_spawn_file_actions_addclose(&actions, ends[1]);
  arguments.insert(arguments.begin(), program);
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child = -1;
  ended.started = ::posix_spawnp(&child, program.c_str(), &actions, nullptr, argv.data(), environ) == 0;
  posix_spawn_file_actions_destroy(&actions);
  ::close(ends[1]);
  const SteadyClock clock;
  const int64_t start = clock.now_ns();
  while (ended.started) {
    const double left = seconds * 1e3 - ms_between(start, clock.now_ns());
    pollfd wait = {ends[0], POLLIN, 0};
    const int ready = left > 0 ? ::poll(&wait, 1, static_cast<int>(left) + 1) : 0;
    if (ready < 0 && errno == EINTR) continue;
    if (ready <= 0) {
      ended.timed_out = true;
      ::kill(child, SIGKILL);
      break;
    }
    char buffer[4096];
    const ssize_t count = ::read(ends[0], buffer, sizeof(buffer));
    if (count <= 0) break;
    ended.output.append(buffer, static_cast<size_t>(count));
  }
  ::close(ends[0]);
  while (ended.started && ::waitpid(child, &ended.status, 0) < 0 && errno == EINTR) {
  }
  return ended;
}

OrderedJson line_of(const Flags& flags, const Probe& probe, const std::string& head) {
  std::vector<std::string> arguments = {"--probe", probe.name, "--head", head};
  if (flags.context.emulate) arguments.emplace_back("--emulate");
  if (flags.context.quick) arguments.emplace_back("--quick");
  const SteadyClock clock;
  const int64_t start = clock.now_ns();
  const uint32_t seconds = flags.timeout > 0 ? flags.timeout : probe.seconds;
  const Ended ended = run_child(flags.program, arguments, seconds);
  OrderedJson line = {{"probe", probe.name}, {"group", probe.group}, {"ok", false}};
  OrderedJson found = OrderedJson::parse(ended.output, nullptr, false);
  if (!ended.started) {
    line["error"] = fmt::format("cannot start {}", flags.program);
  } else if (ended.timed_out) {
    line["timed_out_after_s"] = seconds;
  } else if (WIFSIGNALED(ended.status)) {
    line["signal"] = WTERMSIG(ended.status);
  } else if (!found.is_object()) {
    line["error"] = fmt::format("exit status {} without a result", WEXITSTATUS(ended.status));
  } else {
    line.update(found);
  }
  line["seconds"] = ms_between(start, clock.now_ns()) * 1e-3;
  return line;
}

std::string text_of(const OrderedJson& line) {
  std::string text =
      fmt::format("{:<22} {:<4}", line["probe"].get<std::string>(), line["ok"].get<bool>() ? "ok" : "NO");
  for (const char* key :
       {"error", "timed_out_after_s", "signal", "all_zero", "wrong_values", "rows", "shape", "compile_and_load_ms",
        "evaluate_ms", "equal_values", "values", "profile", "port_order", "row_pitch", "concat", "load_ms",
        "prediction_ms", "plain_f32_gflop_s", "accelerate_f32_gflop_s"}) {
    if (!line.contains(key) || line[key] == false || line[key] == 0) continue;
    const OrderedJson& value = line[key];
    text += fmt::format("  {} {}", key,
                        value.is_string()         ? value.get<std::string>()
                        : value.is_number_float() ? fmt::format("{:.4g}", value.get<double>())
                                                  : value.dump());
  }
  return text;
}

// Lines as they come, to stdout and to the file.
class Output {
 public:
  Status open(const std::string& path) {
    if (path.empty()) return {};
    file_ = std::fopen(path.c_str(), "w");
    if (file_ != nullptr) return {};
    return fail(Code::kInvalidInput, fmt::format("{}: cannot be written: {}", path, std::strerror(errno)));
  }
  ~Output() {
    if (file_ != nullptr) std::fclose(file_);
  }
  void line(const OrderedJson& json) {
    const std::string text = json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
    for (std::FILE* to : {stdout, file_}) {
      if (to == nullptr) continue;
      good_ = std::fwrite(text.data(), 1, text.size(), to) == text.size() && std::fflush(to) == 0 && good_;
    }
  }
  bool good() const { return good_; }

 private:
  std::FILE* file_ = nullptr;
  bool good_ = true;
};

struct Tally {
  uint32_t kernels = 0, agree = 0;
  bool start_up = false;
  std::string head;  // the first form that works
};

OrderedJson verdict_of(const Tally& tally, bool emulate, bool all_probes) {
  const bool kernels = tally.kernels > 0 && tally.agree == tally.kernels;
  const bool usable = kernels && tally.start_up && tally.head == kHeads[0];
  std::string text = usable ? "all kernels agree" : "NOT usable as it is; please send this report";
  if (!all_probes) {
    text = "some probes only";
  } else if (tally.head.empty()) {
    text = "no form of a program is taken; please send this report";
  } else if (tally.head != kHeads[0]) {
    text = fmt::format("programs must begin as {}, not as {}: {} of {} kernels agree then; please send this report",
                       tally.head, kHeads[0], tally.agree, tally.kernels);
  }
  return {{"probe", "verdict"}, {"group", "verdict"}, {"ok", usable}, {"emulated", emulate}, {"text", text}};
}

int run_all(const Flags& flags) {
  Output output;
  if (const Status opened = output.open(flags.json); !opened) {
    fmt::print(stderr, "baton-apple-check: {}\n", opened.error().message);
    return 2;
  }
  output.line({{"probe", "system"},
               {"group", "system"},
               {"ok", true},
               {"version", BATON_VERSION},
               {"model", system_fact("hw.model")},
               {"chip", system_fact("machdep.cpu.brand_string")},
               {"system", system_fact("kern.osproductversion") + " " + system_fact("kern.osversion")},
               {"emulated", flags.context.emulate}});
  Tally tally;
  for (const Probe& probe : probes()) {
    const bool named = std::find(flags.only.begin(), flags.only.end(), probe.name) != flags.only.end() ||
                       std::find(flags.only.begin(), flags.only.end(), probe.group) != flags.only.end();
    const bool usual = flags.only.empty() && !probe.by_name && (probe.quick || !flags.context.quick);
    if (!named && !usual) continue;
    // Programs are written in the first form that the system takes, so that a wrong head costs one line, not the
    // report.
    const std::string head = tally.head.empty() ? flags.context.head : tally.head;
    const OrderedJson line = line_of(flags, probe, head);
    output.line(line);
    fmt::print(stderr, "{}{}\n", flags.context.emulate ? "emulated  " : "", text_of(line));
    const bool ok = line["ok"].get<bool>();
    if (probe.group == "head" && ok && tally.head.empty()) tally.head = line["head"].get<std::string>();
    if (probe.group == "start-up") tally.start_up = ok;
    if (probe.group == "kernel") {
      ++tally.kernels;
      tally.agree += ok ? 1 : 0;
    }
  }
  const OrderedJson verdict = verdict_of(tally, flags.context.emulate, flags.only.empty());
  output.line(verdict);
  fmt::print(stderr, "verdict  {}{}\n", flags.context.emulate ? "(emulated) " : "", verdict["text"].get<std::string>());
  if (!output.good()) fmt::print(stderr, "baton-apple-check: the report could not be written\n");
  return output.good() && (verdict["ok"].get<bool>() || !flags.only.empty()) ? 0 : 1;
}

}  // namespace
}  // namespace baton::apple

int main(int argc, char** argv) {
  baton::apple::Flags flags;
  flags.program = argv[0];
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const bool has_value = i + 1 < argc;
    if (argument == "--emulate") {
      flags.context.emulate = true;
    } else if (argument == "--quick") {
      flags.context.quick = true;
    } else if (argument == "--json" && has_value) {
      flags.json = argv[++i];
    } else if (argument == "--probe" && has_value) {
      flags.probe = argv[++i];
    } else if (argument == "--head" && has_value) {
      flags.context.head = argv[++i];
    } else if (argument == "--only" && has_value) {
      flags.only.emplace_back(argv[++i]);
    } else if (argument == "--timeout" && has_value && std::atoi(argv[i + 1]) > 0) {
      flags.timeout = static_cast<uint32_t>(std::atoi(argv[++i]));
    } else {
      fmt::print(stderr,
                 "usage: baton-apple-check [--quick] [--json FILE] [--only PROBE-OR-GROUP]... [--timeout SECONDS] "
                 "[--emulate]\n");
      return argument == "--help" ? 0 : 2;
    }
  }
  return flags.probe.empty() ? baton::apple::run_all(flags) : baton::apple::run_probe(flags);
}
