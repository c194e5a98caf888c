// Three tiny programs run on a device and on the emulator: do they agree on the order in which ports are bound, on the
// pitch of rows, and on concat? Whoever uses a device whose answers differ would compute wrong values without an error.
#pragma once

#include "baton/base/status.h"
#include "baton/unit/apple/driver.h"

namespace baton::apple {

// kUnsupported with what differs, or with the call that failed. Compiles three programs on `device`; the emulator runs
// in a folder below the device's temporary folder, which is removed.
Status self_check(Driver& device);

}  // namespace baton::apple
