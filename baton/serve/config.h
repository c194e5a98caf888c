// baton.toml: what `baton serve --config FILE` is told once instead of by flags each time, and the models it answers
// with. Flags win over the file. A key that nothing reads is refused, by its name and line.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"

namespace baton::serve {

// [server]. What is not given is empty: the flag's default holds.
struct ServerConfig {
  std::optional<std::string> host;
  std::optional<uint16_t> port;
  std::optional<uint32_t> parallel, queue, drain_seconds, step_tokens;
  std::optional<bool> reuse, quiet, dispatch;
  std::optional<uint64_t> state_cache_bytes;
  std::optional<uint64_t> memory_budget;           // of all models that are loaded: bytes, or "8GiB"
  std::optional<std::chrono::seconds> keep_alive;  // of models that say none, and are loaded on demand
  // Relative ones are below the file's folder.
  std::filesystem::path unix_socket, tls_cert, tls_key, api_key_file, state_cache, state_key;
  std::filesystem::path access_log;  // "-" stays what it is
  std::string access_log_format;
  std::optional<bool> access_log_prompts;
  std::vector<std::string> cors, allow_hosts;
};

// [[models]]
struct ModelConfig {
  std::string name;                  // what requests call it; none is given twice, among aliases too
  std::filesystem::path path;        // empty: the model that comes with the program
  std::vector<std::string> aliases;  // other names
  bool embed = false;                // it makes vectors: of what follows only threads, preload and keep_alive are read
  std::optional<bool> preload;       // loaded at the start, not on demand; not given: the first is
  // As the flags of these names.
  std::string prefill, via, decode, kv, strategy, verify;
  std::optional<uint32_t> threads, context;
  // How long it stays in memory while nobody asks: "5m", "90s", "1h30m", or seconds; below 0: for ever.
  std::optional<std::chrono::seconds> keep_alive;
  // [models.defaults]: of requests that do not say.
  std::optional<float> temperature, top_p, min_p, repeat_penalty, presence_penalty, frequency_penalty;
  std::optional<int32_t> top_k;
  std::optional<int64_t> seed;
  std::optional<uint32_t> max_tokens;
  std::optional<bool> thinking;
  std::vector<std::string> stop;
  int line = 0;  // of the file
};

struct Config {
  ServerConfig server;
  std::vector<ModelConfig> models;
};

// "1h30m", "90s", "-1s"; std::nullopt: none of these. More than a year counts as a year and a day.
std::optional<std::chrono::seconds> parse_seconds(std::string_view text);
// "8GiB", "500M", "1000": of 1024 each; std::nullopt: none of these.
std::optional<uint64_t> parse_bytes(std::string_view text);

inline constexpr size_t kConfigBytesMax = size_t{1} << 20;
inline constexpr size_t kConfigModelsMax = 256;

// kInvalidInput: "baton.toml:7: server.port is 70000: must be from 0 to 65535". `name`: of the file, for messages.
Result<Config> parse_config(std::string_view text, std::string_view name, const std::filesystem::path& folder);
// Errors of read_file too.
Result<Config> read_config(const std::filesystem::path& file);

}  // namespace baton::serve
