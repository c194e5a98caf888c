// What the system tells of this process: peak memory. Linux only; elsewhere nothing is known.
#pragma once

#include <cstdint>
#include <optional>

namespace baton {

// Largest resident memory since the last call of reset_peak_memory (or the start, where it cannot be reset).
void reset_peak_memory();
std::optional<uint64_t> peak_memory_bytes();

}  // namespace baton
