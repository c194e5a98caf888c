// What the scheduler knows of one request: its tokens, the states it holds or has lent to a step, and its figures.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "baton/engine/checkpoint_tree.h"
#include "baton/engine/facts.h"
#include "baton/engine/request.h"
#include "baton/engine/strategy.h"
#include "baton/engine/work.h"

namespace baton {

// Where a state's contents come from.
enum class Origin : uint8_t {
  kOwn,     // steps of its own unit, from the tokens
  kSealed,  // over the bridge, from a seal or another unit: its checks held, or it would not be here
};

// One of the states of a request and the work that was done on it.
struct RoleRecord {
  LaneIndex lane = 0;    // of the unit that makes it
  HeldState held;        // state null: none, or away in a step
  bool busy = false;     // away in a step (perhaps to be made there)
  bool discard = false;  // to be dropped when it comes back
  Origin origin = Origin::kOwn;

  uint64_t prefill_tokens = 0;
  double prefill_ms = 0;
  std::optional<Placement> placement;

  bool ready = false;        // a work for it waits for a lane
  uint64_t ready_since = 0;  // the lane's step when that began or when it was last served: the order of service
  uint64_t waited = 0;       // steps the lane has run for others meanwhile

  double move_waited_ms = 0;  // of the source: its steps, for the move of what they made

  uint64_t position() const { return held.state ? held.state->position() : 0; }
};

struct Output {
  RequestId request;
  Event event;
};

struct Sequence {
  RequestId id = 0;
  Request request;
  const Strategy* strategy = nullptr;
  uint64_t tokens_max = 0;      // capacity of its states
  uint64_t bytes_reserved = 0;  // the estimate it was admitted with
  bool room_soon = false;       // Scheduler::room_soon, as of this poll
  std::unique_ptr<TokenPicker> picker;

  std::vector<int32_t> history;  // prompt and answer
  std::array<RoleRecord, kStateRoles> roles;
  StateRole prefilled_by = StateRole::kTarget;  // whose prefill the answer rests on
  uint32_t steps_in_flight = 0;

  VerifyMode asked_verify = VerifyMode::kOff;  // request.verify is off when nothing can be proven
  LaneWords prefill_words = {}, via_words = {}, decode_words = {};
  LaneIndex decode_lane = 0;  // where the answer ends; the target's lane is the via unit's before it is passed on
  bool had_start = false;
  bool alone = false;                          // the decode unit does everything, from the tokens
  bool handed_over = false;                    // to the target
  bool passed_on = false;                      // the target of the first hand-over is, or was, the source of the second
  bool other_bounds = false;                   // what the proof finds next is held to the bounds of another hand-over
  BridgeLevel via_level = BridgeLevel::kNone;  // of the state that the via unit decoded from
  bool foreign = false;                        // the target's contents come, or will come, from elsewhere
  bool start_pending = false;
  bool start_check_due = false;      // the starting state is to be compared before anything goes on from it
  bool start_opened = false;         // for that: into the target
  bool states_compared = false;      // the target's, at the hand-over
  bool proof_passed = false;         // the logits after the prompt
  bool prompt_done = false;          // the last prompt token was decoded
  bool seal_pending = false;         // the caller wants the state after the prompt
  bool answer_seal_pending = false;  // and the one at the end of the answer
  bool was_admitted = false;
  uint32_t overtaken = 0;  // by later ones, while it waited to be let in
  // So many bytes of checkpoints are held elsewhere, and left it no room when nothing else ran: no others are set aside
  // for it until there are fewer.
  std::optional<uint64_t> kept_out_by;
  // Set aside: it is to be, and plans nothing else; when it was; the checkpoint that it goes on from, while it runs and
  // then as `start`; whether none could be made; whether `start` is one.
  bool aside_due = false;
  std::optional<int64_t> aside_since_ns;
  CheckpointKey put_by_key;
  KeptState put_by;
  bool putting_by = false, put_by_failed = false, coming_back = false;
  Origin put_by_origin = Origin::kOwn;
  bool stop_due = false;       // asked for while it was set aside
  bool unshared = false;       // its steps are not shared with others any more
  std::vector<uint64_t> cuts;  // where its prefill ends a step and keeps a checkpoint, in order
  uint64_t kept_until = 0;     // nothing is kept up to here: it was, or need not be
  CheckpointKey start_key;     // of `start`
  KeptState start;             // a checkpoint to begin from, until it was
  CheckpointKey last_key;      // of `last`
  KeptState last;              // made by it, or begun from: what it begins again from when a step fails
  std::optional<CachedState>
      cached;                 // in its place: a state of the cache, made on start_key's lane where that is exact
  bool caller_asked = false;  // the bridge asks the caller's source or taker, or makes a seal for it
  bool told = false;          // its end, while works of it may be away
  std::optional<FinishReason> ending;
  Error error;
  int32_t stop_id = -1;

  RequestStats stats;
  std::optional<Placement> via_placement, decode_placement;
  std::vector<std::byte> sealed_state, answer_state;
  uint64_t answer_state_tokens = 0;
  std::vector<float> logits;
  std::vector<Logprobs> prompt_logprobs;  // of the prompt's tokens but the first, as far as they were prefilled
  int64_t submitted_ns = 0, first_token_ns = 0, via_until_ns = 0, last_token_ns = 0;
  int64_t timed_until_ns = 0;  // stats.first_token accounts for the time from submitted_ns to here

  RoleRecord& role(StateRole which) { return roles[static_cast<size_t>(which)]; }
  const RoleRecord& role(StateRole which) const { return roles[static_cast<size_t>(which)]; }

  bool same_unit() const { return role(StateRole::kSource).lane == role(StateRole::kTarget).lane; }
  bool onward() const { return role(StateRole::kTarget).lane != decode_lane; }
  uint64_t prompt_tokens() const { return request.tokens.size(); }
  uint64_t generated() const { return history.size() - request.tokens.size(); }
  std::vector<int32_t> tokens_from(uint64_t first, uint64_t count) const {
    const auto begin = history.begin() + static_cast<ptrdiff_t>(first);
    return {begin, begin + static_cast<ptrdiff_t>(count)};
  }
  // Nothing decodes from a foreign state before the proof that was asked for.
  bool proof_wanted() const {
    return foreign && (request.verify == VerifyMode::kAll || (request.verify == VerifyMode::kSample && !proof_passed));
  }
  RequestView view() const;
  // Where its prefill is next to end a step, from `position` on; UINT64_MAX: nowhere.
  uint64_t next_cut(uint64_t position) const;
  // The role whose state is to be kept now.
  std::optional<StateRole> keep_due() const;
  // Its prefill keeps one at this position too, if it comes by.
  void add_cut(uint64_t position);
  // A checkpoint of its first tokens is there: its state begins from it.
  void begin_from(const CheckpointKey& key, KeptState found);
  // So is a file of them. What it holds is kept as a checkpoint too.
  void begin_from_file(const CheckpointKey& key, CachedState found);
  void take_restored(StateRole which);
  // A checkpoint of its state was made.
  void take_kept(const CheckpointKey& key, const KeptState& kept);
  // It could not be used: all is prefilled.
  void begin_without(const Error& why);
  // Whose state the request goes on with: its prompt's, or its answer's.
  StateRole carrier() const {
    return strategy->hand_overs == 0 || alone || handed_over ? StateRole::kTarget : StateRole::kSource;
  }
  void put_aside(int64_t now_ns);
  void come_back(int64_t now_ns);
  // The checkpoint it was to come back from could not be used.
  void come_back_without(Error why);
  // What it is ready for; nothing when it is ending, but for the seal its end still owes.
  StepPlan plan() const;

  // Nothing more is computed for it, and so it stays: what its steps in flight bring is dropped.
  bool over() const { return ending && !owes_seal() && !owes_checkpoint(); }

  // Its end can be told, or it can go: nobody waits for its steps in flight, however long they take; but the caller's
  // source or taker may go with the event.
  bool ends_now() const { return over() && (steps_in_flight == 0 || !(told || caller_asked)); }

  // True when tokens that a step brings back are part of the answer.
  bool takes_tokens() const {
    return !ending || (answer_seal_pending && *ending != FinishReason::kError) || owes_checkpoint();
  }
  // Whether the next seal goes into the FinishedEvent.
  bool keeps_seal() const { return (seal_pending && request.want_sealed_state) || (answer_seal_pending && ending); }
  // A seal that was owed is there; `block`: empty where none was kept.
  void take_seal(std::vector<std::byte> block, uint64_t tokens);
  // Whether its prefill may share steps with others. A unit may round those another way: not where the same bits are
  // asked for.
  bool shares_prefill() const {
    return !unshared && !scores_prompt() && !(same_unit() && request.verify != VerifyMode::kOff);
  }
  // Its prefill is to tell logprobs: once, whatever is prefilled again behind the first token of the answer.
  bool scores_prompt() const { return request.prompt_logprobs && !prompt_done; }
  // Of the step that goes on from `position`.
  void ask_scores(uint64_t position, StepSeat& seat) const;
  // Of the prompt's tokens from `first` on.
  void take_scores(uint64_t first, std::vector<Logprobs>&& scores);

  void begin(ResolvedRequest&& asked);
  // The first end counts; but a cancel or an error overtakes an end that still owes the seal.
  void end(FinishReason reason, Error why = {});
  void end_with(Error why) { end(FinishReason::kError, std::move(why)); }
  // The decode unit starts again, by itself, and the stats say why: from the last checkpoint or, where there is none,
  // the tokens. When it already was alone, as `restart`.
  void fall_back(Error why);
  // A step that others shared failed: again from there, and from now on in steps of its own. An error when it was in
  // one already.
  void rebuild(Error why);
  // Its own step failed: once again from its last checkpoint, as `rebuild`. An error where there is none.
  void restart(Error why);
  // The target holds the prompt's state.
  void take_over(Origin origin);
  // The source, on the target's unit itself, becomes the target; or it is dropped, as the target holds all of it.
  void take_over_source();
  // The target, on the via unit, becomes the source of a hand-over to the decode unit.
  void pass_on();
  // The sealed starting state was verified and is in the role's state.
  void take_start(StateRole which, double ms);
  // What the proof allows now: of the starting state while it is checked alone, else of all hands the target went
  // through. The prompt's bounds, not those of an answer.
  ProofBounds bounds() const;
  // Whether the same bits are asked for, of a proof that is wanted: its state is then made by the same calls.
  bool proof_repeats() const;
  // The next calls that bring the proof's state from `from` to `to` tokens, one at least where there is any left, and
  // `about` so many tokens of them: what a work does. Those that made the target where the proof repeats, else a
  // prefill but for the last token, which is decoded, as in the saved state of a prompt.
  std::vector<MakeStep> make_steps(uint64_t from, uint64_t to, uint64_t about) const;
  // The comparison of the states, and a row of logits. A failed one puts the decode unit's own state in the target's
  // place.
  void take_states(const WorstPart& worst, const std::string& worst_at, const ProofBounds& bounds);
  void take_logits(const LogitsDifference& difference, const LogitsVerdict& verdict, const LogitsBounds& bounds);
  // Queued until now.
  void admitted(int64_t now_ns);
  // A step for it ran from start to end. What lies between the time accounted for and `start` was waiting; what was
  // accounted for already counts once. Nothing behind the first token.
  void account(double FirstTokenTimes::*part, int64_t start_ns, int64_t end_ns);
  // Drops the role's state, now or when it comes back.
  void drop(StateRole which);

  // A token was sampled behind the last of history: ends the request, or appends it and returns the event.
  std::optional<TokenEvent> take_token(int32_t token, int64_t now_ns);
  // The end, with figures. Its states are gone by then, or away.
  FinishedEvent finish(int64_t now_ns);

 private:
  // The starting state is not opened again.
  void end_start() {
    start_pending = false;
    request.start_state = {};
    start = {};
    coming_back = false;
    cached.reset();
  }
  // The answer's state is kept for who goes on from it.
  bool owes_checkpoint() const;
  // Whose state is that of the answer.
  StateRole holder() const { return passed_on && !handed_over && !alone ? StateRole::kSource : StateRole::kTarget; }
  BridgeLevel level() const;
  bool owes_seal() const {
    if (!ending || !prompt_done || *ending == FinishReason::kError) return false;
    const RoleRecord& target = role(holder());
    // A state that was being made again when a cancel came is not that of the answer.
    const bool whole = target.held.state && target.held.state->position() + 1 >= history.size();
    // What a second hand-over brought is not sealed before it is proven.
    const bool trusted = holder() == StateRole::kSource || !foreign || request.verify == VerifyMode::kOff ||
                         (states_compared && proof_passed);
    if (answer_seal_pending && trusted && (target.busy || whole)) return true;
    return seal_pending && *ending != FinishReason::kCancelled && *ending != FinishReason::kDeadline;
  }
  void start_again(std::string why);
  void say_fallback(std::string why);
  void settle_proof();
  void settle_via();
  void fail_proof(const std::string& where, const std::string& what);
  void fill_phases();
  void fill_bridge();
};

}  // namespace baton
