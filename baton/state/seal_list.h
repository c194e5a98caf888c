// What a sealed state says of itself, without a receiver: for listings. Nothing is decoded from it; open_seal decides.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "baton/base/status.h"
#include "baton/state/seal.h"

namespace baton {

struct SealListing {
  StateIdentity identity;
  bool keyed = false;  // it says that it carries a MAC (state_key.h); not checked here
  uint64_t position = 0;
  std::vector<int32_t> tokens;
  Provenance provenance;
  std::vector<SealedSection> sections;  // borrowed from the block; values not checked
};

// Whether the block begins as a sealed state.
bool is_seal(std::span<const std::byte> block);

// kCorrupt when header, lengths or the header's checksum are wrong, kMismatch for another version.
Result<SealListing> list_seal(std::span<const std::byte> block);

}  // namespace baton
