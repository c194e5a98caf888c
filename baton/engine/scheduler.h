// The scheduler: a state machine without threads, clock or randomness of its own. Inputs: submit, cancel, done, poll,
// each with the time; outputs: works to start and events for callers. The same inputs give the same outputs, so a run
// is replayable; the engine's thread and the simulation drive the same code. A driver repeats: inputs, poll, send its
// works to their lanes, take_outputs; what comes back goes to done. Nothing here fails but for memory: errors are in
// the works, and end requests or make them fall back. What cannot happen (a work twice, an unknown id in done) is a
// bug.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "baton/engine/budget.h"
#include "baton/engine/checkpoint_tree.h"
#include "baton/engine/facts.h"
#include "baton/engine/fair_shares.h"
#include "baton/engine/request.h"
#include "baton/engine/sequence.h"
#include "baton/engine/snapshot.h"
#include "baton/engine/work.h"

namespace baton {

// Of one thread at a time. Each poll costs time in the order of active requests, of which limits allow few.
class Scheduler {
 public:
  explicit Scheduler(SchedulerFacts facts);

  // `request` from resolve() with the same facts. Ids grow. False when the queue is full: nothing was taken.
  bool submit(RequestId id, ResolvedRequest& request, int64_t now_ns);
  // Ends the request, at the next poll: a step that others share goes on, and what it brings for this one is dropped.
  // Unknown and finished ids are ignored.
  void cancel(RequestId id);
  void cancel_all();
  // The caller has enough of the answer: it ends with kStop, and still gets the state it asked for. A cancel before the
  // first token.
  void stop(RequestId id);
  // A work of `poll` that was carried out, or could not be: its status says. The states in it are the scheduler's
  // again, or dropped: those of a failed step, and those that nobody waits for any more.
  void done(Work work, int64_t now_ns);

  // When the next of the works that are away is to be given up (EngineLimits::step_timeout_ms), or the first deadline
  // of a request passes; INT64_MAX: neither. A poll at that time or later does what is due.
  int64_t next_deadline_ns() const;

  // Admits, ends and plans: works to start now, at most one per lane and one for the bridge, none for a lane that has
  // one. Only with new inputs can there be more.
  std::vector<Work> poll(int64_t now_ns);
  // Events since the last call, in order; of each request tokens, then one end. An end does not wait for works that
  // nobody waits for, but for those in which the bridge asks what is the caller's: its seats and bytes are free when
  // they are back.
  std::vector<Output> take_outputs();

  LaneIndex bridge() const { return static_cast<LaneIndex>(facts_.lanes.size()); }
  bool idle() const { return active_.empty() && queue_.empty(); }
  uint64_t requests() const { return active_.size() - told_ + queue_.size(); }  // whose end was not told
  // Held here or away in works, as of the last done or poll; bytes as of each state's last step.
  uint64_t states() const { return states_; }
  uint64_t state_bytes() const { return state_bytes_; }
  uint64_t prefilled_tokens() const { return prefilled_tokens_; }  // of all prefill steps that came back
  // Of checkpoints: how many can be found, and the bytes of all that are alive, those that running requests hold too.
  uint64_t checkpoints() const { return checkpoints_.size(); }
  uint64_t checkpoint_bytes() const { return checkpoint_memory_.bytes(); }
  // Of the main model and no tenant: what may outlive the scheduler.
  std::vector<FoundCheckpoint> lasting_checkpoints() const;
  // One that is to be in the cache's folder before memory has no room for it: the least valuable of those that are
  // worth a file, once checkpoints take half of their room. Each is given once; the caller writes it, and holds it till
  // then.
  std::optional<FoundCheckpoint> next_to_store();
  uint64_t bytes_peak() const { return bytes_peak_; }  // the most of states and checkpoints together
  Snapshot snapshot() const;
  // Why a unit is lost (a work of it came back with kUnavailable, or not in time): nothing is sent to its lane any
  // more. Empty: it is not.
  const std::string& lost(LaneIndex lane) const { return lanes_[lane].lost; }
  // Whether the lane still has a work that was given up.
  bool hangs(LaneIndex lane) const { return lanes_[lane].given_up; }
  // Whether a work that was given up has a state of the lane's unit.
  bool holds_given_up(LaneIndex home) const;

 private:
  struct LaneRecord {
    explicit LaneRecord(PrefillBudget prefill_budget) : budget(prefill_budget) {}
    PrefillBudget budget;
    uint64_t steps = 0;                  // works started: the measure of waiting
    uint32_t decodes_since_prefill = 0;  // from EngineLimits::decode_steps_per_prefill on, what else waits is next
    uint64_t work_id = 0;                // in flight, 0: idle
    int64_t sent_ns = 0;                 // when that was
    bool given_up = false;               // nobody waits for it any more
    uint64_t bytes_given_up = 0;         // that its states may take, reserved until it comes back
    std::string lost;                    // why; empty: it is not
    Snapshot::InFlight in_flight;
    std::unique_ptr<std::atomic<bool>> cancelled = std::make_unique<std::atomic<bool>>(false);  // of the work in flight
  };
  // A work that could start, of the poll under way.
  struct Candidate {
    Sequence* sequence;
    PlannedWork planned;
    bool passed_over = false;  // too often: it is next
    double starts = 0;         // its tenant's next service on the lane
    const RoleRecord& record() const { return sequence->role(planned.role); }
  };

  // Ends what is late, or was ended in the queue, and lets in what is next, as long as there is room.
  void admit(int64_t now_ns);
  // Of requests that fit nowhere while a lane hangs: the next one ends.
  bool refuse_first(std::unique_ptr<Sequence>& next, int64_t now_ns);
  int64_t next_overdue_ns() const;
  void give_up_overdue(int64_t now_ns);
  void give_up(LaneIndex index);
  // The next one that there is room for, or whose place can be made; end(): none.
  std::deque<std::unique_ptr<Sequence>>::iterator next_in(int64_t now_ns);
  void let_in(std::unique_ptr<Sequence> sequence, int64_t now_ns);
  bool passed_over(const Sequence& sequence) const { return sequence.overtaken >= facts_.limits.overtaken_max; }
  // Of two in the queue.
  bool goes_before(const Sequence& a, const Sequence& b) const;
  void end_late(Sequence& sequence, int64_t now_ns);
  void finish(Sequence& sequence, int64_t now_ns);
  void tell_end(Sequence& sequence, int64_t now_ns);
  Sequence* find(RequestId id);                                  // null: it has ended
  size_t admissions() const { return facts_.lanes.size() + 1; }  // in shares_, behind the lanes and the bridge
  // How a running request can be set aside.
  enum class Way : uint8_t {
    kNone,   // not at all: it owes a seal or a proof, failed before, was overtaken too often, or has no room for a
             // checkpoint of what cannot be prefilled again bit by bit
    kLater,  // when its works are back
    kKeep,   // when a checkpoint of its state is made
    kNow,
  };
  // What a tenant's running requests hold.
  struct Held {
    uint64_t seats = 0, bytes = 0;
  };
  void hold(const Sequence& sequence);
  void let_go(const Sequence& sequence);
  Held held_by(uint64_t tenant) const;
  double share_held(const Held& held) const;  // the larger one of both, of what there is
  uint64_t bytes_aside() const;
  // Of all checkpoints but those; they may share pages.
  uint64_t checkpoints_beside() const {
    return checkpoint_memory_.bytes() - std::min(checkpoint_memory_.bytes(), bytes_aside());
  }
  bool can_come_back(const Sequence& sequence, uint64_t checkpoint_bytes) const;
  Way way_aside(const Sequence& sequence);
  // Whether `next` may have the place of a running one, whose tenant holds `its`; `others`: what that of `next` does.
  bool gives_way(const Sequence& sequence, const Sequence& next, const Held& its, const Held& others) const;
  // Those whose places `next` gets: as many as it needs, or none.
  std::vector<Sequence*> choose_aside(const Sequence& next);
  // Sets aside what can be now. True: something was.
  bool make_way(const Sequence& next, int64_t now_ns);
  void set_aside(Sequence& sequence, int64_t now_ns);
  // Drops checkpoints until `bytes` more of states, or of checkpoints, are within the bounds. False: they are not.
  // `unused`: of what is reserved, nobody will use it meanwhile.
  bool room_for_state(uint64_t bytes);
  bool room_for_checkpoint(uint64_t bytes, uint64_t unused = 0);
  uint64_t checkpoint_room(uint64_t unused = 0) const;  // of all of them together
  // A unit or the bridge found no memory: states go before what is kept for others, of which there is to be half as
  // much from now on.
  void give_up_checkpoints();
  void find_start(Sequence& sequence);
  // A state of the cache that is longer than `above` tokens. False: there is none.
  bool find_cached(Sequence& sequence, LaneIndex own, uint64_t above);
  std::optional<uint32_t> main_model() const;
  CheckpointKey key_of(const Sequence& sequence, const HeldState& held) const;
  AtRest at_rest(const Sequence& sequence, const HeldState& held) const;
  // Marks what is to be kept as done where it is there already, or there is no room for it.
  void skip_keeping(Sequence& sequence);
  // The target's lane is idle, and nobody else's: what it is asked for is next.
  bool room_soon(const Sequence& sequence) const;
  // Adds the sequence's works to candidates_, by lane.
  void collect(Sequence& sequence);
  // Falls back or ends where the next works are a lost lane's. True: then there are others, or none.
  bool leave_lost(Sequence& sequence, const StepPlan& plan);
  LaneIndex lane_of(const Sequence& sequence, const PlannedWork& planned) const;
  // By the rules of Request::priority, what is next in front: of a tenant's works decodes first, another one after so
  // many of them.
  // Decode steps between two of the others, of those that are next by the same rule: the fewer decode beside those that
  // do not, the fewer.
  uint64_t decode_turns(LaneIndex index, std::span<const Candidate> rivals, const Candidate& other) const;
  void order(LaneIndex index, std::vector<Candidate>& waiting) const;
  // The works of the lane's next step, from all that wait for it, and the most tokens of a prefill in it.
  std::vector<Candidate> choose(LaneIndex index, std::vector<Candidate>& waiting, uint64_t* tokens_max);
  // Tokens for prefills in a step that decodes so many.
  uint64_t prefill_room(LaneIndex index, uint64_t decodes) const;
  // Prefills that end in the same step as the first does: as many as its tokens have room for.
  void add_prefills(LaneIndex index, std::span<const Candidate> waiting, uint64_t tokens,
                    std::vector<Candidate>& chosen) const;
  static bool shares_prefill(const Candidate& candidate);
  static bool shares_decode(const Candidate& candidate);
  // Those of the waiting that decode together, up to what the lane has seats for: `seats` are taken.
  std::vector<Candidate> decodes_of(LaneIndex index, std::span<const Candidate> waiting, uint64_t seats) const;
  void cut_short();
  Work start(LaneIndex index, std::vector<Candidate>& chosen, bool others_wait, uint64_t tokens_max);
  void start_step(const std::vector<Candidate>& chosen, bool others_wait, uint64_t tokens_max, Work& work);
  void start_decode(Sequence& sequence, StateRole role, Work& work, StepSeat& seat);
  void start_prove(const Candidate& candidate, uint64_t tokens_max, Work& work);
  void start_move(const Candidate& candidate, MoveWork& work);
  void lend(Sequence& sequence, StateRole role, HeldState& to);

  // The step's time, for the first tokens of those it served.
  void account(const Work& work);
  // The same on the accounts of their tenants, each by its tokens.
  void charge(const Work& work, double ms);
  void done_make(MakeWork& work);
  void done_step(StepWork& work, const Placement& placement, double ms);
  void done_decode(Sequence& sequence, StepSeat& seat, const Status& status, bool shared, const Placement& placement);
  void done_prefill(Sequence& sequence, StepSeat& seat, const Status& status, bool shared, const Placement& placement,
                    double ms);
  void done_move(MoveWork& work, double ms);
  void done_restore(Sequence& sequence, MoveWork& work, double ms);
  void done_keep(Sequence& sequence, MoveWork& work);
  void done_prove(ProveWork& work, const Placement& placement, double ms);
  // Takes what the seat drew; its picker and state are back already.
  void take_drawn(Sequence& sequence, StepSeat& seat);
  // What a step or a proof could not do with the role's state, and where.
  Error because_of(const Sequence& sequence, StateRole role, const char* what, const Status& status) const;
  // The state is back in the books, or dropped when `poisoned` or when the role was to be discarded. False when the
  // request has no use for the result: it is over, or started again meanwhile.
  bool give_back(Sequence& sequence, StateRole role, HeldState& state, bool poisoned);
  Sequence& sequence_of(RequestId id);

  void finish_ended(int64_t now_ns);
  void count_states();

  const SchedulerFacts facts_;
  CheckpointMemory checkpoint_memory_;  // before all that may hold some
  CheckpointTree checkpoints_;
  uint64_t checkpoint_bytes_found_ = UINT64_MAX;  // that there is memory for, as far as was found
  uint64_t keeping_bytes_ = 0;                    // of the one that is being made, at most
  FairShares shares_;                             // of the lanes' and the bridge's time, and of admissions
  std::deque<std::unique_ptr<Sequence>> queue_;   // submitted; they hold no states
  std::map<RequestId, std::unique_ptr<Sequence>> active_;
  std::vector<LaneRecord> lanes_;                   // units, then the bridge
  std::vector<std::vector<Candidate>> candidates_;  // per lane, of the poll in progress
  std::vector<Output> outputs_;
  std::map<uint64_t, Held> held_;  // by tenant
  uint64_t next_work_ = 1, next_state_ = 1;
  uint64_t told_ = 0;            // active requests whose end was told: works of theirs are away
  uint64_t bytes_reserved_ = 0;  // by active requests, from admission to end: estimates of resolve()
  uint64_t states_ = 0, state_bytes_ = 0, prefilled_tokens_ = 0, bytes_peak_ = 0;
};

}  // namespace baton
