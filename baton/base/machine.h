// Facts about the machine, as the system tells them.
#pragma once

#include <cstdint>
#include <string>

namespace baton {

struct Machine {
  std::string processor = "unknown";
  uint32_t cores = 0;  // that this process may use
  uint64_t memory_bytes = 0;
  uint64_t memory_available_bytes = 0;  // to this process, by its limits and its container's too; 0: unknown
};
Machine this_machine();

}  // namespace baton
