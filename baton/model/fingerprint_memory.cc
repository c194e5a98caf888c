// One file for each model: what its files were, then the digest, then a checksum of it all.
#include "baton/model/fingerprint_memory.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <vector>

#include "baton/base/bytes.h"
#include "baton/base/cache_folder.h"
#include "baton/base/file.h"
#include "baton/model/container.h"
#include "baton/model/model.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kTitle = "baton fingerprint 2\n";  // raised when the same bytes give another digest
constexpr size_t kRecordBytesMax = 1 << 20;
constexpr int64_t kSettledNs = 2'000'000'000;

uint64_t sum_of(std::string_view text) { return XXH3_64bits(text.data(), text.size()); }

fs::path folder_of(const FingerprintOptions& options) {
  if (options.folder) return *options.folder;
  const fs::path caches = cache_folder();
  return caches.empty() ? caches : caches / "fingerprints";
}

// The files as they were mapped, and what the reader made of them. Empty: nothing to know this model by.
std::string key_of(const Model& model) {
  if (model.container == nullptr || model.container->files.empty()) return {};
  std::string key(kTitle);
  for (const MappedFile& file : model.container->files) {
    std::error_code error;
    const fs::path path = fs::absolute(file.path(), error);
    const FileIdentity& id = file.identity();
    const auto now = file_identity(file.path());
    if (error || !now || *now != id) return {};
    // Lengths first: no path can look like the lines behind it.
    key += fmt::format("file {} {}\n{} {} {} {} {}\n", path.string().size(), path.string(), id.device, id.inode,
                       id.size, id.modified_ns, id.changed_ns);
  }
  return key + fmt::format("shapes {:016x} {:016x}\n", model.shape_prints.model, model.shape_prints.quantization);
}

fs::path record_path(const fs::path& folder, std::string_view key) {
  return folder / fmt::format("{:016x}.txt", sum_of(key));
}

std::string record_of(std::string_view key, uint64_t quantization) {
  std::string record = fmt::format("{}matrices {:016x}\n", key, quantization);
  return record + fmt::format("sum {:016x}\n", sum_of(record));
}

bool settled(const Model& model) {
  const int64_t now_ns =
      std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::system_clock::now().time_since_epoch()).count();
  return std::all_of(model.container->files.begin(), model.container->files.end(), [&](const MappedFile& file) {
    return std::max(file.identity().modified_ns, file.identity().changed_ns) < now_ns - kSettledNs;
  });
}

// Ours only: 16 hexadecimal digits and ".txt".
bool is_record(const fs::path& path) {
  const std::string stem = path.stem().string();
  return path.extension() == ".txt" && stem.size() == 16 &&
         stem.find_first_not_of("0123456789abcdef") == std::string::npos;
}

void drop_oldest(const fs::path& folder) {
  std::error_code error;
  std::vector<std::pair<fs::file_time_type, fs::path>> records;
  for (auto entry = fs::directory_iterator(folder, error); !error && entry != fs::directory_iterator();
       entry.increment(error)) {
    std::error_code ignored;
    if (is_record(entry->path())) records.emplace_back(entry->last_write_time(ignored), entry->path());
  }
  if (records.size() <= kRememberedMax) return;
  std::sort(records.begin(), records.end());
  for (size_t i = 0; i + kRememberedMax < records.size(); ++i) fs::remove(records[i].second, error);
}

}  // namespace

std::optional<uint64_t> remembered_fingerprint(const Model& model, const FingerprintOptions& options) {
  const fs::path folder = folder_of(options);
  const std::string key = folder.empty() ? "" : key_of(model);
  if (key.empty()) return std::nullopt;
  const auto record = read_file(record_path(folder, key), kRecordBytesMax);
  constexpr std::string_view kName = "matrices ";
  if (!record || !record->starts_with(key) || record->size() < key.size() + kName.size() + 16) return std::nullopt;
  uint64_t value = 0;
  for (const char digit : std::string_view(*record).substr(key.size() + kName.size(), 16)) {
    const size_t place = std::string_view("0123456789abcdef").find(digit);
    if (place == std::string_view::npos) return std::nullopt;
    value = value * 16 + place;
  }
  if (*record != record_of(key, value)) return std::nullopt;
  return value;
}

void remember_fingerprint(const Model& model, const FingerprintOptions& options, uint64_t quantization) {
  const fs::path folder = folder_of(options);
  const std::string key = folder.empty() ? "" : key_of(model);
  if (key.empty() || !settled(model)) return;
  std::error_code error;
  fs::create_directories(folder, error);
  if (error) return;
  // A cache that cannot be written costs the digest next time, no more.
  if (write_file(record_path(folder, key), as_bytes(record_of(key, quantization)))) drop_oldest(folder);
}

}  // namespace baton
