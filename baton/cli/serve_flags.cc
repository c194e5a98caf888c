// Flags win over the file.
#include "baton/cli/serve_flags.h"

#include <fmt/format.h>

#include <filesystem>

#include "baton/text/detokenizer.h"

namespace baton::cli {
namespace {

// Puts the file's values where no flag was given.
class Values {
 public:
  explicit Values(const CLI::App& app) : app_(app) {}

  bool given(const char* flag) const { return app_.count(flag) > 0; }
  template <class From, class To>
  void put(const char* flag, const std::optional<From>& value, To& to) const {
    if (value && !given(flag)) to = static_cast<To>(*value);
  }
  void put(const char* flag, const std::string& value, std::string& to) const {
    if (!value.empty() && !given(flag)) to = value;
  }
  void put(const char* flag, const std::filesystem::path& value, std::string& to) const {
    put(flag, value.string(), to);
  }

 private:
  const CLI::App& app_;
};

Status apply_model(const serve::ModelConfig& config, const Values& values, ServedFlags& flags) {
  flags.name = config.name;
  flags.aliases.insert(flags.aliases.end(), config.aliases.begin(), config.aliases.end());
  values.put("--model", config.path, flags.model.model);
  values.put("--prefill", config.prefill, flags.model.prefill_unit);
  values.put("--via", config.via, flags.model.via_unit);
  values.put("--decode", config.decode, flags.model.decode_unit);
  values.put("--kv", config.kv, flags.model.kv);
  values.put("--strategy", config.strategy, flags.model.strategy);
  values.put("--verify-bridge", config.verify, flags.model.verify);
  values.put("--threads", config.threads, flags.model.threads);
  values.put("--ctx-size", config.context, flags.model.context);
  SamplingFlags& sampling = flags.sampling;
  values.put("--temp", config.temperature, sampling.temperature);
  values.put("--top-p", config.top_p, sampling.top_p);
  values.put("--min-p", config.min_p, sampling.min_p);
  values.put("--top-k", config.top_k, sampling.top_k);
  values.put("--repeat-penalty", config.repeat_penalty, sampling.repeat_penalty);
  values.put("--presence-penalty", config.presence_penalty, sampling.presence_penalty);
  values.put("--frequency-penalty", config.frequency_penalty, sampling.frequency_penalty);
  values.put("--seed", config.seed, sampling.seed);
  values.put("--predict", config.max_tokens, sampling.predict);
  if (config.thinking && !flags.thinking.on && !flags.thinking.off)
    (*config.thinking ? flags.thinking.on : flags.thinking.off) = true;
  if (!config.stop.empty() && !values.given("--stop")) sampling.stops = config.stop;
  if (const auto stops = StopStrings::create(sampling.stops); !stops) return fail(stops.error());
  flags.keep_alive = config.keep_alive;
  flags.at_start = config.preload.value_or(false);
  return {};
}

// What clients are told of a model has no folder in it, which only whole paths show to be one.
void make_whole(std::string& path) {
  std::error_code error;
  if (!path.empty() && std::filesystem::exists(path, error)) path = std::filesystem::absolute(path, error).string();
}

}  // namespace

Status apply_config(const serve::Config& config, ServeFlags& flags) {
  const Values values(*flags.app);
  const serve::ServerConfig& server = config.server;
  values.put("--host", server.host, flags.host);
  values.put("--port", server.port, flags.port);
  values.put("--parallel", server.parallel, flags.parallel);
  values.put("--queue", server.queue, flags.queue);
  values.put("--drain-seconds", server.drain_seconds, flags.drain_seconds);
  values.put("--step-tokens", server.step_tokens, flags.step_tokens);
  values.put("--dispatch", server.dispatch, flags.dispatch);
  values.put("--quiet", server.quiet, flags.quiet);
  values.put("--unix-socket", server.unix_socket, flags.unix_socket);
  values.put("--tls-cert", server.tls_cert, flags.tls_certificate);
  values.put("--tls-key", server.tls_key, flags.tls_key);
  values.put("--api-key-file", server.api_key_file, flags.api_key_file);
  values.put("--state-cache", server.state_cache, flags.cache.folder);
  values.put("--state-cache-bytes", server.state_cache_bytes, flags.cache.bytes);
  values.put("--state-key", server.state_key, flags.state_key);
  values.put("--access-log", server.access_log, flags.access_log);
  values.put("--access-log-format", server.access_log_format, flags.access_log_format);
  values.put("--access-log-prompts", server.access_log_prompts, flags.access_log_prompts);
  if (!values.given("--cors")) flags.cors = server.cors;
  if (!values.given("--allow-host")) flags.allow_hosts = server.allow_hosts;
  if (!values.given("--memory-budget")) flags.memory_budget = server.memory_budget;
  if (!values.given("--keep-alive")) flags.keep_alive_default = server.keep_alive;
  if (server.reuse && !values.given("--no-reuse")) flags.no_reuse = !*server.reuse;
  if (config.models.empty() || values.given("--model")) return {};
  // What flags say of a model they say of all.
  const ServedFlags given = flags;
  bool first = true;
  for (const serve::ModelConfig& config_of : config.models) {
    if (config_of.embed) {
      flags.embedders.push_back({config_of.path.string(), config_of.name, config_of.aliases,
                                 config_of.threads.value_or(given.model.threads), config_of.preload.value_or(false),
                                 config_of.keep_alive});
      continue;
    }
    ServedFlags& model = first ? flags : *flags.others.emplace_back(std::make_unique<ServedFlags>(given));
    if (!first) model.aliases.clear();
    if (auto applied = apply_model(config_of, values, model); !applied)
      return fail(Error(applied.error()).in(fmt::format("{}:{}", flags.config, config_of.line)));
    if (first) model.at_start = config_of.preload.value_or(true);
    first = false;
  }
  return {};
}

void settle_served(ServeFlags& flags) {
  const auto models = flags.app->get_option("--model")->results();
  for (size_t i = 1; i < models.size(); ++i) {
    ServedFlags& other = *flags.others.emplace_back(std::make_unique<ServedFlags>(flags));
    other.model.model = models[i];
    other.aliases.clear();
    other.at_start = false;
  }
  for (const std::string& path : flags.embed) {
    ServedEmbedFlags& embedder = flags.embedders.emplace_back();
    embedder.path = path;
    embedder.threads = flags.model.threads;
  }
  make_whole(flags.model.model);
  for (const auto& other : flags.others) make_whole(other->model.model);
  for (ServedEmbedFlags& embedder : flags.embedders) make_whole(embedder.path);
}

}  // namespace baton::cli
