// Allocation, copies and reuse of states.
#include "baton/unit/host/host_state.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>

#include "baton/base/bytes.h"

namespace baton::host {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kPage = 4096;

}  // namespace

bool size_class(uint64_t bytes, uint64_t* size) {
  return checked_align(bytes, std::max(kPage, std::bit_floor(bytes) / 8), size);
}

std::optional<Places> Places::of(const StateShape& shape, uint64_t tokens_max) {
  Places places;
  uint64_t total = 0, stripe = UINT64_MAX;
  for (const Segment& segment : shape.segments) {
    const Dims dims = dims_at(segment, tokens_max);
    places.slots.push_back({total, static_cast<int64_t>(dims[1] * dims[2]), places.kept_bytes});
    uint64_t bytes = 0;
    if (!dense_bytes(dims, segment.dtype, &bytes) || !checked_add(total, bytes, &total) ||
        !checked_align(total, kAlignment, &total)) {
      return std::nullopt;
    }
    if (!has_tokens_dim(segment.kind)) {
      places.kept_bytes += bytes;
      continue;
    }
    stripe = std::min(stripe, bytes / std::max<uint64_t>(dims[0], 1));
  }
  if (!size_class(total, &places.bytes)) return std::nullopt;
  // A head's keys of a few tokens at the beginning of each stripe: with huge pages that share out several stripes, the
  // first hand-over of 35 tokens zeroed all of a state of 4,096 (94 MB, 370 ms instead of 7).
  places.pages = stripe >= kHugePage ? Pages::kHuge : Pages::kSmall;
  return places;
}

HostState::HostState(StatePool& pool, uint64_t tokens_max) : SequenceState(tokens_max, pool.live_), pool_(pool) {}

HostState::~HostState() {
  if (pool_.keeps(kept_memory_.bytes())) {
    std::memset(kept_memory_.data(), 0, kKeptMax * places_.kept_bytes);
    pool_.give(std::move(kept_memory_));
  }
  if (!pool_.keeps(memory_.bytes())) return;
  zero_touched();
  pool_.give(std::move(memory_));
}

const StateShape& HostState::shape() const { return pool_.shape(); }

Status HostState::place() {
  const std::optional<Places> places = Places::of(shape(), tokens_max());
  if (!places) {
    return fail(Code::kOutOfMemory,
                fmt::format("{}: the size of a state of {} tokens overflows", pool_.unit_, tokens_max()));
  }
  places_ = *places;
  BATON_TRY(memory_, pool_.take(places_.bytes, fmt::format("a state of {} tokens; use a smaller context", tokens_max()),
                                places_.pages));
  return {};
}

Status HostState::keep() {
  if (places_.kept_bytes == 0 || kept_memory_.bytes() > 0) return {};
  uint64_t bytes = 0;
  BATON_CHECK(size_class(kKeptMax * places_.kept_bytes, &bytes));
  BATON_TRY(kept_memory_, pool_.take(bytes, "states to go back to", Pages::kHuge));
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

Result<std::unique_ptr<SequenceState>> HostState::fork(uint64_t at) const {
  BATON_OK(check_back(at));
  BATON_TRY(std::unique_ptr<SequenceState> copy, pool_.make(tokens_max()));
  auto& to = static_cast<HostState&>(*copy);
  to.will_hold(at);
  for (size_t i = 0; i < places_.slots.size(); ++i) {
    const Segment& segment = shape().segments[i];
    const auto slot = static_cast<SlotId>(i);
    const Dims all = dims(slot);
    const uint64_t row_bytes = all[2] * value_bytes(segment.dtype), slab_bytes = all[1] * row_bytes;
    const bool grows = has_tokens_dim(segment.kind);
    const auto* from = grows || at == position() ? data(slot) : reinterpret_cast<const std::byte*>(kept(slot, at));
    for (uint64_t slab = 0; slab < all[0]; ++slab)
      std::memcpy(to.data(slot) + slab * slab_bytes, from + slab * slab_bytes, grows ? at * row_bytes : slab_bytes);
  }
  to.set_position(at);
  return copy;
}

Status HostState::rewind(uint64_t to) {
  BATON_OK(check_back(to));
  const uint64_t back = position() - to;
  if (places_.kept_bytes > 0) {
    for (size_t i = 0; i < places_.slots.size() && back > 0; ++i) {
      if (has_tokens_dim(shape().segments[i].kind)) continue;
      const auto slot = static_cast<SlotId>(i);
      const Dims all = dims(slot);
      std::copy_n(kept(slot, to), all[0] * all[1] * all[2], floats(slot));
    }
    kept_count_ -= back;
  }
  set_position(to);
  return {};
}

void HostState::zero_touched() const {
  for (size_t i = 0; i < places_.slots.size(); ++i) {
    const Segment& segment = shape().segments[i];
    const Dims dims = dims_at(segment, has_tokens_dim(segment.kind) ? std::min(touched_, tokens_max()) : tokens_max());
    const RowRange all{0, dims[0] * dims[1]};
    for_runs(i, dims, all, [](std::byte* here, uint64_t, uint64_t bytes) { std::memset(here, 0, bytes); });
  }
}

template <class Copy>
void HostState::for_runs(size_t segment, const Dims& dims, RowRange rows, Copy copy) const {
  const uint64_t row_bytes = dims[2] * value_bytes(shape().segments[segment].dtype);
  const uint64_t room = this->dims(static_cast<SlotId>(segment))[1];
  for (uint64_t done = 0; done < rows.count;) {
    const uint64_t slab = (rows.first + done) / dims[1], row = (rows.first + done) % dims[1];
    // Where the array is full, or has no tokens dim, slabs follow each other without a gap.
    const uint64_t count = room == dims[1] ? rows.count - done : std::min(rows.count - done, dims[1] - row);
    copy(data(static_cast<SlotId>(segment)) + (slab * room + row) * row_bytes, done * row_bytes, count * row_bytes);
    done += count;
  }
}

Status HostState::read_rows(size_t segment, const Dims& dims, RowRange rows, std::byte* out) const {
  for_runs(segment, dims, rows,
           [&](const std::byte* here, uint64_t at, uint64_t bytes) { std::memcpy(out + at, here, bytes); });
  return {};
}

Status HostState::write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) {
  if (has_tokens_dim(shape().segments[segment].kind)) will_hold(dims[1]);
  for_runs(segment, dims, rows,
           [&](std::byte* here, uint64_t at, uint64_t bytes) { std::memcpy(here, in + at, bytes); });
  return {};
}

const std::byte* HostState::view_rows(size_t segment, const Dims& dims, RowRange rows) const {
  const std::byte* first = nullptr;
  bool dense = true;
  for_runs(segment, dims, rows, [&](const std::byte* here, uint64_t at, uint64_t) {
    if (at == 0) first = here;
    dense = dense && at == 0;
  });
  return dense ? first : nullptr;
}

uint64_t StatePool::bytes_for(uint64_t tokens_max) const {
  const std::optional<Places> places = Places::of(shape_, tokens_max);
  return places ? places->bytes : UINT64_MAX;
}

Result<std::unique_ptr<SequenceState>> StatePool::make(uint64_t tokens_max) {
  try {
    std::unique_ptr<HostState> state(new HostState(*this, tokens_max));
    BATON_OK(state->place());
    return state;
  } catch (const std::bad_alloc&) {
    return fail(Code::kOutOfMemory, fmt::format("{}: no memory for a state; use a smaller context", unit_));
  }
}

Result<Memory> StatePool::take(size_t bytes, std::string_view what, Pages pages) {
  {
    const std::lock_guard lock(mutex_);
    const auto fits = [&](const Memory& memory) { return memory.bytes() == bytes; };
    const auto found = std::find_if(kept_.rbegin(), kept_.rend(), fits);
    if (found != kept_.rend()) {
      Memory memory = std::move(*found);
      kept_.erase(std::next(found).base());
      return memory;
    }
  }
  return Memory::allocate(bytes, what, unit_, pages);
}

void StatePool::give(Memory memory) {
  std::vector<Memory> too_many;  // returned to the system behind the lock
  const std::lock_guard lock(mutex_);
  kept_.push_back(std::move(memory));
  size_t total = 0;
  for (const Memory& each : kept_) total += each.bytes();
  while (total > kKeptBytes || kept_.size() > kKeptCount) {
    total -= kept_.front().bytes();
    too_many.push_back(std::move(kept_.front()));
    kept_.erase(kept_.begin());
  }
}

}  // namespace baton::host
