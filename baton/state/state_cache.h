// Sealed states that outlive a process: a folder of files, one a state (seal_file.h), found again by the tokens they
// were made from. Of a file only the header and the tokens are read before its state is used, and then all of it is
// verified; what does not hold is never used. Files are written for their owner only: they hold prompts in the clear.
//
// Several processes may use a folder: a file is there whole or not at all, and who has it open reads on when another
// removes it. What others write there while a cache is open is not seen by it.
//
// When room is needed the file goes whose time to compute it again is least for its bytes and the time nobody asked for
// it: greatest is (seconds since its last use) x bytes / ms.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baton/base/status.h"
#include "baton/state/seal_file.h"
#include "baton/state/stored_states.h"

namespace baton {

struct StateCacheOptions {
  std::filesystem::path folder;  // made when it is missing, for its owner only; its parent must be there
  uint64_t bytes_max = 0;        // of all states in it, of other models too
  StateIdentity identity;        // of the states that are found
  StateShape shape;
  uint64_t position_max = 0;
  int32_t vocab = 0;
  const StateKey* key = nullptr;  // as of seal_file.h; borrowed
};

// A file of a cache's folder, by its name alone.
struct CacheFile {
  std::filesystem::path path;
  uint64_t tokens = 0;
  double ms = 0;  // that making it took
  uint64_t bytes = 0;
  std::filesystem::file_time_type used;  // last
};

class StateCache final : public StoredStates {
 public:
  // Reads the heads of what is there, and removes what is more than `bytes_max`. Files that are damaged, or of other
  // models, stay where they are. kInvalidInput or kNotFound for what is no folder and cannot be made one.
  static Result<std::unique_ptr<StateCache>> open(StateCacheOptions options);

  std::optional<CachedState> find(std::span<const int32_t> tokens, uint64_t above,
                                  const std::function<bool(const Provenance&)>& accepts) override;
  bool contains(std::span<const int32_t> tokens, const std::function<bool(const Provenance&)>& like) const override;
  // Errors of SealFile.
  Result<bool> keep(const SealSource& state, std::span<const int32_t> tokens, const Provenance& provenance,
                    double ms) override;
  void refuse(const std::filesystem::path& file, bool damaged) override;

  size_t size() const;
  // What was removed when it was opened: more than `bytes_max`.
  struct Removed {
    size_t files = 0;
    uint64_t bytes = 0;
  };
  const Removed& removed_at_open() const { return removed_at_open_; }
  uint64_t bytes_max() const override { return options_.bytes_max; }

 private:
  struct Entry {
    std::filesystem::path file;
    std::vector<int32_t> tokens;
    Provenance provenance;
  };
  explicit StateCache(StateCacheOptions options) : options_(std::move(options)) {}
  void read_head(const std::filesystem::path& file);
  // For a file of so many bytes, and of the states in it only that one.
  Removed make_room(uint64_t bytes, const std::filesystem::path& coming);
  void forget(const std::filesystem::path& file);

  const StateCacheOptions options_;
  Removed removed_at_open_;
  mutable std::mutex mutex_;
  std::vector<Entry> entries_;
};

// The states of a cache's folder, those of each model, the least used first; other files are not told of. Errors of the
// folder: kNotFound, kInvalidInput.
Result<std::vector<CacheFile>> list_cache(const std::filesystem::path& folder);

}  // namespace baton
