// Growth, copies and rows of states.
#include "baton/unit/cuda/state.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

#include "baton/base/bytes.h"

namespace baton::cuda {
namespace {

constexpr uint64_t kTableBytesMin = 4096;

}  // namespace

CudaState::CudaState(StatePool& pool, uint64_t tokens_max)
    : SequenceState(tokens_max, pool.live_), pool_(pool), places_(*pool.places_) {}

CudaState::~CudaState() {
  leave_ferry();
  drop_pages(0);
  pool_.arena_->give_block(std::move(table_));
  pool_.arena_->give_block(std::move(kept_));
  pool_.arena_->give_block(std::move(parts_));
}

const StateShape& CudaState::shape() const { return pool_.shape(); }

uint64_t CudaState::bytes() const {
  return parts_.bytes() + kept_.bytes() + table_.bytes() + pages_.size() * places_.page_bytes;
}

bool CudaState::has_room(uint64_t tokens) const {
  return places_.pages(tokens) <= pages_.size() && position() / kPageTokens >= shared_ && listed_ == pages_.size();
}

Status CudaState::own_page(uint64_t index) {
  const auto rows = static_cast<uint32_t>(position() % kPageTokens);
  BATON_TRY(Page * own, pool_.arena_->own(pages_[index], rows));
  if (own != pages_[index]) listed_ = std::min(listed_, index);
  pages_[index] = own;
  shared_ = index;
  return {};
}

Status CudaState::fit_table(uint64_t count) {
  const uint64_t bytes = StatePool::table_bytes(count);
  if (table_.bytes() < bytes) {
    BATON_TRY(DeviceMemory larger, pool_.arena_->take_block(bytes, "a list of pages", "use a smaller context"));
    std::swap(table_, larger);
    listed_ = 0;
    pool_.arena_->give_block(std::move(larger));
  }
  if (listed_ == count) return {};
  BATON_OK(pool_.arena_->send(table_.address() + listed_ * sizeof(Address), std::span(pages_).subspan(listed_)));
  listed_ = count;
  return {};
}

void CudaState::drop_pages(uint64_t left) {
  if (pages_.size() <= left) return;
  pool_.arena_->give(std::span(pages_).subspan(left));
  pages_.resize(left);
  shared_ = std::min(shared_, left);
  listed_ = std::min(listed_, left);
}

void CudaState::drop_behind() {
  const uint64_t left = places_.pages(position());
  drop_pages(left);
  if (table_.bytes() <= StatePool::table_bytes(left)) return;
  pool_.arena_->give_block(std::exchange(table_, {}));
  listed_ = 0;
}

Status CudaState::make_room(uint64_t tokens) try {
  BATON_CHECK(position() <= tokens && tokens <= tokens_max());
  if (has_room(tokens)) return {};
  const uint64_t first = position() / kPageTokens, had = pages_.size();
  const uint64_t count = std::max<uint64_t>(places_.pages(tokens), had);
  if (first < shared_) BATON_OK(own_page(first));
  pages_.reserve(count);
  Status status = pool_.arena_->take(pages_, count - had);
  if (status) status = fit_table(count);
  if (!status) drop_pages(had);
  return status;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory,
              fmt::format("{}: no memory for a list of pages; use a smaller context", pool_.arena_->unit()));
}

Run CudaState::run(int32_t first_row, int32_t rows, bool decodes, uint64_t ahead) const {
  const uint64_t start = position() + ahead;
  BATON_CHECK(has_room(start + static_cast<uint64_t>(rows)));
  Run made;
  made.parts = parts_.address();
  made.pages = table_.address();
  made.start = static_cast<int32_t>(start);
  made.first_row = first_row;
  made.rows = rows;
  made.decodes = decodes ? 1 : 0;
  return made;
}

void CudaState::show(uint64_t coming) {
  leave_ferry();
  shows_ = true;
  show_coming(coming);
}

Status CudaState::keep() {
  if (!has_parts() || kept_.bytes() > 0) return {};
  BATON_TRY(kept_, pool_.arena_->take_block(kKeptMax * places_.parts_bytes, "states to go back to",
                                            "run fewer sequences at once"));
  return {};
}

Status CudaState::keep_parts(Stream& stream) {
  if (!has_parts()) return {};
  BATON_CHECK(kept_.bytes() > 0);
  return stream.copy(kept_at(position()), parts_.address(), places_.parts_bytes);
}

Status CudaState::keep_part(Stream& stream, const Place& place, uint64_t ahead) {
  BATON_CHECK(kept_.bytes() > 0);
  return stream.copy(kept_at(position() + ahead) + place.offset, parts_.address() + place.offset,
                     places_.part_bytes(place));
}

void CudaState::advance(uint64_t tokens, uint64_t kept, bool more) {
  leave_ferry();
  shows_ = false;
  kept_count_ = std::min<uint64_t>(kept < tokens ? kept : kept_count_ + kept, kKeptMax);
  set_position(position() + tokens);
  if (!more) drop_behind();
}

Status CudaState::check_back(uint64_t to) const {
  BATON_CHECK(to <= position());
  const uint64_t back = position() - to;
  if (!has_parts() || back <= kept_count_) return {};
  return fail(Code::kUnsupported,
              fmt::format("{}: a state at position {} cannot go back {} tokens to {}: its recurrent parts were kept "
                          "for the last {}",
                          pool_.arena_->unit(), position(), back, to, kept_count_));
}

Address CudaState::kept_at(uint64_t at) const { return kept_.address() + at % kKeptMax * places_.parts_bytes; }
Address CudaState::parts_at(uint64_t at) const { return at == position() ? parts_.address() : kept_at(at); }

Status CudaState::rewind(uint64_t to) {
  BATON_OK(check_back(to));
  if (has_parts()) {
    if (to < position()) BATON_OK(pool_.arena_->copy(parts_.address(), parts_at(to), places_.parts_bytes));
    kept_count_ -= position() - to;
  }
  leave_ferry();
  set_position(to, searched());
  drop_behind();
  return {};
}

Result<std::unique_ptr<SequenceState>> CudaState::fork(uint64_t at) const try {
  BATON_OK(check_back(at));
  BATON_TRY(std::unique_ptr<SequenceState> copy, pool_.state(tokens_max()));
  auto& to = static_cast<CudaState&>(*copy);
  const uint64_t count = places_.pages(at);
  to.pages_.reserve(count);
  if (has_parts()) BATON_OK(pool_.arena_->copy(to.parts_.address(), parts_at(at), places_.parts_bytes));
  pool_.arena_->share(std::span(pages_).first(count));
  to.pages_.assign(pages_.begin(), pages_.begin() + static_cast<ptrdiff_t>(count));
  to.shared_ = count;
  shared_ = std::max(shared_, count);
  to.set_position(at, searched());
  return copy;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory,
              fmt::format("{}: no memory for a state; use a smaller context", pool_.arena_->unit()));
}

FerryPlace CudaState::ferry_place() const { return {places_, parts_.address(), pages_, shown_position()}; }

Result<Ferry*> CudaState::ferry() const {
  if (ferry_ == nullptr) {
    BATON_TRY(ferry_, pool_.dock_->take());
  }
  return ferry_.get();
}

void CudaState::leave_ferry() const {
  failed_ = false;
  if (ferry_ != nullptr) pool_.dock_->give(std::move(ferry_));
}

// Of a state that is to be filled, and was not yet: zeros.
bool CudaState::is_missing(size_t segment, const Dims& dims) const {
  return places_.slots[segment].grows() && places_.pages(dims[1]) > pages_.size();
}

Result<std::span<const std::byte>> CudaState::fetch(size_t segment, RowRange rows) const {
  if (std::exchange(failed_, false)) ferry_.reset();
  BATON_TRY(Ferry* const ferry, this->ferry());
  // Of a state that is filled pages may be missing.
  const bool fills = fills_ || places_.pages(shown_position()) > pages_.size();
  const Ferry::Ahead ahead = fills ? Ferry::Ahead::kNo : shows_ ? Ferry::Ahead::kLayer : Ferry::Ahead::kAll;
  return ferry->fetch(ferry_place(), shape().segments, segment, rows, ahead);
}

Status CudaState::read_rows(size_t segment, const Dims& dims, RowRange rows, std::byte* out) const {
  const uint64_t each = places_.slots[segment].dense_row;
  if (is_missing(segment, dims)) {
    std::memset(out, 0, rows.count * each);
    return {};
  }
  while (rows.count > 0) {
    const auto values = fetch(segment, rows);
    if (!values) {
      // Who reads again may have more luck, but not with what was written, which may not be there. Until then others
      // may still look at rows that were shown before.
      if (!fills_) failed_ = true;
      return fail(values.error());
    }
    std::memcpy(out, values->data(), values->size());
    out += values->size();
    rows = {rows.first + values->size() / each, rows.count - values->size() / each};
  }
  return {};
}

std::span<const std::byte> CudaState::view_rows(size_t segment, const Dims& dims, RowRange rows) const {
  if (is_missing(segment, dims)) return {};
  const auto values = fetch(segment, rows);
  return values ? *values : std::span<const std::byte>();  // who reads them hears why not
}

Status CudaState::write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) {
  if (is_missing(segment, dims)) BATON_OK(make_room(dims[1]));
  fills_ = true;
  BATON_TRY(Ferry* const ferry, this->ferry());
  return ferry->put(ferry_place(), segment, rows, in);
}

Result<std::byte*> CudaState::stage_rows(size_t segment, const Dims& dims, RowRange rows) {
  if (is_missing(segment, dims)) BATON_OK(make_room(dims[1]));
  fills_ = true;
  BATON_TRY(Ferry* const ferry, this->ferry());
  return ferry->stage(ferry_place(), segment, rows);
}

// Of another card of the same driver, and of rows that lie alike. What cannot be reached goes through the host, which
// says what is wrong.
bool CudaState::reaches(const SequenceState& from) {
  const auto* const other = dynamic_cast<const CudaState*>(&from);
  if (other == nullptr || !(shape() == from.shape())) return false;
  Card& own = pool_.arena_->card();
  const Card& its = other->pool_.arena_->card();
  if (own.facts().emulated != its.facts().emulated || own.facts().index == its.facts().index) return false;
  const Result<bool> reached = own.reach(its);
  return reached && *reached;
}

Status CudaState::stage_row_copy(size_t segment, const Dims& dims, RowRange rows, const SequenceState& from,
                                 uint64_t first) {
  if (is_missing(segment, dims)) BATON_OK(make_room(dims[1]));
  fills_ = true;
  BATON_TRY(Ferry* const ferry, this->ferry());
  const auto& other = static_cast<const CudaState&>(from);
  return ferry->stage_copy(ferry_place(), segment, rows, other.ferry_place(), other.pool_.arena_->card(), first);
}

Status CudaState::send_rows() {
  BATON_TRY(Ferry* const ferry, this->ferry());
  return ferry->send(ferry_place());
}

Result<std::span<const std::byte>> CudaState::back_rows() {
  BATON_TRY(Ferry* const ferry, this->ferry());
  return ferry->sent_back(ferry_place());
}

Status CudaState::finish_rows() {
  fills_ = false;
  if (ferry_ == nullptr) return {};
  BATON_OK(ferry_->flush(ferry_place()));
  leave_ferry();
  return {};
}

StatePool::StatePool(const Program& program, DType kv_type, LiveStates& live)
    : shape_(state_shape(program, kv_type)), live_(live), places_(Places::of(shape_)) {}

Result<std::unique_ptr<StatePool>> StatePool::make(Card& card, const Program& program, DType kv_type, std::string unit,
                                                   LiveStates& live, uint64_t idle_bytes_max) {
  std::unique_ptr<StatePool> pool(new StatePool(program, kv_type, live));
  if (!pool->places_)
    return fail(Code::kUnsupported, fmt::format("{}: its states hold no keys and values of this model", unit));
  pool->dock_ = std::make_unique<FerryDock>(card, *pool->places_);
  BATON_OK(pool->dock_->stock());
  BATON_TRY(pool->arena_, PageArena::make(card, *pool->places_, std::move(unit), idle_bytes_max));
  return pool;
}

uint64_t StatePool::table_bytes(uint64_t pages) {
  return pages == 0 ? 0 : std::max(kTableBytesMin, std::bit_ceil(pages * sizeof(Address)));
}

uint64_t StatePool::bytes_for(uint64_t tokens) const {
  if (tokens > INT32_MAX) return UINT64_MAX;  // a position of the kernels
  uint64_t bytes = 0;
  const uint64_t pages = places_->pages(tokens);
  const bool fits = checked_mul(pages, places_->page_bytes, &bytes) && checked_add(bytes, table_bytes(pages), &bytes) &&
                    checked_add(bytes, places_->parts_bytes, &bytes);
  return fits ? bytes : UINT64_MAX;
}

Result<std::unique_ptr<SequenceState>> StatePool::state(uint64_t tokens_max) try {
  const uint64_t bytes = bytes_for(tokens_max);
  BATON_TRY(const uint64_t free, arena_->card().free_bytes());
  const uint64_t most = free + arena_->owned_bytes();
  if (bytes > most) {
    return fail(
        Code::kOutOfMemory,
        fmt::format("{}: no memory for a state of {} tokens ({}): the card has {} MiB for states; use a smaller "
                    "context",
                    arena_->unit(), tokens_max,
                    bytes == UINT64_MAX ? "its size overflows" : fmt::format("{} MiB", bytes >> 20), most >> 20));
  }
  std::unique_ptr<CudaState> made(new CudaState(*this, tokens_max));
  if (places_->parts_bytes > 0) {
    BATON_TRY(made->parts_, arena_->take_block(places_->parts_bytes, "a state", "run fewer sequences at once"));
  }
  return made;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, fmt::format("{}: no memory for a state; use a smaller context", arena_->unit()));
}

}  // namespace baton::cuda
