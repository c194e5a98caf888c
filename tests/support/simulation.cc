// How a seed becomes a run, and what the run must satisfy.
#include "tests/support/simulation.h"

#include <algorithm>
#include <utility>

#include "baton/bridge/bridge.h"

namespace baton::fake {
namespace {

constexpr int64_t kMs = 1'000'000;
constexpr int64_t kCutNsMax = 5 * kMs;  // until a work that is told to end does

// A work of the bridge that goes on only where somebody waits for it.
bool asks_caller(const Work& work) {
  const auto* move = std::get_if<MoveWork>(&work.body);
  return move != nullptr && (move->form == MoveForm::kOpen || move->form == MoveForm::kSeal);
}

bool starts_with(const std::vector<int32_t>& whole, const std::vector<int32_t>& part) {
  return part.size() <= whole.size() && std::equal(part.begin(), part.end(), whole.begin());
}

}  // namespace

void SimulationCounts::add(const SimulationCounts& other) {
  requests += other.requests, refused += other.refused, answered += other.answered, cancelled += other.cancelled;
  errors += other.errors, fallbacks += other.fallbacks, rebuilt += other.rebuilt, moved += other.moved,
      adopted += other.adopted;
  proved += other.proved, proofs_failed += other.proofs_failed, shared_steps += other.shared_steps;
  shared_prefills += other.shared_prefills, steps += other.steps, start_refused += other.start_refused;
  sealed += other.sealed, sealed_answers += other.sealed_answers, sealed_cancelled += other.sealed_cancelled;
  streamed += other.streamed, restarted += other.restarted, kept += other.kept, reused += other.reused;
  stored += other.stored, from_files += other.from_files, files_refused += other.files_refused;
  not_stored += other.not_stored, stored_before_end += other.stored_before_end;
  for (const auto& [strategy, count] : other.from_files_by) from_files_by[strategy] += count;
  reuse_failed += other.reuse_failed, preempted += other.preempted, prefilled_again += other.prefilled_again;
  late += other.late, cut_short += other.cut_short, marks += other.marks;
  for (size_t i = 0; i < cancels_in.size(); ++i) cancels_in[i] += other.cancels_in[i];
  cancel_ns_max = std::max(cancel_ns_max, other.cancel_ns_max);
  bound_used_max = std::max(bound_used_max, other.bound_used_max);
}

namespace {

// A state whose memory changes one bit of the values written to it, or whose unit is gone by then.
class Faulty final : public SequenceState {
 public:
  Faulty(SequenceState& right, LiveStates& live, size_t segment, uint64_t bit, bool gone)
      : SequenceState(right.tokens_max(), live), right_(right), segment_(segment), bit_(bit), gone_(gone) {}
  const StateShape& shape() const override { return right_.shape(); }
  uint64_t bytes() const override { return right_.bytes(); }

 private:
  Status read_rows(size_t segment, const Dims&, RowRange rows, std::byte* out) const override {
    return right_.read(segment, rows, out);
  }
  Status write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) override {
    if (segment == segment_ && gone_) return fail(Code::kDevice, "the unit does not answer");
    const uint64_t bytes = rows.count * dims[2] * value_bytes(shape().segments[segment].dtype);
    std::vector<std::byte> values(in, in + bytes);
    if (segment == segment_) values[bit_ / 8 % bytes] ^= std::byte{1} << (bit_ % 8);
    return right_.write(segment, rows, values.data());
  }
  SequenceState& right_;
  const size_t segment_;
  const uint64_t bit_;
  const bool gone_;
};

// A block as it comes from a file, which may break off.
SealSource in_pieces(std::vector<std::byte> block, bool breaks_off) {
  static constexpr size_t kPieceBytes = 97;
  const uint64_t bytes = block.size(), given_max = breaks_off ? bytes * 2 / 3 : UINT64_MAX;
  const auto give = [whole = SealSource::owned(std::move(block)), given_max](const SealSink& sink) {
    uint64_t given = 0;
    return whole.give([&](uint64_t offset, std::span<const std::byte> part) -> Status {
      for (; !part.empty(); part = part.subspan(std::min(part.size(), kPieceBytes))) {
        const auto piece = part.first(std::min(part.size(), kPieceBytes));
        if (given + piece.size() > given_max) return fail(Code::kCorrupt, "the file breaks off");
        BATON_OK(sink(offset, piece));
        offset += piece.size(), given += piece.size();
      }
      return {};
    });
  };
  return {bytes, give};
}

}  // namespace

Result<MoveReport> Simulation::DamagingCarrier::carry(SequenceState& from, SequenceState& to) {
  if (simulation_.fault_) return simulation_.fault_.carry(from, to);
  const Weather weather = simulation_.weather_;
  const bool fails = weather == Weather::kPeerFails || weather == Weather::kStormy;
  if (fails && simulation_.chance(simulation_.failure_rate_)) {
    LiveStates live;
    const size_t segment = simulation_.random_.below(to.shape().segments.size());
    Faulty faulty(to, live, segment, simulation_.random_.next(), simulation_.chance(0.3));
    to.begin_write(from.position());
    return move_state(from, faulty);
  }
  auto report = Carrier::carry(from, to);
  if (report && weather == Weather::kSilent && simulation_.chance(simulation_.failure_rate_)) {
    auto& spoiled = static_cast<State&>(to);
    spoiled.store_hash(mix(spoiled.hash()));
  }
  return report;
}

Status Simulation::DamagingCarrier::stream(StateStream& stream, const SequenceState& from, uint64_t position,
                                           std::span<const int32_t> layers) {
  const Weather weather = simulation_.weather_;
  const bool fails = weather == Weather::kPeerFails || weather == Weather::kStormy;
  if (fails && simulation_.chance(simulation_.failure_rate_ / 4)) return fail(Code::kCorrupt, "injected failure");
  return Carrier::stream(stream, from, position, layers);
}

Status Simulation::DamagingCarrier::seal(const SequenceState& from, const StateIdentity& identity,
                                         std::span<const int32_t> tokens, const Provenance& provenance,
                                         const SealTaker& take) {
  Carrier plain;
  if (simulation_.fault_) return simulation_.fault_.seal(plain, from, identity, tokens, provenance, take);
  if (simulation_.weather_ == Weather::kStormy && simulation_.chance(simulation_.failure_rate_)) {
    return fail(Code::kOutOfMemory, "injected failure");
  }
  return Carrier::seal(from, identity, tokens, provenance, take);
}

Result<std::shared_ptr<const Checkpoint>> Simulation::DamagingCarrier::keep(
    CheckpointMemory& memory, const SequenceState& from, const std::shared_ptr<const Checkpoint>& before, AtRest as) {
  if (simulation_.fault_) return simulation_.fault_.keep(memory, from, before);
  if (simulation_.weather_ != Weather::kCalm && simulation_.chance(simulation_.failure_rate_)) {
    return fail(Code::kOutOfMemory, "injected failure");
  }
  return Carrier::keep(memory, from, before, as);
}

Result<MoveReport> Simulation::DamagingCarrier::restore(const Checkpoint& from, SequenceState& to) {
  if (simulation_.fault_) return simulation_.fault_.restore(from, to);
  if (simulation_.weather_ == Weather::kCalm || !simulation_.chance(simulation_.failure_rate_)) {
    return Carrier::restore(from, to);
  }
  if (simulation_.chance(0.3)) return fail(Code::kDevice, "injected failure");
  const size_t segment = simulation_.random_.below(from.shape().segments.size());
  auto* row = const_cast<std::byte*>(from.view(segment, {segment == 2 ? 1 : from.position() - 1, 1}));
  const std::byte was = row[1];
  row[1] ^= std::byte{4};
  auto report = Carrier::restore(from, to);
  // The pages are others' too, who have not seen it.
  row[1] = was;
  return report;
}

Simulation::Simulation(uint64_t seed, SimulatedFault fault)
    : seed_(seed), fault_(fault), random_(seed), weather_(fault ? Weather::kStormy : static_cast<Weather>(seed % 4)) {
  rush_ = chance(0.4);
  if (chance(0.3)) ms_per_token_ = static_cast<double>(random_.uniform(0.2f, 6.0f));
  failure_rate_ = weather_ == Weather::kCalm || fault_ ? 0 : static_cast<double>(random_.uniform(0.02f, 0.4f));
  make_units();
  talks_ = weather_ != Weather::kSilent && chance(0.4);
  for (size_t i = pick(20, 80); i > 0; --i)
    stem_.push_back(static_cast<int32_t>(random_.below(kOtherVocab < kVocab ? kOtherVocab : kVocab)));
  facts_ = facts();
  if (talks_ && !fault_ && chance(0.6)) make_store();
  facts_.cache = store_.get();
  scheduler_ = std::make_unique<Scheduler>(facts_);
  in_flight_.resize(units_.size() + 1);
  make_requests();
}

Status Simulation::broken(const std::string& what, RequestId id) const {
  return fail(Code::kInternal, "seed " + std::to_string(seed_) + ", request " + std::to_string(id) + ", at " +
                                   std::to_string(now_ns_) + " ns: " + what);
}

// Unit 0 only prefills for others, except in a storm.
Behaviour Simulation::behaviour_of(size_t unit) {
  Behaviour behaviour;
  behaviour.storage = {chance(0.5) ? DType::kF32 : DType::kF16, chance(0.5), chance(0.7)};
  behaviour.prefill_tokens_preferred = static_cast<uint32_t>(pick(1, 12));
  behaviour.prefill_seats_shared = static_cast<uint32_t>(pick(1, 4));
  behaviour.decode_seats_max = static_cast<uint32_t>(pick(1, 4));
  behaviour.mixes = chance(0.5);
  behaviour.tells_layers = chance(0.5);
  const bool fails = weather_ == Weather::kStormy || (weather_ == Weather::kPeerFails && unit == 0);
  if (fault_) {
    fault_.give(behaviour);
  } else if (fails) {
    behaviour.before = [this](Act act, size_t) -> Status {
      // A decode fails once a token, the others a few times a request: keep them comparable.
      if (!chance(act == Act::kPrefill ? failure_rate_ : failure_rate_ / 8)) return {};
      return fail(act == Act::kNewState ? Code::kOutOfMemory : Code::kDevice, "injected failure");
    };
  }
  if (weather_ == Weather::kSilent && unit == 0) behaviour.spoils_prefill = [this] { return chance(failure_rate_); };
  return behaviour;
}

void Simulation::make_units() {
  main_units_ = pick(2, 4);
  const size_t count = main_units_ + (chance(0.3) ? pick(1, 2) : 0);
  const auto main = make_model(kSimulatedContext), other = make_model(kSimulatedContext, 10, kOtherVocab);
  identity_ = {main->shape_prints.model, main->shape_prints.quantization, 3};
  other_identity_ = {other->shape_prints.model, other->shape_prints.quantization, 3};
  carrier_ = std::make_unique<DamagingCarrier>(*this);
  bridge_ = std::make_unique<BridgeLane>(*carrier_, [this](LaneIndex lane) -> Result<StateIdentity> {
    return lane < main_units_ ? identity_ : other_identity_;
  });
  for (size_t i = 0; i < count; ++i) {
    Behaviour behaviour = behaviour_of(i);
    behaviour.start = start_of(i >= main_units_);
    units_.push_back(std::make_unique<FakeExecutor>("unit" + std::to_string(i), i < main_units_ ? main : other,
                                                    std::move(behaviour)));
    lanes_.push_back(std::make_unique<Lane>(*units_[i], units_[i]->name(), units_[i]->caps().decode_seats_max, clock_,
                                            carrier_.get()));
  }
}

SchedulerFacts Simulation::facts() {
  SchedulerFacts made;
  for (const auto& unit : units_) {
    made.lanes.push_back({.name = unit->name(),
                          .maker = {unit->name(), unit->arithmetic()},
                          .model = made.lanes.size() < main_units_ ? 0u : 1u,
                          .prefill_tokens_preferred = unit->caps().prefill_tokens_preferred,
                          .prefill_seats_shared = unit->caps().prefill_seats_shared,
                          .decode_seats_max = unit->caps().decode_seats_max,
                          .mixes = unit->caps().mixes,
                          .state_bytes = [&unit](uint64_t tokens) { return unit->state_bytes(tokens); }});
  }
  made.models = {{.name = "", .context_max = kSimulatedContext, .vocab = kVocab},
                 {.name = "other", .context_max = kSimulatedContext, .vocab = kOtherVocab}};
  made.limits.requests_active_max = static_cast<uint32_t>(pick(1, 6));
  made.limits.requests_queued_max = static_cast<uint32_t>(pick(0, 8));
  made.limits.decode_steps_per_prefill = static_cast<uint32_t>(pick(1, 5));
  made.limits.prefill_factor_max = static_cast<uint32_t>(pick(1, 4));
  if (chance(0.4)) made.limits.step_tokens_max = static_cast<uint32_t>(pick(1, 40));
  made.limits.overtaken_max = static_cast<uint32_t>(pick(1, chance(0.5) ? 5 : 64));
  made.limits.state_bytes_max = chance(0.3) ? pick(3000, 12000) : 0;
  // Above what any work takes that comes back.
  if (fault_.is(FaultPoint::kStepSleeps)) made.limits.step_timeout_ms = 5000;
  made.limits.checkpoint_bytes_max = talks_ || chance(0.5) ? pick(talks_ ? 2000 : 100, chance(0.3) ? 3000 : 30000) : 0;
  return made;
}

void Simulation::make_request(Ask& ask) {
  Request& request = ask.request;
  const size_t tokens = chance(0.15) ? 1 : pick(1, chance(0.2) ? 60 : 16);
  for (size_t i = 0; i < tokens; ++i) request.tokens.push_back(static_cast<int32_t>(random_.below(kVocab)));
  request.max_new_tokens = static_cast<uint32_t>(pick(0, chance(0.1) ? 200 : 12));
  if (chance(0.4)) request.sampler = {.temperature = 0.8f, .top_k = 8, .seed = random_.next(), .banned_ids = {}};
  while (chance(0.3)) request.stop_ids.push_back(static_cast<int32_t>(random_.below(kVocab)));
  request.ignore_eos = chance(0.2);
  const bool storm = weather_ == Weather::kStormy;
  ask.other = main_units_ < units_.size() && chance(0.4);
  // Of its model's units those that may fail are left out.
  const size_t first = ask.other ? main_units_ : storm ? 0 : 1;
  const size_t last = (ask.other ? units_.size() : main_units_) - 1;
  request.decode_unit = units_[rush_ ? last : pick(first, last)]->name();
  const Strategy* strategy = strategies()[random_.below(strategies().size())];
  request.strategy = strategy->name;
  if (strategy->hand_overs > 1) {
    request.via_unit = units_[pick(first, last)]->name();
    request.max_new_tokens += static_cast<uint32_t>(pick(0, 20));
    if (weather_ == Weather::kSilent || chance(0.9)) request.via_bounds = exact_bounds();
  }
  if (strategy->hand_overs > 0 && chance(0.9)) {
    // Mostly another unit; the decode unit itself now and then.
    const size_t peer = ask.other ? first : 0;
    request.prefill_unit = units_[chance(0.6) ? peer : pick(peer, last)]->name();
  }
  request.verify = static_cast<VerifyMode>(weather_ == Weather::kSilent ? pick(1, 2) : pick(0, 2));
  // Without bounds nothing is proven: not where states are spoiled in silence.
  if (weather_ == Weather::kSilent || chance(0.9)) request.move_bounds = exact_bounds();
  if (weather_ == Weather::kSilent || chance(0.9)) request.start_bounds = exact_bounds();
  request.want_sealed_state = chance(0.2);
  request.want_answer_state = chance(0.2);
  request.want_logits = chance(0.2);
  if (chance(0.5)) request.priority = static_cast<int32_t>(pick(0, 4)) - 2;
  request.weight = static_cast<uint32_t>(pick(1, 5));
}

// Prompts that begin like another request's, or go on from its answer.
void Simulation::make_reuse(Ask& ask) {
  Request& request = ask.request;
  request.reuse = static_cast<ReuseMode>(pick(talks_ && chance(0.9) ? 1 : 0, 2));
  request.tenant = !chance(0.8) ? 2 : store_ != nullptr ? 0 : 1;
  if (!talks_) return;
  if (chance(0.9)) request.verify = VerifyMode::kOff;
  std::vector<int32_t> tokens(stem_.begin(), stem_.begin() + static_cast<ptrdiff_t>(pick(0, stem_.size())));
  if (chance(0.7) && !asks_.empty()) {
    const Ask& earlier = asks_.at(pick(1, asks_.size()));
    tokens = earlier.request.tokens;
    if (chance(0.5)) tokens.insert(tokens.end(), earlier.expected.tokens.begin(), earlier.expected.tokens.end());
    if (chance(0.3)) tokens.resize(pick(1, tokens.size()));
  }
  if (chance(0.8)) {
    tokens.insert(tokens.end(), request.tokens.begin(), request.tokens.end());
    tokens.resize(std::min<size_t>(tokens.size(), kSimulatedContext - 4));
    request.tokens = std::move(tokens);
  }
  while (chance(0.5)) request.keep_at.push_back(pick(0, 2 * request.tokens.size()));
}

void Simulation::make_start(Ask& ask) {
  const std::vector<int32_t>& prompt = ask.request.tokens;
  if (prompt.size() < 2 || !chance(talks_ ? 0.05 : 0.2)) return;
  // What is handed over twice and began with a starting state is not proven.
  if (weather_ == Weather::kSilent && !ask.request.via_unit.empty()) return;
  ask.start = chance(0.7) ? StartKind::kGood : static_cast<StartKind>(pick(2, 6));
  std::vector<int32_t> held(prompt.begin(), prompt.begin() + static_cast<ptrdiff_t>(pick(1, prompt.size() - 1)));
  if (ask.start == StartKind::kWholePrompt) held = prompt;
  if (ask.start == StartKind::kOtherPrompt) held[random_.below(held.size())] ^= 1;
  StateIdentity identity = ask.other ? other_identity_ : identity_;
  if (ask.start == StartKind::kOtherModel) ++identity.model;
  LiveStates live;
  State state({}, kSimulatedContext, live, start_of(ask.other));
  for (const int32_t token : held) state.append(token);
  auto block = seal_state(state, identity, held);
  BATON_CHECK(block);
  if (ask.start == StartKind::kFlipped) {
    const uint64_t bit = random_.below(block->size() * 8);
    (*block)[bit / 8] ^= std::byte{1} << (bit % 8);
  }
  ask.request.start_state = in_pieces(*std::move(block), ask.start == StartKind::kBreaksOff);
}

// What is asked of its draws: by its number, and by no chance, which would make other runs of the seeds.
void Simulation::make_draws(Ask& ask, RequestId id) const {
  Request& request = ask.request;
  if (id % 3 == 1) request.sampler.constraint = std::make_shared<Constraint>(id, vocab_of(ask.other));
  if (id % 4 == 2) request.sampler.logit_bias = {{3, 4.0f}, {7, -100.0f}};
  if (id % 5 < 2) request.sampler.logprobs = static_cast<uint32_t>(3 * (id % 5));
  const bool alone = request.verify == VerifyMode::kOff && ask.start == StartKind::kNone;
  if (id % 7 == 3 && alone && weather_ != Weather::kSilent) request.prompt_logprobs = 2;
}

void Simulation::make_requests() {
  const uint64_t count = talks_ ? pick(3, 12) : pick(1, 10);
  int64_t time_ns = now_ns_ + kMs;
  const RequestId first = asks_.size() + 1;
  for (RequestId id = first; id < first + count; ++id) {
    Ask ask;
    make_request(ask);
    make_reuse(ask);
    make_start(ask);
    make_draws(ask, id);
    if (ask.request.want_sealed_state && id % 3 > 0) {
      ask.request.want_sealed_state = id % 3 == 1;
      ask.request.seal_to = [this, id](const SealSource& state) -> Status {
        BATON_CHECK(asks_.at(id).taken.empty());
        BATON_TRY(asks_.at(id).taken, state.block());
        return {};
      };
    }
    const Request& request = ask.request;
    ask.max_new = std::min<uint64_t>(request.max_new_tokens, kSimulatedContext - request.tokens.size() + 1);
    ask.expected = expected_answer(request.tokens, ask.max_new, request.sampler,
                                   request.ignore_eos ? std::vector<int32_t>() : request.stop_ids, start_of(ask.other),
                                   vocab_of(ask.other));
    const int64_t apart = talks_ && chance(0.7) ? 2000 * kMs : rush_ || chance(0.5) ? 2 * kMs : 200 * kMs;
    time_ns += static_cast<int64_t>(random_.below(static_cast<uint64_t>(apart)));
    ask.arrival_ns = time_ns;
    at(time_ns, Happening::Kind::kArrival, id);
    if (chance(ms_per_token_ > 0 ? 0.5 : 0.2)) {
      ask.cancel_ns = time_ns + static_cast<int64_t>(random_.below(500 * kMs));
      at(*ask.cancel_ns, Happening::Kind::kCancel, id);
    }
    if (chance(0.1)) {
      ask.request.deadline_ns = time_ns + static_cast<int64_t>(random_.below(800 * kMs));
      at(ask.request.deadline_ns, Happening::Kind::kDeadline, id);
    }
    asks_.emplace(id, std::move(ask));
  }
}

void Simulation::at(int64_t time_ns, Happening::Kind kind, uint64_t which) {
  happenings_.push({time_ns, order_++, kind, which});
}

Status Simulation::run() {
  BATON_OK(run_engine());
  if (store_ == nullptr) return {};
  BATON_OK(start_again());
  return run_engine();
}

Status Simulation::run_engine() {
  while (!happenings_.empty()) {
    now_ns_ = happenings_.top().time_ns;
    clock_.advance_ns(now_ns_ - clock_.now_ns());
    do {
      const Happening happening = happenings_.top();
      happenings_.pop();
      BATON_OK(happen(happening));
    } while (!happenings_.empty() && happenings_.top().time_ns == now_ns_);
    BATON_OK(start_works());
    store_next();
    cut_works_short();
    BATON_OK(check_step());
    const int64_t deadline_ns = scheduler_->next_deadline_ns();
    if (fault_.is(FaultPoint::kStepSleeps) && deadline_ns > now_ns_ && deadline_ns != INT64_MAX)
      at(deadline_ns, Happening::Kind::kTimeout, 0);
  }
  return check_end();
}

// Has all of its answer: a deadline is too late for it.
bool Simulation::is_ending(RequestId id) const {
  const Snapshot snapshot = scheduler_->snapshot();
  return std::any_of(snapshot.active.begin(), snapshot.active.end(),
                     [id](const Snapshot::Sequence& sequence) { return sequence.id == id && sequence.ending; });
}

Status Simulation::happen(const Happening& happening) {
  note(static_cast<uint64_t>(happening.time_ns) * 8 + static_cast<uint64_t>(happening.kind));
  if (happening.kind == Happening::Kind::kDone) {
    std::optional<Work>& work = in_flight_[happening.which];
    // One that was cut short is back already.
    if (work && work->ended_ns == now_ns_) scheduler_->done(*std::exchange(work, std::nullopt), now_ns_);
    return {};
  }
  if (happening.kind == Happening::Kind::kTimeout) return {};
  if (happening.kind == Happening::Kind::kStored) {
    write_stored();
    return {};
  }
  Ask& ask = asks_.at(happening.which);
  if (happening.kind == Happening::Kind::kDeadline) {
    if (!ask.refused && !ask.ended && !is_ending(happening.which)) expect_end(happening.which, ask);
    return {};
  }
  if (happening.kind == Happening::Kind::kCancel) {
    if (ask.refused || ask.ended) return {};
    expect_end(happening.which, ask);
    scheduler_->cancel(happening.which);
    return {};
  }
  auto resolved = resolve(ask.request, facts_);
  ask.refused = !resolved || !scheduler_->submit(happening.which, *resolved, now_ns_);
  ++counts_.requests;
  counts_.refused += ask.refused ? 1 : 0;
  if (!ask.refused) history_.submitted(happening.which);
  return {};
}

// Nothing stands between a cancel, or a deadline, and the end: no step, be it as long as it will; but the seal that is
// then due, and a work of the bridge that asks what is the caller's, until it was told to end.
void Simulation::expect_end(RequestId id, Ask& ask) {
  const int64_t before = ask.end_by_ns;
  ask.end_by_ns = ask.request.want_answer_state ? INT64_MAX : now_ns_;
  const Snapshot snapshot = scheduler_->snapshot();
  const bool active = std::any_of(snapshot.active.begin(), snapshot.active.end(),
                                  [id](const Snapshot::Sequence& sequence) { return sequence.id == id; });
  size_t met = active ? 1 : 0;
  for (size_t lane = 0; lane < in_flight_.size(); ++lane) {
    const Snapshot::InFlight& work = snapshot.lanes[lane];
    if (std::find(work.requests.begin(), work.requests.end(), id) == work.requests.end()) continue;
    if (asks_caller(*in_flight_[lane])) {
      const int64_t cut_ns = std::min(in_flight_[lane]->ended_ns, now_ns_ + kCutNsMax);
      ask.end_by_ns = std::max(ask.end_by_ns, cut_ns);
    }
    const bool decodes = std::any_of(work.states.begin(), work.states.end(), [id](const Snapshot::State& state) {
      return state.request == id && state.decodes;
    });
    met = work.kind == WorkKind::kMake    ? 2
          : work.kind == WorkKind::kMove  ? 5
          : work.kind == WorkKind::kProve ? 6
          : decodes                       ? 4
                                          : 3;
  }
  ask.end_by_ns = std::min(ask.end_by_ns, before);
  if (ms_per_token_ > 0 && before == INT64_MAX && ask.cancel_ns == now_ns_ && !ask.request.want_answer_state)
    ask.met = met;
}

int64_t Simulation::duration_of(const Work& work, uint64_t tokens) {
  if (ms_per_token_ == 0) return 1 + static_cast<int64_t>(random_.below((1 + tokens) * 10 * kMs));
  double ms = 5;
  if (const auto* step = std::get_if<StepWork>(&work.body)) {
    const double one = ms_per_token_ * static_cast<double>(step->prefill_tokens());
    const auto decoding =
        std::count_if(step->seats.begin(), step->seats.end(), [](const StepSeat& seat) { return seat.decodes(); });
    const double decode = ms_per_token_ * static_cast<double>(decoding);
    // As a lane would: no further step behind ms_max.
    ms = one + std::min(static_cast<double>(step->calls) * decode, step->ms_max + decode);
  } else if (const auto* prove = std::get_if<ProveWork>(&work.body)) {
    ms = ms_per_token_ * static_cast<double>(prove->seat.decodes() ? 2 : 1 + prove->seat.tokens.size());
  }
  return 1 + static_cast<int64_t>(ms * kMs);
}

void Simulation::cut_works_short() {
  for (size_t lane = 0; lane < in_flight_.size(); ++lane) {
    std::optional<Work>& work = in_flight_[lane];
    if (!work || !work->cancelled->load() || (lane == scheduler_->bridge() && !asks_caller(*work))) continue;
    const int64_t soon_ns = now_ns_ + 1 + static_cast<int64_t>(random_.below(kCutNsMax));
    if (work->ended_ns <= soon_ns) continue;
    ++counts_.cut_short;
    work->ended_ns = soon_ns;
    if (auto* step = std::get_if<StepWork>(&work->body)) step->status = fail(Code::kCancelled, "cut short");
    if (auto* move = std::get_if<MoveWork>(&work->body)) move->status = fail(Code::kCancelled, "cut short");
    at(soon_ns, Happening::Kind::kDone, lane);
  }
}

Status Simulation::check_marks(const Work& work) {
  Status status;
  const auto look = [&](const HeldState& held, RequestId id) {
    auto* state = static_cast<State*>(held.state.get());
    if (state == nullptr) return;
    ++counts_.marks;
    if (state->owner == 0) state->owner = id;
    if (state->owner != id && status) status = broken("a state of request " + std::to_string(state->owner), id);
  };
  if (const auto* step = std::get_if<StepWork>(&work.body)) {
    for (const StepSeat& seat : step->seats) look(seat.state, seat.request);
  } else if (const auto* make = std::get_if<MakeWork>(&work.body)) {
    look(make->state, make->request);
  } else if (const auto* move = std::get_if<MoveWork>(&work.body)) {
    look(move->from, move->request), look(move->to, move->request);
  } else {
    const auto& prove = std::get<ProveWork>(work.body);
    look(prove.seat.state, prove.seat.request), look(prove.proof, prove.seat.request);
  }
  return status;
}

Status Simulation::start_works() {
  for (Work& work : scheduler_->poll(now_ns_)) {
    ++counts_.steps;
    note(work.id * 64 + work.lane * 4 + work.body.index());
    BATON_CHECK(!in_flight_[work.lane]);
    uint64_t tokens = 1;
    if (auto* step = std::get_if<StepWork>(&work.body)) {
      const bool decodes = step->seats.back().decodes();
      tokens = decodes ? step->calls : step->prefill_tokens();
      for (const StepSeat& seat : step->seats) counts_.streamed += seat.streams() ? 1 : 0;
      if (step->seats.size() > 1) ++(decodes ? counts_.shared_steps : counts_.shared_prefills);
    }
    if (const uint64_t most = facts_.limits.step_tokens_max; most > 0 && work.body.index() == 1) {
      const auto& step = std::get<StepWork>(work.body);
      const auto decoding = static_cast<uint64_t>(
          std::count_if(step.seats.begin(), step.seats.end(), [](const StepSeat& seat) { return seat.decodes(); }));
      if (step.prefill_tokens() + decoding > most) return broken("a step has more tokens than it may", 0);
    }
    BATON_OK(check_marks(work));
    if (work.lane == scheduler_->bridge()) {
      bridge_->run(work);
    } else {
      lanes_[work.lane]->run(work);
    }
    BATON_OK(check_marks(work));
    work.started_ns = now_ns_;
    work.ended_ns = now_ns_ + duration_of(work, tokens);
    if (work.lane != scheduler_->bridge() && fault_.fires(FaultPoint::kStepSleeps)) work.ended_ns += 60'000 * kMs;
    at(work.ended_ns, Happening::Kind::kDone, work.lane);
    in_flight_[work.lane] = std::move(work);
  }
  return {};
}

Status Simulation::check_step() {
  const Snapshot snapshot = scheduler_->snapshot();
  if (auto status = check_snapshot(snapshot); !status) return broken(status.error().message, 0);
  const std::vector<Output> outputs = scheduler_->take_outputs();
  if (auto status = history_.observe(outputs, snapshot); !status) return broken(status.error().message, 0);
  for (const Output& output : outputs) BATON_OK(take(output));
  int64_t live = 0;
  for (const auto& unit : units_) live += unit->live_states();
  if (live > static_cast<int64_t>(snapshot.states.size())) return broken("a unit's memory is not in the books", 0);
  if (scheduler_->states() != snapshot.states.size()) return broken("states are miscounted", 0);
  const uint64_t kept = scheduler_->checkpoint_bytes();
  if (kept > facts_.limits.checkpoint_bytes_max) return broken("checkpoints take more than they may", 0);
  if (const uint64_t most = facts_.limits.state_bytes_max; most != 0) {
    if (kept + scheduler_->state_bytes() > most) return broken("states and checkpoints take more than they may", 0);
    if (scheduler_->bytes_peak() > most) return broken("states and checkpoints took more than they may", 0);
    counts_.bound_used_max =
        std::max(counts_.bound_used_max, static_cast<double>(scheduler_->bytes_peak()) / static_cast<double>(most));
  }
  return {};
}

Status Simulation::take(const Output& output) {
  Ask& ask = asks_.at(output.request);
  note(output.request);
  if (const auto* token = std::get_if<TokenEvent>(&output.event)) {
    note(static_cast<uint64_t>(token->id));
    ask.got.push_back(token->id);
    // The one that matters most: what has been said is right, however the request ends.
    if (!starts_with(ask.expected.tokens, ask.got)) return broken("a wrong token was answered", output.request);
    return check_logprobs(ask, output.request, *token);
  }
  return check_finished(ask, output.request, std::get<FinishedEvent>(output.event));
}

Status Simulation::check_finished(Ask& ask, RequestId id, const FinishedEvent& finished) {
  ask.ended = true;
  counts_.kept += finished.stats.kept_checkpoints;
  counts_.preempted += finished.stats.preempted;
  counts_.prefilled_again += finished.stats.recomputed_tokens > 0 ? 1 : 0;
  if ((finished.stats.preempted > 0) < (finished.stats.aside_ms > 0)) return broken("aside, and not set aside", id);
  counts_.reused += ask.start == StartKind::kNone && finished.stats.reused_tokens > 0 ? 1 : 0;
  counts_.restarted += finished.stats.restarted_at > 0 ? 1 : 0;
  counts_.reuse_failed += finished.stats.reuse_failed.empty() ? 0 : 1;
  BATON_OK(check_reuse(ask, id, finished.stats));
  BATON_OK(check_store(ask, id, finished.stats));
  if (!finished.stats.cached_in.empty()) ++counts_.from_files, ++counts_.from_files_by[ask.request.strategy];
  note(static_cast<uint64_t>(finished.reason));
  counts_.fallbacks += finished.stats.fallback.empty() ? 0 : 1;
  counts_.moved += finished.stats.bridge.kind == BridgeKind::kMove ? 1 : 0;
  counts_.adopted += finished.stats.bridge.kind == BridgeKind::kAdopt ? 1 : 0;
  counts_.proved += finished.stats.bridge.checked > 0 ? 1 : 0;
  counts_.proofs_failed += finished.stats.fallback.find("proof failed") != std::string::npos ? 1 : 0;
  const size_t rebuilt = finished.stats.fallback.find("decode on");
  counts_.rebuilt += rebuilt != std::string::npos ? 1 : 0;
  if (rebuilt != std::string::npos && finished.stats.fallback.find("decode on", rebuilt + 1) != std::string::npos) {
    return broken("began again more than once: " + finished.stats.fallback, id);
  }
  if (now_ns_ > ask.end_by_ns) return broken("a cancel, or a deadline, waited for a step", id);
  if (ask.met) {
    ++counts_.cancels_in[*ask.met];
    counts_.cancel_ns_max = std::max(counts_.cancel_ns_max, now_ns_ - *ask.cancel_ns);
    if (now_ns_ - *ask.cancel_ns > 100 * kMs)
      return broken(std::string("a cancel took more than 100 ms, ") + kCancelPhases[*ask.met], id);
  }
  switch (finished.reason) {
    case FinishReason::kCancelled:
      ++counts_.cancelled;
      if (!ask.cancel_ns || *ask.cancel_ns > now_ns_) return broken("cancelled, but nobody asked for it", id);
      if (finished.answer_state.empty()) return {};
      return check_answer_state(ask, id, finished);
    case FinishReason::kDeadline:
      ++counts_.late;
      if (ask.request.deadline_ns > now_ns_) return broken("ended before its deadline", id);
      if (finished.error.message.find("deadline") == std::string::npos) return broken("late, and does not say so", id);
      return finished.answer_state.empty() ? Status() : check_answer_state(ask, id, finished);
    case FinishReason::kError: {
      ++counts_.errors;
      const bool bad_start = ask.start > StartKind::kGood;
      const bool refused = finished.error.code == Code::kCorrupt || finished.error.code == Code::kMismatch;
      if (bad_start && refused) {
        ++counts_.start_refused;
        return ask.got.empty() ? Status() : broken("tokens from a refused starting state", id);
      }
      if (weather_ != Weather::kStormy || (refused && !fault_.is(FaultPoint::kStateNan)))
        return broken("an error without a cause: " + finished.error.message, id);
      return finished.error.message.empty() ? broken("an error without a message", id) : Status();
    }
    case FinishReason::kStop:
    case FinishReason::kLength:
      ++counts_.answered;
      break;
  }
  BATON_OK(check_answer(ask, id, finished));
  return check_figures(ask, id, finished);
}

// Who else than the one that is hit ends with an error? Those that need a unit that is lost.
Status Simulation::check_fault() const {
  const uint64_t errors = counts_.errors - counts_.start_refused;
  const bool loses = fault_.is(FaultPoint::kStepLost) || fault_.is(FaultPoint::kStepSleeps);
  if (errors > (loses && fault_.fired() > 0 ? asks_.size() : fault_.fired()))
    return broken(std::to_string(errors) + " errors of " + std::to_string(fault_.fired()) + " failures", 0);
  return {};
}

Status Simulation::check_end() {
  if (fault_) BATON_OK(check_fault());
  BATON_OK(check_stored());
  for (const auto& [id, ask] : asks_) {
    if (!ask.refused && !ask.ended) return broken("never ended", id);
  }
  if (!scheduler_->idle() || scheduler_->states() != 0 || scheduler_->state_bytes() != 0) {
    return broken("memory is not back at its baseline", 0);
  }
  for (const auto& unit : units_) {
    if (unit->live_states() != 0) return broken("a state of " + unit->name() + " leaked", 0);
  }
  return {};
}

}  // namespace baton::fake
