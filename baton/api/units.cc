// The list of units, generated from cmake/units.cmake.
#include "baton/api/units.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>

#include "baton/base/affinity.h"
#include "baton/base/machine.h"

namespace baton {

#define BATON_UNIT(name) extern const UnitEntry k_unit_##name;
#include "baton/unit_list.inc"
#undef BATON_UNIT

namespace {
// Pointers, because the entries themselves are constants of other files.
constexpr std::array kEntries = {
#define BATON_UNIT(name) &k_unit_##name,
#include "baton/unit_list.inc"
#undef BATON_UNIT
};
}  // namespace

std::span<const UnitEntry* const> unit_entries() { return kEntries; }

std::string UnitChoice::text() const {
  UnitOptions own = options;
  const auto known = entry->options == nullptr ? std::vector<UnitOption>() : entry->options();
  for (const UnitOption& option : known) {
    if (own.text(option.key) == option.otherwise) own.leave_out(option.key);
  }
  const std::string words = own.words();
  return fmt::format("{}{}{}", entry->name, words.empty() ? "" : ":", words);
}

namespace {
// What was meant by a name that no unit has, with "; " before it; or nothing.
std::string meant_by(std::string_view name) {
  std::string lower(name.substr(0, name.find(',')));
  std::transform(lower.begin(), lower.end(), lower.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const std::string_view other : {"gpu", "nvidia", "nv"}) {
    if (lower == other) return "; an NVIDIA card is 'cuda'";
  }
  for (const UnitEntry* entry : unit_entries()) {
    if (entry->name != lower) continue;
    if (lower.size() < name.size()) return fmt::format("; options stand behind a colon: '{}:KEY=VALUE'", lower);
    return fmt::format("; did you mean '{}'?", lower);
  }
  return {};
}
}  // namespace

Result<UnitChoice> parse_unit(std::string_view text, std::span<const UnitEntry* const> own) {
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view name = text.substr(0, colon);
  std::string names;
  for (const auto& list : {own, unit_entries()}) {
    for (const UnitEntry* entry : list) {
      names += fmt::format("{}{}", names.empty() ? "" : ", ", entry->name);
      if (entry->name != name) continue;
      if (colon + 1 == text.size()) {
        return fail(Code::kInvalidInput,
                    fmt::format("'{}': there is no option behind the colon; without any it is '{}'", text, name));
      }
      const auto known = entry->options == nullptr ? std::vector<UnitOption>() : entry->options();
      BATON_TRY(auto options, UnitOptions::parse(name, text.substr(std::min(colon + 1, text.size())), known));
      return UnitChoice{entry, std::move(options)};
    }
  }
  return fail(Code::kNotFound, fmt::format("no unit named '{}'; there are: {}{}", name, names, meant_by(name)));
}

std::vector<std::string> names_of(std::span<const UnitChoice> choices) {
  std::vector<std::string> names;
  for (const UnitChoice& choice : choices) {
    const bool other = std::any_of(choices.begin(), choices.end(), [&](const UnitChoice& c) {
      return c.entry == choice.entry && c.text() != choice.text();
    });
    names.push_back(other ? choice.text() : std::string(choice.entry->name));
  }
  return names;
}

std::vector<std::string> notes_of(std::span<const NamedUnit> units) {
  std::vector<std::string> notes;
  for (size_t i = 0; i < units.size(); ++i) {
    for (size_t j = i + 1; j < units.size(); ++j) {
      const auto a = units[i].unit.cores(), b = units[j].unit.cores();
      std::vector<uint32_t> both;
      std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
      if (both.empty()) continue;
      notes.push_back(fmt::format("units {} and {} share {}: each is slower while the other works", units[i].name,
                                  units[j].name, cores_text(both)));
    }
  }
  return notes;
}

std::vector<std::string> units_that_can(const Program& program) {
  std::vector<std::string> can;
  for (const UnitEntry* entry : unit_entries()) {
    const auto unit = entry->create({});
    if (unit && check_program(entry->name, (*unit)->caps(), program)) can.emplace_back(entry->name);
  }
  return can;
}

Error with_units_that_can(Error refused, const Program& program, const Unit& by) {
  if (refused.code != Code::kUnsupported || check_program(by.name(), by.caps(), program)) return refused;
  const std::vector<std::string> can = units_that_can(program);
  refused.message += can.empty() ? "; no unit here has all of its ops" : fmt::format(" ({})", fmt::join(can, ", "));
  return refused;
}

UnitsFacts units_facts(const Model& model, std::span<const std::string> units) {
  std::vector<UnitChoice> choices;
  for (const std::string& text : units) {
    auto choice = parse_unit(text);
    const auto same = [&](const UnitChoice& other) { return other.text() == choice->text(); };
    if (choice && std::none_of(choices.begin(), choices.end(), same)) choices.push_back(*std::move(choice));
  }
  const std::vector<std::string> names = names_of(choices);
  UnitsFacts facts;
  for (size_t i = 0; i < choices.size(); ++i) {
    const auto unit = choices[i].create();
    if (!unit) continue;
    const uint64_t kept = (*unit)->kept_bytes(model).all;
    facts.kept_bytes += kept;
    if ((*unit)->caps().device) facts.device_kept_bytes += kept;
    if (const auto room = state_room(**unit, model))
      facts.state_room = std::min(facts.state_room.value_or(*room), *room);
    if ((*unit)->caps().emulated) facts.emulated.push_back(names[i]);
  }
  return facts;
}

// A sixteenth is for what a driver and a unit need themselves.
std::optional<uint64_t> state_room(const Unit& unit, const Model& model) {
  if (!unit.caps().device) return std::nullopt;
  const uint64_t all = unit.caps().device->memory_bytes, taken = all / 16 + unit.kept_bytes(model).all;
  return all - std::min(taken, all);
}

uint64_t memory_of(std::span<const std::string> units) {
  std::optional<uint64_t> devices;
  bool on_host = units.empty();
  for (const std::string& text : units) {
    const auto unit = create_unit(text);
    if (!unit) continue;  // who loads it says why
    const Caps& caps = (*unit)->caps();
    if (caps.device) devices = std::min(devices.value_or(caps.device->memory_bytes), caps.device->memory_bytes);
    on_host = on_host || !caps.device || caps.emulated;
  }
  const uint64_t host = this_machine().memory_available_bytes;
  if (!devices) return host;
  return !on_host || host == 0 ? *devices : std::min(host, *devices);
}

namespace {

// The types of keys and values that the unit's options may say; none: there is no choice.
std::vector<std::string> kv_words(const UnitEntry& entry) {
  std::vector<std::string> words;
  if (entry.options == nullptr) return words;
  for (const UnitOption& option : entry.options()) {
    if (option.key != kKvOption) continue;
    for (size_t begin = 0; begin <= option.values.size();) {
      const size_t end = std::min(option.values.find('|', begin), option.values.size());
      words.push_back(option.values.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  return words;
}

bool has(const std::vector<std::string>& words, std::string_view word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

// Of a unit that has a choice, but not this one: what --kv may say, and what only an option can.
std::string other_kv_words(const UnitEntry& entry, const std::vector<std::string>& words, std::string_view kv) {
  std::vector<std::string> flag, option;
  for (const std::string& word : words) (kv_type(word) ? flag : option).push_back(word);
  std::string text = fmt::format("--kv {}: unit '{}' has no such keys and values; --kv {} is for it", kv, entry.name,
                                 fmt::join(flag, "|"));
  for (const std::string& word : option)
    text += fmt::format(", and as an option {}:{}={}", entry.name, kKvOption, word);
  return text;
}

}  // namespace

std::vector<std::string> units_with_kv(std::string_view kv) {
  std::vector<std::string> units;
  for (const UnitEntry* entry : unit_entries()) {
    if (has(kv_words(*entry), kv)) units.emplace_back(entry->name);
  }
  return units;
}

Result<std::string> with_kv(const std::string& text, std::string_view kv) {
  if (kv.empty()) return text;
  BATON_TRY(const UnitChoice choice, parse_unit(text));
  if (!choice.options.text(kKvOption).empty()) return text;
  const std::vector<std::string> words = kv_words(*choice.entry);
  if (has(words, kv)) {
    const std::string given = choice.options.words();
    return fmt::format("{}:{}{}{}={}", choice.entry->name, given, given.empty() ? "" : ",", kKvOption, kv);
  }
  if (!words.empty()) return fail(Code::kInvalidInput, other_kv_words(*choice.entry, words, kv));
  const std::vector<std::string> can = units_with_kv(kv);
  std::string remedy = fmt::format("those that have: {}", fmt::join(can, ", "));
  if (!can.empty()) remedy += fmt::format("; as an option of such a unit it is {}:{}={}", can.front(), kKvOption, kv);
  return fail(Code::kUnsupported, fmt::format("unit '{}' has no choice of the type of keys and values, so not {}; {}",
                                              choice.entry->name, kv, remedy));
}

Result<std::unique_ptr<Unit>> create_unit(std::string_view text) {
  BATON_TRY(const UnitChoice choice, parse_unit(text));
  return choice.create();
}

}  // namespace baton
