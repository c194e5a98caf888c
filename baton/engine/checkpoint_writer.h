// Writes checkpoints into a cache's folder behind the engine's back, one at a time, so that what memory has no room for
// later is in a file by then: a thread of its own, as a file may be slow and nobody waits for it.
#pragma once

#include <functional>
#include <optional>
#include <thread>

#include "baton/base/channel.h"
#include "baton/engine/checkpoint_tree.h"
#include "baton/state/seal.h"
#include "baton/state/stored_states.h"

namespace baton {

// What `identity` gives for the model of a lane; may take as long as reading all weights.
using IdentityOf = std::function<Result<StateIdentity>(uint32_t lane)>;

// Verifies the checkpoint and writes it as a sealed state, where there is none yet of its tokens and makers. False: it
// is larger than all the cache's room. Errors of checkpoint, identity and file; kOutOfMemory.
Result<bool> write_checkpoint(StoredStates& cache, const IdentityOf& identity, const FoundCheckpoint& found);

// Of these, the most valuable first, as many as the cache has room for; the most valuable is written last, and so goes
// last when room is needed. What cannot be written is left out, and the others are written all the same: the first
// one's error, with how many. `on_progress` (may be empty) is asked before each; false: no more, with kCancelled.
Status write_checkpoints(StoredStates& cache, const IdentityOf& identity, std::vector<FoundCheckpoint> found,
                         const std::function<bool(uint64_t done, uint64_t total)>& on_progress);

class CheckpointWriter {
 public:
  // `on_done` is called on the writer's thread, once for each that was sent, and holds nothing of it any more. All are
  // borrowed. Throws std::system_error when the system refuses a thread.
  CheckpointWriter(StoredStates& cache, IdentityOf identity, std::function<void(const Status&)> on_done);
  // What is under way is written to its end.
  ~CheckpointWriter();

  // Only when all that were sent are done.
  void send(FoundCheckpoint found);

 private:
  void run();

  StoredStates& cache_;
  const IdentityOf identity_;
  const std::function<void(const Status&)> on_done_;
  Channel<FoundCheckpoint> next_{1};
  std::thread thread_;  // last: it uses the rest
};

}  // namespace baton
