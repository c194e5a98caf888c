// The writer's thread.
#include "baton/engine/checkpoint_writer.h"

#include <new>
#include <utility>

#include "baton/bridge/bridge.h"

namespace baton {

Result<bool> write_checkpoint(StoredStates& cache, const IdentityOf& identity, const FoundCheckpoint& found) try {
  const auto& [key, tokens, kept, ms] = found;
  // Of those that are not exact any of the same makers does: in which steps is left to the clock.
  const bool exact = found.key.exact;
  const auto like = [&](const Provenance& there) {
    const Provenance& mine = found.kept.provenance;
    return exact ? there == mine : there.makers == mine.makers;
  };
  if (cache.contains(tokens, like)) return true;
  BATON_OK(kept.state->check());
  BATON_TRY(const StateIdentity of, identity(key.lane));
  BATON_TRY(const SealSource source, sealed_source(*kept.state, of, tokens, kept.provenance));
  return cache.keep(source, tokens, kept.provenance, ms);
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "no memory to save a checkpoint");
}

Status write_checkpoints(StoredStates& cache, const IdentityOf& identity, std::vector<FoundCheckpoint> found,
                         const std::function<bool(uint64_t done, uint64_t total)>& on_progress) {
  uint64_t room = cache.bytes_max();
  size_t count = 0;
  for (; count < found.size(); ++count) {
    const KeptState& kept = found[count].kept;
    const uint64_t bytes = sealed_bytes(kept.state->shape(), kept.state->position(), kept.provenance);
    if (bytes > room) break;
    room -= bytes;
  }
  std::optional<Error> first;
  size_t failed = 0;
  for (size_t i = 0; i < count; ++i) {
    if (on_progress && !on_progress(i, count)) return fail(Code::kCancelled, "saving checkpoints was stopped");
    const Result<bool> written = write_checkpoint(cache, identity, found[count - 1 - i]);
    if (written) continue;
    ++failed;
    if (!first) first = written.error();
  }
  if (!first) return {};
  return fail(
      (*std::move(first)).in(std::to_string(failed) + " of " + std::to_string(count) + " were left out, the first"));
}

CheckpointWriter::CheckpointWriter(StoredStates& cache, IdentityOf identity, std::function<void(const Status&)> on_done)
    : cache_(cache), identity_(std::move(identity)), on_done_(std::move(on_done)), thread_([this] { run(); }) {}

CheckpointWriter::~CheckpointWriter() {
  next_.close();
  thread_.join();
}

void CheckpointWriter::send(FoundCheckpoint found) { BATON_CHECK(next_.try_send(found)); }

void CheckpointWriter::run() {
  while (std::optional<FoundCheckpoint> found = next_.receive()) {
    const Result<bool> written = write_checkpoint(cache_, identity_, *found);
    found.reset();
    on_done_(written ? Status() : fail(written.error()));
  }
}

}  // namespace baton
