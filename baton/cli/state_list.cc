// What a cache of states holds, by the names of its files: no model is needed, and no state is read.
#include "baton/cli/state_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <system_error>

#include "baton/base/terminal.h"
#include "baton/cli/command.h"
#include "baton/cli/paths.h"
#include "baton/cli/progress.h"
#include "baton/state/state_cache.h"

namespace baton::cli {
namespace {

OrderedJson file_json(const CacheFile& file) {
  const auto used = std::chrono::duration<double>(std::filesystem::file_time_type::clock::now() - file.used);
  return {{"state", file.path.filename().string()},
          {"tokens", file.tokens},
          {"bytes", file.bytes},
          {"made_in_ms", file.ms},
          {"used_seconds_ago", std::max(used.count(), 0.0)}};
}

// The files that are meant; an error where a name is none, or more than one.
Result<std::vector<CacheFile>> chosen(const CacheFolderFlags& flags, const std::vector<CacheFile>& files) {
  if (flags.all || !flags.removes) return files;
  std::vector<CacheFile> found;
  for (const std::string& name : flags.states) {
    std::vector<CacheFile> alike;
    std::copy_if(files.begin(), files.end(), std::back_inserter(alike),
                 [&](const CacheFile& file) { return file.path.filename().string().starts_with(name); });
    if (alike.size() != 1) {
      return fail(alike.empty() ? Code::kNotFound : Code::kInvalidInput,
                  fmt::format("{}: {} of its states begin with '{}'; `baton state ls` names them all", flags.folder,
                              alike.empty() ? "none" : std::to_string(alike.size()), name));
    }
    found.push_back(std::move(alike.front()));
  }
  return found;
}

void show(const OrderedJson& json, bool removed) {
  std::string text;
  for (const OrderedJson& state : json["states"]) {
    text += fmt::format("{:>7} tokens {:>9.1f} MB  made in {:>9}  used {} ago  {}\n", state["tokens"].get<uint64_t>(),
                        state["bytes"].get<double>() / 1e6, fmt::format("{:.0f} ms", state["made_in_ms"].get<double>()),
                        duration_text(state["used_seconds_ago"].get<double>()), state["state"].get<std::string>());
  }
  const size_t states = json["states"].size();
  text += fmt::format("{}{} state{}, {:.1f} MB\n", removed ? "removed: " : "", states, states == 1 ? "" : "s",
                      json["bytes"].get<double>() / 1e6);
  print(text);
}

}  // namespace

void add_cache_folder(CLI::App& state, CacheFolderFlags& flags) {
  const auto add = [&](const char* name, const char* what) {
    CLI::App* app = state.add_subcommand(name, what);
    app->add_option("folder", flags.folder, "the folder that --state-cache was given")
        ->required()
        ->check([](const std::string& folder) -> std::string { return folder.empty() ? "an empty name" : ""; });
    app->add_flag("--json", flags.json, "one JSON object instead of text");
    return app;
  };
  add("ls", "list the states of a --state-cache folder, the least used first");
  CLI::App* remove = add("rm", "remove states from a --state-cache folder");
  CLI::Option* states = remove->add_option("states", flags.states, "their names, or how these begin");
  remove->add_flag("--all", flags.all, "all of them, of each model")->excludes(states);
  remove->callback([&flags] { flags.removes = true; });
}

int list_or_remove(const CacheFolderFlags& flags) {
  if (flags.removes && !flags.all && flags.states.empty())
    return report_usage({Code::kInvalidInput, "which states? give the beginnings of their names, or --all"});
  const auto files = list_cache(flags.folder);
  if (!files) return report(files.error());
  const auto meant = chosen(flags, *files);
  if (!meant) return report(meant.error());
  OrderedJson json = {{"folder", flags.folder}, {"states", OrderedJson::array()}, {"bytes", 0}};
  uint64_t bytes = 0;
  Status status;
  for (const CacheFile& file : *meant) {
    std::error_code error;
    if (flags.removes) std::filesystem::remove(file.path, error);
    if (error) {
      status = fail(Code::kInvalidInput, fmt::format("{}: not removed: {}", file.path.string(), error.message()));
      continue;
    }
    bytes += file.bytes;
    json["states"].push_back(file_json(file));
  }
  json["bytes"] = bytes;
  flags.json ? print_json(json) : show(json, flags.removes);
  return status ? kOk : report(status.error());
}

}  // namespace baton::cli
