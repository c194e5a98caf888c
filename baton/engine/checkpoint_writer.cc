// The writer's thread.
#include "baton/engine/checkpoint_writer.h"

#include <new>
#include <utility>

#include "baton/bridge/bridge.h"

namespace baton {

Result<bool> write_checkpoint(StateCache& cache, const IdentityOf& identity, const FoundCheckpoint& found) try {
  const auto& [key, tokens, kept, ms] = found;
  if (cache.contains(tokens, kept.provenance)) return true;
  BATON_OK(kept.state->check());
  BATON_TRY(const StateIdentity of, identity(key.lane));
  BATON_TRY(const SealSource source, sealed_source(*kept.state, of, tokens, kept.provenance));
  return cache.keep(source, tokens, kept.provenance, ms);
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "no memory to save a checkpoint");
}

CheckpointWriter::CheckpointWriter(StateCache& cache, IdentityOf identity, std::function<void(const Status&)> on_done)
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
