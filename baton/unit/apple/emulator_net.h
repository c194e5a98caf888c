// What the emulated compiler leaves in a model's folder: net.plist, here the program's text and the places of its
// weight files, and data, the weight files one after another, each from a multiple of 64 (one file: the file itself, as
// on the device). Loading reads these two only.
#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "baton/base/status.h"
#include "baton/unit/apple/mil_graph.h"

namespace baton::apple {

struct EmulatedNet {
  struct File {
    std::string path;  // as in the text
    uint64_t offset = 0, bytes = 0;
  };
  std::string mil;
  std::vector<File> files;
  std::vector<std::byte> data;

  // Views of `data` by path.
  WeightFiles weights() const;
};

// Replaces whole files, without a sync: a torn artefact is found when it is read.
Status write_net(const std::filesystem::path& folder, std::string_view mil, const WeightFiles& weights);
// Rules net-missing, data-missing and net-corrupt.
Result<EmulatedNet> read_net(const std::filesystem::path& folder);

}  // namespace baton::apple
