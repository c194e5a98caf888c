// The flags of `baton serve`, and what a configuration file puts in their place.
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "baton/cli/model_flags.h"
#include "baton/cli/sampling_flags.h"
#include "baton/cli/thinking.h"
#include "baton/serve/config.h"
#include "baton/state/state_key.h"

namespace baton::cli {

// Of one model.
struct ServedFlags {
  ModelFlags model;
  SamplingFlags sampling;
  ThinkingFlags thinking;
  std::string name;  // empty: that of its file
  std::vector<std::string> aliases;
  bool at_start = false;                           // else it is loaded when it is asked for
  std::optional<std::chrono::seconds> keep_alive;  // of the file
};

// Of one that makes vectors.
struct ServedEmbedFlags {
  std::string path, name;  // name: empty: that of its file
  std::vector<std::string> aliases;
  uint32_t threads = 0;
  bool at_start = false;
  std::optional<std::chrono::seconds> keep_alive;
};

// Of the server, and its first model.
struct ServeFlags : ServedFlags {
  ServeFlags() { at_start = true; }
  std::vector<std::unique_ptr<ServedFlags>> others;  // further models, of -m or of the file
  std::vector<ServedEmbedFlags> embedders;           // of --embed and the file
  std::optional<uint64_t> memory_budget;
  std::optional<std::chrono::seconds> keep_alive_default;  // of --keep-alive
  StateCacheFlags cache;
  std::string state_key;
  std::optional<StateKey> key;  // of state_key
  std::vector<std::string> embed;
  std::string host = "127.0.0.1", unix_socket, tls_certificate, tls_key, api_key_file, config;
  std::vector<std::string> allow_hosts, api_keys, cors;
  std::string access_log, access_log_format = "text";
  bool access_log_prompts = false, allow_pull = false;
  uint16_t port = 8080;
  uint32_t parallel = 8, queue = 512, drain_seconds = 30, step_tokens = 0;
  bool no_reuse = false, openapi = false, quiet = false, dispatch = false, check_config = false;
  const CLI::App* app = nullptr;  // which of them were given
};

// What no flag says; the file's models where -m names none. kInvalidInput: what only the model's flags could tell.
Status apply_config(const serve::Config& config, ServeFlags& flags);
// Behind it: the models of -m and --embed, and which is loaded at the start.
void settle_served(ServeFlags& flags);

}  // namespace baton::cli
