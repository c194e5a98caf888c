// What the system tells of this process and of others: peak memory (Linux only; elsewhere nothing is known), and
// whether the machine is busy.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace baton {

// Largest resident memory since the last call of reset_peak_memory (or the start, where it cannot be reset).
void reset_peak_memory();
std::optional<uint64_t> peak_memory_bytes();

// A sentence, when more processes wanted the cores in the last minute than a measurement bears: those of others take
// them from a unit's threads, and a decode step then waits for the slowest.
std::optional<std::string> busy_machine();

}  // namespace baton
