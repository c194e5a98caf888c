// Loaded before the program (LD_PRELOAD): of its allocations those from NO_MEMORY_AT on fail, NO_MEMORY_COUNT of them.
// At its end it says on stderr how many there were, where NO_MEMORY_SAY is set.
#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>

namespace {

std::atomic<long> made{0};
long first = 0, count = 1;  // 0: none
bool ready = false;
decltype(&::malloc) real_malloc;
decltype(&::mmap) real_mmap;
decltype(&::posix_memalign) real_posix_memalign;
decltype(&::aligned_alloc) real_aligned_alloc;

template <class F>
void find(F& function, const char* name) {
  if (function == nullptr) function = reinterpret_cast<F>(::dlsym(RTLD_NEXT, name));
}

long number(const char* name, long other) {
  const char* const text = std::getenv(name);
  return text == nullptr ? other : std::atol(text);
}

[[gnu::constructor]] void begin() {
  find(real_malloc, "malloc");
  find(real_mmap, "mmap");
  find(real_posix_memalign, "posix_memalign");
  find(real_aligned_alloc, "aligned_alloc");
  first = number("NO_MEMORY_AT", 0);
  count = number("NO_MEMORY_COUNT", 1);
  ready = true;
}

[[gnu::destructor]] void end() {
  ready = false;
  if (std::getenv("NO_MEMORY_SAY") != nullptr) std::fprintf(stderr, "\n%ld\n", made.load());
}

bool fails() {
  if (!ready) return false;
  const long now = ++made;
  if (first == 0 || now < first || now >= first + count) return false;
  errno = ENOMEM;
  return true;
}

}  // namespace

extern "C" {
void* malloc(size_t bytes) noexcept {
  find(real_malloc, "malloc");
  return fails() ? nullptr : real_malloc(bytes);
}
int posix_memalign(void** memory, size_t alignment, size_t bytes) noexcept {
  return fails() ? ENOMEM : real_posix_memalign(memory, alignment, bytes);
}
void* aligned_alloc(size_t alignment, size_t bytes) noexcept {
  return fails() ? nullptr : real_aligned_alloc(alignment, bytes);
}
void* mmap(void* at, size_t bytes, int protection, int flags, int file, off_t offset) noexcept {
  find(real_mmap, "mmap");
  if ((flags & MAP_ANONYMOUS) != 0 && fails()) return MAP_FAILED;
  return real_mmap(at, bytes, protection, flags, file, offset);
}
}
