// The memory that a run of this program takes, as the system counts it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace baton::cli {

// This program's own file; empty when the system does not tell.
std::filesystem::path program_file();

// Runs `program` with `arguments` (its output goes nowhere) and gives the largest resident memory it reached: anonymous
// and mapped pages, read from /proc/<id>/status while it runs, each millisecond. (wait4's figure would hold the
// parent's own peak, which the child starts with.) Empty where there is no /proc, and when the program fails.
std::optional<uint64_t> peak_memory_of(const std::filesystem::path& program, const std::vector<std::string>& arguments);

}  // namespace baton::cli
