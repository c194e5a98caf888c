// The engine's scheduler, lanes and bridge under a fake clock: one seed makes a whole run of random units, requests,
// arrivals, step durations, failures and cancels, and checks every step and every answer. No threads, so that a failing
// seed fails again.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <queue>
#include <string>
#include <vector>

#include "baton/base/random.h"
#include "baton/base/status.h"
#include "baton/engine/checkpoint_writer.h"
#include "baton/engine/invariants.h"
#include "baton/engine/lane.h"
#include "baton/engine/scheduler.h"
#include "tests/support/fake_store.h"
#include "tests/support/fake_unit.h"
#include "tests/support/simulated_fault.h"

namespace baton::fake {

// What may go wrong in a run, and so what its answers may be.
enum class Weather : uint8_t {
  kCalm,       // nothing fails: every answer is as asked for, without fall-back
  kPeerFails,  // prefill-only units fail and moves are damaged: every answer is right, fall-backs are said
  kSilent,     // prefill-only units and moves spoil states without a word; all requests ask for the proof: all right
  kStormy,     // everything may fail: what is answered is right, errors are said
};

// What a cancel meets: nothing of the request in flight, before it was let in or behind, or a work of it.
inline constexpr std::array<const char*, 7> kCancelPhases = {
    "queued", "ready", "making a state", "prefilling", "decoding", "on the bridge", "proving"};

// Of the two models: the second one has other weights and fewer ids.
inline constexpr int32_t kSimulatedContext = 96, kOtherVocab = 40;
constexpr uint64_t start_of(bool other) { return other ? kOtherStart : kStart; }
constexpr int32_t vocab_of(bool other) { return other ? kOtherVocab : kVocab; }

struct SimulationCounts {
  uint64_t requests = 0, refused = 0, answered = 0, cancelled = 0, errors = 0, fallbacks = 0, rebuilt = 0;
  uint64_t moved = 0, adopted = 0, proved = 0, proofs_failed = 0, shared_steps = 0, shared_prefills = 0, steps = 0,
           start_refused = 0, sealed = 0, sealed_answers = 0, sealed_cancelled = 0, kept = 0, reused = 0,
           reuse_failed = 0, stored = 0, from_files = 0, files_refused = 0, not_stored = 0, late = 0, cut_short = 0,
           marks = 0, preempted = 0, prefilled_again = 0, streamed = 0;
  // Of runs whose units keep the times that are aimed at: cancels by what they met, and the most that one took.
  std::array<uint64_t, kCancelPhases.size()> cancels_in = {};
  int64_t cancel_ns_max = 0;
  uint64_t stored_before_end = 0;                 // of `stored`, while requests ran
  std::map<std::string, uint64_t> from_files_by;  // of `from_files`, by strategy
  double bound_used_max = 0;                      // the largest part of their bound that states and checkpoints took
  uint64_t restarted = 0;                         // from checkpoints
  void add(const SimulationCounts& other);
};

class Simulation {
 public:
  explicit Simulation(uint64_t seed) : Simulation(seed, {}) {}
  // With one kind of failure and no other: `fault`.
  Simulation(uint64_t seed, SimulatedFault fault);
  // The first thing that is not as it must be.
  Status run();
  const SimulationCounts& counts() const { return counts_; }
  const SimulatedFault& fault() const { return fault_; }
  // Of everything that happened, in order.
  uint64_t trace() const { return trace_; }

 private:
  // The real bridge, with damage on the way.
  class DamagingCarrier final : public Carrier {
   public:
    explicit DamagingCarrier(Simulation& simulation) : simulation_(simulation) {}
    Result<MoveReport> carry(SequenceState& from, SequenceState& to) override;
    Status stream(StateStream& stream, const SequenceState& from, uint64_t position,
                  std::span<const int32_t> layers) override;
    Status seal(const SequenceState& from, const StateIdentity& identity, std::span<const int32_t> tokens,
                const Provenance& provenance, const SealTaker& take) override;
    Result<std::shared_ptr<const Checkpoint>> keep(CheckpointMemory& memory, const SequenceState& from,
                                                   const std::shared_ptr<const Checkpoint>& before,
                                                   AtRest at_rest) override;
    Result<MoveReport> restore(const Checkpoint& from, SequenceState& to) override;

   private:
    Simulation& simulation_;
  };
  enum class StartKind : uint8_t { kNone, kGood, kFlipped, kOtherPrompt, kOtherModel, kWholePrompt, kBreaksOff };
  struct Ask {
    Request request;  // as submitted; the start state stays here
    ExpectedAnswer expected;
    uint64_t max_new = 0;
    StartKind start = StartKind::kNone;
    bool other = false;  // of the second model
    int64_t arrival_ns = 0;
    std::optional<int64_t> cancel_ns;
    std::optional<size_t> met;      // by the cancel, in a steady run
    int64_t end_by_ns = INT64_MAX;  // after a cancel
    bool refused = false, ended = false;
    std::vector<int32_t> got;
    std::vector<std::byte> taken;  // by request.seal_to
  };
  struct Happening {
    int64_t time_ns;
    uint64_t order;
    enum class Kind : uint8_t { kArrival, kCancel, kDone, kDeadline, kTimeout, kStored } kind;
    uint64_t which;  // request id, or lane
    bool operator>(const Happening& other) const {
      return std::pair(time_ns, order) > std::pair(other.time_ns, other.order);
    }
  };

  bool chance(double probability) { return random_.uniform() < static_cast<float>(probability); }
  uint64_t pick(uint64_t low, uint64_t high) { return low + random_.below(high - low + 1); }
  void note(uint64_t value) { trace_ = mix(trace_ ^ value); }
  Status broken(const std::string& what, RequestId id) const;

  void make_units();
  void make_requests();
  void make_request(Ask& ask);
  void make_reuse(Ask& ask);
  void make_start(Ask& ask);
  void make_draws(Ask& ask, RequestId id) const;
  Behaviour behaviour_of(size_t unit);
  SchedulerFacts facts();
  void at(int64_t time_ns, Happening::Kind kind, uint64_t which);

  // Until nothing is left to happen.
  Status run_engine();
  Status happen(const Happening& happening);
  // As the engine's threads do: what memory will have no room for is written, one at a time; at the end the rest, if
  // the process comes to it. The next engine has other requests, which go on from those of the first.
  void make_store();
  void store_next();
  void write_stored();
  Status start_again();
  Status check_stored();
  Status check_store(const Ask& ask, RequestId id, const RequestStats& stats) const;
  bool is_ending(RequestId id) const;
  void expect_end(RequestId id, Ask& ask);
  Status start_works();
  int64_t duration_of(const Work& work, uint64_t tokens);
  void cut_works_short();
  // That the states of a work are the request's they are used for, whatever they hold.
  Status check_marks(const Work& work);
  Status check_step();
  Status take(const Output& output);
  Status check_finished(Ask& ask, RequestId id, const FinishedEvent& finished);
  Status check_answer(const Ask& ask, RequestId id, const FinishedEvent& finished);
  Status check_provenance_of(const Ask& ask, RequestId id, const FinishedEvent& finished, const Provenance& made);
  Status check_logprobs(const Ask& ask, RequestId id, const TokenEvent& token) const;
  Status check_answer_state(const Ask& ask, RequestId id, const FinishedEvent& finished);
  Status check_sealed(const Ask& ask, const std::vector<std::byte>& block, const std::vector<int32_t>& tokens,
                      RequestId id, Provenance* made);
  Status check_reuse(const Ask& ask, RequestId id, const RequestStats& stats) const;
  Status check_figures(const Ask& ask, RequestId id, const FinishedEvent& finished);
  Status check_end();
  Status check_fault() const;

  const uint64_t seed_;
  SimulatedFault fault_;
  Random random_;
  Weather weather_;
  StateIdentity identity_, other_identity_;
  size_t main_units_ = 0;  // the first of units_; the others serve the second model
  std::vector<std::unique_ptr<FakeExecutor>> units_;
  std::unique_ptr<DamagingCarrier> carrier_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<BridgeLane> bridge_;
  std::unique_ptr<Scheduler> scheduler_;
  SchedulerFacts facts_;
  // Where checkpoints outlive the engine; null: nowhere.
  std::unique_ptr<FakeStore> store_;
  std::optional<FoundCheckpoint> storing_;
  bool stores_ = false;  // and no file failed yet
  double failure_rate_ = 0;
  bool talks_ = false;         // requests go on from each other, and no proof is asked for mostly
  std::vector<int32_t> stem_;  // how many of their prompts begin
  bool rush_ = false;          // all requests come at once, for one decode unit
  // Of a steady run, whose units take as long for each token: so that what the engine aims at holds. 0: any time.
  double ms_per_token_ = 0;

  std::map<RequestId, Ask> asks_;
  std::priority_queue<Happening, std::vector<Happening>, std::greater<>> happenings_;
  std::vector<std::optional<Work>> in_flight_;  // by lane, the bridge last
  History history_;
  int64_t now_ns_ = 0;
  FakeClock clock_;
  uint64_t order_ = 0;
  uint64_t trace_ = 1;
  SimulationCounts counts_;
};

}  // namespace baton::fake
