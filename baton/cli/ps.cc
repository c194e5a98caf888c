// `baton ps`: what a server has loaded, and who runs and waits there.
#include <fmt/format.h>

#include "baton/base/terminal.h"
#include "baton/cli/command.h"
#include "baton/cli/http_get.h"

namespace baton::cli {
namespace {

struct PsFlags {
  std::string url = "http://127.0.0.1:8080", api_key;
  bool json = false;
};

int show_server(PsFlags& flags) {
  const auto body = http_get(flags.url, "/props", flags.api_key);
  if (!body) return report(body.error());
  const OrderedJson props = OrderedJson::parse(*body, nullptr, false);
  if (!props.is_object() || !props.contains("models") || !props.contains("usage"))
    return report({Code::kInvalidInput, fmt::format("{}: what answers there is no `baton serve`", flags.url)});
  if (flags.json) {
    print_json(props);
    return kOk;
  }
  const auto text = [](const OrderedJson& of, const char* name) {
    const OrderedJson value = of.value(name, OrderedJson());
    return terminal_safe(value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', true), kNameShownMax);
  };
  std::string shown;
  for (const OrderedJson& model : props["models"]) {
    shown += fmt::format("model    {}: {} parameters, context {}, prefill {}, decode {}, {}\n", text(model, "id"),
                         text(model, "parameters"), text(model, "context"), text(model, "prefill_unit"),
                         text(model, "decode_unit"), text(model, "strategy"));
  }
  const OrderedJson& usage = props["usage"];
  shown +=
      fmt::format("running  {} of {}\nwaiting  {} of {}\nstates   {} bytes, and {} checkpoints of {} bytes\n",
                  text(usage, "running"), text(props, "total_slots"), text(usage, "waiting"), text(props, "queue_max"),
                  text(usage, "state_bytes"), text(usage, "checkpoints"), text(usage, "checkpoint_bytes"));
  print(shown);
  return kOk;
}

}  // namespace

std::unique_ptr<Command> add_ps(CLI::App& program) {
  CLI::App* app = program.add_subcommand("ps", "what a server has loaded, and who runs and waits there");
  auto command = std::make_unique<FlagsCommand<PsFlags, show_server>>(app);
  PsFlags* flags = &command->flags;
  app->add_option("--url", flags->url, "where it listens: http://HOST:PORT, or unix:SOCKET")->capture_default_str();
  app->add_option("--api-key", flags->api_key, "its key, where it asks for one");
  app->add_flag("--json", flags->json, "all that it says, as JSON on stdout");
  return command;
}

}  // namespace baton::cli
