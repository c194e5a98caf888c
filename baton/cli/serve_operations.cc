// See serve_operations.h.
#include "baton/cli/serve_operations.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "baton/cli/paths.h"

namespace baton::cli {
namespace {

Status open_cors(const ServeFlags& flags, serve::AppOptions& options) {
  for (const std::string& origin : flags.cors) {
    if (auto added = options.cors.add(origin); !added) return fail(std::move(added).error().in("--cors"));
  }
  if (options.cors.all() && options.keys.empty()) {
    spdlog::warn(
        "--cors *: every page that a browser on this machine opens may ask, and reads the answers; name the "
        "origins, or ask for keys (--api-key-file)");
  } else if (!options.cors.all() && options.cors.takes_null()) {
    spdlog::warn("--cors null: it is what files and sandboxed frames of any page send");
  }
  return {};
}

bool has_limits(const serve::ApiKeys& keys) {
  return std::any_of(keys.all().begin(), keys.all().end(),
                     [](const serve::ApiKey& key) { return key.requests_per_minute > 0 || key.tokens_per_minute > 0; });
}

}  // namespace

void add_operations(CLI::App& app, ServeFlags& flags) {
  app.add_option("--cors", flags.cors,
                 "an origin (https://example.com) whose pages may ask from a browser (repeatable); *: all; without it "
                 "pages of other sites are refused")
      ->allow_extra_args(false);
  takes_path(app.add_option("--access-log", flags.access_log, "a line of each request goes to this file; -: stderr"),
             PathKind::kLog);
  app.add_option("--access-log-format", flags.access_log_format, "text (name=value) or json")
      ->capture_default_str()
      ->check(CLI::IsMember({"text", "json"}));
  app.add_flag("--access-log-prompts", flags.access_log_prompts, "also what was asked: the first 2 KiB");
  app.add_flag("--allow-pull", flags.allow_pull,
               "POST /api/pull fetches models that are not here into the cache: whoever may ask may fill the disk");
}

Status open_operations(const ServeFlags& flags, Operations& operations, serve::AppOptions& options) {
  BATON_OK(open_cors(flags, options));
  if (has_limits(options.keys)) options.limits = &operations.limits.emplace(options.keys, operations.clock);
  if (flags.allow_pull) {
    BATON_TRY(auto settings, hub::read_settings());
    options.puller = &operations.puller.emplace(std::move(settings));
  }
  if (flags.access_log.empty()) return {};
  BATON_TRY(operations.access_log,
            serve::AccessLog::open(
                {.file = flags.access_log,
                 .format = flags.access_log_format == "json" ? serve::AccessFormat::kJson : serve::AccessFormat::kText,
                 .prompts = flags.access_log_prompts}));
  options.access_log = operations.access_log.get();
  return {};
}

}  // namespace baton::cli
