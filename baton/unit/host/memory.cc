// mmap and madvise.
#include "baton/unit/host/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>

#include <algorithm>
#include <mutex>
#include <vector>

namespace baton::host {
namespace {

constexpr size_t kKeptBytes = size_t{256} << 20;
constexpr size_t kKeptCount = 8;

struct Kept {
  std::mutex mutex;
  std::vector<Memory> memories;  // the last one given comes last
};
Kept& kept() {
  static Kept kept;
  return kept;
}

}  // namespace

Result<Memory> Memory::allocate(size_t bytes, std::string_view what, std::string_view unit, Pages pages) {
  Memory memory;
  if (bytes == 0) return memory;
  const size_t rounded = (bytes + 4095) / 4096 * 4096;
  void* data =
      rounded < bytes ? MAP_FAILED : mmap(nullptr, rounded, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (data == MAP_FAILED) {
    return fail(Code::kOutOfMemory, fmt::format("{}: no memory for {} ({} MiB)", unit, what, bytes >> 20));
  }
#if defined(MADV_HUGEPAGE)
  if (rounded >= kHugePage) madvise(data, rounded, pages == Pages::kHuge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
#endif
  static_cast<void>(pages);
  memory.data_ = static_cast<unsigned char*>(data);
  memory.bytes_ = rounded;
  return memory;
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

// What is at most twice as large does.
Result<Memory> Recycled::take(size_t bytes, std::string_view what, std::string_view unit, Pages pages, bool* used) {
  {
    const std::lock_guard lock(kept().mutex);
    auto& memories = kept().memories;
    const auto fits = [&](const Memory& memory) { return memory.bytes() >= bytes && memory.bytes() / 2 <= bytes; };
    const auto found = std::find_if(memories.rbegin(), memories.rend(), fits);
    if (found != memories.rend()) {
      *used = true;
      Memory memory = std::move(*found);
      memories.erase(std::next(found).base());
      return memory;
    }
  }
  *used = false;
  return Memory::allocate(bytes, what, unit, pages);
}

void Recycled::give(Memory memory) {
  if (memory.bytes() == 0 || memory.bytes() > kKeptBytes) return;
  std::vector<Memory> too_many;  // returned to the system behind the lock
  const std::lock_guard lock(kept().mutex);
  auto& memories = kept().memories;
  memories.push_back(std::move(memory));
  size_t total = 0;
  for (const Memory& each : memories) total += each.bytes();
  while (total > kKeptBytes || memories.size() > kKeptCount) {
    total -= memories.front().bytes();
    too_many.push_back(std::move(memories.front()));
    memories.erase(memories.begin());
  }
}

}  // namespace baton::host
