// What units and executors share: checks before a load and before a step, and words about a placement.
#include "baton/unit/unit.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <new>
#include <set>
#include <utility>

#include "baton/base/clock.h"
#include "baton/base/fault.h"
#include "baton/quant/format.h"
#include "baton/sample/sampler.h"

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

Status check_program(std::string_view unit, const Caps& caps, const Program& program) {
  if (program.whole_sequence && caps.cuts_prompts) {
    return fail(Code::kUnsupported,
                fmt::format("{}: this unit processes a prompt in pieces, and the model needs it as a whole; run it on "
                            "another",
                            unit));
  }
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Op& op = program.ops[i];
    const auto refuse = [&](std::string_view what) {
      return fail(Code::kUnsupported,
                  fmt::format("{}: this unit has no op {} (op {} of the model{}); run it on another", unit, what, i,
                              op.layer < 0 ? "" : fmt::format(", layer {}", op.layer)));
    };
    if (std::find(caps.ops.begin(), caps.ops.end(), op.kind) == caps.ops.end()) return refuse(to_string(op.kind));
    for (const OpTrait trait : traits_of(op)) {
      if (std::find(caps.traits.begin(), caps.traits.end(), trait) == caps.traits.end())
        return refuse(to_string(trait));
    }
  }
  return {};
}

std::string Placement::text() const {
  std::string all = arithmetic;
  if (threads > 0) all += fmt::format(", {} thread{}", threads, threads == 1 ? "" : "s");
  return all + notes;
}

Result<std::unique_ptr<Executor>> Unit::load(std::shared_ptr<const Model> model, uint32_t threads) {
  BATON_OK(check_program(name(), caps(), model->program));
  return make_executor(std::move(model), threads);
}

KeptBytes Unit::kept_bytes(const Model& model) const {
  const auto& native = caps().native_formats;
  const auto kept = [&](const Weight& weight) -> uint64_t {
    if (std::find(native.begin(), native.end(), weight.dtype) != native.end()) return weight.bytes;
    return static_cast<uint64_t>(weight.rows) * static_cast<uint64_t>(weight.columns) * sizeof(float);
  };
  KeptBytes made;
  for (const Weight& weight : model.weights) made.all += kept(weight);
  const auto of = [&](const Op& op, size_t part) { return kept(model.weights[static_cast<size_t>(op.weights[part])]); };
  for (const Op& op : model.program.ops) {
    if (op.kind == OpKind::kLinear || op.kind == OpKind::kHead) made.token += of(op, Op::kMatrix);
    if (op.kind != OpKind::kExperts) continue;
    made.token += of(op, Op::kRouter);
    for (const size_t part : {Op::kGates, Op::kUps, Op::kDowns}) {
      made.experts += static_cast<uint64_t>(op.experts) * of(op, part);
      made.token += static_cast<uint64_t>(op.experts_used) * of(op, part);
    }
  }
  return made;
}

namespace {

Status check_seat(const Model& model, const Seat& seat) {
  if (seat.tokens.empty()) return fail(Code::kInvalidInput, "no tokens to process");
  const SequenceState& state = *seat.state;
  if (seat.tokens.size() > state.tokens_max() - state.position()) {
    return fail(Code::kOutOfMemory,
                fmt::format("{} tokens at position {} do not fit a state of {} tokens; ask for a larger context",
                            seat.tokens.size(), state.position(), state.tokens_max()));
  }
  for (size_t i = 0; i < seat.tokens.size(); ++i) {
    if (seat.tokens[i] < 0 || seat.tokens[i] >= model.program.vocab) {
      return fail(Code::kInvalidInput, fmt::format("token {} at index {} is outside the vocabulary of {}",
                                                   seat.tokens[i], i, model.program.vocab));
    }
  }
  if (model.program.whole_sequence && state.position() != 0) {
    return fail(Code::kInvalidInput,
                fmt::format("{} tokens behind {} others: this model sees a text as a whole; give all of it in one step",
                            seat.tokens.size(), state.position()));
  }
  for (const Op& op : model.program.ops) {
    if (op.kind != OpKind::kPosition) continue;
    const auto most = static_cast<uint64_t>(model.weights[static_cast<size_t>(op.weights[Op::kMatrix])].rows);
    if (state.position() + seat.tokens.size() <= most) continue;
    return fail(Code::kInvalidInput, fmt::format("{} tokens at position {}: the model knows {} positions; give less",
                                                 seat.tokens.size(), state.position(), most));
  }
  BATON_CHECK(seat.rows_out <= seat.tokens.size() && (!seat.decodes || seat.tokens.size() == 1));
  return {};
}

}  // namespace

std::vector<int32_t> layers_done_behind(const Program& program, std::span<const Op* const> ops) {
  const auto layer_of = [&](SlotId slot) { return slot < 0 ? -1 : program.slots[static_cast<size_t>(slot)].layer; };
  std::vector<int32_t> layers(ops.size(), -1);
  std::set<int32_t> later;
  for (size_t i = ops.size(); i-- > 0;) {
    for (const SlotId slot : {ops[i]->slot, ops[i]->slot2}) {
      if (const int32_t layer = layer_of(slot); layer >= 0 && later.insert(layer).second) layers[i] = layer;
    }
  }
  return layers;
}

Status check_seats(const Model& model, std::span<const Seat> seats, std::span<const float> out) {
  uint64_t rows = 0;
  for (size_t i = 0; i < seats.size(); ++i) {
    if (Status status = check_seat(model, seats[i]); !status) {
      return seats.size() == 1 ? status : fail(std::move(status).error().in(fmt::format("sequence {}", i)));
    }
    rows += seats[i].rows_out;
    BATON_CHECK(i == 0 || seats[i].decodes || !seats[i - 1].decodes);
    for (size_t other = 0; other < i; ++other) BATON_CHECK(seats[other].state != seats[i].state);
  }
  BATON_CHECK(out.size() == rows * static_cast<uint64_t>(model.program.output_width));
  return {};
}

Status StepContext::check() const {
  if (cancelled != nullptr && *cancelled) return fail(Code::kCancelled, "the step was cancelled");
  if (deadline_ns != INT64_MAX && SteadyClock().now_ns() > deadline_ns)
    return fail(Code::kCancelled, "the step's deadline has passed");
  return {};
}

Status Executor::prefill(SequenceState& state, std::span<const int32_t> tokens, std::span<float> out) {
  const auto width = static_cast<size_t>(model().program.output_width);
  BATON_CHECK(out.size() % width == 0);
  const Seat seat{&state, tokens, static_cast<uint32_t>(out.size() / width)};
  return step({&seat, 1}, out, {});
}

Status Executor::decode(SequenceState& state, int32_t token, std::span<float> out) {
  const Seat seat{&state, {&token, 1}, out.empty() ? 0u : 1u, true};
  return step({&seat, 1}, out, {});
}

bool Draws::ended() const {
  return !status || (!ids.empty() && std::find(stop_ids.begin(), stop_ids.end(), ids.back().id) != stop_ids.end());
}

namespace {

void draw(Draws& draws, std::span<const float> row, const Clock& clock) {
  std::optional<Logprobs> logprobs;
  const Result<int32_t> id = draws.sampler->sample(row, &logprobs);
  if (id) return draws.ids.push_back({*id, clock.now_ns(), std::move(logprobs)});
  draws.status = fail(id.error());
}

// Of rows that all of `stepped` asked for, those that `seats` did.
void hand_out(std::span<const Seat> seats, std::span<const Seat> stepped, const float* rows, size_t width,
              std::span<float> out) {
  for (size_t i = 0; i < seats.size(); ++i) {
    const size_t values = seats[i].rows_out * width;
    BATON_CHECK(values <= out.size());
    std::copy_n(rows, values, out.begin());
    out = out.subspan(values);
    rows += stepped[i].rows_out * width;
  }
  BATON_CHECK(out.empty());
}

}  // namespace

Status Executor::step_on(std::span<const Seat> seats, std::span<float> out, const StepLimits& limits,
                         const StepContext& context) {
  return step_and_draw(seats, out, limits, context, [](size_t count, const auto& draw_one) {
    for (size_t i = 0; i < count; ++i) draw_one(i);
  });
}

Status Executor::step_and_draw(std::span<const Seat> seats, std::span<float> out, const StepLimits& limits,
                               const StepContext& context, const DrawAll& draw_all) try {
  const SteadyClock steady;
  const Clock& clock = limits.clock != nullptr ? *limits.clock : steady;
  const auto width = static_cast<size_t>(model().program.output_width);
  std::vector<Seat> next(seats.begin(), seats.end());
  std::vector<std::pair<Draws*, size_t>> drawing;  // and where its row begins
  size_t values = 0;
  for (Seat& seat : next) {
    if (seat.draws != nullptr) {
      BATON_CHECK(seat.decodes && seat.draws->sampler != nullptr);
      seat.rows_out = 1;
      // "Until a stop id" is no number of ids: more than the state has room for never come.
      const uint64_t room = seat.state->tokens_max() - seat.state->position() + 1;
      seat.draws->ids.reserve(seat.draws->ids.size() + std::min<uint64_t>(limits.steps_max, room));
      drawing.push_back({seat.draws, values});
    }
    values += seat.rows_out * width;
  }
  if (drawing.empty()) {  // rows of a whole prompt are not held twice
    BATON_OK(context.check());
    BATON_OK(step(seats, out, context));
    if (BATON_FAULT(kLogitsNan) && !out.empty()) out[0] = std::numeric_limits<float>::quiet_NaN();
    return {};
  }
  if (drawn_from_.size() < values) drawn_from_.resize(values);
  const std::span<float> rows = std::span(drawn_from_).first(values);
  bool more = true;
  for (uint32_t done = 0; done < limits.steps_max && more; ++done) {
    BATON_OK(context.check());
    BATON_OK(step(next, rows, context));
    if (BATON_FAULT(kLogitsNan) && !rows.empty()) rows[0] = std::numeric_limits<float>::quiet_NaN();
    if (done == 0) hand_out(seats, next, rows.data(), width, out);
    draw_all(drawing.size(), [&](size_t i) { draw(*drawing[i].first, rows.subspan(drawing[i].second, width), clock); });
    more = drawing.size() == next.size() && clock.now_ns() < limits.until_ns;
    for (const auto& [draws, row] : drawing) more = more && !draws->ended();
    for (size_t i = 0; i < next.size() && more; ++i) next[i].tokens = {&next[i].draws->ids.back().id, 1};
  }
  return {};
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "no memory for the outputs of a step");
}

Status Executor::rewind(SequenceState& state, uint64_t position) {
  BATON_CHECK(position <= state.position());
  if (position == state.position()) return {};
  return fail(Code::kUnsupported,
              fmt::format("this unit cannot take a state back from position {} to {}", state.position(), position));
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
    const uint64_t slabs = std::exchange(slab[0], 1), row_bytes = row_bytes_of(segments[i].dtype, slab[2]);
    for (uint64_t s = 0; s < slabs; ++s) {
      const Status done = for_pieces(slab, segments[i].dtype, [&](RowRange rows) -> Status {
        piece.resize(rows.count * row_bytes);
        BATON_OK(from.read(i, {s * held + rows.first, rows.count}, piece.data()));
        return copy->write(i, {s * slab[1] + rows.first, rows.count}, piece.data());
      });
      BATON_OK(done);
    }
  }
  BATON_OK(copy->finish_write(position == from.position() && from.searched()));
  return copy;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "no memory for a copy of a state");
}

Result<LoadPlan> Unit::plan(const Model&) const {
  return fail(Code::kUnsupported, fmt::format("unit '{}' makes no programs of a model", name()));
}

Result<Rate> Unit::limit(DeviceLimit) {
  return fail(Code::kUnsupported, fmt::format("unit '{}' measures no limits of a device", name()));
}

Result<DeviceRoom> Unit::device_room() {
  return fail(Code::kUnsupported, fmt::format("{}: has no memory but the host's", name()));
}

}  // namespace baton
