// Carrying out works: executor calls, sampling, and the proof.
#include "baton/engine/lane.h"

#include <algorithm>
#include <cmath>
#include <exception>
#include <new>

namespace baton {
namespace {

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

}  // namespace

Result<MoveReport> Carrier::carry(const SequenceState& from, SequenceState& to) { return move_state(from, to); }

Status Carrier::open(std::span<const std::byte> block, const StateIdentity& identity,
                     const std::vector<int32_t>& prompt, SequenceState& to, Provenance& provenance) {
  SealExpectation expected;
  expected.identity = identity;
  expected.tokens = &prompt;
  BATON_OK(unseal_state(block, expected, to, &provenance));
  return {};
}

Result<std::vector<std::byte>> Carrier::seal(const SequenceState& from, const StateIdentity& identity,
                                             std::span<const int32_t> tokens, const Provenance& provenance) {
  return seal_state(from, identity, tokens, provenance);
}

Lane::Lane(Executor& executor, std::string unit, uint32_t decode_seats_max, const Clock& clock,
           const std::atomic<bool>* cancelled)
    : executor_(executor),
      maker_{std::move(unit), executor.arithmetic()},
      clock_(clock),
      seats_max_(std::max(decode_seats_max, 1u)),
      context_{.cancelled = cancelled},
      vocab_(static_cast<size_t>(executor.model().program.output_width)),
      logits_(std::max(seats_max_, 2u) * vocab_) {
  seats_.reserve(std::max(seats_max_, 2u));
}

void Lane::run(Work& work) {
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
  BATON_TRY(held.state, executor_.new_state(held.tokens_max));
  held.bytes = held.state->bytes();
  return {};
}

void Lane::step(StepWork& work) {
  for (StepSeat& seat : work.seats) seat.status = guarded([&] { return make(seat.state); });
  const int64_t start_ns = clock_.now_ns();
  bool more = true;
  for (uint32_t i = 0; i < work.calls && more; ++i) {
    work.status = guarded([&]() -> Status {
      BATON_TRY(more, call(work));
      return {};
    });
    more = more && work.status && ms_between(start_ns, clock_.now_ns()) < work.ms_max;
  }
}

Result<bool> Lane::call(StepWork& work) {
  seats_.clear();
  size_t rows = 0;
  for (const StepSeat& seat : work.seats) {
    if (!seat.status) continue;
    const uint32_t rows_out = seat.decodes() ? 1 : 0;
    const auto tokens = seat.picked.empty() ? std::span(seat.tokens) : std::span(&seat.picked.back().id, 1);
    seats_.push_back({seat.state.state.get(), tokens, rows_out, seat.decodes()});
    rows += rows_out;
  }
  if (seats_.empty()) return false;
  BATON_CHECK(rows <= seats_max_);
  BATON_OK(executor_.step(seats_, std::span(logits_).first(rows * vocab_), context_));
  const bool shared = seats_.size() > 1;
  bool more = true;
  std::span<const float> logits(logits_);
  for (StepSeat& seat : work.seats) {
    if (!seat.status) continue;
    if (!seat.decodes()) {
      seat.state.provenance.add(maker_, StepKind::kPrefill, seat.tokens.size(), 1, shared);
      continue;
    }
    seat.state.provenance.add(maker_, StepKind::kDecode, 1);
    pick(seat, logits.first(vocab_));
    logits = logits.subspan(vocab_);
    more = more && seat.status && !seat.picker->stops(seat.picked.back().id);
  }
  return more;
}

void Lane::pick(StepSeat& seat, std::span<const float> logits) {
  seat.status = guarded([&]() -> Status {
    if (seat.want_logits && seat.picked.empty()) seat.logits.assign(logits.begin(), logits.end());
    BATON_TRY(const int32_t id, seat.picker->sampler.sample(logits));
    seat.picked.push_back({id, clock_.now_ns()});
    return {};
  });
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
  const std::span<float> moved(logits_.data(), vocab_);
  const std::span<float> own(logits_.data() + vocab_, vocab_);
  seats_.assign({{target.state.state.get(), target.tokens, 1, true}, {work.proof.state.get(), target.tokens, 1, true}});
  BATON_OK(executor_.step(seats_, std::span(logits_).first(2 * vocab_), context_));
  for (HeldState* held : {&target.state, &work.proof}) held->provenance.add(maker_, StepKind::kDecode, 1);
  work.difference = compare_logits(moved, own);
  work.verdict = judge(work.difference, work.bounds.logits);
  pick(target, work.verdict.passed ? moved : own);
  return {};
}

void BridgeLane::run(Work& work) {
  auto* body = std::get_if<MoveWork>(&work.body);
  BATON_CHECK(body != nullptr);
  body->status = guarded([&] { return move(*body); });
}

Status BridgeLane::move(MoveWork& work) {
  switch (work.form) {
    case MoveForm::kCarry: {
      BATON_TRY(work.report, carrier_.carry(*work.from.state, *work.to.state));
      work.to.provenance = std::move(work.from.provenance);
      return {};
    }
    case MoveForm::kOpen: {
      BATON_TRY(const StateIdentity identity, identity_());
      return carrier_.open(work.block, identity, work.tokens, *work.to.state, work.to.provenance);
    }
    case MoveForm::kSeal: {
      BATON_TRY(const StateIdentity identity, identity_());
      BATON_TRY(work.block, carrier_.seal(*work.from.state, identity, work.tokens, work.from.provenance));
      return {};
    }
  }
  return {};
}

}  // namespace baton
