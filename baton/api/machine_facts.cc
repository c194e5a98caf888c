// Gathering and writing them.
#include "baton/api/machine_facts.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "baton/api/units.h"
#include "baton/base/simd/cpu_features.h"
#include "baton/base/thread_pool.h"

namespace baton {
namespace {

using MachineJson = nlohmann::ordered_json;

constexpr double kGiB = 1 << 30;

std::string size_text(uint64_t bytes) {
  if (bytes >= (1u << 20) && bytes % (1u << 20) == 0) return fmt::format("{} MiB", bytes >> 20);
  return fmt::format("{} KiB", bytes >> 10);
}

}  // namespace

MachineFacts machine_facts() {
  MachineFacts facts{this_machine(), read_hardware(), physical_cores(), feature_names(cpu_features()), {}};
  for (const UnitEntry* entry : unit_entries()) {
    MachineUnit& unit = facts.units.emplace_back(MachineUnit{.name = std::string(entry->name)});
    unit.only_prefills = entry->only_prefills;
    const auto made = entry->create({});
    if (!made) {
      unit.missing = made.error().message;
      continue;
    }
    unit.emulated = (*made)->caps().emulated;
    unit.features = (*made)->caps().features;
  }
  return facts;
}

MachineJson machine_json(const MachineFacts& facts) {
  MachineJson json = {{"processor", facts.machine.processor},
                      {"cores", facts.machine.cores},
                      {"physical_cores", facts.physical_cores},
                      {"memory_bytes", facts.machine.memory_bytes},
                      {"memory_available_bytes", facts.machine.memory_available_bytes},
                      {"instruction_sets", facts.instruction_sets}};
  json["core_kinds"] = MachineJson::array();
  for (const CoreKind& kind : facts.hardware.core_kinds)
    json["core_kinds"].push_back({{"name", kind.name}, {"processors", kind.count}, {"ids", kind.ids}});
  json["caches"] = MachineJson::array();
  for (const CacheFacts& cache : facts.hardware.caches)
    json["caches"].push_back(
        {{"level", cache.level}, {"kind", cache.kind}, {"bytes", cache.bytes}, {"count", cache.count}});
  json["units"] = MachineJson::array();
  for (const MachineUnit& unit : facts.units) {
    MachineJson& item =
        json["units"].emplace_back(MachineJson{{"name", unit.name}, {"available", unit.missing.empty()}});
    if (!unit.missing.empty()) {
      item["reason"] = unit.missing;
      continue;
    }
    item["emulated"] = unit.emulated;
    item["only_prefills"] = unit.only_prefills;
    item["features"] = unit.features;
  }
  return json;
}

std::string machine_line(const MachineFacts& facts) {
  std::string kinds, caches, units;
  if (facts.hardware.core_kinds.size() > 1) {
    for (const CoreKind& kind : facts.hardware.core_kinds)
      kinds += fmt::format("{} {} {}", kinds.empty() ? ":" : ",", kind.count, kind.name);
  }
  for (const CacheFacts& cache : facts.hardware.caches) {
    if (cache.level < 2) continue;
    caches += fmt::format(", L{} {}", cache.level, size_text(cache.bytes));
    if (cache.count > 1) caches += fmt::format(" x{}", cache.count);
  }
  for (const MachineUnit& unit : facts.units) {
    if (!unit.missing.empty()) continue;
    units += fmt::format("{}{}{}", units.empty() ? "" : ", ", unit.name, unit.emulated ? " (emulated)" : "");
  }
  return fmt::format("{}, {} cores ({} processors{}){}, {:.1f} GiB memory, {}; units {}", facts.machine.processor,
                     facts.physical_cores, facts.machine.cores, kinds, caches,
                     static_cast<double>(facts.machine.memory_bytes) / kGiB, fmt::join(facts.instruction_sets, " "),
                     units);
}

}  // namespace baton
