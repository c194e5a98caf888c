// `baton units`: the compute units built in, whether this machine has them, and what they can do.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>

#include "baton/api/units.h"
#include "baton/cli/command.h"
#include "baton/cli/machine.h"

namespace baton::cli {
namespace {

template <class List, class Name>
std::vector<std::string> names(const List& list, Name name) {
  std::vector<std::string> out;
  for (const auto& item : list) out.emplace_back(name(item));
  return out;
}

int list_units(bool as_json) {
  const Machine machine = this_machine();
  OrderedJson json;
  json["machine"] = {{"processor", machine.processor},
                     {"cores", machine.cores},
                     {"memory_bytes", machine.memory_bytes},
                     {"memory_available_bytes", machine.memory_available_bytes}};
  json["units"] = OrderedJson::array();
  std::string text = fmt::format("machine  {}, {} cores, {:.1f} GiB memory ({:.1f} GiB available)\n", machine.processor,
                                 machine.cores, static_cast<double>(machine.memory_bytes) / (1 << 30),
                                 static_cast<double>(machine.memory_available_bytes) / (1 << 30));
  for (const UnitEntry* entry : unit_entries()) {
    auto unit = entry->create();
    OrderedJson item;
    item["name"] = entry->name;
    item["available"] = unit.has_value();
    if (!unit) {
      item["reason"] = unit.error().message;
      text += fmt::format("\n{}  not available: {}\n", entry->name, unit.error().message);
      json["units"].push_back(item);
      continue;
    }
    const Caps& caps = (*unit)->caps();
    const auto ops = names(caps.ops, [](OpKind kind) { return to_string(kind); });
    const auto types = names(caps.native_formats, [](DType dtype) { return to_string(dtype); });
    item["reason"] = nullptr;
    item["kv_type"] = to_string(caps.kv_type);
    item["prefill_tokens_preferred"] = caps.prefill_tokens_preferred;
    item["decode_slots_max"] = caps.decode_slots_max;
    item["features"] = caps.features;
    item["weight_types"] = types;
    item["ops"] = ops;
    json["units"].push_back(item);
    const bool emulated = std::find(caps.features.begin(), caps.features.end(), "emulated") != caps.features.end();
    text += fmt::format("\n{}  available{}\n", entry->name, emulated ? " (emulated)" : "");
    text += fmt::format("  features      {}\n", fmt::join(caps.features, " "));
    text += fmt::format("  weights       {}\n", fmt::join(types, " "));
    text += fmt::format("  keys, values  {}\n", to_string(caps.kv_type));
    text += fmt::format("  prefill       {} tokens a step preferred\n", caps.prefill_tokens_preferred);
    text += caps.decode_slots_max == 0
                ? std::string("  decode        none: this unit only prefills\n")
                : fmt::format("  decode        up to {} sequences a step\n", caps.decode_slots_max);
    text += fmt::format("  ops           {}\n", fmt::join(ops, " "));
  }
  if (as_json) {
    print_json(json);
  } else {
    print(text);
  }
  return kOk;
}

}  // namespace

std::unique_ptr<Command> add_units(CLI::App& program) {
  CLI::App* app = program.add_subcommand("units", "list the compute units and what they can do");
  auto command = std::make_unique<FlagsCommand<bool, list_units>>(app);
  app->add_flag("--json", command->flags, "one JSON object instead of text");
  return command;
}

}  // namespace baton::cli
