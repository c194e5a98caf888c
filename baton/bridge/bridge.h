// The bridge: carries a sequence state from one unit's memory to another's, and into and out of its sealed form. Knows
// states by their rows only. Everything goes by pieces that stay in cache: a piece is read at the source, searched for
// values that are no numbers, converted, written at the receiver, and read back there and compared.
//
// Threads: a call touches only the states and bytes it is given; calls on distinct states may run side by side.
// When prefill and decode run on the same executor there is nothing to carry: the engine hands the state itself over.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "baton/bridge/plan.h"
#include "baton/state/seal.h"
#include "baton/unit/unit.h"

namespace baton {

struct MoveReport {
  uint64_t bytes = 0;  // of the values, in the sender's types
  double ms = 0;
};

// Between two executors of one model in this process, by plan_bridge: what the engine's Move work does. `to` is at
// position 0; on error it may hold a part: drop it.
// kCorrupt, naming the segment, when a value is NaN or infinite, or does not come back from the receiver as it was
// written; kUnsupported when a finite value would become infinite in the receiver's type, or all values of a segment
// are below its normal numbers; kMismatch when the state is longer than `to`, or of another model; kOutOfMemory.
Result<MoveReport> move_state(const SequenceState& from, SequenceState& to);

// The whole state at its position, sealed, in the state's own types. `tokens` are the position() tokens it was made
// from. kCorrupt as above; kInternal when the state does not keep its contract; kOutOfMemory. `provenance`: see
// SealWriter.
Result<std::vector<std::byte>> seal_state(const SequenceState& state, const StateIdentity& identity,
                                          std::span<const int32_t> tokens, const Provenance& provenance = {});

// Verifies `block` against `expected` (shape and position_max are taken from `into`), fills `into`, which is at
// position 0, converting to its types. On an error of open_seal `into` is untouched, on the others of move_state drop
// it. Returns the tokens the state was made from; `provenance`, where given, receives who made it.
Result<std::vector<int32_t>> unseal_state(std::span<const std::byte> block, SealExpectation expected,
                                          SequenceState& into, Provenance* provenance = nullptr);

}  // namespace baton
