// Which files of a repository make a model: a GGUF file of one type with its splits, or a Hugging Face folder without
// what only other programs read. Never pickle files.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/hub/name.h"

namespace baton::hub {

inline constexpr std::string_view kFolderType = "safetensors";

// One model of a repository.
struct Variant {
  std::string type;                // "Q4_K_M", "UD-Q4_K_XL", "safetensors"; of a name without a type: the file's stem
  std::vector<std::string> files;  // in order
  std::string entry;               // what is opened: the (first) GGUF file; empty: the folder
  bool whole = true;               // false: parts of a split, or the weights, are not among the files
};

// All of them: GGUF files by name (those of vision towers and of importance matrices are none), then the folder, if it
// has a config.json or weights.
std::vector<Variant> variants_of(std::span<const std::string> files);

// That of the name's type, whatever the case; without one Q4_K_M, then Q8_0, then others by size, the largest last. The
// message of kNotFound names those that there are; kUnsupported: there are only pickle files.
Result<Variant> choose(const RepoName& name, std::span<const std::string> files);

}  // namespace baton::hub
