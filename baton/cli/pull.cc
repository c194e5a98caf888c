// `baton pull`: a model from a hub into the cache that programs of Hugging Face share.
#include "baton/hub/pull.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>

#include "baton/base/clock.h"
#include "baton/base/terminal.h"
#include "baton/cli/command.h"
#include "baton/cli/interrupt.h"
#include "baton/cli/progress.h"
#include "baton/hub/resolve.h"

namespace baton::cli {
namespace {

struct PullFlags {
  std::string name, revision = "main";
  uint32_t connections = 4;
  bool json = false, quiet = false;
};

std::string shown_bytes(uint64_t bytes) {
  if (bytes < 10'000) return fmt::format("{} bytes", bytes);
  if (bytes < 1'000'000) return fmt::format("{:.2f} MB", static_cast<double>(bytes) / 1e6);
  return bytes < 1'000'000'000 ? fmt::format("{:.1f} MB", static_cast<double>(bytes) / 1e6)
                               : fmt::format("{:.2f} GB", static_cast<double>(bytes) / 1e9);
}

// On a terminal one line that is rewritten; elsewhere a line now and then.
class PullLines {
 public:
  explicit PullLines(bool quiet) : quiet_(quiet), on_terminal_(::isatty(STDERR_FILENO) != 0) {}
  ~PullLines() { clear(); }

  void show(const hub::PullProgress& progress) {
    if (quiet_) return;
    const int64_t now = clock_.now_ns();
    const bool other = progress.file != file_;
    file_ = progress.file;
    if (on_terminal_ ? now - shown_ns_ < kBetweenNs : now - shown_ns_ < kLinesNs && !other) return;
    shown_ns_ = now;
    // Of what came in this pull.
    const double seconds = static_cast<double>(now - start_ns_) * 1e-9;
    const double speed = seconds > 0.5 ? static_cast<double>(progress.done) / seconds : 0;
    std::string text = fmt::format("{} {} of {}", terminal_safe(progress.file, kNameShownMax),
                                   shown_bytes(progress.file_done), shown_bytes(progress.file_bytes));
    if (speed > 0 && progress.done < progress.bytes) {
      // The time is of all files.
      if (progress.bytes != progress.file_bytes)
        text += fmt::format("; {} of {} in all", shown_bytes(progress.done), shown_bytes(progress.bytes));
      text += fmt::format(", {}/s, {} left", shown_bytes(static_cast<uint64_t>(speed)),
                          duration_text(static_cast<double>(progress.bytes - progress.done) / speed));
    }
    if (on_terminal_) {
      baton::cli::progress(text);
    } else {
      fmt::print(stderr, "baton: {}\n", text);
    }
  }
  void note(const std::string& text) {
    clear();
    fmt::print(stderr, "baton: {}\n", terminal_safe(text, kMessageShownMax));
  }
  void clear() const {
    if (!quiet_) baton::cli::progress("");
  }

 private:
  static constexpr int64_t kBetweenNs = 100'000'000, kLinesNs = 10'000'000'000;
  const bool quiet_, on_terminal_;
  const SteadyClock clock_;
  const int64_t start_ns_ = clock_.now_ns();
  int64_t shown_ns_ = 0;
  std::string file_;
};

OrderedJson json_of(const hub::Pulled& pulled) {
  OrderedJson files = OrderedJson::array();
  for (const hub::PulledFile& file : pulled.files) {
    files.push_back({{"path", file.path},
                     {"bytes", file.bytes},
                     {"etag", file.etag},
                     {"fetched", file.fetched},
                     {"summed", file.summed}});
  }
  return {{"model", pulled.model.name.text()},     {"repository", pulled.model.name.id()},
          {"type", pulled.model.name.type},        {"commit", pulled.model.commit},
          {"path", pulled.model.path.string()},    {"bytes", pulled.model.bytes},
          {"bytes_fetched", pulled.bytes_fetched}, {"files", std::move(files)}};
}

int run_pull(PullFlags& flags) {
  const auto name = hub::parse_repo(flags.name);
  if (!name) return report_usage(name.error());
  if (name->owner.empty()) {
    return report_usage({Code::kInvalidInput, fmt::format("'{}' is no name of a hub's model: OWNER/NAME or "
                                                          "OWNER/NAME:TYPE, as in Qwen/Qwen3-0.6B-GGUF:Q8_0",
                                                          flags.name)});
  }
  hub::PullOptions options;
  auto settings = hub::read_settings();
  if (!settings) return report_usage(settings.error());
  options.settings = *std::move(settings);
  if (!hub::good_revision(flags.revision))
    return report_usage(
        {Code::kInvalidInput, fmt::format("--revision {}: no name of a branch, a tag or a commit", flags.revision)});
  options.revision = flags.revision;
  options.limits.connections = flags.connections;
  InterruptScope interrupts(InterruptScope::kTerminateToo);
  PullLines lines(flags.quiet);
  options.watch.cancelled = [&] { return interrupts.interrupted(); };
  options.watch.note = [&](const std::string& text) { lines.note(text); };
  options.progress = [&](const hub::PullProgress& progress) { lines.show(progress); };
  const auto pulled = hub::pull(*name, options);
  lines.clear();
  if (!pulled) {
    if (pulled.error().code == Code::kCancelled)
      return report({Code::kCancelled, fmt::format("{}: interrupted; `baton pull` goes on from there", name->text())});
    return report(pulled.error());
  }
  if (flags.json) {
    print_json(json_of(*pulled));
  } else {
    if (!flags.quiet) {
      fmt::print(stderr, "baton: {}: {} file{}, {}, {} of it fetched now; use it with -m {}\n",
                 pulled->model.name.text(), pulled->model.files.size(), pulled->model.files.size() == 1 ? "" : "s",
                 shown_bytes(pulled->model.bytes), shown_bytes(pulled->bytes_fetched), pulled->model.name.text());
    }
    print(pulled->model.path.string() + "\n");
  }
  return kOk;
}

struct ListFlags {
  bool json = false;
};

std::string shown_day(int64_t seconds) {
  const time_t time = seconds;
  tm parts{};
  ::localtime_r(&time, &parts);
  return fmt::format("{:04}-{:02}-{:02}", parts.tm_year + 1900, parts.tm_mon + 1, parts.tm_mday);
}

int run_list(ListFlags& flags) {
  const auto place = hub::cache_place();
  if (place.empty()) return report({Code::kInvalidInput, "no place for models: set HF_HUB_CACHE, HF_HOME or HOME"});
  const auto models = hub::Cache(place).list();
  if (flags.json) {
    OrderedJson list = OrderedJson::array();
    for (const hub::CachedModel& model : models) {
      list.push_back({{"model", model.name.text()},
                      {"repository", model.name.id()},
                      {"type", model.name.type},
                      {"commit", model.commit},
                      {"path", model.path.string()},
                      {"bytes", model.bytes},
                      {"changed", model.changed},
                      {"whole", model.whole},
                      {"files", model.files}});
    }
    print_json({{"cache", place.string()}, {"models", std::move(list)}});
    return kOk;
  }
  size_t width = 0;
  for (const hub::CachedModel& model : models) width = std::max(width, model.name.text().size());
  for (const hub::CachedModel& model : models) {
    print(fmt::format("{:<{}}  {:>10}  {}{}\n", model.name.text(), width, shown_bytes(model.bytes),
                      shown_day(model.changed), model.whole ? "" : "  not whole: pull it again"));
  }
  if (models.empty())
    fmt::print(stderr, "baton: no models in {}: `baton pull OWNER/NAME:TYPE` fetches one\n", place.string());
  return kOk;
}

struct RemoveFlags {
  std::vector<std::string> names;
  bool json = false;
};

int run_remove(RemoveFlags& flags) {
  const auto place = hub::cache_place();
  if (place.empty()) return report({Code::kInvalidInput, "no place for models: set HF_HUB_CACHE, HF_HOME or HOME"});
  const hub::Cache cache(place);
  std::vector<hub::RepoName> names;
  for (const std::string& text : flags.names) {
    auto name = hub::parse_repo(text);
    if (!name) return report_usage(name.error());
    names.push_back(*std::move(name));
  }
  OrderedJson list = OrderedJson::array();
  for (const hub::RepoName& name : names) {
    const auto removed = cache.remove(name);
    if (!removed) {
      Error why = removed.error();
      const std::string near = hub::near_cached(name.text());
      if (why.code == Code::kNotFound && !near.empty()) why.message += fmt::format("; did you mean {}?", near);
      return report(why);
    }
    list.push_back({{"model", name.text()}, {"files", removed->files}, {"bytes", removed->bytes}});
    if (!flags.json) print(fmt::format("{}: {} freed\n", name.text(), shown_bytes(removed->bytes)));
  }
  if (flags.json) print_json({{"removed", std::move(list)}});
  return kOk;
}

}  // namespace

std::unique_ptr<Command> add_pull(CLI::App& program) {
  CLI::App* app = program.add_subcommand("pull", "fetch a model from a hub by its name, for -m OWNER/NAME:TYPE");
  auto command = std::make_unique<FlagsCommand<PullFlags, run_pull>>(app);
  PullFlags* flags = &command->flags;
  app->add_option("name", flags->name,
                  "OWNER/NAME or OWNER/NAME:TYPE; TYPE: of a GGUF file (default: Q4_K_M, then Q8_0 and others), or "
                  "safetensors")
      ->required();
  app->add_option("--revision", flags->revision, "a branch, a tag or a commit")->capture_default_str();
  app->add_option("--connections", flags->connections, "requests at once")
      ->capture_default_str()
      ->check(CLI::Range(1, 32));
  app->add_flag("--json", flags->json, "what was fetched, as JSON on stdout");
  app->add_flag("-q,--quiet", flags->quiet, "no progress on stderr");
  app->footer(
      "HF_TOKEN, HF_ENDPOINT, HF_HOME, HF_HUB_CACHE and HF_HUB_OFFLINE mean what they mean to Hugging Face's "
      "programs: docs/hub.md");
  return command;
}

std::unique_ptr<Command> add_ls(CLI::App& program) {
  CLI::App* app = program.add_subcommand("ls", "the models of the cache, by the names that -m takes");
  auto command = std::make_unique<FlagsCommand<ListFlags, run_list>>(app);
  app->add_flag("--json", command->flags.json, "as JSON on stdout");
  return command;
}

std::unique_ptr<Command> add_rm(CLI::App& program) {
  CLI::App* app = program.add_subcommand("rm", "remove models from the cache");
  auto command = std::make_unique<FlagsCommand<RemoveFlags, run_remove>>(app);
  RemoveFlags* flags = &command->flags;
  app->add_option("name", flags->names, "OWNER/NAME:TYPE, or OWNER/NAME for all that is there of it")->required();
  app->add_flag("--json", flags->json, "what was removed, as JSON on stdout");
  return command;
}

}  // namespace baton::cli
