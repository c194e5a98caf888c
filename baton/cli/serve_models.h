// The models of `baton serve`: what is known of each before it is loaded, and how it is.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "baton/cli/serve_flags.h"
#include "baton/serve/model_pool.h"

namespace baton::cli {

// Before any is loaded.
struct DescribedModels {
  struct Model {
    serve::ModelSource source;
    std::string path;
    bool at_start = false;
  };
  std::vector<Model> models;  // those that write text first, then those that make vectors
  uint64_t budget_bytes = 0;  // of all together
};

// The models of the flags, each file looked at. The flags, and `draws`, a number that differs for each request, outlive
// what is made of them.
Result<DescribedModels> describe_models(const ServeFlags& flags, std::atomic<uint64_t>& draws);
// Those loaded that are to be at the start.
Result<std::unique_ptr<serve::ModelPool>> open_pool(const ServeFlags& flags, DescribedModels described);

}  // namespace baton::cli
