// What a server has beside its models and its listener: the access log, limits of keys, pages that may ask, and the
// manager of services that started it.
#pragma once

#include <CLI/CLI.hpp>
#include <memory>
#include <optional>

#include "baton/base/clock.h"
#include "baton/cli/serve_flags.h"
#include "baton/serve/app.h"

namespace baton::cli {

// Outlives the app and its models.
struct Operations {
  SteadyClock clock;
  std::unique_ptr<serve::AccessLog> access_log;
  std::optional<serve::RateLimits> limits;
  std::optional<serve::Puller> puller;
};

void add_operations(CLI::App& app, ServeFlags& flags);
// What the flags say of it, put into the app's options, which have their keys; what is dangerous is said.
Status open_operations(const ServeFlags& flags, Operations& operations, serve::AppOptions& options);

}  // namespace baton::cli
