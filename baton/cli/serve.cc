// `baton serve`: a model behind HTTP, until it is told to end.
#include <fmt/format.h>
#include <spdlog/spdlog.h>

#include <atomic>
#include <chrono>
#include <memory>
#include <span>
#include <thread>

#include "baton/api/machine_facts.h"
#include "baton/base/machine.h"
#include "baton/base/random.h"
#include "baton/base/terminal.h"
#include "baton/cli/command.h"
#include "baton/cli/figures.h"
#include "baton/cli/interrupt.h"
#include "baton/cli/paths.h"
#include "baton/cli/progress.h"
#include "baton/cli/prompt.h"
#include "baton/cli/serve_flags.h"
#include "baton/cli/serve_operations.h"
#include "baton/cli/service_notify.h"
#include "baton/cli/state_key.h"
#include "baton/cli/step_tokens.h"
#include "baton/serve/app.h"
#include "baton/serve/openapi.h"
#include "baton/state/checksum.h"

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

// As a batch has it: a quarter of what is free for states, of that a quarter for those at rest.
EngineLimits serve_limits(const ServeFlags& flags) {
  EngineLimits limits;
  limits.requests_active_max = flags.parallel;
  limits.requests_queued_max = 4096;  // further choices of those that run
  limits.step_tokens_max = flags.step_tokens;
  limits.checkpoints_stored_early = true;
  limits.state_bytes_max = this_machine().memory_available_bytes / 4;
  if (!flags.no_reuse) limits.checkpoint_bytes_max = limits.state_bytes_max / 4;
  return limits;
}

// What answers follow, beside their requests.
std::string fingerprint_of_server(const ServedFlags& flags, const Runtime& runtime) {
  const OrderedJson facts = {{"model", model_name(flags.model.model)},
                             {"parameters", runtime.model().parameter_count()},
                             {"bytes", runtime.model().weight_bytes()},
                             {"units", {flags.model.prefill_unit, flags.model.via_unit, flags.model.decode_unit}},
                             {"options", flags.model.units_that_show()},
                             {"context", runtime.context_tokens()},
                             {"strategy", flags.model.strategy}};
  const std::string text = facts.dump(-1, ' ', false, OrderedJson::error_handler_t::replace);
  return fmt::format("fp_{:016x}", checksum(std::as_bytes(std::span(text))));
}

serve::ModelSetup setup_of(const ServeFlags& server, const ServedFlags& flags, const Runtime& runtime,
                           uint64_t state_bytes_max, std::atomic<uint64_t>& draws) {
  serve::ModelSetup setup;
  setup.name = flags.name.empty() ? model_name(flags.model.model) : flags.name;
  setup.aliases = flags.aliases;
  setup.fingerprint = fingerprint_of_server(flags, runtime);
  setup.stops = flags.sampling.stops;
  setup.thinking = flags.thinking.asked();
  setup.reuse = !server.no_reuse && flags.model.verify == "off";
  setup.dispatch = server.dispatch;
  setup.state_bytes_max = state_bytes_max;
  setup.prepare = [&flags, &draws](Request& request) {
    flags.sampling.apply(request);
    flags.model.apply(request);
    // Without a seed of its own each request has another one.
    if (flags.sampling.seed < 0) request.sampler.seed = Random(draws++).next() >> 1;
  };
  return setup;
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

// --embed: each by the name of its file or folder.
Status add_embedders(const ServeFlags& flags, serve::ModelPool& pool) {
  for (const std::string& path : flags.embed) {
    EmbedderOptions options;
    options.model = path;
    options.threads = flags.model.threads;
    BATON_TRY(auto embedder, Embedder::open(options));
    if (!flags.quiet) fmt::print(stderr, "baton: {} makes vectors on {}\n", model_name(path), embedder->placed());
    BATON_TRY(auto served, serve::ServedEmbedder::create(model_name(path), {}, std::move(embedder)));
    pool.add(std::move(served));
  }
  return {};
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

// The models, each ready to answer; or the exit code.
std::optional<int> open_models(ServeFlags& flags, std::atomic<uint64_t>& draws, serve::ModelPool& pool) {
  EngineLimits limits = serve_limits(flags);
  limits.state_bytes_max /= flags.others.size() + 1;
  limits.checkpoint_bytes_max /= flags.others.size() + 1;
  std::vector<ServedFlags*> models = {&flags};
  for (const auto& other : flags.others) models.push_back(other.get());
  for (ServedFlags* served : models) {
    auto runtime = served->model.open(limits, flags.cache);
    if (!runtime) return report(with_flags(runtime.error()));
    const TextModel& text = (*runtime)->text();
    if (!text.tokenizer) return report(no_tokenizer(text).value());
    served->thinking.warn(text);
    if (!flags.quiet) say_bundled_model(served->model);
    auto setup = setup_of(flags, *served, **runtime, limits.state_bytes_max, draws);
    pool.add(std::make_unique<serve::ServedModel>(std::move(setup), *std::move(runtime)));
    if (!flags.dispatch) continue;
    progress("measuring the units");
    const auto measured = pool.all().back()->measure();
    progress("");
    if (!measured) return report(measured.error());
  }
  return std::nullopt;
}

// --config, and --check-config; the exit code where it is all there is to do.
std::optional<int> read_config_of(ServeFlags& flags) {
  if (flags.config.empty()) {
    if (flags.check_config) return report_usage({Code::kInvalidInput, "--check-config needs --config FILE"});
    return std::nullopt;
  }
  const auto config = serve::read_config(flags.config);
  if (!config) return report_usage(config.error());
  if (const auto applied = apply_config(*config, flags); !applied) return report_usage(applied.error());
  if (!flags.check_config) return std::nullopt;
  if (const auto status = check_serve_flags(flags); !status) return report_usage(status.error());
  print(serve::to_text(*config));
  return kOk;
}

Status settle_models(ServeFlags& flags) {
  BATON_OK(flags.model.settle());
  for (const auto& other : flags.others) BATON_OK(other->model.settle());
  return {};
}

int run_serve(ServeFlags& flags) {
  if (flags.openapi) {
    print(serve::openapi_document().dump(2) + "\n");
    return kOk;
  }
  start_logs(flags.model.verbose);
  ServiceNotify manager;
  if (const auto code = read_config_of(flags)) return *code;
  if (const auto status = check_serve_flags(flags); !status) return report_usage(status.error());
  if (const auto status = settle_models(flags); !status) return report_usage(status.error());
  auto key = read_state_key(flags.state_key);
  if (!key) return report(key.error());
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
  std::atomic<uint64_t> draws = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  serve::ModelPool pool;
  if (const auto code = open_models(flags, draws, pool)) return *code;
  if (const auto added = add_embedders(flags, pool); !added) return report(added.error());
  auto app = serve::App::open(*std::move(options), pool);
  if (!app) return report(app.error());
  fmt::print(stderr, "baton: listening on {}\n", (*app)->address());
  manager.watch();
  interrupts.end_at_once(false);
  manager.check([service = &(*app)->service()] { static_cast<void>(service->gauges()); });
  serve_until_told(flags, **app, interrupts, manager);
  manager.check(nullptr);
  app->reset();
  if (!flags.cache.folder.empty()) {
    for (const auto& model : pool.all()) {
      if (const auto saved = model->save_checkpoints({}); !saved)
        spdlog::warn("--state-cache: not all states were saved: {}", saved.error().message);
    }
  }
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
  app->add_flag("--check-config", flags->check_config, "read --config, print what it says, and end");
  add_listener(*app, *flags);
  add_operations(*app, *flags);
  app->add_option("-a,--alias", flags->aliases, "another name of the model in requests (repeatable)")
      ->allow_extra_args(false);
  takes_path(app->add_option("--embed", flags->embed,
                             "a model that makes vectors, for /v1/embeddings and /v1/rerank (repeatable): baton embed"),
             PathKind::kModel)
      ->allow_extra_args(false);
  app->add_option("--parallel", flags->parallel, "requests that run at once, as far as memory goes")
      ->capture_default_str()
      ->check(CLI::Range(1, 256));
  add_step_tokens(*app, flags->step_tokens);
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
  flags->sampling.add_to(*app);
  flags->thinking.add_to(*app);
  app->add_flag("--openapi", flags->openapi, "print what it answers as an OpenAPI document, and end");
  app->add_flag("-q,--quiet", flags->quiet, "less on stderr");
  return command;
}

}  // namespace baton::cli
