// `baton serve`: models behind HTTP, until it is told to end.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <thread>

#include "baton/api/machine_facts.h"
#include "baton/base/terminal.h"
#include "baton/cli/command.h"
#include "baton/cli/figures.h"
#include "baton/cli/interrupt.h"
#include "baton/cli/paths.h"
#include "baton/cli/progress.h"
#include "baton/cli/prompt.h"
#include "baton/cli/serve_check.h"
#include "baton/cli/serve_flags.h"
#include "baton/cli/serve_models.h"
#include "baton/cli/serve_operations.h"
#include "baton/cli/service_notify.h"
#include "baton/cli/state_key.h"
#include "baton/cli/step_tokens.h"
#include "baton/serve/app.h"
#include "baton/serve/openapi.h"

namespace baton::cli {
namespace {

Status check_serve_flags(const ServeFlags& flags) {
  if (flags.tls_certificate.empty() != flags.tls_key.empty())
    return fail(Code::kInvalidInput, "--tls-cert and --tls-key go together");
  if (!flags.unix_socket.empty() && !flags.tls_certificate.empty())
    return fail(Code::kInvalidInput, "--unix-socket goes without --tls-cert");
  if (!flags.state_key.empty() && flags.cache.folder.empty())
    return fail(Code::kInvalidInput, "--state-key goes with --state-cache");
  if (flags.access_log_prompts && flags.access_log.empty())
    return fail(Code::kInvalidInput, "--access-log-prompts goes with --access-log");
  if (flags.dispatch && (!flags.model.via_unit.empty() || !flags.model.strategy.empty() || flags.model.verify != "off"))
    return fail(Code::kInvalidInput,
                "--dispatch chooses units and strategy: leave out --via, --strategy and "
                "--verify-bridge, or --dispatch");
  BATON_OK(check_step_tokens(flags.step_tokens));
  if (flags.no_reuse && !flags.cache.folder.empty())
    return fail(Code::kInvalidInput, "--no-reuse prefills all of each prompt: --state-cache has no use; leave one out");
  return {};
}

Result<serve::AppOptions> app_options(const ServeFlags& flags) {
  serve::AppOptions options;
  if (!flags.api_key_file.empty()) {
    BATON_TRY(options.keys, serve::ApiKeys::read(flags.api_key_file));
  }
  for (const std::string& key : flags.api_keys) {
    BATON_OK(options.keys.add(key, fmt::format("flag{}", options.keys.all().size() + 1)));
  }
  options.http.host = flags.host;
  options.http.port = flags.port;
  options.hosts = flags.allow_hosts;
  options.http.unix_socket = flags.unix_socket;
  options.http.tls_certificate = flags.tls_certificate;
  options.http.tls_key = flags.tls_key;
  options.http.limits.connections_max =
      std::max(options.http.limits.connections_max, flags.queue + flags.parallel + 512);
  options.service.parallel = flags.parallel;
  options.service.queue_max = flags.queue;
  const MachineFacts machine = machine_facts();
  if (!flags.quiet) fmt::print(stderr, "baton: {}\n", machine_line(machine));
  options.machine = machine_json(machine);
  return options;
}

bool open_to_others(const ServeFlags& flags) {
  return flags.unix_socket.empty() && flags.host != "127.0.0.1" && flags.host != "::1" && flags.host != "localhost";
}

void tell(const ServiceNotify& manager, const std::string& state) {
  if (const auto told = manager.tell(state); !told) spdlog::warn("{}", told.error().message);
}

// Until the first signal; from then on a second one ends the program.
void serve_until_told(const ServeFlags& flags, serve::App& app, InterruptScope& interrupts,
                      const ServiceNotify& manager) {
  tell(manager, fmt::format("READY=1\nSTATUS=listening on {}", app.address()));
  while (!interrupts.interrupted()) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  tell(manager, "STOPPING=1\nSTATUS=ending");
  interrupts.clear();
  interrupts.end_at_once(true);
  app.stop();
  if (!flags.quiet)
    fmt::print(stderr, "baton: ending: at most {} s for {} requests that run; a second signal ends at once\n",
               flags.drain_seconds, app.service().counts().running);
  if (!app.drain(std::chrono::seconds(flags.drain_seconds)))
    spdlog::warn("--drain-seconds {}: what still ran was cut off", flags.drain_seconds);
  app.close();
}

Status read_config_of(ServeFlags& flags) {
  if (flags.config.empty()) {
    if (flags.check_config) return fail(Code::kInvalidInput, "--check-config needs --config FILE");
    return {};
  }
  BATON_TRY(const auto config, serve::read_config(flags.config));
  return apply_config(config, flags);
}

Status settle_models(ServeFlags& flags) {
  BATON_OK(flags.model.settle());
  for (const auto& other : flags.others) BATON_OK(other->model.settle());
  return {};
}

// What a start looks at before it loads a model.
int check_config(ServeFlags& flags) {
  flags.quiet = true;
  const auto options = app_options(flags);
  if (!options) return report_usage(options.error());
  std::atomic<uint64_t> draws{0};
  const auto text = checked_text(flags, *options, draws);
  if (!text) return report_usage(with_flags(text.error()));
  print(*text);
  return kOk;
}

int run_serve(ServeFlags& flags) {
  if (flags.openapi) {
    print(serve::openapi_document().dump(2) + "\n");
    return kOk;
  }
  start_logs(flags.model.verbose);
  ServiceNotify manager;
  if (const auto status = read_config_of(flags); !status) return report_usage(status.error());
  if (const auto status = check_serve_flags(flags); !status) return report_usage(status.error());
  settle_served(flags);
  if (const auto status = settle_models(flags); !status) return report_usage(status.error());
  auto key = read_state_key(flags.state_key);
  if (!key) return report(key.error());
  if (flags.check_config) return check_config(flags);
  flags.key = *std::move(key);
  flags.cache.key = pointer_to(flags.key);
  InterruptScope interrupts(InterruptScope::kTerminateToo);
  interrupts.end_at_once(true);
  auto options = app_options(flags);
  if (!options) return report_usage(options.error());
  Operations operations;
  if (const auto opened = open_operations(flags, operations, *options); !opened) return report_usage(opened.error());
  if (open_to_others(flags) && options->keys.empty())
    spdlog::warn("--host {}: whoever reaches this machine may ask; --api-key-file asks for keys", flags.host);
  // Models may take minutes to load: an address that is not to be had is told before.
  auto bound = http::Server::bind(options->http);
  if (!bound) return report(bound.error());
  options->http.bound = *std::move(bound);
  std::atomic<uint64_t> draws = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  auto described = describe_models(flags, draws);
  if (!described) return report(with_flags(described.error()));
  const auto pool = open_pool(flags, *std::move(described));
  if (!pool) return report(with_flags(pool.error()));
  interrupts.end_at_once(false);  // before anybody can be answered
  auto app = serve::App::open(*std::move(options), **pool);
  if (!app) return report(app.error());
  fmt::print(stderr, "baton: listening on {}\n", (*app)->address());
  manager.watch();
  manager.check([service = &(*app)->service()] { static_cast<void>(service->gauges()); });
  serve_until_told(flags, **app, interrupts, manager);
  manager.check(nullptr);
  app->reset();
  (*pool)->close(true);
  return kOk;
}

void add_listener(CLI::App& app, ServeFlags& flags) {
  app.add_option("--host", flags.host, "address to listen on; 0.0.0.0: all of this machine's")->capture_default_str();
  app.add_option("--port", flags.port, "port; 0: any that is free")->capture_default_str()->check(CLI::Range(0, 65535));
  app.add_option(
         "--allow-host", flags.allow_hosts,
         "a name that it is asked for by, as a proxy in front of it sends it (repeatable); on a loopback address "
         "without keys only localhost and addresses are answered")
      ->allow_extra_args(false);
  takes_path(app.add_option("--unix-socket", flags.unix_socket, "listen on this socket instead"), PathKind::kOutput);
  takes_path(app.add_option("--tls-cert", flags.tls_certificate, "certificate chain for HTTPS (PEM)"), PathKind::kFile);
  takes_path(app.add_option("--tls-key", flags.tls_key, "its private key (PEM)"), PathKind::kFile);
  app.add_option("--api-key", flags.api_keys,
                 "a key that requests must send (repeatable); all may read it in the list "
                 "of processes: better a file")
      ->allow_extra_args(false);
  takes_path(app.add_option("--api-key-file", flags.api_key_file,
                            "keys, one a line, as they are or as sha256:HEX; behind one its share and limits "
                            "(docs/server.md)"),
             PathKind::kFile);
}

}  // namespace

std::unique_ptr<Command> add_serve(CLI::App& program) {
  CLI::App* app = program.add_subcommand("serve", "answer over HTTP, as OpenAI's interface has it");
  auto command = std::make_unique<FlagsCommand<ServeFlags, run_serve>>(app);
  ServeFlags* flags = &command->flags;
  flags->app = app;
  takes_path(app->add_option("--config", flags->config,
                             "a baton.toml: what the flags do not say, and the models (docs/server.md)"),
             PathKind::kFile);
  app->add_flag("--check-config", flags->check_config,
                "read --config, look at its files, print what it comes to, and end");
  add_listener(*app, *flags);
  add_operations(*app, *flags);
  app->add_option("-a,--alias", flags->aliases, "another name of the model in requests (repeatable)")
      ->allow_extra_args(false);
  takes_path(
      app->add_option("--embed", flags->embed,
                      fmt::format("a model that makes vectors, a folder, a file, {}, for /v1/embeddings and /v1/rerank "
                                  "(repeatable): baton embed",
                                  kOrName)),
      PathKind::kModel)
      ->allow_extra_args(false);
  app->add_option("--parallel", flags->parallel, "requests that run at once, as far as memory goes")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  add_step_tokens(*app, flags->step_tokens);
  app->add_option(
         "--memory-budget", flags->memory_budget,
         "bytes for the weights and states of all loaded models together, 8GiB; those that nobody uses make room "
         "for others (default: what is free at the start)")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 50));
  app->add_option_function<std::string>(
         "--keep-alive", [flags](const std::string& text) { flags->keep_alive_default = serve::parse_seconds(text); },
         "how long a model that was loaded on demand stays while nobody asks: 90s, 1h30m; -1s: for ever")
      ->default_str("5m")
      ->check([](const std::string& text) {
        return serve::parse_seconds(text) ? std::string() : "takes a time like 5m, 90s or 1h30m; -1s: for ever";
      });
  app->add_option("--queue", flags->queue, "requests that wait; one more is answered 429")
      ->capture_default_str()
      ->check(CLI::Range(0, 16384));
  app->add_option("--drain-seconds", flags->drain_seconds, "what running requests have when the server is told to end")
      ->capture_default_str()
      ->check(CLI::Range(0, 86400));
  app->add_flag("--dispatch", flags->dispatch,
                "of --prefill and --decode each request gets the units that it is predicted to end on first, as "
                "GET /v1/routes explains; what they draw need not be the same bits");
  app->add_flag("--no-reuse", flags->no_reuse, "prefill all of each prompt; no answer shows it");
  flags->cache.add_to(*app);
  takes_path(app->add_option("--state-key", flags->state_key,
                             "file with a secret of at least 32 bytes: states of --state-cache carry a MAC under it"),
             PathKind::kFile);
  flags->model.add_to(*app);
  app->get_option("--model")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeFirst)
      ->description(fmt::format(
          "model: a Hugging Face folder, a GGUF file, {} (default: the bundled model); repeatable: the first "
          "is loaded at the start, the others when they are asked for",
          kOrName));
  flags->sampling.add_to(*app);
  flags->thinking.add_to(*app);
  app->add_flag("--openapi", flags->openapi, "print what it answers as an OpenAPI document, and end");
  app->add_flag("-q,--quiet", flags->quiet, "less on stderr");
  return command;
}

}  // namespace baton::cli
