// Slabs of pages, blocks, and the stream that zeroes and copies them.
#include "baton/unit/cuda/state_pages.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <utility>

#include "baton/base/bytes.h"

namespace baton::cuda {
namespace {

constexpr uint64_t kAlignment = 512;
constexpr uint64_t kRowAlignment = 16;
constexpr uint64_t kSlabBytes = uint64_t{32} << 20;
constexpr uint64_t kSlabPagesMax = 64;  // bits of a mask
constexpr std::string_view kSmaller = "use a smaller context";
constexpr uint64_t kListBytes = uint64_t{64} << 10;

constexpr uint64_t bit(uint32_t index) { return uint64_t{1} << index; }
constexpr uint64_t bits(uint64_t count) { return count >= 64 ? ~uint64_t{0} : (uint64_t{1} << count) - 1; }

std::optional<Form> form_of(DType dtype) {
  if (dtype == DType::kF32) return Form::kF32;
  if (dtype == DType::kF16) return Form::kF16;
  if (dtype == DType::kBF16) return Form::kBF16;
  return std::nullopt;
}

}  // namespace

std::optional<Places> Places::of(const StateShape& shape) {
  Places places;
  for (const Segment& segment : shape.segments) {
    const std::optional<Form> form = form_of(segment.dtype);
    if (!form) return std::nullopt;
    Slot slot;
    slot.kind = segment.kind;
    slot.dense_row = row_bytes_of(segment.dtype, segment.dims[2]);
    uint64_t row = 0, bytes = 0;
    if (!checked_align(slot.dense_row, kRowAlignment, &row)) return std::nullopt;
    if (!slot.grows()) row = slot.dense_row;
    if (row == 0 || row > INT32_MAX) return std::nullopt;
    const uint64_t rows = slot.grows() ? kPageTokens : segment.dims[1] + (segment.kind == SlotKind::kConv ? 1 : 0);
    slot.rows = rows;
    uint64_t& total = slot.grows() ? places.page_bytes : places.parts_bytes;
    slot.at = {total, static_cast<int32_t>(row), *form};
    if (!checked_mul(rows, row, &bytes) || !checked_mul(bytes, segment.dims[0], &bytes)) return std::nullopt;
    if (!checked_add(total, bytes, &total) || !checked_align(total, kAlignment, &total)) return std::nullopt;
    places.slots.push_back(slot);
    places.heads.push_back(segment.dims[0]);
  }
  if (places.page_bytes > INT32_MAX) return std::nullopt;  // a pitch of the driver's copies
  return places;
}

uint64_t Places::part_bytes(const Place& at) const {
  for (size_t i = 0; i < slots.size(); ++i) {
    if (!slots[i].grows() && slots[i].at.offset == at.offset) return heads[i] * slots[i].slab();
  }
  BATON_CHECK(false);  // places are those of slots
}

PageArena::PageArena(Card& card, const Places& places, std::string unit, uint64_t idle_bytes_max)
    : card_(card), places_(places), unit_(std::move(unit)), idle_bytes_max_(idle_bytes_max) {}

Result<std::unique_ptr<PageArena>> PageArena::make(Card& card, const Places& places, std::string unit,
                                                   uint64_t idle_bytes_max) {
  std::unique_ptr<PageArena> arena(new PageArena(card, places, std::move(unit), idle_bytes_max));
  BATON_TRY(arena->stream_, arena->card_.stream());
  BATON_TRY(arena->lists_, arena->card_.allocate_pinned(kListBytes));
  return arena;
}

PageArena::~PageArena() { static_cast<void>(wait()); }

// What was to be zeroed may not be: it is again, before it is taken.
Status PageArena::wait() {
  if (!pending_) return {};
  pending_ = false;
  lists_used_ = 0;
  Status status = stream_.wait();
  if (status) return status;
  for (const auto& slab : slabs_) {
    if (slab != nullptr) slab->dirty = slab->idle;
  }
  for (const DeviceMemory& block : blocks_) block_bytes_ -= block.bytes();
  whole_blocks_ -= blocks_.size();
  idle_blocks_ = 0;
  blocks_.clear();
  return status;
}

Status PageArena::zero(Address at, uint64_t bytes) {
  pending_ = true;
  return stream_.zero(at, bytes);
}

// Where the card has not so much, what waits here for the next is given back first.
Result<DeviceMemory> PageArena::allocate(uint64_t bytes, std::string_view what, std::string_view remedy) {
  auto memory = card_.allocate(bytes, what);
  if (memory || memory.error().code != Code::kOutOfMemory) return memory;
  trim(0);
  memory = card_.allocate(bytes, what);
  if (memory || memory.error().code != Code::kOutOfMemory) return memory;
  return fail(Code::kOutOfMemory, fmt::format("{}: {}; {}", unit_, memory.error().message, remedy));
}

Status PageArena::add_slab() {
  const uint64_t most = std::clamp<uint64_t>(kSlabBytes / places_.page_bytes, 1, kSlabPagesMax);
  slabs_.reserve(slabs_.size() + 1);
  auto slab = std::make_unique<Slab>();
  slab->pages = std::make_unique<Page[]>(most);
  Result<DeviceMemory> memory = allocate(most * places_.page_bytes, "keys and values", kSmaller);
  slab->count = static_cast<uint32_t>(most);
  for (uint64_t count = most / 4; !memory && memory.error().code == Code::kOutOfMemory && count > 0; count /= 4) {
    auto smaller = allocate(count * places_.page_bytes, "keys and values", kSmaller);
    if (!smaller) continue;
    memory = std::move(smaller);
    slab->count = static_cast<uint32_t>(count);
  }
  BATON_TRY(slab->memory, std::move(memory));
  slab->idle = slab->dirty = bits(slab->count);
  const auto place = std::find(slabs_.begin(), slabs_.end(), nullptr);
  const auto number = static_cast<uint32_t>(place - slabs_.begin());
  for (uint32_t i = 0; i < slab->count; ++i)
    slab->pages[i] = {slab->memory.address() + i * places_.page_bytes, number, i, 0};
  slab_bytes_ += slab->memory.bytes();
  clear(*slab, slab->idle);
  place == slabs_.end() ? slabs_.push_back(std::move(slab)) : static_cast<void>(*place = std::move(slab));
  return {};
}

// The fullest that has so many, or the one that has most.
PageArena::Slab* PageArena::slab_with_idle(uint64_t wanted) {
  Slab* best = nullptr;
  uint64_t best_count = 0;
  for (const auto& slab : slabs_) {
    const uint64_t count = slab == nullptr ? 0 : static_cast<uint64_t>(std::popcount(slab->idle));
    if (count == 0) continue;
    const bool better = count >= wanted ? best_count < wanted || count < best_count : count > best_count;
    if (best != nullptr && !better) continue;
    best = slab.get();
    best_count = count;
  }
  return best;
}

Result<Page*> PageArena::take_one(const Page* before, uint64_t wanted) {
  Slab* slab = before == nullptr ? nullptr : slabs_[before->slab].get();
  const uint32_t next = before == nullptr ? 0 : before->index + 1;
  Page* page = nullptr;
  if (slab != nullptr && next < slab->count && (slab->idle & bit(next)) != 0) page = &slab->pages[next];
  if (page == nullptr) {
    slab = slab_with_idle(wanted);
    if (slab == nullptr) {
      BATON_OK(add_slab());
      slab = slab_with_idle(1);
    }
    page = &slab->pages[std::countr_zero(slab->idle)];
  }
  if ((slab->dirty & bit(page->index)) != 0) {
    BATON_OK(zero(page->address, places_.page_bytes));
    slab->dirty &= ~bit(page->index);
  }
  slab->idle &= ~bit(page->index);
  page->holders = 1;
  held_.add(places_.page_bytes);
  return page;
}

Status PageArena::take(std::vector<Page*>& pages, uint64_t count) {
  const std::lock_guard lock(mutex_);
  const size_t had = pages.size();
  Status status;
  for (uint64_t i = 0; i < count && status; ++i) {
    if (auto page = take_one(pages.empty() ? nullptr : pages.back(), count - i)) {
      pages.push_back(*page);
    } else {
      status = fail(std::move(page).error());
    }
  }
  if (status) status = wait();
  for (; !status && pages.size() > had; pages.pop_back()) give_one(*pages.back());
  return status;
}

void PageArena::share(std::span<Page* const> pages) {
  const std::lock_guard lock(mutex_);
  for (Page* const page : pages) ++page->holders;
}

Status PageArena::copy_rows(const Page& from, const Page& to, uint32_t rows) {
  for (size_t i = 0; i < places_.slots.size(); ++i) {
    const Places::Slot& slot = places_.slots[i];
    for (uint64_t head = 0; slot.grows() && head < places_.heads[i]; ++head) {
      const uint64_t at = slot.at.offset + head * slot.slab();
      pending_ = true;
      BATON_OK(stream_.copy(to.address + at, from.address + at, rows * static_cast<uint64_t>(slot.at.row_bytes)));
    }
  }
  return wait();
}

// Under one lock: else the others could let go of theirs meanwhile, and there would be one more than was counted.
Result<Page*> PageArena::own(Page* page, uint32_t rows) {
  const std::lock_guard lock(mutex_);
  if (page->holders == 1) return page;
  BATON_TRY(Page* const made, take_one(nullptr, 1));
  if (const Status copied = copy_rows(*page, *made, rows); !copied) {
    give_one(*made);
    return fail(copied.error());
  }
  --page->holders;
  return made;
}

void PageArena::clear(Slab& slab, uint64_t pages) {
  while (pages != 0) {
    const auto first = static_cast<uint32_t>(std::countr_zero(pages));
    const auto count = static_cast<uint64_t>(std::countr_one(pages >> first));
    const uint64_t run = bits(count) << first;
    if (zero(slab.pages[first].address, count * places_.page_bytes)) slab.dirty &= ~run;
    pages &= ~run;
  }
}

void PageArena::give_one(Page& page) {
  if (--page.holders > 0) return;
  Slab& slab = *slabs_[page.slab];
  slab.idle |= bit(page.index);
  slab.dirty |= bit(page.index);
  held_.subtract(places_.page_bytes);
}

void PageArena::give(std::span<Page* const> pages) {
  const std::lock_guard lock(mutex_);
  for (Page* const page : pages) give_one(*page);
  trim(idle_bytes_max_);
  for (const auto& slab : slabs_) {
    if (slab != nullptr && slab->dirty != 0) clear(*slab, slab->dirty);
  }
}

void PageArena::trim(uint64_t kept) {
  uint64_t idle = 0;
  for (auto& slab : slabs_) {
    if (slab == nullptr || slab->idle != bits(slab->count)) continue;
    idle += slab->memory.bytes();
    if (idle <= kept) continue;
    idle -= slab->memory.bytes();
    static_cast<void>(wait());
    slab_bytes_ -= slab->memory.bytes();
    slab.reset();
  }
  while (idle_blocks_ > kept) {
    if (!wait()) break;  // there are none left then
    idle_blocks_ -= blocks_.back().bytes();
    block_bytes_ -= blocks_.back().bytes();
    --whole_blocks_;
    blocks_.pop_back();
  }
}

Result<DeviceMemory> PageArena::take_block(uint64_t bytes, std::string_view what, std::string_view remedy) {
  const std::lock_guard lock(mutex_);
  const auto fits = [&](const DeviceMemory& block) { return block.bytes() == bytes; };
  const auto found = std::find_if(blocks_.rbegin(), blocks_.rend(), fits);
  DeviceMemory block;
  if (found != blocks_.rend()) {
    block = std::move(*found);
    blocks_.erase(std::next(found).base());
    idle_blocks_ -= bytes;
  } else {
    blocks_.reserve(whole_blocks_ + 1);  // giving back takes no memory
    BATON_TRY(block, allocate(bytes, what, remedy));
    BATON_OK(zero(block.address(), bytes));
    ++whole_blocks_;
    block_bytes_ += bytes;
  }
  if (const Status zeroed = wait(); !zeroed) {
    --whole_blocks_;
    block_bytes_ -= bytes;
    return fail(zeroed.error());
  }
  held_.add(bytes);
  return block;
}

// One that cannot be zeroed is not kept.
void PageArena::give_block(DeviceMemory block) {
  const uint64_t bytes = block.bytes();
  if (bytes == 0) return;
  const std::lock_guard lock(mutex_);
  held_.subtract(bytes);
  if (!zero(block.address(), bytes)) {
    static_cast<void>(wait());
    --whole_blocks_;
    block_bytes_ -= bytes;
    return;
  }
  idle_blocks_ += bytes;
  blocks_.push_back(std::move(block));
  trim(idle_bytes_max_);
}

Status PageArena::send(Address to, std::span<Page* const> pages) {
  const std::lock_guard lock(mutex_);
  while (!pages.empty()) {
    if (lists_used_ == lists_.bytes()) BATON_OK(wait());
    const uint64_t count = std::min<uint64_t>(pages.size(), (lists_.bytes() - lists_used_) / sizeof(Address));
    std::byte* const list = lists_.data() + lists_used_;
    for (uint64_t i = 0; i < count; ++i) store_as(list + i * sizeof(Address), pages[i]->address);
    pending_ = true;
    lists_used_ += count * sizeof(Address);
    BATON_OK(stream_.copy_in(to, list, count * sizeof(Address)));
    to += count * sizeof(Address);
    pages = pages.subspan(count);
  }
  return wait();
}

Status PageArena::copy(Address to, Address from, uint64_t bytes) {
  const std::lock_guard lock(mutex_);
  pending_ = true;
  BATON_OK(stream_.copy(to, from, bytes));
  return wait();
}

uint64_t PageArena::owned_bytes() {
  const std::lock_guard lock(mutex_);
  return slab_bytes_ + block_bytes_;
}

}  // namespace baton::cuda
