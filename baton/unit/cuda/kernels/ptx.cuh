// What the language has no words for: copies to shared memory that go on while others work, tensor cores, counts that
// blocks meet at, fetches into the second level of cache.
#pragma once

#include <cstdint>

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

// That it lies in shared memory: reads of it are then quicker.
__device__ __forceinline__ void is_shared(const void* what) { __builtin_assume(__isShared(what)); }
__device__ __forceinline__ uint32_t shared_address(const void* in) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(in));
}
// At once, as a compiler that has lost sight of where it lies would not.
__device__ __forceinline__ void put_four(uint32_t to, const float4& four) {
  asm volatile("st.shared.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(to), "f"(four.x), "f"(four.y), "f"(four.z), "f"(four.w)
               : "memory");
}
// 16 bytes, or zeros.
__device__ __forceinline__ void copy_ahead(uint32_t to, const void* from, bool valid) {
  const int bytes = valid ? 16 : 0;
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}
__device__ __forceinline__ void copy_ahead(uint32_t to, const void* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}
// How long what is read stays in the second level of cache.
struct Policy {
  uint64_t bits;
};
// What is read once a step: it goes first, so that states and registers stay.
__device__ __forceinline__ Policy passes_by() {
  Policy policy;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy.bits));
  return policy;
}
__device__ __forceinline__ void copy_ahead(uint32_t to, const void* from, Policy policy) {
  asm volatile("cp.async.cg.shared.global.L2::cache_hint [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "l"(policy.bits)
               : "memory");
}
__device__ __forceinline__ void copy_word_ahead(uint32_t to, const void* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}
__device__ __forceinline__ void copy_two_words_ahead(uint32_t to, const void* from, Policy policy) {
  asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], 8, %2;" ::"r"(to), "l"(from), "l"(policy.bits)
               : "memory");
}
__device__ __forceinline__ void copy_word_ahead(uint32_t to, const void* from, Policy policy) {
  asm volatile("cp.async.ca.shared.global.L2::cache_hint [%0], [%1], 4, %2;" ::"r"(to), "l"(from), "l"(policy.bits)
               : "memory");
}
__device__ __forceinline__ void copies_end_group() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int kLeft>
__device__ __forceinline__ void copies_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kLeft) : "memory");
}
// The kThreads threads that work: beside them there may be a warp that brings them weights.
__device__ __forceinline__ void meet() { asm volatile("bar.sync 1, %0;" ::"n"(kThreads) : "memory"); }
// So many of them, at one of the barriers 3 to 15.
template <int kOf>
__device__ __forceinline__ void meet_few(uint32_t barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(kOf) : "memory");
}
// Whether any of them brings what is not 0.
__device__ __forceinline__ int meet_or(int value) {
  int any;
  asm volatile(
      "{\n.reg .pred own, all;\nsetp.ne.s32 own, %1, 0;\nbar.red.or.pred all, 1, %2, own;\n"
      "selp.s32 %0, 1, 0, all;\n}"
      : "=r"(any)
      : "r"(value), "n"(kThreads)
      : "memory");
  return any;
}
// They and that warp.
__device__ __forceinline__ void meet_feeder() { asm volatile("bar.sync 2, %0;" ::"n"(kThreads + 32) : "memory"); }

// A barrier in shared memory, 8 bytes: a phase ends with the arrivals that it was made for and the bytes that it
// expects; then the next begins.
__device__ __forceinline__ void make_barrier(uint32_t at, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(at), "r"(arrivals) : "memory");
}
// By whoever made some: before the copies of others may use them.
__device__ __forceinline__ void barriers_made() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.mbarrier_init.release.cluster;\nfence.proxy.async.shared::cta;" ::: "memory");
#endif
}
__device__ __forceinline__ void arrive(uint32_t at) {
  asm volatile("{\n.reg .b64 state;\nmbarrier.arrive.shared.b64 state, [%0];\n}" ::"r"(at) : "memory");
}
// When the thread's copies have come.
__device__ __forceinline__ void arrive_behind_copies(uint32_t at) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(at) : "memory");
}
// Whether the phase of this parity has ended; the first is 0.
__device__ __forceinline__ bool has_ended_now(uint32_t at, uint32_t parity) {
  uint32_t ended;
  asm volatile("{\n.reg .pred p;\nmbarrier.test_wait.parity.shared.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(ended)
               : "r"(at), "r"(parity)
               : "memory");
  return ended != 0;
}
// The same; it may wait a little.
__device__ __forceinline__ bool has_ended(uint32_t at, uint32_t parity) {
#if __CUDA_ARCH__ >= 900
  uint32_t ended;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(ended)
               : "r"(at), "r"(parity)
               : "memory");
  return ended != 0;
#else
  return has_ended_now(at, parity);
#endif
}
__device__ __forceinline__ void wait_for(uint32_t at, uint32_t parity) {
  while (!has_ended(at, parity)) {
  }
}

// 2^x and 1 / x within two of the last place, denormals as zeros: an instruction each.
__device__ __forceinline__ float power_of_two(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// One thread copies multiples of 16 bytes, and arrives for a whole warp at a barrier of 32 arrivals, behind which
// `bytes` in all have come. None before compute capability 9.0.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
inline constexpr bool kCopiesInBulk = false;
#else
inline constexpr bool kCopiesInBulk = true;
#endif
__device__ __forceinline__ void arrive_with_bulk(uint32_t barrier, uint32_t bytes) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [%0], %1;\n"
      "{\n.reg .b64 state;\nmbarrier.arrive.shared::cta.b64 state, [%0], 32;\n}" ::"r"(barrier),
      "r"(bytes)
      : "memory");
#endif
}
__device__ __forceinline__ void copy_in_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier,
                                             Policy policy) {
#if __CUDA_ARCH__ >= 900
  asm volatile(
      "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint [%0], [%1], %2, [%3], %4;" ::
          "r"(to),
      "l"(from), "r"(bytes), "r"(barrier), "l"(policy.bits)
      : "memory");
#endif
}
// Of what many blocks read.
__device__ __forceinline__ void copy_in_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
#if __CUDA_ARCH__ >= 900
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
               "l"(from), "r"(bytes), "r"(barrier)
               : "memory");
#endif
}
// Its copies in bulk read what the thread has seen others write. (For both kinds of memory at a time it would be a
// fence of the whole card.)
__device__ __forceinline__ void read_by_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.global;" ::: "memory");
#endif
}
// What threads wrote before is over when copies in bulk take its place.
__device__ __forceinline__ void leave_to_copies() {
#if __CUDA_ARCH__ >= 900
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
#endif
}

// First of all in a kernel that Stream::launch_ahead launches: the one behind it on its stream may begin when all
// blocks of this one have, and this one goes on when all before it is over, and seen. Nothing before 9.0.
__device__ __forceinline__ void begin_behind() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;\ngriddepcontrol.wait;" ::: "memory");
#endif
}

// 16 bytes, or zeros, past the first level of cache: what other blocks wrote before.
__device__ __forceinline__ uint4 load_through(Address from, bool valid) {
  uint4 v;
  asm volatile(
      "{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\nmov.u32 %0, 0;\nmov.u32 %1, 0;\nmov.u32 %2, 0;\nmov.u32 %3, 0;\n"
      "@p ld.global.cg.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
      : "=&r"(v.x), "=&r"(v.y), "=&r"(v.z), "=&r"(v.w)
      : "l"(from), "r"(valid ? 1 : 0));
  return v;
}

// To the second level of cache.
__device__ __forceinline__ void fetch_line(const void* from) { asm volatile("prefetch.global.L2 [%0];" ::"l"(from)); }

// Writes, and returns what there was: from then on all blocks see it that read behind what they acquired.
__device__ __forceinline__ uint32_t exchange(float* at, float value) {
  uint32_t before;
  asm volatile("atom.relaxed.gpu.global.exch.b32 %0, [%1], %2;"
               : "=r"(before)
               : "l"(at), "r"(__float_as_uint(value))
               : "memory");
  return before;
}
__device__ __forceinline__ void add_relaxed(uint32_t* count, uint32_t what) {
  asm volatile("red.relaxed.gpu.global.add.u32 [%0], %1;" ::"l"(count), "r"(what) : "memory");
}
// What was written before the addition is seen behind a load that sees it.
__device__ __forceinline__ void add_released(uint32_t* count, uint32_t what) {
  asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(count), "r"(what) : "memory");
}
__device__ __forceinline__ uint32_t load_acquired(const uint32_t* from) {
  uint32_t value;
  asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(from) : "memory");
  return value;
}
// Values that say themselves that they have come (Worded): in no order with others.
__device__ __forceinline__ void store_word(uint32_t* to, uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(to), "r"(word) : "memory");
}
__device__ __forceinline__ uint32_t look_at_word(const uint32_t* from) {
  uint32_t word;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(word) : "l"(from) : "memory");
  return word;
}
// Four, from a multiple of 16 bytes on.
__device__ __forceinline__ uint4 look_at_four_words(const uint32_t* from) {
  uint4 words;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(from)
               : "memory");
  return words;
}
// What is made of it behind here is not made before: in a loop a compiler would, and keep all of it in memory.
__device__ __forceinline__ void made_here(int& value) { asm volatile("" : "+r"(value)); }
// Where somebody looks in vain and will look again.
__device__ __forceinline__ void looked_in_vain() {}

// By the card's clock, in ns.
__device__ __forceinline__ uint64_t card_time() {
  uint64_t time;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(time));
  return time;
}
__device__ __forceinline__ uint32_t dynamic_shared_bytes() {
  uint32_t bytes;
  asm("mov.u32 %0, %dynamic_smem_size;" : "=r"(bytes));
  return bytes;
}

// Four 8 by 8 matrices: the lanes of each eighth name the rows of one.
__device__ __forceinline__ void load_matrices(uint32_t address, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}
__device__ __forceinline__ void load_matrices_turned(uint32_t address, uint32_t (&to)[4]) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(to[0]), "=r"(to[1]), "=r"(to[2]), "=r"(to[3])
               : "r"(address)
               : "memory");
}

// Of two pairs of 16-bit values the first ones, or the second ones.
__device__ __forceinline__ uint32_t low_halves(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x5410); }
__device__ __forceinline__ uint32_t high_halves(uint32_t a, uint32_t b) { return __byte_perm(a, b, 0x7632); }

// sum += a b, 16 by 8 over 16.
template <bool kBf16>
__device__ __forceinline__ void multiply_add(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  if constexpr (kBf16) {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  } else {
    asm volatile(
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, "
        "{%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
  }
}

}  // namespace baton::cuda
