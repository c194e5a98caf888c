// Checkpoints in the scheduler: room for them, what requests begin from, what they leave.
#include <algorithm>

#include "baton/engine/scheduler.h"

namespace baton {
namespace {

// What took so long to make is worth a file, even if nobody has used it yet.
constexpr double kStoredMs = 1000, kStoredEarlyMs = 10;

}  // namespace

bool Scheduler::room_for_state(uint64_t bytes) {
  const uint64_t limit = facts_.limits.state_bytes_max;
  if (limit == 0) return true;
  if (bytes_reserved_ + bytes > limit) return false;
  while (bytes_reserved_ + bytes + checkpoint_memory_.bytes() + keeping_bytes_ > limit) {
    if (!checkpoints_.drop_one()) return false;
  }
  return true;
}

uint64_t Scheduler::checkpoint_room(uint64_t unused) const {
  const uint64_t of_states = facts_.limits.state_bytes_max, limit = facts_.limits.checkpoint_bytes_max;
  const uint64_t within = std::min(limit, checkpoint_bytes_found_);
  return of_states == 0 ? within : std::min(within, of_states - std::min(of_states, bytes_reserved_ - unused));
}

void Scheduler::give_up_checkpoints() {
  const uint64_t held = checkpoint_memory_.bytes();
  if (held == 0) return;
  checkpoint_bytes_found_ = std::min(checkpoint_bytes_found_, held / 2);
  while (checkpoints_.drop_one()) {
  }
}

bool Scheduler::room_for_checkpoint(uint64_t bytes, uint64_t unused) {
  const uint64_t limit = checkpoint_room(unused);
  if (bytes > limit) return false;
  while (checkpoint_memory_.bytes() + bytes > limit) {
    if (!checkpoints_.drop_one()) return false;
  }
  return true;
}

CheckpointKey Scheduler::key_of(const Sequence& sequence, const HeldState& held) const {
  return {facts_.lanes[held.home].model, sequence.request.tenant, held.home, held.exact};
}

// What is set aside goes on with the same bits, and so does who asked for no others.
AtRest Scheduler::at_rest(const Sequence& sequence, const HeldState& held) const {
  const bool any = sequence.request.reuse == ReuseMode::kAny;
  return facts_.limits.checkpoint_bf16 && any && CheckpointMemory::rounds(held.state->shape()) ? AtRest::kBf16
                                                                                               : AtRest::kAsIs;
}

void Scheduler::find_start(Sequence& sequence) {
  const std::span<const int32_t> tokens(sequence.request.tokens);
  const LaneIndex own = sequence.role(sequence.alone ? StateRole::kTarget : StateRole::kSource).lane;
  CheckpointKey best_key{facts_.lanes[own].model, sequence.request.tenant, own, true};
  // The last token is always processed: its logits are the answer's first.
  const uint64_t piece = sequence.request.reuse == ReuseMode::kExact ? kExactTokens : kPageTokens;
  const auto find = [&](const CheckpointKey& key) {
    return checkpoints_.find(key, tokens.first(tokens.size() - 1), piece, sequence.request.passing != 0);
  };
  KeptState best = find(best_key);
  for (LaneIndex lane = 0; sequence.request.reuse == ReuseMode::kAny && lane < facts_.lanes.size(); ++lane) {
    for (const bool exact : {true, false}) {
      const CheckpointKey key{best_key.model, best_key.tenant, lane, exact};
      KeptState other = find(key);
      if (!other.state || (best.state && other.state->position() <= best.state->position())) continue;
      best = std::move(other);
      best_key = key;
    }
  }
  // Where this prompt and earlier ones branch others will: a checkpoint there saves them what is alike.
  for (const bool exact : {true, false}) {
    if (!exact && sequence.request.reuse == ReuseMode::kExact) continue;
    const CheckpointKey key{best_key.model, best_key.tenant, own, exact};
    sequence.add_cut(checkpoints_.shared(key, tokens.first(tokens.size() - 1)) / piece * piece);
  }
  if (find_cached(sequence, own, best.state ? best.state->position() : 0)) return;
  if (best.state) sequence.begin_from(best_key, std::move(best));
}

bool Scheduler::find_cached(Sequence& sequence, LaneIndex own, uint64_t above) {
  const LaneFacts& lane = facts_.lanes[own];
  const bool of_main = facts_.models[lane.model].name.empty();
  if (facts_.cache == nullptr || sequence.request.tenant != 0 || !of_main) return false;
  const bool any = sequence.request.reuse == ReuseMode::kAny;
  const std::span<const int32_t> tokens(sequence.request.tokens);
  auto found = facts_.cache->find(tokens.first(tokens.size() - 1), above, [&](const Provenance& provenance) {
    return any || made_exactly(provenance, lane.maker, lane.shared_prefills_exact);
  });
  if (!found) return false;
  const bool exact = made_exactly(found->provenance, lane.maker, lane.shared_prefills_exact);
  sequence.begin_from_file({lane.model, sequence.request.tenant, own, exact}, *std::move(found));
  return true;
}

std::optional<uint32_t> Scheduler::main_model() const {
  for (size_t i = 0; i < facts_.models.size(); ++i) {
    if (facts_.models[i].name.empty()) return static_cast<uint32_t>(i);
  }
  return std::nullopt;
}

std::vector<FoundCheckpoint> Scheduler::lasting_checkpoints() const {
  const auto model = main_model();
  return model ? checkpoints_.all_of(*model) : std::vector<FoundCheckpoint>();
}

std::optional<FoundCheckpoint> Scheduler::next_to_store() {
  const auto model = main_model();
  if (!model) return std::nullopt;
  if (facts_.limits.checkpoints_stored_early) return checkpoints_.next_to_store(*model, kStoredEarlyMs, true);
  if (checkpoint_memory_.bytes() <= checkpoint_room() / 2) return std::nullopt;
  return checkpoints_.next_to_store(*model, kStoredMs);
}

void Scheduler::skip_keeping(Sequence& sequence) {
  const std::optional<StateRole> which = sequence.keep_due();
  if (!which) return;
  const HeldState& held = sequence.role(*which).held;
  const uint64_t position = held.state->position();
  const std::span<const int32_t> tokens = std::span(sequence.history).first(position);
  const AtRest as = at_rest(sequence, held);
  const uint64_t bytes = CheckpointMemory::bytes_for(*held.state, held.kept.get(), as);
  CheckpointKey key = key_of(sequence, held);
  bool there = checkpoints_.contains(key, tokens);
  if (as != AtRest::kAsIs && key.exact) {
    key.exact = false;
    there = there || checkpoints_.contains(key, tokens);
  }
  if (there || !room_for_checkpoint(keeping_bytes_ + bytes)) sequence.kept_until = position;
}

}  // namespace baton
