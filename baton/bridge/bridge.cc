// Pieces of states: read, searched, converted, written, compared.
#include "baton/bridge/bridge.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "baton/base/clock.h"
#include "baton/base/fault.h"
#include "baton/bridge/segment_fill.h"
#include "baton/state/values.h"

namespace baton {
namespace {

tl::unexpected<Error> broken(std::string what) { return fail(Code::kInternal, "bridge: " + std::move(what)); }

tl::unexpected<Error> no_memory(std::string_view what) {
  return fail(Code::kOutOfMemory, fmt::format("bridge: no memory for {}: use a shorter context", what));
}

Status check_tokens_to_seal(const SequenceState& state, std::span<const int32_t> tokens) {
  if (tokens.size() != state.position()) {
    return broken(fmt::format("a state at position {} to be sealed with {} tokens", state.position(), tokens.size()));
  }
  const auto negative = std::find_if(tokens.begin(), tokens.end(), [](int32_t token) { return token < 0; });
  if (negative == tokens.end()) return {};
  return fail(Code::kInvalidInput,
              fmt::format("bridge: token {} is {}: ids are not negative", negative - tokens.begin(), *negative));
}

// The same values with one that is no number, for a fault.
const std::byte* with_nan(const std::byte* values, uint64_t bytes, std::vector<std::byte>& piece) {
  if (values != piece.data()) piece.assign(values, values + bytes);
  std::memset(piece.data(), 0xff, std::min<uint64_t>(bytes, sizeof(float)));
  return piece.data();
}

// The values are numbers, and zeros in a state of no tokens.
Status check_sound(const Segment& segment, uint64_t tokens, RowRange rows, std::span<const std::byte> values) {
  auto bad = first_not_finite(values, segment.dtype);
  std::string_view why = "the unit that made it failed";
  if (!bad && tokens == 0) {
    bad = first_not_zero(values, segment.dtype);
    why = "a sequence of no tokens holds zeros";
  }
  if (!bad) return {};
  return fail(Code::kCorrupt,
              fmt::format("state: {}: value {} is {}: {}, make it again", name_of(segment),
                          rows.first * segment.dims[2] + index_in_rows(segment.dtype, segment.dims[2], *bad),
                          value_at(values, segment.dtype, *bad), why));
}

// Calls visit(rows, values) -> Status for the rows of a segment in order, all or those of `part`, in pieces that stay
// in cache; `piece` is for those that the state does not show.
template <class Visit>
Status for_values(const SequenceState& state, uint64_t tokens, size_t index, std::optional<RowRange> part,
                  std::vector<std::byte>& piece, Visit visit) {
  const Segment& segment = state.shape().segments[index];
  Dims dims = dims_at(segment, tokens);
  if (part) dims = {1, part->count, dims[2]};
  return for_pieces(dims, segment.dtype, [&](RowRange rows) -> Status {
    if (part) rows.first += part->first;
    const uint64_t bytes = rows.count * row_bytes_of(segment.dtype, segment.dims[2]);
    if (BATON_FAULT(kMoveRead)) return fail(Code::kDevice, "a fault was asked for: the state cannot be read");
    BATON_TRY(const std::byte* first, rows_of(state, index, rows, bytes, piece));
    if (BATON_FAULT(kStateNan)) first = with_nan(first, bytes, piece);
    const std::span<const std::byte> values(first, bytes);
    BATON_OK(check_sound(segment, tokens, rows, values));
    return visit(rows, values);
  });
}

SealExpectation for_state(SealExpectation expected, const SequenceState& into) {
  expected.shape = &into.shape();
  expected.position_max = into.tokens_max();
  return expected;
}

}  // namespace

Result<MoveReport> move_state(const SequenceState& from, SequenceState& to) try {
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  const uint64_t tokens = from.position();
  BATON_TRY(const BridgePlan plan, plan_move(from.shape(), tokens, to));
  to.begin_write(tokens);
  std::vector<std::byte> piece;
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    SegmentFill fill(plan.segments[i], i, to);
    BATON_OK(
        for_values(from, tokens, i, {}, piece, [&](RowRange rows, auto values) { return fill.put(rows, values); }));
    BATON_OK(fill.finish());
  }
  BATON_OK(to.finish_write(true));
  return MoveReport{section_bytes(from.shape(), tokens), ms_between(start_ns, clock.now_ns())};
} catch (const std::bad_alloc&) {
  return no_memory("a piece of a state");
}

Result<MoveReport> hand_over_state(SequenceState& from, SequenceState& to) try {
  if (!to.can_adopt(from)) return move_state(from, to);
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  const uint64_t tokens = from.position();
  BATON_TRY(const BridgePlan plan, plan_move(from.shape(), tokens, to));
  std::vector<std::byte> piece;
  const bool searched = tokens > 0 && from.searched();
  for (size_t i = 0; i < plan.segments.size() && !searched; ++i)
    BATON_OK(for_values(from, tokens, i, {}, piece, [](RowRange, auto) { return Status(); }));
  if (!to.adopt(from)) return move_state(from, to);
  return MoveReport{0, ms_between(start_ns, clock.now_ns()), true};
} catch (const std::bad_alloc&) {
  return no_memory("a piece of a state");
}

struct StateStream::Part {
  Segment from;
  size_t index;
  bool grows;  // keys or values
  SegmentFill fill;
  uint64_t moved = 0;  // tokens; of what does not grow all or none
};

StateStream::StateStream(SequenceState& to, uint64_t tokens, bool adopts) : to_(to), tokens_(tokens), adopts_(adopts) {}
StateStream::~StateStream() = default;

Result<std::unique_ptr<StateStream>> StateStream::begin(const SequenceState& from, SequenceState& to, uint64_t tokens,
                                                        StreamSource source) try {
  BATON_CHECK(tokens > 0);
  const bool adopts = source == StreamSource::kGoes && to.can_adopt(from);
  std::unique_ptr<StateStream> stream(new StateStream(to, tokens, adopts));
  BATON_TRY(const BridgePlan plan, plan_move(from.shape(), tokens, to));
  if (!adopts) to.begin_write(tokens);
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const SegmentPlan& segment = plan.segments[i];
    stream->parts_.push_back({segment.from, i, has_tokens_dim(segment.from.kind), SegmentFill(segment, i, to)});
  }
  return stream;
} catch (const std::bad_alloc&) {
  return no_memory("moving a state");
}

Status StateStream::move(const SequenceState& from, uint64_t position, std::optional<int32_t> layer) try {
  if (adopts_) return {};
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  Status status;
  for (Part& part : parts_) {
    if (status && (!layer || part.from.layer == *layer)) status = move_part(from, position, part);
  }
  report_.ms += ms_between(start_ns, clock.now_ns());
  return status;
} catch (const std::bad_alloc&) {
  return no_memory("a piece of a state");
}

Status StateStream::move_part(const SequenceState& from, uint64_t position, Part& part) {
  const Dims dims = dims_at(part.from, position);
  const bool last = position == tokens_;
  if (part.moved >= position || (!part.grows && !last)) return {};
  const auto move = [&](RowRange rows, uint64_t first_there) {
    return for_values(from, position, part.index, rows, piece_, [&](RowRange piece, auto values) {
      report_.bytes += values.size();
      return part.fill.put({first_there + piece.first - rows.first, piece.count}, values);
    });
  };
  if (part.grows) {
    for (uint64_t head = 0; head < dims[0]; ++head)
      BATON_OK(move({head * position + part.moved, position - part.moved}, head * tokens_ + part.moved));
  } else {
    BATON_OK(move({0, dims[0] * dims[1]}, 0));
  }
  part.moved = position;
  return last ? part.fill.finish() : part.fill.flush();
}

Status StateStream::finish(SequenceState& from) {
  if (!adopts_) return to_.finish_write(true);
  if (from.position() != tokens_)
    return broken(fmt::format("a state of {} tokens was to be of {}", from.position(), tokens_));
  BATON_TRY(report_, hand_over_state(from, to_));
  return {};
}

StateSealer::StateSealer(const SequenceState& state, const StateIdentity& identity, std::span<const int32_t> tokens,
                         const Provenance& provenance, SealSink sink)
    : state_(state), tokens_(tokens.size()), writer_(identity, tokens, state.shape(), provenance, std::move(sink)) {}

Status StateSealer::begin() { return writer_.begin(); }

Status StateSealer::segment(size_t index) {
  return for_values(state_, tokens_, index, {}, piece_,
                    [&](RowRange, auto values) { return writer_.add(index, values); });
}

Status StateSealer::finish() { return writer_.finish(); }

void LayerSealer::layer_done(size_t seat, int32_t layer) {
  if (seat != seat_) return;
  const auto [first, last] = left_.equal_range(layer);
  for (auto at = first; at != last && status_; ++at) status_ = sealer_.segment(at->second);
  left_.erase(first, last);
}

Status LayerSealer::finish() {
  for (auto at = left_.begin(); at != left_.end() && status_; ++at) status_ = sealer_.segment(at->second);
  left_.clear();
  BATON_OK(Status(status_));
  return sealer_.finish();
}

Result<SealSource> sealed_source(const SequenceState& state, const StateIdentity& identity,
                                 std::span<const int32_t> tokens, const Provenance& provenance) {
  BATON_OK(check_shape(state.shape()));
  BATON_OK(check_tokens_to_seal(state, tokens));
  if (!provenance.steps.empty()) {
    if (const Status made = check_provenance(provenance, tokens.size()); !made) return broken(made.error().message);
  }
  const uint64_t bytes = sealed_bytes(state.shape(), tokens.size(), provenance);
  return SealSource(bytes, [&state, identity, tokens, &provenance](const SealSink& sink) -> Status {
    StateSealer sealer(state, identity, tokens, provenance, sink);
    BATON_OK(sealer.begin());
    for (size_t i = 0; i < state.shape().segments.size(); ++i) BATON_OK(sealer.segment(i));
    return sealer.finish();
  });
}

Result<std::vector<std::byte>> seal_state(const SequenceState& state, const StateIdentity& identity,
                                          std::span<const int32_t> tokens, const Provenance& provenance) try {
  BATON_TRY(const SealSource source, sealed_source(state, identity, tokens, provenance));
  return source.block();
} catch (const std::bad_alloc&) {
  return no_memory("a sealed state");
}

struct StateOpener::Fill {
  size_t section;
  SegmentFill segment;
};

StateOpener::StateOpener(SealExpectation expected, SequenceState& into, uint64_t bytes)
    : into_(into), reader_(for_state(expected, into), this, bytes) {}

StateOpener::~StateOpener() = default;

Status StateOpener::begin(const SealedView& head) {
  sections_ = head.sections;
  into_.begin_write(head.position);
  return {};
}

Status StateOpener::rows(size_t section, uint64_t first, std::span<const std::byte> values) {
  const SealedSection& from = sections_[section];
  if (fill_ == nullptr || fill_->section != section) {
    if (fill_ != nullptr) BATON_OK(fill_->segment.finish());
    const SegmentPlan plan{{from.kind, from.layer, from.dtype, from.dims}, into_.shape().segments[section].dtype};
    fill_.reset(new Fill{section, SegmentFill(plan, section, into_)});
  }
  const uint64_t count = values.size() / row_bytes_of(from.dtype, from.dims[2]);
  return fill_->segment.put({first, count}, values);
}

Result<SealedView> StateOpener::finish() {
  BATON_TRY(SealedView view, reader_.finish());
  if (fill_ != nullptr) BATON_OK(fill_->segment.finish());
  BATON_OK(into_.finish_write(true));
  return view;
}

Result<std::vector<int32_t>> unseal_state(const SealSource& source, const SealExpectation& expected,
                                          SequenceState& into, Provenance* provenance) try {
  StateOpener opener(expected, into, source.size());
  BATON_OK(source.give([&](uint64_t offset, auto bytes) { return opener.take(offset, bytes); }));
  BATON_TRY(SealedView view, opener.finish());
  if (provenance != nullptr) *provenance = std::move(view.provenance);
  return std::move(view.tokens);
} catch (const std::bad_alloc&) {
  return no_memory("the tokens of a sealed state");
}

}  // namespace baton
