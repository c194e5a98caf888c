// Memory set aside for when the system gives no more: what must not fail then (the end of a tree of values, the books
// of a thread, the message) goes on with it, and whoever asked for much is refused.
#pragma once

namespace baton {

// For programs, once, at their start: from then on `new` that finds no memory is given a piece of the reserve and tries
// again; when all pieces are gone, it throws. Nothing of the reserve is ever written to.
void install_memory_reserve();

// Takes back what was given away, as far as the system has memory again. For where nothing of a failed allocation is
// under way. Any thread; costs nothing while nothing was given away, or no reserve was installed.
void refill_memory_reserve() noexcept;

// Whether `new` has thrown, with a reserve installed.
bool memory_was_refused() noexcept;

}  // namespace baton
