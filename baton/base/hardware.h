// Caches and kinds of cores of the processor, as the system tells them.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace baton {

struct CacheFacts {
  uint32_t level = 0;
  std::string kind;  // "data", "instruction", "unified"
  uint64_t bytes = 0;
  uint32_t count = 0;  // of them

  friend bool operator==(const CacheFacts&, const CacheFacts&) = default;
};

// Processors of one kind, as the system counts them: threads of a core each.
struct CoreKind {
  std::string name;  // "performance", "efficiency", between them "middle"; "all" where there is one kind
  uint32_t count = 0;
  std::vector<uint32_t> ids = {};  // empty: the system does not say

  friend bool operator==(const CoreKind&, const CoreKind&) = default;
};

struct Hardware {
  std::vector<CacheFacts> caches;    // by level, then kind, then size; empty: unknown
  std::vector<CoreKind> core_kinds;  // the fastest first; empty: unknown
};
// Linux: from the files below `system`; macOS: from sysctl. What cannot be read is left out.
Hardware read_hardware(const std::filesystem::path& system = "/sys");

}  // namespace baton
