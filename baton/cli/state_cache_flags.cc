// The flags of a state cache, and what is written at the end.
#include "baton/cli/state_cache_flags.h"

#include <spdlog/spdlog.h>

#include "baton/base/machine.h"
#include "baton/cli/fingerprint.h"
#include "baton/cli/paths.h"
#include "baton/cli/progress.h"

namespace baton::cli {

void StateCacheFlags::add_to(CLI::App& app) {
  CLI::Option* of = takes_path(
      app.add_option("--state-cache", folder,
                     "folder of states that outlive the program: a prompt that begins like an earlier one goes on from "
                     "its state"),
      PathKind::kFolder);
  app.add_option("--state-cache-bytes", bytes, "what that folder holds at most: 500M, 4G")
      ->transform(CLI::AsSizeValue(false))
      ->check(CLI::Range(uint64_t{1}, uint64_t{1} << 50))
      ->default_str("4G")
      ->needs(of);
}

void StateCacheFlags::add_dtype_to(CLI::App& app) {
  app.add_option("--checkpoint-dtype", checkpoint_dtype,
                 "recurrent and convolution state in checkpoints: f32, or bf16: half of its bytes, and near ties of "
                 "answers that go on from one may fall otherwise (docs/state_format.md)")
      ->capture_default_str()
      ->check(CLI::IsMember({"f32", "bf16"}));
}

void StateCacheFlags::apply(RuntimeOptions& options) const {
  if (folder.empty()) return;
  options.state_cache = folder;
  options.state_cache_bytes = bytes;
  options.state_key = key;
  options.fingerprint = shown_fingerprint();
}

void StateCacheFlags::warn_of_removed(const Runtime& runtime) const {
  const StateCache* const cache = runtime.state_cache();
  if (cache == nullptr || cache->removed_at_open().files == 0) return;
  const auto& [files, lost] = cache->removed_at_open();
  spdlog::warn("--state-cache-bytes {}: {} {} of {} bytes {} removed from {}, which held more", bytes, files,
               files == 1 ? "state" : "states", lost, files == 1 ? "was" : "were", folder);
}

uint64_t checkpoint_bytes() { return this_machine().memory_available_bytes / 16; }

void save_to_cache(Runtime& runtime, const std::function<bool()>& interrupted) {
  if (runtime.state_cache() == nullptr || interrupted()) return;
  Progress meter("saving states");
  const auto saved = runtime.save_checkpoints([&](uint64_t done, uint64_t total) {
    meter.show(done, total);
    return !interrupted();
  });
  meter.clear();
  if (!saved && saved.error().code != Code::kCancelled)
    spdlog::warn("--state-cache: not all states were saved: {}", saved.error().message);
}

}  // namespace baton::cli
