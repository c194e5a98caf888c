// The units built into this program, in the order of cmake/units.cmake, and how they are asked for.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/unit/entry.h"

namespace baton {

std::span<const UnitEntry* const> unit_entries();

// A unit as it is asked for: "cpu", or with options "cpu:threads=4,kernels=avx2".
struct UnitChoice {
  const UnitEntry* entry;
  UnitOptions options;

  // Equal for equal choices: what is the default anyway is left out.
  std::string text() const;
  Result<std::unique_ptr<Unit>> create() const { return entry->create(options); }
};
// `own` are found before those built in. kNotFound names the units there are, kInvalidInput the options of this one.
Result<UnitChoice> parse_unit(std::string_view text, std::span<const UnitEntry* const> own = {});
// Names to tell units apart that are used together: each has its unit's, but text() where other options of the same
// unit are among them.
std::vector<std::string> names_of(std::span<const UnitChoice> choices);

// A unit that was made, by its name.
struct NamedUnit {
  std::string_view name;
  const Unit& unit;
  std::string_view asked = name;  // UnitChoice::text()
};
// What is to be said of units that are used together: those kept on the same cores of the host.
std::vector<std::string> notes_of(std::span<const NamedUnit> units);

// Names of the units of this machine that can run it.
std::vector<std::string> units_that_can(const Program& program);

// The message of the unit `by` that refused to load a program, with the units of this machine that have all of its ops
// where that was the reason.
Error with_units_that_can(Error refused, const Program& program, const Unit& by);

// What is known of units that a model would be loaded into, together; each counts once. One that cannot be had counts
// nothing.
struct UnitsFacts {
  uint64_t kept_bytes = 0;                  // of the model's weights
  uint64_t device_kept_bytes = 0;           // of these, in memory of devices (Caps::device)
  std::vector<std::string> emulated = {};   // by names_of()
  std::optional<uint64_t> state_room = {};  // the least of theirs
};
UnitsFacts units_facts(const Model& model, std::span<const std::string> units);

// Bytes that a unit's device (Caps::device) has for states beside a model's weights, where nobody else uses it; no
// value: they lie in the host's memory.
std::optional<uint64_t> state_room(const Unit& unit, const Model& model);

// What models on these units may take: the memory of the smallest of their devices where all have one, else what is
// free of the host's, in which emulated devices lie, too. 0: not known.
uint64_t memory_of(std::span<const std::string> units);

// `text` with a type of keys and values for a unit whose options do not say one; `kv` empty: as it is. kUnsupported
// names the units that have this one, where the unit has no choice; kInvalidInput the types of a unit that has others.
Result<std::string> with_kv(const std::string& text, std::string_view kv);
// Names of the units whose options may say this type.
std::vector<std::string> units_with_kv(std::string_view kv);

// As parse_unit, and what the unit says when it cannot be had.
Result<std::unique_ptr<Unit>> create_unit(std::string_view text);

}  // namespace baton
