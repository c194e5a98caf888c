// mmap and madvise.
#include "baton/unit/host/memory.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

namespace baton::host {
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

void Memory::forget(unsigned char* data, size_t bytes) {
  const auto page = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE)), address = reinterpret_cast<uintptr_t>(data);
  const uintptr_t begin = (address + page - 1) / page * page, end = (address + bytes) / page * page;
  if (begin >= end) return;
  unsigned char* const first = data + (begin - address);
#if defined(__linux__)
  madvise(first, end - begin, MADV_DONTNEED);
#else
  mmap(first, end - begin, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
#endif
}

Memory::~Memory() {
  if (data_ != nullptr) munmap(data_, bytes_);
}

}  // namespace baton::host
