// Carrying out works: executor calls, sampling, and the proof.
#include "baton/engine/lane.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <exception>
#include <new>
#include <system_error>
#include <thread>
#include <utility>

#include "baton/base/fault.h"

namespace baton {
namespace {

constexpr size_t kLogitsKept = size_t{2} << 20;  // values: more, of a prompt's rows, are given back

// Foreign exceptions end here: a lane must survive whatever a unit or the allocator throws.
template <class F>
Status guarded(F&& body) {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, "out of memory during a step");
  } catch (const std::exception& error) {
    return fail(Code::kInternal, std::string("a step threw: ") + error.what());
  }
}

// The same bytes, until nobody waits for them any more: kCancelled then.
SealSource until_cancelled(const SealSource& source, const std::atomic<bool>* cancelled) {
  static constexpr size_t kPieceBytes = size_t{1} << 20;  // of a source that gives more at a time
  return {source.size(), [&source, cancelled](const SealSink& sink) {
            return source.give([&](uint64_t offset, std::span<const std::byte> part) -> Status {
              do {
                if (cancelled != nullptr && cancelled->load()) return fail(Code::kCancelled, "nobody waits for it");
                const auto piece = part.first(std::min(part.size(), kPieceBytes));
                BATON_OK(sink(offset, piece));
                offset += piece.size();
                part = part.subspan(piece.size());
              } while (!part.empty());
              return {};
            });
          }};
}

// What a unit may do in a step's place, for tests.
Status step_fault() {
  if (BATON_FAULT(kStepMemory)) throw std::bad_alloc();
  if (BATON_FAULT(kStepSleeps)) std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const bool lost = BATON_FAULT(kStepLost), fails = BATON_FAULT(kStepFails);
  if (!lost && !fails) return {};
  return fail(lost ? Code::kUnavailable : Code::kDevice, "a fault was asked for: the step fails");
}

}  // namespace

Result<MoveReport> Carrier::carry(SequenceState& from, SequenceState& to) { return hand_over_state(from, to, crew_); }

Status Carrier::stream(StateStream& stream, const SequenceState& from, uint64_t position,
                       std::span<const int32_t> layers) {
  return stream.move(from, position, layers);
}

Status Carrier::open(const SealSource& source, const StateIdentity& identity, const std::vector<int32_t>& prompt,
                     SequenceState& to, Provenance& provenance) {
  SealExpectation expected;
  expected.identity = identity;
  expected.tokens = &prompt;
  BATON_OK(unseal_state(source, expected, to, &provenance));
  return {};
}

Status Carrier::seal(const SequenceState& from, const StateIdentity& identity, std::span<const int32_t> tokens,
                     const Provenance& provenance, const SealTaker& take) try {
  BATON_TRY(const SealSource source, sealed_source(from, identity, tokens, provenance));
  return take(source);
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "bridge: no memory for a sealed state: use a shorter context");
}

Result<std::shared_ptr<const Checkpoint>> Carrier::keep(CheckpointMemory& memory, const SequenceState& from,
                                                        const std::shared_ptr<const Checkpoint>& before,
                                                        AtRest at_rest) {
  return memory.keep(from, before, at_rest);
}

Result<MoveReport> Carrier::restore(const Checkpoint& from, SequenceState& to) { return restore_state(from, to); }

Lane::Lane(Executor& executor, std::string unit, uint32_t decode_seats_max, const Clock& clock, Carrier* carrier,
           Crew* crew)
    : executor_(executor),
      maker_{std::move(unit), executor.arithmetic()},
      clock_(clock),
      seats_max_(std::max(decode_seats_max, 1u)),
      own_carrier_(crew),
      carrier_(carrier),
      vocab_(static_cast<size_t>(executor.model().program.output_width)) {
  seats_.reserve(std::max(seats_max_, 2u));
}

void Lane::run(Work& work) {
  context_.cancelled = work.cancelled;
  if (auto* making = std::get_if<MakeWork>(&work.body)) {
    making->status = guarded([&] { return make(making->state); });
  } else if (auto* stepping = std::get_if<StepWork>(&work.body)) {
    step(*stepping);
  } else {
    auto& proving = std::get<ProveWork>(work.body);
    proving.status = guarded([&] { return proving.seat.decodes() ? verify(proving) : compare(proving); });
  }
  if (!work.want_placement) return;
  static_cast<void>(guarded([&]() -> Status {
    work.placement = executor_.placement();
    return {};
  }));
}

Status Lane::make(HeldState& held) {
  if (held.state) return {};
  if (BATON_FAULT(kStateMemory)) return fail(Code::kOutOfMemory, "a fault was asked for: no memory for a state");
  BATON_TRY(held.state, executor_.new_state(held.tokens_max));
  held.bytes = held.state->bytes();
  return {};
}

void Lane::step(StepWork& work) {
  for (StepSeat& seat : work.seats) seat.status = guarded([&] { return make(seat.state); });
  work.status = guarded([&] { return step_on(work); });
  for (StepSeat& seat : work.seats) {
    // A step may take memory for a state.
    if (seat.state.state) seat.state.bytes = seat.state.state->bytes();
    if (seat.into.state) seat.into.bytes = seat.into.state->bytes();
  }
}

Status Lane::step_on(StepWork& work) {
  BATON_OK(step_fault());
  const double ms = std::min(work.ms_max, 1e9);
  const StepLimits limits{work.calls, clock_.now_ns() + static_cast<int64_t>(ms * 1e6), &clock_};
  seats_.clear();
  const bool streaming =
      std::any_of(work.seats.begin(), work.seats.end(), [](const StepSeat& seat) { return seat.streams(); });
  StepStreams streams(carrier_ != nullptr ? *carrier_ : own_carrier_, streaming ? porter() : nullptr, clock_);
  size_t decoding = 0, values = 0;
  for (StepSeat& seat : work.seats) {
    if (!seat.status) continue;
    if (seat.streams()) streams.add(seat, seats_.size());
    const auto rows = seat.decodes() ? uint32_t{seat.want_logits} : static_cast<uint32_t>(seat.scored.size());
    Seat& next = seats_.emplace_back(Seat{seat.state.state.get(), seat.tokens, rows});
    values += next.rows_out * vocab_;
    if (!seat.decodes()) continue;
    next.decodes = true;
    next.draws = &seat.draws;
    seat.draws.sampler = &seat.picker->sampler;
    seat.draws.stop_ids = seat.picker->stop_ids;
    ++decoding;
  }
  if (seats_.empty()) return {};
  BATON_CHECK(decoding <= seats_max_);
  if (logits_.size() < values) logits_.resize(values);
  StepContext context = context_;
  if (streaming) context.watch = &streams;
  Status status = executor_.step_on(seats_, std::span(logits_).first(values), limits, context);
  const bool shared = seats_.size() > 1;
  std::span<const float> logits(logits_);
  for (StepSeat& seat : work.seats) {
    if (!seat.status) continue;
    if (!seat.decodes()) {
      const auto rows = logits.first(seat.scored.size() * vocab_);
      logits = logits.subspan(rows.size());
      if (!status) continue;
      seat.state.provenance.add(maker_, StepKind::kPrefill, seat.tokens.size(), 1, shared);
      seat.status = score(rows, seat);
      continue;
    }
    const size_t steps = seat.draws.ids.size() + (seat.draws.status ? 0 : 1);
    if (steps == 0) continue;  // the first failed
    seat.state.provenance.add(maker_, StepKind::kDecode, 1, steps);
    seat.status = std::move(seat.draws.status);  // a copy that finds no memory ends the program
    if (!seat.want_logits) continue;
    seat.logits.assign(logits.begin(), logits.begin() + static_cast<ptrdiff_t>(vocab_));
    logits = logits.subspan(vocab_);
  }
  if (logits_.size() > kLogitsKept) logits_ = {};
  if (streaming) streams.finish(status.has_value());
  return status;
}

Status Lane::score(std::span<const float> rows, StepSeat& seat) const {
  seat.scores.reserve(seat.scored.size());
  for (const int32_t token : seat.scored) {
    BATON_TRY(Logprobs score, logprobs_of(rows.first(vocab_), token, seat.scored_top));
    seat.scores.push_back(std::move(score));
    rows = rows.subspan(vocab_);
  }
  return {};
}

Porter* Lane::porter() {
  if (carrier_ != nullptr || porter_ != nullptr) return porter_.get();
  try {
    porter_ = std::make_unique<Porter>();
  } catch (const std::system_error&) {
    // The system has no more threads: the step's own moves the state.
  }
  return porter_.get();
}

// The calls that make the proof's state.
Status Lane::repeat(ProveWork& work) {
  BATON_OK(make(work.proof));
  std::span<const int32_t> left(work.seat.tokens);
  for (const MakeStep& step : work.steps) {
    const auto tokens = left.first(step.tokens);
    left = left.subspan(step.tokens);
    const Seat seat{work.proof.state.get(), tokens, 0, step.decodes};
    BATON_OK(executor_.step({&seat, 1}, {}, context_));
    work.proof.provenance.add(maker_, step.decodes ? StepKind::kDecode : StepKind::kPrefill, step.tokens);
  }
  return {};
}

Status Lane::compare(ProveWork& work) {
  BATON_OK(repeat(work));
  const SequenceState& target = *work.seat.state.state;
  if (work.proof.state->position() < target.position()) return {};
  work.compared = true;
  work.worst = worst_part(compare_states(target, *work.proof.state), work.bounds);
  work.worst_at = to_text(work.worst, work.proof.state->shape());
  return {};
}

Status Lane::verify(ProveWork& work) {
  StepSeat& target = work.seat;
  if (logits_.size() < 2 * vocab_) logits_.resize(2 * vocab_);
  const std::span<float> moved(logits_.data(), vocab_);
  const std::span<float> own(logits_.data() + vocab_, vocab_);
  seats_.assign({{target.state.state.get(), target.tokens, 1, true}, {work.proof.state.get(), target.tokens, 1, true}});
  BATON_OK(executor_.step(seats_, std::span(logits_).first(2 * vocab_), context_));
  for (HeldState* held : {&target.state, &work.proof}) held->provenance.add(maker_, StepKind::kDecode, 1);
  work.difference = compare_logits(moved, own);
  work.verdict = judge(work.difference, work.bounds.logits);
  const std::span<const float> row = work.verdict.passed ? moved : own;
  if (target.want_logits) target.logits.assign(row.begin(), row.end());
  std::optional<Logprobs> logprobs;
  const Result<int32_t> id = target.picker->sampler.sample(row, &logprobs);
  if (id) {
    target.draws.ids.push_back({*id, clock_.now_ns(), std::move(logprobs)});
  } else {
    target.status = fail(id.error());
  }
  return {};
}

void BridgeLane::run(Work& work) {
  auto* body = std::get_if<MoveWork>(&work.body);
  BATON_CHECK(body != nullptr);
  cancelled_ = work.cancelled;
  body->status = guarded([&] { return move(*body); });
}

Status BridgeLane::open(MoveWork& work, const SealSource& source) {
  BATON_TRY(const StateIdentity identity, identity_(work.to.home));
  return carrier_.open(source, identity, work.tokens, *work.to.state, work.to.provenance);
}

Status BridgeLane::move(MoveWork& work) {
  switch (work.form) {
    case MoveForm::kCarry: {
      BATON_TRY(work.report, carrier_.carry(*work.from.state, *work.to.state));
      work.to.provenance = std::move(work.from.provenance);
      work.to.kept = std::move(work.from.kept);
      work.to.exact = false;
      work.to.bytes = work.to.state->bytes();
      return {};
    }
    case MoveForm::kRestore: {
      if (!work.start.empty()) return open(work, work.start);
      BATON_TRY(work.report, carrier_.restore(*work.checkpoint.state, *work.to.state));
      work.to.provenance = work.checkpoint.provenance;
      work.to.kept = work.checkpoint.state;
      return {};
    }
    case MoveForm::kKeep: {
      BATON_TRY(work.checkpoint.state, carrier_.keep(*work.memory, *work.from.state, work.from.kept, work.at_rest));
      const bool rounded = work.checkpoint.state->rounding().has_value();
      work.checkpoint.provenance = rounded ? work.from.provenance.rounded() : work.from.provenance;
      work.from.kept = work.checkpoint.state;
      return {};
    }
    case MoveForm::kOpen:
      work.to.exact = false;
      return open(work, until_cancelled(work.start, cancelled_));
    case MoveForm::kSeal: {
      BATON_TRY(const StateIdentity identity, identity_(work.from.home));
      const auto take = [&](const SealSource& whole) -> Status {
        const SealSource state = until_cancelled(whole, cancelled_);
        if (BATON_FAULT(kSealSink)) return fail(Code::kInvalidInput, "a fault was asked for: the state is not taken");
        if (work.take) BATON_OK(work.take(state));
        if (!work.want_block) return {};
        BATON_TRY(work.block, state.block());
        return {};
      };
      return carrier_.seal(*work.from.state, identity, work.tokens, work.from.provenance, take);
    }
  }
  return {};
}

}  // namespace baton
