// The models of `baton serve`: what is known of each before it is loaded, and how it is.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "baton/cli/serve_flags.h"
#include "baton/serve/model_pool.h"

namespace baton::cli {

// With the models of the flags, those loaded that are to be at the start; each file is looked at. The flags, and
// `draws`, a number that differs for each request, outlive it.
Result<std::unique_ptr<serve::ModelPool>> open_pool(const ServeFlags& flags, std::atomic<uint64_t>& draws);

}  // namespace baton::cli
