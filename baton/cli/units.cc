// `baton units`: the compute units built in, whether this machine has them, and what they can do.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>

#include "baton/api/units.h"
#include "baton/base/machine.h"
#include "baton/cli/command.h"

namespace baton::cli {
namespace {

struct UnitsFlags {
  bool json = false, help_options = false;
};

// The options of every unit, those that this machine lacks too.
int list_options(bool as_json) {
  OrderedJson json = OrderedJson::object();
  std::string text =
      "options stand behind the unit's name: --decode cpu:threads=4, --prefill ane:columns=64,head=lazy\n";
  for (const UnitEntry* entry : unit_entries()) {
    OrderedJson& unit = json[std::string(entry->name)] = OrderedJson::array();
    text += fmt::format("\n{}{}\n", entry->name, entry->options == nullptr ? "  no options" : "");
    if (entry->options == nullptr) continue;
    for (const UnitOption& option : entry->options()) {
      unit.push_back({{"option", option.key},
                      {"values", option.range()},
                      {"default", option.otherwise},
                      {"meaning", option.meaning}});
      text += fmt::format("  {:<36} {} [{}]\n", fmt::format("{}={}", option.key, option.range()), option.meaning,
                          option.otherwise);
    }
  }
  as_json ? print_json(json) : static_cast<void>(print(text));
  return kOk;
}

template <class List, class Name>
std::vector<std::string> names(const List& list, Name name) {
  std::vector<std::string> out;
  for (const auto& item : list) out.emplace_back(name(item));
  return out;
}

// A unit's device, and how fast it reads its memory: measured here and now.
std::string describe_device(Unit& unit, OrderedJson& item) {
  if (!unit.caps().device) {
    item["device"] = nullptr;
    return "";
  }
  const DeviceFacts& device = *unit.caps().device;
  const Result<Rate> read = unit.limit(DeviceLimit::kRead);
  OrderedJson& json = item["device"] = {{"name", device.name},
                                        {"memory_bytes", device.memory_bytes},
                                        {"kind", device.kind},
                                        {"emulated", unit.caps().emulated},
                                        {"read_bytes_per_second", nullptr},
                                        {"read_measured_by", nullptr},
                                        {"read_unknown", nullptr}};
  std::string text = fmt::format("  device        {}, {:.1f} GiB, {}\n", device.name,
                                 static_cast<double>(device.memory_bytes) / (1 << 30), device.kind);
  if (!read) {
    json["read_unknown"] = read.error().message;
    return text + fmt::format("  bandwidth     unknown: {}\n", read.error().message);
  }
  json["read_bytes_per_second"] = read->median;
  json["read_measured_by"] = read->what;
  return text + fmt::format("  bandwidth     {:.0f} GB/s measured ({:.0f} to {:.0f}): {}\n", read->median * 1e-9,
                            read->low * 1e-9, read->high * 1e-9, read->what);
}

// What a unit is and can do, or why it cannot be had: for both kinds of output.
std::string describe(const std::string& name, const Result<std::unique_ptr<Unit>>& unit, OrderedJson& item) {
  item["name"] = name;
  item["available"] = unit.has_value();
  if (!unit) {
    item["reason"] = unit.error().message;
    return fmt::format("\n{}  not available: {}\n", name, unit.error().message);
  }
  const Caps& caps = (*unit)->caps();
  auto ops = names(caps.ops, [](OpKind kind) { return to_string(kind); });
  for (const OpTrait trait : caps.traits) ops.emplace_back(to_string(trait));
  const auto types = names(caps.native_formats, [](DType dtype) { return to_string(dtype); });
  item["reason"] = nullptr;
  item["kv_type"] = to_string(caps.kv_type);
  item["prefill_tokens_preferred"] = caps.prefill_tokens_preferred;
  item["decode_seats_max"] = caps.decode_seats_max;
  item["features"] = caps.features;
  item["weight_types"] = types;
  item["ops"] = ops;
  std::string text = fmt::format("\n{}  available{}\n", name, caps.emulated ? " (emulated)" : "");
  text += describe_device(**unit, item);
  if (!caps.features.empty()) text += fmt::format("  features      {}\n", fmt::join(caps.features, " "));
  if (!types.empty()) text += fmt::format("  weights       {}\n", fmt::join(types, " "));
  text += fmt::format("  keys, values  {}\n", to_string(caps.kv_type));
  text += fmt::format("  prefill       {} tokens a step preferred\n", caps.prefill_tokens_preferred);
  text += caps.decode_seats_max == 0
              ? std::string("  decode        none: this unit only prefills\n")
              : fmt::format("  decode        up to {} sequences a step\n", caps.decode_seats_max);
  return text + fmt::format("  ops           {}\n", fmt::join(ops, " "));
}

int list_units(const UnitsFlags& flags) {
  if (flags.help_options) return list_options(flags.json);
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
    std::vector<std::string> each = {std::string(entry->name)};
    for (const std::string& words : entry->more == nullptr ? std::vector<std::string>() : entry->more())
      each.push_back(fmt::format("{}:{}", entry->name, words));
    for (const std::string& name : each) {
      OrderedJson item;
      text += describe(name, create_unit(name), item);
      json["units"].push_back(item);
    }
  }
  if (flags.json) {
    print_json(json);
  } else {
    print(text);
  }
  return kOk;
}

}  // namespace

std::unique_ptr<Command> add_units(CLI::App& program) {
  CLI::App* app = program.add_subcommand("units", "list the compute units and what they can do");
  auto command = std::make_unique<FlagsCommand<UnitsFlags, list_units>>(app);
  app->add_flag("--help-options", command->flags.help_options,
                "list the options of each unit instead, with their defaults: those behind a colon, cpu:threads=4");
  app->add_flag("--json", command->flags.json, "one JSON object instead of text");
  return command;
}

}  // namespace baton::cli
