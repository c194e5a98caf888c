// Fingerprints for commands: what takes long says so.
#pragma once

#include "baton/model/fingerprint.h"

namespace baton::cli {

// After a second the share that is done is shown on stderr, where that is a terminal.
FingerprintOptions shown_fingerprint();

}  // namespace baton::cli
