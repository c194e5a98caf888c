// Cores of the host that threads are kept on.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"

namespace baton {

// A list as taskset takes it, "0-3,8": ascending, each core once, numbered as the system does. Empty: it is none.
std::vector<uint32_t> parse_cores(std::string_view text);
// "core 8", "cores 0-3,8"
std::string cores_text(std::span<const uint32_t> cores);
// Whether threads of this process can be kept on them. kInvalidInput names those that the machine lacks, or that the
// calling thread may not run on; kUnsupported where the system lets no program choose.
Status check_cores(std::span<const uint32_t> cores);

// Keeps the calling thread on any of the cores for as long as this lives, then where it was before. No cores: does
// nothing. Threads that are started meanwhile stay there.
class PinnedThread {
 public:
  explicit PinnedThread(std::span<const uint32_t> cores);
  ~PinnedThread();
  PinnedThread(const PinnedThread&) = delete;
  PinnedThread& operator=(const PinnedThread&) = delete;
  // False: the system refused, and the thread runs where it did.
  bool holds() const { return holds_; }

 private:
  std::vector<uint32_t> before_;  // empty: nothing to go back to
  bool holds_ = true;
};

}  // namespace baton
