// Look, else export, compile and look again.
#include "baton/unit/coreml/package_cache.h"

#include <fmt/format.h>
#include <unistd.h>
#include <xxhash.h>

#include "baton/base/bytes.h"
#include "baton/base/file.h"
#include "baton/base/output_file.h"

namespace baton::coreml {
namespace {

namespace fs = std::filesystem;

constexpr int kExporterVersion = 2;  // raised when the same model gives another program
constexpr size_t kSpecBytesMax = 256u << 20;

}  // namespace

uint64_t folder_bytes(const fs::path& folder) {
  uint64_t bytes = 0;
  std::error_code error;
  for (auto entry = fs::recursive_directory_iterator(folder, error); !error && entry != fs::end(entry);
       entry.increment(error)) {
    std::error_code unknown;
    const auto size = entry->is_regular_file(unknown) ? entry->file_size(unknown) : 0;
    if (!unknown) bytes += size;
  }
  return bytes;
}

Result<PackageCache::Place> PackageCache::place_of(const Model& model, const std::string& name) const {
  BATON_TRY(const Fingerprints prints, model.fingerprints());
  const std::string system = engine_.system_version();
  Place place;
  place.folder = root_ / fmt::format("{:016x}-{:016x}-v{}", prints.model, prints.quantization, kExporterVersion);
  place.spec = place.folder / (name + ".mlmodel");
  place.compiled =
      place.folder / fmt::format("{:016x}", XXH3_64bits(system.data(), system.size())) / (name + ".mlmodelc");
  return place;
}

Result<std::unique_ptr<LoadedPackage>> PackageCache::find(const Place& place) {
  BATON_TRY(const std::string bytes, read_file(place.spec, kSpecBytesMax));
  BATON_TRY(const apple::PackageSpec spec, apple::decode_spec(as_bytes(bytes)));
  BATON_OK(apple::check_package(spec));
  return engine_.load(place.compiled, spec);
}

Result<std::unique_ptr<LoadedPackage>> PackageCache::make(const Place& place, const apple::PackageContent& content) {
  std::error_code error;
  fs::create_directories(place.compiled.parent_path(), error);
  if (error) {
    return fail(Code::kInvalidInput, fmt::format("{}: cannot make the folder: {}; name another: coreml:cache=FOLDER",
                                                 place.compiled.parent_path().string(), error.message()));
  }
  const fs::path package = place.folder / fmt::format("part-{}.mlpackage", getpid());
  const fs::path fresh = place.folder / fmt::format("part-{}.mlmodelc", getpid());
  std::error_code ignored;
  fs::remove_all(fresh, ignored);
  BATON_OK(apple::write_package(package, content.spec, content.weights));
  ++events_.exported;
  const Status compiled = engine_.compile(package, fresh);
  fs::remove_all(package, ignored);
  if (!compiled) {
    fs::remove_all(fresh, ignored);
    return fail(compiled.error());
  }
  ++events_.compiled;
  events_.bytes_added += folder_bytes(fresh);
  const std::string spec = apple::encode_spec(content.spec);
  BATON_OK(write_output(place.spec, as_bytes(spec), kModeShared));
  fs::remove_all(place.compiled, ignored);
  fs::rename(fresh, place.compiled, error);
  if (error) {
    fs::remove_all(fresh, ignored);
    return fail(Code::kInvalidInput,
                fmt::format("{}: cannot put the program there: {}", place.compiled.string(), error.message()));
  }
  return find(place);
}

Result<std::unique_ptr<LoadedPackage>> PackageCache::open(const Model& model, const apple::PrefillShape& shape,
                                                          const std::vector<apple::LayerRange>& chunks, size_t chunk) {
  const std::string name = fs::path(apple::package_name(model, shape, chunk, chunks.size())).stem().string();
  BATON_TRY(const Place place, place_of(model, name));
  std::error_code ignored;
  if (fs::exists(place.compiled, ignored) && fs::exists(place.spec, ignored)) {
    auto found = find(place);
    if (found) {
      ++events_.found;
      return found;
    }
    ++events_.replaced;  // damaged, or of a system that changed without saying so
  }
  BATON_TRY(const apple::PackageContent content, apple::build_package(model, shape, chunks, chunk));
  auto made = make(place, content);
  if (!made) return fail(std::move(made).error().in(name));
  return made;
}

}  // namespace baton::coreml
