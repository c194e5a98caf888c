// Stands before the unit's page of this name: the same functions on the host. Those of tile_ptx.cuh and wgmma.cuh have
// no twins.
#pragma once

#include <bit>
#include <cmath>
#include <utility>

#include "baton/unit/cuda/instruction.h"
#include "tests/fiber/language.h"

// Every name of a block's dynamic shared memory is of the same memory.
#define mma_shared shared

namespace baton::cuda {

inline void is_shared(const void*) {}
inline uint32_t shared_address(const void* in) { return fiber::shared_address(in); }
inline void put_four(uint32_t to, const float4& four) { fiber::put_here(to, &four, 16); }
inline void copy_ahead(uint32_t to, const void* from, bool valid) { fiber::copy_ahead(to, valid ? from : nullptr, 16); }
inline void copy_ahead(uint32_t to, const void* from) { fiber::copy_ahead(to, from, 16); }
enum class Policy : uint8_t { kPassesBy };
inline Policy passes_by() { return Policy::kPassesBy; }
inline void copy_ahead(uint32_t to, const void* from, Policy) { fiber::copy_ahead(to, from, 16); }
inline void copy_word_ahead(uint32_t to, const void* from) { fiber::copy_ahead(to, from, 4); }
inline void copy_two_words_ahead(uint32_t to, const void* from, Policy) { fiber::copy_ahead(to, from, 8); }
inline void copy_word_ahead(uint32_t to, const void* from, Policy) { fiber::copy_ahead(to, from, 4); }
inline void copies_end_group() { fiber::copies_end_group(); }
template <int kLeft>
inline void copies_wait() {
  fiber::copies_wait(kLeft);
}

inline void meet() { fiber::meet_some("meet", 1, kThreads, 0); }
template <int kOf>
inline void meet_few(uint32_t barrier) {
  fiber::meet_some("meet_few", barrier, kOf, 0);
}
inline int meet_or(int value) { return fiber::meet_some("meet_or", 1, kThreads, value != 0 ? 1 : 0); }
inline void meet_feeder() { fiber::meet_some("meet_feeder", 2, kThreads + 32, 0); }

inline float power_of_two(float x) { return std::exp2(x); }
inline float reciprocal(float x) { return 1.0f / x; }

inline void make_barrier(uint32_t at, uint32_t arrivals) { fiber::make_barrier(at, arrivals); }
inline void barriers_made() {}
inline void begin_behind() {}
inline void arrive(uint32_t at) { fiber::arrive(at); }
inline void arrive_behind_copies(uint32_t at) { fiber::arrive_behind_copies(at); }
inline bool has_ended(uint32_t at, uint32_t parity) { return fiber::has_ended(at, parity); }
inline bool has_ended_now(uint32_t at, uint32_t parity) { return fiber::has_ended(at, parity); }
inline void wait_for(uint32_t at, uint32_t parity) {
  while (!has_ended(at, parity)) {
  }
}
inline bool kCopiesInBulk = true;  // as a card of capability 9.0 does
inline void arrive_with_bulk(uint32_t barrier, uint32_t bytes) { fiber::arrive_with_bulk(barrier, bytes); }
inline void copy_in_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier, Policy) {
  fiber::copy_in_bulk(to, from, bytes, barrier);
}
inline void copy_in_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  fiber::copy_in_bulk(to, from, bytes, barrier);
}
inline void read_by_copies() {}
inline void leave_to_copies() {}

inline uint4 load_through(Address from, bool valid) {
  return valid ? *reinterpret_cast<const uint4*>(from) : make_uint4(0, 0, 0, 0);
}
inline void fetch_line(const void*) {}

inline uint32_t exchange(float* at, float value) { return std::bit_cast<uint32_t>(std::exchange(*at, value)); }
inline void add_relaxed(uint32_t* count, uint32_t what) { *count += what; }

inline void add_released(uint32_t* count, uint32_t what) { *count += what; }
inline uint32_t load_acquired(const uint32_t* from) {
  const uint32_t now = *from;
  fiber::look_again();
  return now;
}
inline void store_word(uint32_t* to, uint32_t word) { *to = word; }
inline uint32_t look_at_word(const uint32_t* from) { return *from; }
inline uint4 look_at_four_words(const uint32_t* from) { return *reinterpret_cast<const uint4*>(from); }
inline void made_here(int&) {}
inline void looked_in_vain() { fiber::look_again(); }

inline uint64_t card_time() {
  static thread_local uint64_t time = 0;
  return ++time;
}
inline uint32_t dynamic_shared_bytes() { return fiber::shared_bytes(); }

inline void load_matrices(uint32_t address, uint32_t (&to)[4]) { fiber::load_matrices(address, to, false); }
inline void load_matrices_turned(uint32_t address, uint32_t (&to)[4]) { fiber::load_matrices(address, to, true); }
inline uint32_t low_halves(uint32_t a, uint32_t b) { return (a & 0xffffu) | b << 16; }
inline uint32_t high_halves(uint32_t a, uint32_t b) { return a >> 16 | (b & 0xffff0000u); }
template <bool kBf16>
inline void multiply_add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  fiber::multiply_add(kBf16, sum, a, b0, b1);
}

}  // namespace baton::cuda
