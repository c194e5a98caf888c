// The bridge: carries a sequence state from one unit's memory to another's through its sealed form. Knows only layouts
// and segments. Sealing copies each segment once into canonical bytes; opening verifies them, then fills the receiver.
//
// Threads: a call touches only the states and bytes it is given; calls on distinct states may run side by side.
// When prefill and decode run on the same executor there is nothing to carry: the engine hands the state itself over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <span>
#include <vector>

#include "baton/bridge/plan.h"
#include "baton/state/seal.h"
#include "baton/unit/unit.h"

namespace baton {

// The whole state at its position, sealed, in the state's own types. `tokens` are the position() tokens it was made
// from. kCorrupt, naming the segment, when a value is NaN or infinite; kInternal when the state does not keep its
// contract (layout, token count); kOutOfMemory. `provenance`, `recycled`: see SealWriter.
Result<std::vector<std::byte>> seal_state(const SequenceState& state, const StateIdentity& identity,
                                          std::span<const int32_t> tokens, const Provenance& provenance = {},
                                          std::vector<std::byte> recycled = {});

// Verifies `block` against `expected` (layout and position_max are taken from `into`), fills `into`, converting to its
// types, and sets its position. On error `into` is untouched. Returns the tokens the state was made from;
// `provenance`, where given, receives who made it.
// Errors of open_seal; kUnsupported when a finite value would become infinite in the receiver's type, or all values of
// a segment are below its normal numbers.
Result<std::vector<int32_t>> unseal_state(std::span<const std::byte> block, SealExpectation expected,
                                          SequenceState& into, Provenance* provenance = nullptr);

struct MoveReport {
  uint64_t bytes = 0;  // of the sealed block
  double seal_ms = 0;  // gather and checksum
  double open_ms = 0;  // verify and fill
};

// seal_state + unseal_state: what the engine's Move work does. On error `to` is untouched: it stays at position 0
// and its unit may prefill by itself. `scratch`: a block kept by the caller between moves, which then need no fresh
// memory; its contents do not matter.
Result<MoveReport> move_state(const SequenceState& from, SequenceState& to, const StateIdentity& identity,
                              std::span<const int32_t> tokens, const Provenance& provenance = {},
                              std::vector<std::byte>* scratch = nullptr);

// seal_state into a file, unseal_state from one (`expected` as there). Errors begin with the path.
Status save_state(const std::filesystem::path& path, const SequenceState& state, const StateIdentity& identity,
                  std::span<const int32_t> tokens, const Provenance& provenance = {});
Result<std::vector<int32_t>> load_state(const std::filesystem::path& path, SealExpectation expected,
                                        SequenceState& into, Provenance* provenance = nullptr);

}  // namespace baton
