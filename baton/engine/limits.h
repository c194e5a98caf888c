// The bounds of an engine, fixed at create.
#pragma once

#include <cstdint>

namespace baton {

struct EngineLimits {
  uint32_t requests_active_max = 8;   // requests that hold states
  uint32_t requests_queued_max = 64;  // requests that wait; one more is refused with kOutOfMemory "queue full"
  uint64_t tokens_max = 0;            // context of a request; 0 or more than the model's: the model's
  uint64_t state_bytes_max = 0;       // of all states together; 0: no limit but the units' own
  // Of checkpoints, which are dropped when running requests need the room within state_bytes_max; 0: none are kept.
  uint64_t checkpoint_bytes_max = 0;
  // Recurrent and convolution state in those of requests that reuse any (ReuseMode::kAny) as bf16: half of its bytes.
  // None of these is exact.
  bool checkpoint_bf16 = false;
  // Each that is worth a file goes into the cache's folder as soon as there is time to write it, the most valuable
  // first, so that a process that is killed leaves them. Else when they take half of their room.
  bool checkpoints_stored_early = false;
  uint32_t checkpoint_tokens = 1024;  // a long prompt leaves one at each multiple of so many tokens; a multiple of 64
  // Decode steps of a lane that nothing else waits for are done in one go for about so long: each return to the
  // scheduler costs two wake-ups of threads, 0.1 to 0.2 ms on a small machine.
  double decode_ms = 10;
  double step_ms = 50;              // aim for one prefill step: half of the time a cancel may take
  uint32_t prefill_factor_max = 8;  // a prefill step has at most this times caps().prefill_tokens_preferred tokens
  // A unit's step that has not come back after so long is given up: the unit counts as lost, requests that rest on it
  // end with kUnavailable or go on elsewhere, others are not touched. The thread in it cannot be ended: see
  // Engine::close. By the engine's clock, from when the step was sent. 0: a step may take for ever. Above what a unit's
  // first step takes, which may compile for minutes. The bridge, which calls callers' code, is not watched.
  double step_timeout_ms = 0;
  // Tokens of a step, prefilled and decoded together: a prefill leaves room for the decodes it takes along. 0: as many
  // as the two limits above allow, and the decodes beside them.
  uint32_t step_tokens_max = 0;
  // Decode steps that a lane runs between two prefill steps at most, when both wait: as many as requests decode for
  // each that waits for its prompt.
  uint32_t decode_steps_per_prefill = 4;
  // Nothing starves: a request that waits while so many later ones are let in is next, and so is a work that a lane
  // passed over so many times, whatever their priority. What was let in so is not set aside again.
  uint32_t overtaken_max = 64;
};

}  // namespace baton
