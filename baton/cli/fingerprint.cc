// Progress of the one pass over the weights that a fingerprint takes.
#include "baton/cli/fingerprint.h"

#include <fmt/format.h>

#include "baton/base/clock.h"
#include "baton/cli/command.h"

namespace baton::cli {

FingerprintOptions shown_fingerprint() {
  FingerprintOptions options;
  const int64_t start_ns = SteadyClock().now_ns();
  options.progress = [start_ns, shown = -1](uint64_t done, uint64_t total) mutable {
    const int percent = static_cast<int>(static_cast<double>(done) * 100 / static_cast<double>(total));
    const bool slow = ms_between(start_ns, SteadyClock().now_ns()) > 1000;
    if (slow && percent != shown) {
      progress(fmt::format("fingerprint of {:.1f} GB of weights, once for each file: {} %",
                           static_cast<double>(total) / 1e9, percent));
      shown = percent;
    }
    if (shown >= 0 && done >= total) progress("");
    return true;
  };
  return options;
}

}  // namespace baton::cli
