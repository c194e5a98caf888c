// Growth, copies and reuse of states.
#include "baton/unit/host/host_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <new>

#include "baton/base/bytes.h"

namespace baton::host {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kPage = 4096;  // of the system, or a part of its

std::vector<PagePool::Stripe> stripes_of(const StateShape& shape, const std::optional<Places>& places) {
  std::vector<PagePool::Stripe> stripes;
  for (size_t i = 0; places && i < shape.segments.size(); ++i) {
    const Places::Place& at = places->slots[i];
    for (uint64_t head = 0; at.grows && head < shape.segments[i].dims[0]; ++head)
      stripes.push_back({at.offset + head * at.slab, at.row});
  }
  return stripes;
}

}  // namespace

std::optional<Places> Places::of(const StateShape& shape) {
  Places places;
  for (const Segment& segment : shape.segments) {
    const bool grows = has_tokens_dim(segment.kind);
    uint64_t& total = grows ? places.page_bytes : places.parts_bytes;
    const Dims dims = dims_at(segment, kPageTokens);
    uint64_t bytes = 0;
    if (!dense_bytes(dims, segment.dtype, &bytes)) return std::nullopt;
    const uint64_t row = row_bytes_of(segment.dtype, dims[2]);
    places.slots.push_back({grows, total, dims[1] * row, row, places.kept_bytes});
    if (!grows) places.kept_bytes += bytes;
    if (!checked_add(total, bytes, &total) || !checked_align(total, kAlignment, &total)) return std::nullopt;
  }
  if (!checked_align(places.page_bytes, kPage, &places.page_bytes)) return std::nullopt;
  if (!checked_align(places.parts_bytes, kPage, &places.parts_bytes)) return std::nullopt;
  return places;
}

HostState::HostState(StatePool& pool, std::shared_ptr<StateArena> arena, uint64_t tokens_max)
    : SequenceState(tokens_max, pool.live_), pool_(pool), arena_(std::move(arena)), places_(*pool.places_) {}

HostState::~HostState() {
  drop_pages(0);
  if (kept_memory_.bytes() > 0) {
    std::memset(kept_memory_.data(), 0, kKeptMax * places_.kept_bytes);
    arena_->give(std::move(kept_memory_), pool_.held_);
  }
  if (parts_.bytes() == 0) return;
  std::memset(parts_.data(), 0, places_.parts_bytes);
  arena_->give(std::move(parts_), pool_.held_);
}

const StateShape& HostState::shape() const { return pool_.shape(); }

Status HostState::take_parts() {
  const uint64_t pages = places_.pages(tokens_max());
  pages_.reserve(pages);
  table_.reserve(pages);
  if (places_.parts_bytes > 0) {
    BATON_TRY(parts_, arena_->take(places_.parts_bytes, "a state; run fewer sequences at once", pool_.taker()));
  }
  return {};
}

Status HostState::add_pages(uint64_t count) {
  while (pages_.size() < count) {
    BATON_TRY(Page * page, arena_->pages().take(pool_.taker()));
    pages_.push_back(page);
    table_.push_back(page->data);
  }
  return {};
}

void HostState::drop_pages(uint64_t left) {
  if (pages_.size() <= left) return;
  arena_->pages().give(std::span(pages_).subspan(left), pool_.held_);
  pages_.resize(left);
  table_.resize(left);
  shared_ = std::min(shared_, left);
}

Status HostState::make_room(uint64_t tokens) try {
  BATON_CHECK(position() <= tokens && tokens <= tokens_max());
  const uint64_t first = position() / kPageTokens, count = places_.pages(tokens), had = pages_.size();
  if (first < shared_) {
    const auto rows = static_cast<uint32_t>(position() % kPageTokens);
    BATON_TRY(Page * own, arena_->pages().own(pages_[first], rows, pool_.taker()));
    pages_[first] = own;
    table_[first] = own->data;
    shared_ = first;
  }
  if (const Status added = add_pages(count); !added) {
    drop_pages(had);
    return added;
  }
  for (uint64_t i = first; i < count; ++i) {
    const uint64_t rows = std::min<uint64_t>(tokens - i * kPageTokens, kPageTokens);
    pages_[i]->rows = std::max(pages_[i]->rows, static_cast<uint32_t>(rows));
  }
  return {};
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, fmt::format("{}: no memory for keys and values; use a smaller context", pool_.unit_));
}

Status make_room(std::span<const Seat> seats) {
  for (size_t i = 0; i < seats.size(); ++i) {
    auto& state = static_cast<HostState&>(*seats[i].state);
    Status status = state.make_room(state.position() + seats[i].tokens.size());
    if (!status) return seats.size() == 1 ? status : fail(std::move(status).error().in(fmt::format("sequence {}", i)));
  }
  return {};
}

Status HostState::keep() {
  if (places_.kept_bytes == 0 || kept_memory_.bytes() > 0) return {};
  uint64_t bytes = 0;
  BATON_CHECK(checked_align(kKeptMax * places_.kept_bytes, kPage, &bytes));
  BATON_TRY(kept_memory_, arena_->take(bytes, "states to go back to", pool_.taker()));
  return {};
}

Status HostState::check_back(uint64_t to) const {
  BATON_CHECK(to <= position());
  const uint64_t back = position() - to;
  if (places_.kept_bytes == 0 || back <= kept_count_) return {};
  return fail(Code::kUnsupported,
              fmt::format("{}: a state at position {} cannot go back {} tokens to {}: its recurrent parts were kept "
                          "for the last {}",
                          pool_.unit_, position(), back, to, kept_count_));
}

void HostState::copy_parts(uint64_t at, const HostState& to) const {
  for (size_t i = 0; i < places_.slots.size(); ++i) {
    if (places_.slots[i].grows) continue;
    const Dims& dims = shape().segments[i].dims;
    const auto slot = static_cast<SlotId>(i);
    std::copy_n(at == position() ? floats(slot) : kept(slot, at), dims[0] * dims[1] * dims[2], to.floats(slot));
  }
}

Result<std::unique_ptr<SequenceState>> HostState::fork(uint64_t at) const {
  BATON_OK(check_back(at));
  BATON_TRY(std::unique_ptr<SequenceState> copy, pool_.make_in(arena_, tokens_max()));
  auto& to = static_cast<HostState&>(*copy);
  const uint64_t count = places_.pages(at);
  arena_->pages().share(std::span(pages_).first(count));
  to.pages_.assign(pages_.begin(), pages_.begin() + static_cast<ptrdiff_t>(count));
  to.table_.assign(table_.begin(), table_.begin() + static_cast<ptrdiff_t>(count));
  to.shared_ = count;
  shared_ = std::max(shared_, count);
  copy_parts(at, to);
  to.set_position(at, searched() && (at == position() || places_.parts_bytes == 0));
  return copy;
}

Status HostState::rewind(uint64_t to) {
  BATON_OK(check_back(to));
  if (places_.kept_bytes > 0) {
    if (to < position()) copy_parts(to, *this);
    kept_count_ -= position() - to;
  }
  set_position(to, searched() && (to == position() || places_.parts_bytes == 0));
  drop_pages(places_.pages(to));
  return {};
}

template <class Copy>
void HostState::for_runs(size_t segment, const Dims& dims, RowRange rows, Copy copy) const {
  const auto slot = static_cast<SlotId>(segment);
  const Places::Place& at = place(slot);
  for (uint64_t done = 0; done < rows.count;) {
    const uint64_t slab = (rows.first + done) / dims[1], in_slab = (rows.first + done) % dims[1];
    uint64_t count = rows.count - done;
    if (at.grows) count = std::min({count, dims[1] - in_slab, uint64_t{kPageTokens} - in_slab % kPageTokens});
    copy(row(slot, slab, in_slab), done * at.row, count * at.row);
    done += count;
  }
}

Status HostState::read_rows(size_t segment, const Dims& dims, RowRange rows, std::byte* out) const {
  if (is_missing(segment, dims)) {
    std::memset(out, 0, rows.count * place(static_cast<SlotId>(segment)).row);
    return {};
  }
  for_runs(segment, dims, rows,
           [&](const std::byte* here, uint64_t at, uint64_t bytes) { std::memcpy(out + at, here, bytes); });
  return {};
}

Status HostState::write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) {
  if (is_missing(segment, dims)) BATON_OK(make_room(dims[1]));
  for_runs(segment, dims, rows,
           [&](std::byte* here, uint64_t at, uint64_t bytes) { std::memcpy(here, in + at, bytes); });
  return {};
}

std::span<const std::byte> HostState::view_rows(size_t segment, const Dims& dims, RowRange rows) const {
  if (is_missing(segment, dims)) return {};
  std::span<const std::byte> first;
  for_runs(segment, dims, rows, [&](const std::byte* here, uint64_t at, uint64_t bytes) {
    if (at == 0) first = {here, bytes};
  });
  return first;
}

// With all its pages there, rows are bytes of their own.
Result<bool> HostState::share_row_writes(uint64_t tokens) {
  BATON_OK(make_room(tokens));
  return true;
}

bool HostState::fits_memory(const SequenceState& from) const {
  const auto* other = dynamic_cast<const HostState*>(&from);
  return other != nullptr && other->shape() == shape();
}

// What others share would be counted by two executors.
bool HostState::exchange_memory(SequenceState& from) try {
  auto& other = static_cast<HostState&>(from);
  if (other.shared_ > 0) return false;
  const uint64_t pages = places_.pages(tokens_max());
  other.pages_.reserve(pages);
  other.table_.reserve(pages);
  const uint64_t theirs = other.bytes(), mine = bytes();
  other.pool_.held_.subtract(theirs);
  pool_.held_.subtract(mine);
  std::swap(arena_, other.arena_);
  std::swap(parts_, other.parts_);
  std::swap(pages_, other.pages_);
  std::swap(table_, other.table_);
  std::swap(shared_, other.shared_);
  std::swap(kept_memory_, other.kept_memory_);
  std::swap(kept_count_, other.kept_count_);
  pool_.held_.add(theirs);
  other.pool_.held_.add(mine);
  return true;
} catch (const std::bad_alloc&) {
  return false;
}

StatePool::StatePool(const Program& program, DType kv_type, std::string unit, LiveStates& live)
    : shape_(state_shape(program, kv_type)),
      unit_(std::move(unit)),
      live_(live),
      places_(Places::of(shape_)),
      arena_(std::make_shared<StateArena>(stripes_of(shape_, places_), places_ ? places_->page_bytes : 0)) {}

uint64_t StatePool::bytes_for(uint64_t tokens) const {
  uint64_t bytes = 0;
  const bool fits = places_ && checked_mul(places_->pages(tokens), places_->page_bytes, &bytes) &&
                    checked_add(bytes, places_->parts_bytes, &bytes);
  return fits ? bytes : UINT64_MAX;
}

Result<std::unique_ptr<SequenceState>> StatePool::make_in(std::shared_ptr<StateArena> arena, uint64_t tokens_max) try {
  const uint64_t bytes = bytes_for(tokens_max);
  if (bytes == UINT64_MAX) {
    return fail(Code::kOutOfMemory, fmt::format("{}: the size of a state of {} tokens overflows", unit_, tokens_max));
  }
  // Nothing is taken: what the system would never give is refused now, and not when tokens come.
  const uint64_t more = bytes - std::min(bytes, arena->pages().idle_bytes());
  BATON_OK(Memory::allocate(more, fmt::format("a state of {} tokens; use a smaller context", tokens_max), unit_));
  std::unique_ptr<HostState> state(new HostState(*this, std::move(arena), tokens_max));
  BATON_OK(state->take_parts());
  return state;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, fmt::format("{}: no memory for a state; use a smaller context", unit_));
}

}  // namespace baton::host
