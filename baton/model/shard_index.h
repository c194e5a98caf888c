// model.safetensors.index.json: which file of a folder has which tensor.
#pragma once

#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "baton/base/status.h"

namespace baton {

using ShardIndex = std::vector<std::pair<std::string, std::string>>;  // tensor and file, as they stand in it

// Not empty; files are plain names in the index's folder. kInvalidInput: not such a file, or more than 2^18 tensors.
Result<ShardIndex> read_shard_index(const std::filesystem::path& path);

}  // namespace baton
