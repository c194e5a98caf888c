// What `baton serve --check-config` says.
#pragma once

#include <atomic>
#include <string>

#include "baton/cli/serve_flags.h"
#include "baton/serve/app.h"

namespace baton::cli {

// A line for the server and one for each model, as the flags and the file together have it, or what would keep it from
// starting: certificates, folders of logs and models are looked at; nothing is loaded, written or listened on.
Result<std::string> checked_text(const ServeFlags& flags, const serve::AppOptions& options,
                                 std::atomic<uint64_t>& draws);

}  // namespace baton::cli
