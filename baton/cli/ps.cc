// `baton ps`: what a server has loaded, and who runs and waits there.
#include <fmt/format.h>

#include <algorithm>

#include "baton/base/file.h"
#include "baton/base/terminal.h"
#include "baton/cli/command.h"
#include "baton/cli/http_get.h"
#include "baton/cli/paths.h"
#include "baton/cli/progress.h"

namespace baton::cli {
namespace {

constexpr size_t kKeyFileMax = size_t{1} << 20;

struct PsFlags {
  std::string url = "http://127.0.0.1:8080", api_key, api_key_file;
  bool json = false;
};

std::string text(const OrderedJson& of, const char* name) {
  const OrderedJson value = of.value(name, OrderedJson());
  return terminal_safe(value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', true), kNameShownMax);
}

uint64_t number(const OrderedJson& of, const char* name) {
  const OrderedJson value = of.value(name, OrderedJson());
  return value.is_number_unsigned() ? value.get<uint64_t>() : 0;
}

// "loaded, 31000000 bytes of weights, states up to 90000000, 2 in use, unloads in 4 min 30 s"
std::string state_of(const OrderedJson& model) {
  std::string made = text(model, "state");
  const bool loaded = made == "loaded";
  made +=
      fmt::format(", {} bytes of weights, states up to {}", number(model, "bytes"), number(model, "state_bytes_max"));
  const uint64_t in_use = number(model, "in_use"), waiting = number(model, "waiting");
  if (loaded && in_use > 0) made += fmt::format(", {} in use", in_use);
  if (waiting > 0) made += fmt::format(", {} wait for it", waiting);
  const OrderedJson left = model.value("unloads_in_s", OrderedJson());
  if (loaded && in_use == 0 && left.is_number()) made += ", unloads in " + duration_text(left.get<double>());
  return made;
}

// The first line, without what may stand behind a key there (docs/server.md).
Result<std::string> read_key(const std::string& file) {
  BATON_TRY(const std::string text, read_file(file, kKeyFileMax));
  const std::string line = text.substr(0, text.find_first_of("\r\n"));
  return line.substr(0, line.find_first_of(" \t"));
}

// "cuda (emulated)".
std::string unit_of(const OrderedJson& model, const char* field) {
  const auto emulated = model.value("emulated_units", OrderedJson::array());
  const bool is = std::find(emulated.begin(), emulated.end(), model.value(field, OrderedJson())) != emulated.end();
  return text(model, field) + (is ? " (emulated)" : "");
}

int show_server(PsFlags& flags) {
  if (!flags.api_key_file.empty()) {
    auto key = read_key(flags.api_key_file);
    if (!key) return report(key.error());
    flags.api_key = *std::move(key);
  }
  const auto body = http_get(flags.url, "/props", flags.api_key);
  if (!body) return report(body.error());
  const OrderedJson props = OrderedJson::parse(*body, nullptr, false);
  if (!props.is_object() || !props.contains("models") || !props.contains("usage"))
    return report({Code::kInvalidInput, fmt::format("{}: what answers there is no `baton serve`", flags.url)});
  if (flags.json) {
    print_json(props);
    return kOk;
  }
  std::string shown;
  for (const OrderedJson& model : props["models"]) {
    shown += fmt::format("model    {}: {}; {} parameters, context {}, prefill {}, decode {}, {}\n", text(model, "id"),
                         state_of(model), text(model, "parameters"), text(model, "context"),
                         unit_of(model, "prefill_unit"), unit_of(model, "decode_unit"), text(model, "strategy"));
  }
  for (const OrderedJson& model : props.value("embedding_models", OrderedJson::array())) {
    shown += fmt::format("vectors  {}: {}; {} parameters, {} tokens\n", text(model, "id"), state_of(model),
                         text(model, "parameters"), text(model, "context"));
  }
  const OrderedJson memory = props.value("memory", OrderedJson::object());
  shown += fmt::format("memory   {} of {} bytes\n", text(memory, "loaded_bytes"), text(memory, "budget_bytes"));
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
  app->add_option("--url", flags->url, "where it listens: http://HOST:PORT, or unix:SOCKET")
      ->capture_default_str()
      ->check([](const std::string& url) {
        const bool known = url.starts_with("http://") || url.starts_with("unix:");
        return known ? std::string() : "it takes http://HOST:PORT, or unix:SOCKET; of one with TLS ask GET /props";
      });
  auto* const key = app->add_option("--api-key", flags->api_key,
                                    "its key, where it asks for one; all may read it in the list of processes");
  takes_path(app->add_option("--api-key-file", flags->api_key_file, "a file whose first line is the key"),
             PathKind::kFile)
      ->excludes(key);
  app->add_flag("--json", flags->json, "all that it says, as JSON on stdout");
  return command;
}

}  // namespace baton::cli
