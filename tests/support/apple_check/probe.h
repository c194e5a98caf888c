// baton-apple-check: the first run on a Mac, as a list of probes. Each runs in a process of its own with a time-out, so
// that a call that hangs or crashes costs one line of the report (docs/apple_check.md).
#pragma once

#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "baton/unit/apple/driver.h"
#include "baton/unit/apple/kernel.h"

namespace baton::apple {

using OrderedJson = nlohmann::ordered_json;

struct CheckContext {
  bool emulate = false, quick = false;
  std::string head = "ios16-bare";  // of the programs: one of kHeads, the first that the system takes
  std::filesystem::path folder;     // for this probe alone; exists
};

struct Probe {
  std::string name, group;
  bool quick = true;      // part of --quick
  bool by_name = false;   // only when --only names it
  uint32_t seconds = 60;  // before it is given up
  // The fields of its line; "ok" among them says whether all was as expected.
  Result<OrderedJson> (*run)(const CheckContext& context, const std::string& name) = nullptr;
};

// In the order in which they run.
std::vector<Probe> probes();
std::vector<Probe> kernel_probes();
std::vector<Probe> form_probes();
std::vector<Probe> system_probes();

// Forms of the program's first lines: opset and dialect, and how buildInfo spells its strings.
inline constexpr const char* kHeads[] = {"ios16-bare", "ios18-bare", "ios16-typed", "ios18-typed"};
MilDialect dialect_of(std::string_view head);
std::string with_head(std::string mil, std::string_view head);

// The system's driver without its start-up check, or an emulator that does what hardware is reported to do.
Result<std::unique_ptr<Driver>> open_device(const CheckContext& context);

// y[r] = x[63 - r] + 2 x[(r + 7) % 64] with small integers: exact on any fp16 engine.
inline constexpr int64_t kExactSize = 64;
Result<Kernel> exact_kernel(const CheckContext& context, int64_t columns);
uint16_t exact_input(int64_t channel, int64_t column);
float exact_output(int64_t channel, int64_t column);

struct Ran {
  std::vector<uint16_t> output;  // `out_values` of the output surface from its start
  double load_ms = 0, first_ms = 0, median_ms = 0;
};
// Loads and evaluates 1 + `repeats` times; `input` is copied to the start of the surface. 0: the size every kernel has.
Result<Ran> run_kernel(Driver& driver, const Kernel& kernel, std::span<const uint16_t> input, size_t out_values,
                       int repeats, uint64_t in_surface = 0, uint64_t out_surface = 0);

}  // namespace baton::apple
