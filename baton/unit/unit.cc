// What units and executors share: checks before a load and before a step, and words about a placement.
#include "baton/unit/unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>
#include <utility>

#include "baton/quant/format.h"

namespace baton {

float Caps::logit_tolerance(DType weights) const {
  for (const LogitTolerance& tolerance : logit_tolerances) {
    if (tolerance.weights == weights) return tolerance.largest;
  }
  BATON_CHECK(false);  // every format is listed
}

std::vector<LogitTolerance> equal_tolerances(float largest) {
  std::vector<LogitTolerance> all;
  for (const Format& format : formats()) all.push_back({format.dtype, largest});
  return all;
}

Status check_ops(std::string_view unit, const Caps& caps, const Program& program) {
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    if (std::find(caps.ops.begin(), caps.ops.end(), op.kind) != caps.ops.end()) continue;
    return fail(Code::kUnsupported,
                fmt::format("{}: this unit has no op {} (op {} of the model{}); run it on another", unit,
                            to_string(op.kind), i, op.layer < 0 ? "" : fmt::format(", layer {}", op.layer)));
  }
  return {};
}

std::string Placement::text() const {
  std::string all = arithmetic;
  if (threads > 0) all += fmt::format(", {} thread{}", threads, threads == 1 ? "" : "s");
  return all + notes;
}

Result<std::unique_ptr<Executor>> Unit::load(std::shared_ptr<const Model> model, uint32_t threads) {
  BATON_OK(check_ops(name(), caps(), model->program));
  return make_executor(std::move(model), threads);
}

Status check_tokens(const Model& model, const SequenceState& state, std::span<const int32_t> tokens) {
  if (tokens.empty()) return fail(Code::kInvalidInput, "no tokens to process");
  if (tokens.size() > state.tokens_max() - state.position()) {
    return fail(Code::kOutOfMemory,
                fmt::format("{} tokens at position {} do not fit a state of {} tokens; ask for a larger context",
                            tokens.size(), state.position(), state.tokens_max()));
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= model.program.vocab) {
      return fail(Code::kInvalidInput, fmt::format("token {} at index {} is outside the vocabulary of {}", tokens[i], i,
                                                   model.program.vocab));
    }
  }
  return {};
}

Status check_slots(const Model& model, std::span<const PrefillSlot> slots) {
  std::vector<const SequenceState*> states;
  for (size_t i = 0; i < slots.size(); ++i) {
    const PrefillSlot& slot = slots[i];
    if (Status status = check_tokens(model, *slot.state, slot.tokens); !status) {
      return slots.size() == 1 ? status : fail(std::move(status).error().in(fmt::format("sequence {}", i)));
    }
    const size_t vocab = static_cast<size_t>(model.program.vocab);
    BATON_CHECK(slot.logits.size() % vocab == 0 && slot.logits.size() / vocab <= slot.tokens.size());
    states.push_back(slot.state);
  }
  std::sort(states.begin(), states.end());
  BATON_CHECK(std::adjacent_find(states.begin(), states.end()) == states.end());
  return {};
}

Status Executor::prefill_batch(std::span<const PrefillSlot> slots) {
  BATON_OK(check_slots(model(), slots));
  for (const PrefillSlot& slot : slots) BATON_OK(prefill(*slot.state, slot.tokens, slot.logits));
  return {};
}

Result<std::unique_ptr<SequenceState>> Executor::fork(const SequenceState& from, uint64_t position) try {
  BATON_CHECK(position <= from.position());
  const std::vector<Segment>& segments = from.shape().segments;
  for (const Segment& segment : segments) {
    if (position == from.position() || has_tokens_dim(segment.kind)) continue;
    return fail(Code::kUnsupported, fmt::format("a state at position {} cannot be seen at {}: {} has moved on",
                                                from.position(), position, segment_name(segment.kind, segment.layer)));
  }
  BATON_TRY(auto copy, new_state(from.tokens_max()));
  copy->begin_write(position);
  std::vector<std::byte> piece;
  for (size_t i = 0; i < segments.size(); ++i) {
    const uint64_t held = dims_at(segments[i], from.position())[1];
    Dims slab = dims_at(segments[i], position);
    const uint64_t slabs = std::exchange(slab[0], 1), row_bytes = slab[2] * value_bytes(segments[i].dtype);
    for (uint64_t s = 0; s < slabs; ++s) {
      const Status done = for_pieces(slab, segments[i].dtype, [&](RowRange rows) -> Status {
        piece.resize(rows.count * row_bytes);
        BATON_OK(from.read(i, {s * held + rows.first, rows.count}, piece.data()));
        return copy->write(i, {s * slab[1] + rows.first, rows.count}, piece.data());
      });
      BATON_OK(done);
    }
  }
  BATON_OK(copy->finish_write());
  return copy;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "no memory for a copy of a state");
}

Result<LoadPlan> Unit::plan(const Model&) const {
  return fail(Code::kUnsupported, fmt::format("unit '{}' makes no programs of a model", name()));
}

}  // namespace baton
