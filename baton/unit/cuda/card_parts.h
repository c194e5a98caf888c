// What a Card holds of its driver. For card.cc and stream.cc alone.
#pragma once

#include <atomic>
#include <map>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "baton/unit/cuda/card.h"

namespace baton::cuda {

// As CardUse.
struct CardCounts {
  std::atomic<uint64_t> device_bytes{0}, pinned_bytes{0}, cards{0}, streams{0}, events{0}, graphs{0};
};
CardCounts& card_counts();

struct Card::Parts {
  const Driver* driver = nullptr;
  const CardFacts* facts = nullptr;
  DeviceNumber device = 0;
  Handle context = nullptr;
  std::vector<Handle> modules;
  std::atomic<DriverCode> lost{kDone};

  struct Function {
    Handle handle = nullptr;
    uint32_t shared_max = 48 * 1024;  // that it may be launched with: more is asked for
  };
  std::mutex mutex;  // of the rest
  std::map<std::string, Function, std::less<>> functions;

  // Calls of the driver, with the context current where there is one. `what` goes on with bytes where there are some:
  // "copying 64 bytes".
  template <class Call>
  Status run(std::string_view what, uint64_t bytes, const Call& call) {
    if (lost != kDone) return failed(what, bytes, lost);
    DriverCode code = context == nullptr ? DriverCode{kDone} : driver->context_set_current(context);
    if (code == kDone) code = call(*driver);
    if (code == kDone) return {};
    return failed(what, bytes, code);
  }
  // What is given back is: its errors are those of work before, which somebody else sees.
  template <class Call>
  void drop(const Call& call) {
    static_cast<void>(driver->context_set_current(context));
    static_cast<void>(call(*driver));
  }
  // A code that says that a card is lost.
  static bool is_loss(DriverCode code);
  // Of a code that is not kDone. The card is lost from then on where the code says so.
  tl::unexpected<Error> failed(std::string_view what, uint64_t bytes, DriverCode code);
  // By name, ready for a launch with so many bytes of shared memory. kInternal when there is none.
  Result<Handle> function(std::string_view name, uint32_t shared_bytes);
};

}  // namespace baton::cuda
