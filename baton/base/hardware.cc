// Linux: devices/system/cpu (caches, capacities), devices/cpu_core and cpu_atom (Intel's hybrids). macOS: hw.perflevel.
#include "baton/base/hardware.h"

#include <algorithm>
#include <fstream>
#include <map>
#include <optional>
#include <set>
#include <tuple>

#include "baton/base/affinity.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace baton {
namespace {

#if defined(__APPLE__)
std::optional<uint64_t> fact_of(const std::string& name) {
  uint64_t value = 0;
  size_t size = sizeof(value);
  if (::sysctlbyname(name.c_str(), &value, &size, nullptr, 0) != 0) return std::nullopt;
  if (size == 4) value &= UINT32_MAX;
  return value;
}

Hardware read_levels() {
  Hardware made;
  const auto levels = static_cast<uint32_t>(fact_of("hw.nperflevels").value_or(0));
  for (uint32_t level = 0; level < levels; ++level) {
    const std::string from = "hw.perflevel" + std::to_string(level) + ".";
    const auto count = static_cast<uint32_t>(fact_of(from + "logicalcpu").value_or(0));
    if (count == 0) continue;
    const char* name = levels == 1 ? "all" : level == 0 ? "performance" : level + 1 == levels ? "efficiency" : "middle";
    made.core_kinds.push_back({name, count});
    const auto add = [&](const char* key, uint32_t cache, const char* kind, uint64_t shared) {
      const uint64_t bytes = fact_of(from + key).value_or(0);
      const auto by = static_cast<uint32_t>(std::max<uint64_t>(shared, 1));
      if (bytes > 0) made.caches.push_back({cache, kind, bytes, (count + by - 1) / by});
    };
    add("l1dcachesize", 1, "data", 1);
    add("l1icachesize", 1, "instruction", 1);
    add("l2cachesize", 2, "unified", fact_of(from + "cpusperl2").value_or(count));
    add("l3cachesize", 3, "unified", fact_of(from + "cpusperl3").value_or(count));
  }
  return made;
}
#else
std::string word_in(const std::filesystem::path& file) {
  std::ifstream in(file);
  std::string word;
  in >> word;
  return word;
}

// "48K", "2048K", "8M"; 0: none of these.
uint64_t bytes_of(const std::string& text) {
  uint64_t number = 0;
  size_t digits = 0;
  for (; digits < text.size() && digits < 12 && text[digits] >= '0' && text[digits] <= '9'; ++digits)
    number = number * 10 + static_cast<uint64_t>(text[digits] - '0');
  const std::string unit = text.substr(digits);
  if (digits == 0) return 0;
  if (unit == "K") return number << 10;
  if (unit == "M") return number << 20;
  return unit.empty() ? number : 0;
}

std::string lower(std::string text) {
  for (char& letter : text) letter = letter >= 'A' && letter <= 'Z' ? static_cast<char>(letter - 'A' + 'a') : letter;
  return text;
}

std::vector<CacheFacts> read_caches(const std::filesystem::path& processors, const std::vector<uint32_t>& ids) {
  // What several processors share is one: it names the same list of them.
  std::set<std::tuple<uint32_t, std::string, uint64_t, std::string> > found;
  for (const uint32_t id : ids) {
    for (int index = 0; index < 8; ++index) {
      const auto folder = processors / ("cpu" + std::to_string(id)) / "cache" / ("index" + std::to_string(index));
      const auto level = static_cast<uint32_t>(bytes_of(word_in(folder / "level")));
      const uint64_t bytes = bytes_of(word_in(folder / "size"));
      if (level == 0 || bytes == 0) continue;
      std::string shared = word_in(folder / "shared_cpu_list");
      if (shared.empty()) shared = std::to_string(id);
      found.emplace(level, lower(word_in(folder / "type")), bytes, shared);
    }
  }
  std::vector<CacheFacts> caches;
  for (const auto& [level, kind, bytes, shared] : found) {
    const bool another =
        !caches.empty() && caches.back().level == level && caches.back().kind == kind && caches.back().bytes == bytes;
    another ? ++caches.back().count : (caches.push_back({level, kind, bytes, 1}), 1u);
  }
  return caches;
}

std::vector<CoreKind> read_kinds(const std::filesystem::path& devices, const std::vector<uint32_t>& ids) {
  const auto add = [](std::vector<CoreKind>& kinds, const char* name, std::vector<uint32_t> of) {
    if (!of.empty()) kinds.push_back({name, static_cast<uint32_t>(of.size()), std::move(of)});
  };
  std::vector<CoreKind> kinds;
  add(kinds, "performance", parse_cores(word_in(devices / "cpu_core" / "cpus")));
  add(kinds, "efficiency", parse_cores(word_in(devices / "cpu_atom" / "cpus")));
  if (kinds.size() > 1) return kinds;
  kinds.clear();
  std::map<uint64_t, std::vector<uint32_t>, std::greater<> > by_capacity;
  for (const uint32_t id : ids) {
    const auto file = devices / "system" / "cpu" / ("cpu" + std::to_string(id)) / "cpu_capacity";
    by_capacity[bytes_of(word_in(file))].push_back(id);
  }
  for (auto& [capacity, of] : by_capacity) {
    const bool last = kinds.size() + 1 == by_capacity.size();
    const char* name = by_capacity.size() == 1 ? "all" : kinds.empty() ? "performance" : last ? "efficiency" : "middle";
    add(kinds, name, std::move(of));
  }
  return kinds;
}
#endif

}  // namespace

#if defined(__APPLE__)
Hardware read_hardware(const std::filesystem::path&) { return read_levels(); }
#else
Hardware read_hardware(const std::filesystem::path& system) {
  const auto processors = system / "devices" / "system" / "cpu";
  const std::vector<uint32_t> ids = parse_cores(word_in(processors / "online"));
  return {read_caches(processors, ids), read_kinds(system / "devices", ids)};
}
#endif

}  // namespace baton
