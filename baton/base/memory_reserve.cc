// The new-handler and its pieces.
#include "baton/base/memory_reserve.h"

#include <array>
#include <atomic>
#include <cstdlib>
#include <new>

namespace baton {
namespace {

// Of malloc's that are mappings of their own: given back they are the system's, for whichever heap asks next.
constexpr size_t kPieceBytes = size_t{256} << 10;

std::array<std::atomic<void*>, 8> pieces{};
std::atomic<bool> given_away{false}, refused{false};

void give_away() {
  for (std::atomic<void*>& piece : pieces) {
    if (void* const memory = piece.exchange(nullptr)) {
      given_away = true;
      std::free(memory);
      return;
    }
  }
  // More than the reserve was asked for, and the asker goes without: those that unwind now have it again.
  refused = given_away = true;
  refill_memory_reserve();
  throw std::bad_alloc();
}

}  // namespace

void install_memory_reserve() {
  given_away = true;
  refill_memory_reserve();
  std::set_new_handler(give_away);
}

bool memory_was_refused() noexcept { return refused; }

void refill_memory_reserve() noexcept {
  if (!given_away.load(std::memory_order_relaxed) || !given_away.exchange(false)) return;
  for (std::atomic<void*>& piece : pieces) {
    if (piece.load() != nullptr) continue;
    void* const memory = std::malloc(kPieceBytes);
    void* none = nullptr;
    if (memory != nullptr && piece.compare_exchange_strong(none, memory)) continue;
    std::free(memory);
    if (memory == nullptr) given_away = true;
  }
}

}  // namespace baton
