// Pieces of states: read, searched, converted, written, compared.
#include "baton/bridge/bridge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "baton/base/clock.h"
#include "baton/bridge/convert.h"
#include "baton/state/values.h"

namespace baton {
namespace {

tl::unexpected<Error> broken(std::string what) { return fail(Code::kInternal, "bridge: " + std::move(what)); }

tl::unexpected<Error> no_memory(std::string_view what) {
  return fail(Code::kOutOfMemory, fmt::format("bridge: no memory for {}: use a shorter context", what));
}

std::string name_of(const Segment& segment) { return segment_name(segment.kind, segment.layer); }

Status check_tokens_to_seal(const SequenceState& state, std::span<const int32_t> tokens) {
  if (tokens.size() != state.position()) {
    return broken(fmt::format("a state at position {} to be sealed with {} tokens", state.position(), tokens.size()));
  }
  const auto negative = std::find_if(tokens.begin(), tokens.end(), [](int32_t token) { return token < 0; });
  if (negative == tokens.end()) return {};
  return fail(Code::kInvalidInput,
              fmt::format("bridge: token {} is {}: ids are not negative", negative - tokens.begin(), *negative));
}

// Reads rows of a state into `out`; their values are numbers.
Status read_finite(const SequenceState& state, size_t index, RowRange rows, std::span<std::byte> out) {
  const Segment& segment = state.shape().segments[index];
  BATON_OK(state.read(index, rows, out.data()));
  const auto bad = first_not_finite(out, segment.dtype);
  if (!bad) return {};
  return fail(Code::kCorrupt,
              fmt::format("state: {}: value {} is {}: the unit that made it failed, make it again", name_of(segment),
                          rows.first * segment.dims[2] + *bad, value_at(out, segment.dtype, *bad)));
}

// Fills one segment of a state piece by piece.
class SegmentFill {
 public:
  SegmentFill(const SegmentPlan& plan, size_t index, SequenceState& into) : plan_(plan), index_(index), into_(into) {}

  // `values` of the plan's `from` type, numbers all.
  Status put(RowRange rows, std::span<const std::byte> values) {
    BATON_OK(check_range(rows, values));
    const uint64_t count = rows.count * plan_.from.dims[2];
    if (plan_.kind() == MoveKind::kConvert) {
      converted_.resize(count * value_bytes(plan_.to));
      convert_run(values.data(), plan_.from.dtype, converted_.data(), plan_.to, count);
      values = converted_;
    }
    BATON_OK(into_.write(index_, rows, values.data()));
    back_.resize(values.size());
    BATON_OK(into_.read(index_, rows, back_.data()));
    if (std::memcmp(back_.data(), values.data(), values.size()) == 0) return {};
    return fail(Code::kCorrupt, fmt::format("bridge: {}: rows {} to {} do not come back as they were written: the unit "
                                            "or its memory is at fault",
                                            name_of(plan_.from), rows.first, rows.first + rows.count - 1));
  }

  // After all rows.
  Status finish() const {
    if (!too_small_ || of_size_) return {};
    return fail(Code::kUnsupported,
                fmt::format("bridge: {}: all values are too small for {}: decode on the unit that prefilled",
                            name_of(plan_.from), to_string(plan_.to)));
  }

 private:
  Status check_range(RowRange rows, std::span<const std::byte> values) {
    const DType from = plan_.from.dtype;
    if (const auto over = first_overflow(values, from, plan_.to)) {
      return fail(Code::kUnsupported,
                  fmt::format("bridge: {}: value {} is {}, more than {} can hold: decode on the unit that prefilled",
                              name_of(plan_.from), rows.first * plan_.from.dims[2] + *over,
                              value_at(values, from, *over), to_string(plan_.to)));
    }
    if (of_size_) return {};
    if (all_underflow(values, from, plan_.to)) {
      too_small_ = true;
    } else {
      of_size_ = first_not_zero(values, from).has_value();
    }
    return {};
  }

  const SegmentPlan plan_;
  const size_t index_;
  SequenceState& into_;
  bool too_small_ = false, of_size_ = false;  // values below the receiver's normal numbers were seen, and others
  std::vector<std::byte> converted_, back_;
};

Status fill_state(const SealedView& view, SequenceState& into) {
  into.begin_write(view.position);
  for (size_t i = 0; i < view.sections.size(); ++i) {
    const SealedSection& section = view.sections[i];
    const uint64_t row_bytes = section.dims[2] * value_bytes(section.dtype);
    SegmentFill fill({{section.kind, section.layer, section.dtype, section.dims}, into.shape().segments[i].dtype}, i,
                     into);
    BATON_OK(for_pieces(section.dims, section.dtype, [&](RowRange rows) {
      return fill.put(rows, section.bytes.subspan(rows.first * row_bytes, rows.count * row_bytes));
    }));
    BATON_OK(fill.finish());
  }
  return into.finish_write();
}

}  // namespace

Result<MoveReport> move_state(const SequenceState& from, SequenceState& to) try {
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  const uint64_t tokens = from.position();
  BATON_TRY(const BridgePlan plan, plan_bridge(from.shape(), to.shape()));
  if (tokens > to.tokens_max()) {
    return fail(Code::kMismatch,
                fmt::format("bridge: a state at position {} does not fit one of {} tokens", tokens, to.tokens_max()));
  }
  to.begin_write(tokens);
  std::vector<std::byte> piece;
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const Segment& segment = plan.segments[i].from;
    SegmentFill fill(plan.segments[i], i, to);
    const Status done = for_pieces(dims_at(segment, tokens), segment.dtype, [&](RowRange rows) -> Status {
      piece.resize(rows.count * segment.dims[2] * value_bytes(segment.dtype));
      BATON_OK(read_finite(from, i, rows, piece));
      return fill.put(rows, piece);
    });
    BATON_OK(done);
    BATON_OK(fill.finish());
  }
  BATON_OK(to.finish_write());
  return MoveReport{section_bytes(from.shape(), tokens), ms_between(start_ns, clock.now_ns())};
} catch (const std::bad_alloc&) {
  return no_memory("a piece of a state");
}

Result<std::vector<std::byte>> seal_state(const SequenceState& state, const StateIdentity& identity,
                                          std::span<const int32_t> tokens, const Provenance& provenance) try {
  BATON_OK(check_shape(state.shape()));
  BATON_OK(check_tokens_to_seal(state, tokens));
  if (!provenance.steps.empty()) {
    if (const Status made = check_provenance(provenance, tokens.size()); !made) return broken(made.error().message);
  }
  SealWriter writer(identity, tokens, state.shape(), provenance);
  for (size_t i = 0; i < state.shape().segments.size(); ++i) {
    const Segment& segment = state.shape().segments[i];
    const uint64_t row_bytes = segment.dims[2] * value_bytes(segment.dtype);
    const std::span<std::byte> section = writer.section_data(i);
    const Status done = for_pieces(dims_at(segment, tokens.size()), segment.dtype, [&](RowRange rows) -> Status {
      BATON_OK(read_finite(state, i, rows, section.subspan(rows.first * row_bytes, rows.count * row_bytes)));
      writer.advance(i, (rows.first + rows.count) * row_bytes);
      return {};
    });
    BATON_OK(done);
  }
  return std::move(writer).finish();
} catch (const std::bad_alloc&) {
  return no_memory("a sealed state");
}

Result<std::vector<int32_t>> unseal_state(std::span<const std::byte> block, SealExpectation expected,
                                          SequenceState& into, Provenance* provenance) try {
  BATON_OK(check_shape(into.shape()));
  expected.shape = &into.shape();
  expected.position_max = into.tokens_max();
  BATON_TRY(SealedView view, open_seal(block, expected));
  BATON_OK(fill_state(view, into));
  if (provenance != nullptr) *provenance = std::move(view.provenance);
  return std::move(view.tokens);
} catch (const std::bad_alloc&) {
  return no_memory("the tokens of a sealed state");
}

}  // namespace baton
