// Flags win over the file.
#include "baton/cli/serve_flags.h"

#include <fmt/format.h>
#include <spdlog/spdlog.h>

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
  if (config.keep_alive && config.keep_alive->count() >= 0)
    spdlog::warn("model '{}': keep_alive: models stay loaded as long as the server runs", config.name);
  return {};
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
  if (server.reuse && !values.given("--no-reuse")) flags.no_reuse = !*server.reuse;
  if (config.models.empty() || values.given("--model")) return {};
  // What flags say of a model they say of all.
  const ServedFlags given = flags;
  for (size_t i = 0; i < config.models.size(); ++i) {
    ServedFlags& model = i == 0 ? flags : *flags.others.emplace_back(std::make_unique<ServedFlags>(given));
    if (i > 0) model.aliases.clear();
    if (auto applied = apply_model(config.models[i], values, model); !applied)
      return fail(Error(applied.error()).in(fmt::format("{}:{}", flags.config, config.models[i].line)));
  }
  if (config.models.size() > 1 && !flags.cache.folder.empty())
    return fail(Code::kInvalidInput, "a state cache is of one model: leave it out, or serve one");
  return {};
}

}  // namespace baton::cli
