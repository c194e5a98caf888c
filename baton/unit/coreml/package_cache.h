// Exported and compiled packages in a folder: made when first needed, found again by the next process. Keys: the
// program (fingerprints of model and quantization, version of the exporter), the shape and chunk, and the system's
// version, for compiled forms are valid for one. The folder:
//   <root>/<model fingerprint>-<quantization>-v<exporter>/<package name>.mlmodel     the specification
//                                                        /<system hash>/<package name>.mlmodelc
// Weights are kept in the compiled form only.
#pragma once

#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "baton/model/model.h"
#include "baton/unit/apple/mlpackage/export.h"
#include "baton/unit/coreml/package_engine.h"

namespace baton::coreml {

struct CacheEvents {
  uint64_t exported = 0, compiled = 0, found = 0;
  uint64_t replaced = 0;     // compiled forms that could not be loaded and were made again
  uint64_t bytes_added = 0;  // by what was compiled
};

// Bytes of the files below a folder; 0 when there is none.
uint64_t folder_bytes(const std::filesystem::path& folder);

// Used from one thread at a time; several processes may share the folder: what is made is put in place by one rename.
class PackageCache {
 public:
  PackageCache(std::filesystem::path root, PackageEngine& engine) : root_(std::move(root)), engine_(engine) {}

  Result<std::unique_ptr<LoadedPackage>> open(const Model& model, const apple::PrefillShape& shape,
                                              const std::vector<apple::LayerRange>& chunks, size_t chunk);
  const CacheEvents& events() const { return events_; }

 private:
  struct Place {
    std::filesystem::path folder, spec, compiled;
  };
  Result<Place> place_of(const Model& model, const std::string& name) const;
  Result<std::unique_ptr<LoadedPackage>> find(const Place& place);
  Result<std::unique_ptr<LoadedPackage>> make(const Place& place, const apple::PackageContent& content);

  const std::filesystem::path root_;
  PackageEngine& engine_;
  CacheEvents events_;
};

}  // namespace baton::coreml
