// Sealed states that lie elsewhere than in memory, found by the tokens they were made from: what the engine asks of a
// cache. StateCache is the one of a folder; the simulation has one that is slow, full and damaged.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "baton/base/status.h"
#include "baton/state/provenance.h"
#include "baton/state/seal_stream.h"

namespace baton {

struct CachedState {
  std::vector<int32_t> tokens;  // it was made from
  Provenance provenance;
  std::filesystem::path file;
  SealSource source;  // keeps the file open
};

// Each function may be called by any thread.
class StoredStates {
 public:
  virtual ~StoredStates() = default;

  // The longest that was made from a beginning of `tokens`, of more than `above`, and whose makers `accepts` likes.
  // Counts as its use. None too when it is gone meanwhile. What its source gives is not verified.
  virtual std::optional<CachedState> find(std::span<const int32_t> tokens, uint64_t above,
                                          const std::function<bool(const Provenance&)>& accepts) = 0;
  // Whether there is one of just these tokens, and a provenance that `like` likes.
  virtual bool contains(std::span<const int32_t> tokens, const std::function<bool(const Provenance&)>& like) const = 0;
  // Writes the state of these tokens, which took `ms` to make, and removes others for its room. False: it is larger
  // than all the room, and is not written. By one thread at a time; others find what there is meanwhile.
  virtual Result<bool> keep(const SealSource& state, std::span<const int32_t> tokens, const Provenance& provenance,
                            double ms) = 0;
  // A state that was found did not hold: it is not found again. Removes one that is damaged, and leaves one that is
  // somebody else's (under another key).
  virtual void refuse(const std::filesystem::path& file, bool damaged) = 0;
  virtual uint64_t bytes_max() const = 0;
};

}  // namespace baton
