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

Lane::Lane(Executor& executor, std::string unit, uint32_t decode_slots_max, const Clock& clock,
           const std::atomic<bool>* cancelled)
    : executor_(executor),
      maker_{std::move(unit), executor.arithmetic()},
      clock_(clock),
      slots_max_(std::max(decode_slots_max, 1u)),
      context_{.cancelled = cancelled},
      vocab_(static_cast<size_t>(executor.model().program.output_width)),
      logits_(std::max(slots_max_, 2u) * vocab_) {
  seats_.reserve(std::max(slots_max_, 2u));
}

void Lane::run(Work& work) {
  if (auto* body = std::get_if<PrefillWork>(&work.body)) return prefill(*body);
  if (auto* body = std::get_if<DecodeWork>(&work.body)) return decode(*body);
  if (auto* body = std::get_if<CompareWork>(&work.body)) return compare(*body);
  if (auto* body = std::get_if<VerifyWork>(&work.body)) return verify(*body);
  BATON_CHECK(!"a Move on a lane");
}

void Lane::prefill(PrefillWork& work) {
  for (PrefillRow& row : work.rows) {
    if (row.state.state) continue;
    row.status = guarded([&]() -> Status {
      BATON_TRY(row.state.state, executor_.new_state(row.tokens_max));
      row.state.bytes = row.state.state->bytes();
      return {};
    });
  }
  work.status = guarded([&] { return prefill_step(work); });
}

Status Lane::prefill_step(PrefillWork& work) {
  seats_.clear();
  const auto runs = [](const PrefillRow& row) { return row.status && !row.tokens.empty(); };
  for (const PrefillRow& row : work.rows) {
    if (runs(row)) seats_.push_back({row.state.state.get(), row.tokens});
  }
  if (seats_.empty()) return {};
  BATON_OK(executor_.step(seats_, {}, context_));
  const bool shared = seats_.size() > 1;
  for (PrefillRow& row : work.rows) {
    if (runs(row)) row.state.provenance.add(maker_, StepKind::kPrefill, row.tokens.size(), 1, shared);
  }
  if (work.want_placement) work.placement = executor_.placement();
  return {};
}

void Lane::pick(DecodeRow& row, std::span<const float> logits) {
  row.status = guarded([&]() -> Status {
    if (row.want_logits && row.picked.empty()) row.logits.assign(logits.begin(), logits.end());
    BATON_TRY(const int32_t id, row.picker->sampler.sample(logits));
    row.picked.push_back({id, clock_.now_ns()});
    return {};
  });
}

Status Lane::decode_step(DecodeWork& work) {
  seats_.clear();
  for (const DecodeRow& row : work.rows) {
    const int32_t& token = row.picked.empty() ? row.token : row.picked.back().id;
    seats_.push_back({row.state.state.get(), {&token, 1}, 1, true});
  }
  return executor_.step(seats_, std::span(logits_).first(seats_.size() * vocab_), context_);
}

void Lane::decode(DecodeWork& work) {
  BATON_CHECK(work.rows.size() <= slots_max_);
  const int64_t start_ns = clock_.now_ns();
  bool more = true;
  for (uint32_t step = 0; step < work.steps && more; ++step) {
    work.status = guarded([&]() -> Status {
      BATON_OK(decode_step(work));
      if (work.want_placement && step == 0) work.placement = executor_.placement();
      return {};
    });
    if (!work.status) return;
    for (size_t i = 0; i < work.rows.size(); ++i) {
      DecodeRow& row = work.rows[i];
      row.state.provenance.add(maker_, StepKind::kDecode, 1);
      pick(row, {logits_.data() + i * vocab_, vocab_});
      more = more && row.status && !row.picker->stops(row.picked.back().id);
    }
    more = more && ms_between(start_ns, clock_.now_ns()) < work.ms_max;
  }
}

// The calls that make the proof's state.
Status Lane::repeat(CompareWork& work) {
  if (!work.proof.state) {
    BATON_TRY(work.proof.state, executor_.new_state(work.tokens_max));
    work.proof.bytes = work.proof.state->bytes();
  }
  std::span<const int32_t> left(work.tokens);
  for (const MakeStep& step : work.steps) {
    const auto tokens = left.first(step.tokens);
    left = left.subspan(step.tokens);
    const Seat seat{work.proof.state.get(), tokens, 0, step.decodes};
    BATON_OK(executor_.step({&seat, 1}, {}, context_));
    work.proof.provenance.add(maker_, step.decodes ? StepKind::kDecode : StepKind::kPrefill, step.tokens);
  }
  return {};
}

void Lane::compare(CompareWork& work) {
  work.status = guarded([&]() -> Status {
    BATON_OK(repeat(work));
    if (work.proof.state->position() < work.target.state->position()) return {};
    work.compared = true;
    work.worst = worst_part(compare_states(*work.target.state, *work.proof.state), work.bounds);
    work.worst_at = to_text(work.worst, work.proof.state->shape());
    return {};
  });
}

void Lane::verify(VerifyWork& work) {
  const std::span<float> moved(logits_.data(), vocab_);
  const std::span<float> own(logits_.data() + vocab_, vocab_);
  work.status = guarded([&]() -> Status {
    const std::span<const int32_t> token(&work.row.token, 1);
    seats_.assign({{work.row.state.state.get(), token, 1, true}, {work.proof.state.get(), token, 1, true}});
    BATON_OK(executor_.step(seats_, std::span(logits_).first(2 * vocab_), context_));
    if (work.want_placement) work.placement = executor_.placement();
    return {};
  });
  if (!work.status) return;
  for (HeldState* held : {&work.row.state, &work.proof}) held->provenance.add(maker_, StepKind::kDecode, 1);
  work.difference = compare_logits(moved, own);
  work.verdict = judge(work.difference, work.bounds);
  pick(work.row, work.verdict.passed ? moved : own);
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
