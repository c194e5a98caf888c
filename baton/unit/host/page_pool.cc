// Lists of pages, slabs from the system, copies.
#include "baton/unit/host/page_pool.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace baton::host {
namespace {

constexpr uint64_t kWaitingBytesMax = uint64_t{256} << 20;
constexpr uint64_t kSlabBytes = uint64_t{16} << 20;
constexpr uint64_t kSlabPagesMax = 64;
constexpr uint64_t kHugeFrom = uint64_t{256} << 10;

Page* pop(Page*& list) {
  Page* const first = list;
  if (first != nullptr) list = std::exchange(first->next, nullptr);
  return first;
}
void push(Page*& list, Page* page) { page->next = std::exchange(list, page); }

}  // namespace

void HeldBytes::add(uint64_t bytes) {
  const uint64_t now = now_ += bytes;
  uint64_t most = most_;
  while (most < now && !most_.compare_exchange_weak(most, now)) {
  }
}

bool WaitingBytes::keep(uint64_t bytes) {
  if ((bytes_ += bytes) <= kWaitingBytesMax) return true;
  bytes_ -= bytes;
  return false;
}

Status PagePool::add_slab(std::string_view unit) {
  const uint64_t most = std::clamp<uint64_t>(kSlabBytes / page_bytes_, 1, kSlabPagesMax);
  const Status whole = add_slab(unit, most);
  for (uint64_t count = whole ? 0 : most / 4; count > 0; count /= 4) {
    if (add_slab(unit, count)) return {};
  }
  return whole;
}

Status PagePool::add_slab(std::string_view unit, uint64_t count) {
  slabs_.reserve(slabs_.size() + 1);
  Slab slab;
  slab.pages = std::make_unique<Page[]>(count);
  BATON_TRY(slab.memory, Memory::allocate(count * page_bytes_, "keys and values; use a smaller context", unit,
                                          page_bytes_ >= kHugeFrom ? Pages::kHuge : Pages::kSmall));
  for (uint64_t i = count; i-- > 0;) {
    slab.pages[i].data = slab.memory.data() + i * page_bytes_;
    push(cold_, &slab.pages[i]);
  }
  idle_ += count;
  slabs_.push_back(std::move(slab));
  return {};
}

Result<Page*> PagePool::take_locked(const Taker& taker) {
  Page* page = pop(warm_);
  if (page != nullptr) {
    waiting_.take(page_bytes_);
  } else {
    if (cold_ == nullptr) BATON_OK(add_slab(taker.unit));
    page = pop(cold_);
  }
  --idle_;
  page->holders = 1;
  page->rows = 0;
  taker.held.add(page_bytes_);
  return page;
}

uint64_t PagePool::idle_bytes() {
  const std::lock_guard lock(mutex_);
  return idle_ * page_bytes_;
}

Result<Page*> PagePool::take(const Taker& taker) {
  const std::lock_guard lock(mutex_);
  return take_locked(taker);
}

void PagePool::share(std::span<Page* const> pages) {
  const std::lock_guard lock(mutex_);
  for (Page* const page : pages) ++page->holders;
}

// Copied under the lock: else the others could let go of theirs meanwhile, and there would be one more than was
// counted.
Result<Page*> PagePool::own(Page* page, uint32_t rows, const Taker& taker) {
  const std::lock_guard lock(mutex_);
  if (page->holders == 1) return page;
  BATON_TRY(Page * copy, take_locked(taker));
  for (const Stripe& stripe : stripes_)
    std::memcpy(copy->data + stripe.offset, page->data + stripe.offset, rows * stripe.row_bytes);
  copy->rows = rows;
  --page->holders;
  return copy;
}

void PagePool::clear(Page& page) const {
  for (const Stripe& stripe : stripes_) std::memset(page.data + stripe.offset, 0, page.rows * stripe.row_bytes);
}

void PagePool::give(std::span<Page* const> pages, HeldBytes& held) {
  Page *alone = nullptr, *warm = nullptr, *cold = nullptr;
  {
    const std::lock_guard lock(mutex_);
    for (Page* const page : pages) {
      if (--page->holders == 0) push(alone, page);
    }
  }
  while (Page* const page = pop(alone)) {
    clear(*page);
    const bool keeps = waiting_.keep(page_bytes_);
    if (!keeps) Memory::forget(page->data, page_bytes_);
    push(keeps ? warm : cold, page);
    held.subtract(page_bytes_);
  }
  const std::lock_guard lock(mutex_);
  while (Page* const page = pop(warm)) {
    push(warm_, page);
    ++idle_;
  }
  while (Page* const page = pop(cold)) {
    push(cold_, page);
    ++idle_;
  }
}

}  // namespace baton::host
