// Where a simulated engine's checkpoints outlive it.
#include <algorithm>

#include "tests/support/simulation.h"

namespace baton::fake {

void Simulation::make_store() {
  const double rate = chance(0.5) ? 0 : static_cast<double>(random_.uniform(0.02f, 0.3f));
  const uint64_t bytes = pick(4, chance(0.3) ? 16 : 200) << 10;
  store_ = std::make_unique<FakeStore>(bytes, [this, rate](StoreTrouble) { return rate > 0 && chance(rate); });
  stores_ = true;
}

void Simulation::store_next() {
  if (!stores_ || storing_) return;
  storing_ = scheduler_->next_to_store();
  // A folder may be slow, and nobody waits for it.
  if (storing_) at(now_ns_ + 1 + static_cast<int64_t>(random_.below(3'000'000'000)), Happening::Kind::kStored, 0);
}

void Simulation::write_stored() {
  const auto identity = [this](LaneIndex) -> Result<StateIdentity> { return identity_; };
  const Result<bool> written = write_checkpoint(*store_, identity, *storing_);
  storing_.reset();
  stores_ = written.has_value();
  ++(written ? counts_.stored_before_end : counts_.not_stored);
}

Status Simulation::start_again() {
  const auto identity = [this](LaneIndex) -> Result<StateIdentity> { return identity_; };
  if (chance(0.8)) {
    const std::vector<FoundCheckpoint> lasting = scheduler_->lasting_checkpoints();
    const Status saved = write_checkpoints(*store_, identity, lasting, {});
    counts_.not_stored += saved ? 0 : 1;
  }
  store_->open_again();
  stores_ = true;
  facts_.limits.checkpoint_bytes_max = pick(2000, 30000);
  scheduler_ = std::make_unique<Scheduler>(facts_);
  make_requests();
  return {};
}

Status Simulation::check_stored() {
  if (store_ == nullptr) return {};
  counts_.stored = store_->kept();
  counts_.files_refused = store_->refused();
  return store_->believes_a_bad_one() ? broken("a stored state that does not hold is believed", 0) : Status();
}

// What came from a file is of the main model and of no tenant, of these tokens, and held.
Status Simulation::check_store(const Ask& ask, RequestId id, const RequestStats& stats) const {
  if (stats.cached_in.empty()) return {};
  if (store_ == nullptr || ask.other || ask.request.tenant != 0) return broken("began from another's file", id);
  const std::span<const int32_t> tokens(ask.request.tokens);
  if (stats.cached_tokens >= tokens.size() || !store_->holds(stats.cached_in, tokens.first(stats.cached_tokens)))
    return broken("began from a file that does not hold", id);
  return {};
}

}  // namespace baton::fake
