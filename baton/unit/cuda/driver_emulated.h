// A driver without a card: memory of its cards is the host's, and kernels are their bodies of reference.h. It is
// stricter than a card: fresh memory is all ones (no number), freed memory is overwritten, copies must lie inside what
// was allocated, and a stream's work is done as late as what waits for it allows, by the thread that waits, so that a
// wait that is missing shows. Its state is the process's, as the installed driver's is.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "baton/unit/cuda/driver.h"

namespace baton::cuda {

const Driver& emulated_driver();

inline constexpr uint32_t kEmulatedCards = 2;
inline constexpr uint64_t kEmulatedBytes = uint64_t{16} << 30;  // of each, unless a test says otherwise

// A kernel beside baton_<kind>(Work) and baton_list(ListWork), which are known. `name` is that of the kernel.
void emulate_kernel(std::string_view name, size_t argument_bytes, void (*body)(const void* argument));

// The rest is for tests. A call that fails: the nth from now, of any function or of one (its name in Driver). Functions
// that give something back do so all the same.
struct EmulatedFault {
  std::string_view function = {};
  uint64_t nth = 1;
  DriverCode code = kNoMemory;
  bool lost = false;     // all later calls for the card fail with the code, too
  bool later = false;    // this call goes well; the error comes with the next one
  bool damages = false;  // this copy goes well, and the last byte that it brings is wrong
};
void emulated_fail(const EmulatedFault& fault);
// Calls since the last emulated_reset, those of error_name and error_text left out.
uint64_t emulated_calls();
// No fault, no lost card, kEmulatedBytes, cards that reach each other, no misuse. What is allocated stays.
void emulated_reset();
// Of each card.
void emulated_set_memory(uint64_t bytes);
// Whether cards reach each other; they do until somebody says so.
void emulated_set_peers(bool reach);
// That went from one card to another since emulated_reset, where the one reached the other: not through the host.
uint64_t emulated_peer_bytes();

// What is held now.
struct EmulatedUse {
  uint64_t device_bytes = 0, host_bytes = 0;
  uint64_t allocations = 0;  // of both
  uint64_t contexts = 0, streams = 0, events = 0, modules = 0, graphs = 0;

  bool operator==(const EmulatedUse&) const = default;
};
EmulatedUse emulated_use();
// What was asked of streams and is not done.
uint64_t emulated_waiting();
// The first wrong call since emulated_reset, in words; empty: none. Those are refused with a code, too.
std::string emulated_misuse();

}  // namespace baton::cuda
