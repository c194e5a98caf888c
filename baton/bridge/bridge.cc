// Pieces of states: read, searched, converted, written, compared.
#include "baton/bridge/bridge.h"

#include <fmt/format.h>

#include <algorithm>
#include <new>

#include "baton/base/clock.h"
#include "baton/bridge/mover.h"
#include "baton/bridge/segment_fill.h"
#include "baton/bridge/state_pieces.h"

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

SealExpectation for_state(SealExpectation expected, const SequenceState& into) {
  expected.shape = &into.shape();
  expected.position_max = into.tokens_max();
  return expected;
}

}  // namespace

Result<MoveReport> move_state(const SequenceState& from, SequenceState& to, Crew* crew) try {
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  const uint64_t tokens = from.position();
  BATON_TRY(const auto stream, StateStream::make(from, to, tokens, StreamSource::kStays, crew));
  BATON_OK(stream->move(from, tokens));
  BATON_OK(to.finish_write(true));
  return MoveReport{section_bytes(from.shape(), tokens), stream->report_.peer_bytes,
                    ms_between(start_ns, clock.now_ns())};
} catch (const std::bad_alloc&) {
  return no_memory("a piece of a state");
}

Result<MoveReport> hand_over_state(SequenceState& from, SequenceState& to, Crew* crew) try {
  if (!to.can_adopt(from)) return move_state(from, to, crew);
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  const uint64_t tokens = from.position();
  BATON_TRY(const BridgePlan plan, plan_move(from.shape(), tokens, to));
  if (tokens == 0 || !from.searched()) {
    std::vector<MovePart> all;
    for (size_t i = 0; i < plan.segments.size(); ++i) {
      const Dims dims = dims_at(plan.segments[i].from, tokens);
      all.push_back({i, {0, dims[0] * dims[1]}});
    }
    BATON_OK(Mover(crew, true, nullptr).move(from, tokens, all));
  }
  if (!to.adopt(from)) return move_state(from, to, crew);
  return MoveReport{0, 0, ms_between(start_ns, clock.now_ns()), true};
} catch (const std::bad_alloc&) {
  return no_memory("a piece of a state");
}

struct StateStream::Part {
  Segment from;
  size_t index;
  bool grows;  // keys or values
  SegmentFill fill;
  uint64_t moved = 0;     // tokens; of what does not grow all or none
  bool finished = false;  // all is moved, and looked at as a whole
};

StateStream::StateStream(SequenceState& to, uint64_t tokens, bool adopts, Crew* crew)
    : to_(to), tokens_(tokens), adopts_(adopts), crew_(crew) {}
StateStream::~StateStream() = default;

Result<std::unique_ptr<StateStream>> StateStream::begin(const SequenceState& from, SequenceState& to, uint64_t tokens,
                                                        StreamSource source, Crew* crew) {
  BATON_CHECK(tokens > 0);
  return make(from, to, tokens, source, crew);
}

Result<std::unique_ptr<StateStream>> StateStream::make(const SequenceState& from, SequenceState& to, uint64_t tokens,
                                                       StreamSource source, Crew* crew) try {
  const bool adopts = source == StreamSource::kGoes && to.can_adopt(from);
  std::unique_ptr<StateStream> stream(new StateStream(to, tokens, adopts, crew));
  BATON_TRY(const BridgePlan plan, plan_move(from.shape(), tokens, to));
  bool shared = false;
  if (!adopts) {
    to.begin_write(tokens);
    if (crew != nullptr) {
      BATON_TRY(shared, to.share_writes());
    }
  }
  stream->mover_ = std::make_unique<Mover>(crew, shared, to.stages() > 1 ? &to : nullptr);
  for (size_t i = 0; i < plan.segments.size(); ++i) {
    const SegmentPlan& segment = plan.segments[i];
    stream->parts_.push_back({segment.from, i, has_tokens_dim(segment.from.kind), SegmentFill(segment, i, to)});
  }
  return stream;
} catch (const std::bad_alloc&) {
  return no_memory("moving a state");
}

Status StateStream::move(const SequenceState& from, uint64_t position, std::span<const int32_t> layers) try {
  if (adopts_) return {};
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  Status status = move_parts(from, position, layers);
  report_.ms += ms_between(start_ns, clock.now_ns());
  return status;
} catch (const std::bad_alloc&) {
  return no_memory("a piece of a state");
}

Status StateStream::move_parts(const SequenceState& from, uint64_t position, std::span<const int32_t> layers) {
  const bool last = position == tokens_;
  const auto wanted = [&](int32_t layer) {
    return layers.empty() || std::find(layers.begin(), layers.end(), layer) != layers.end();
  };
  std::vector<MovePart> moving;
  for (Part& part : parts_) {
    const bool new_rows = part.grows && part.moved < position;
    if (part.finished || !(last || new_rows) || !wanted(part.from.layer)) continue;
    add_rows(part, position, moving);
    moving.back().end = last ? MoveEnd::kFinish : MoveEnd::kFlush;
    part.moved = position;
    part.finished = last;
  }
  uint64_t bytes = 0;
  for (const MovePart& part : moving) bytes += mover_->bytes_of(from, part);
  BATON_OK(mover_->move(from, position, moving));
  report_.bytes += bytes;
  report_.peer_bytes = mover_->reached_bytes();
  return {};
}

void StateStream::add_rows(Part& part, uint64_t position, std::vector<MovePart>& moving) {
  const Dims dims = dims_at(part.from, position);
  if (!part.grows) return moving.push_back({part.index, {0, dims[0] * dims[1]}, 0, &part.fill});
  for (uint64_t head = 0; head < dims[0]; ++head) {
    moving.push_back(
        {part.index, {head * position + part.moved, position - part.moved}, head * tokens_ + part.moved, &part.fill});
  }
}

Status StateStream::finish(SequenceState& from) {
  if (!adopts_) return to_.finish_write(true);
  if (from.position() != tokens_)
    return broken(fmt::format("a state of {} tokens was to be of {}", from.position(), tokens_));
  BATON_TRY(report_, hand_over_state(from, to_, crew_));
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
