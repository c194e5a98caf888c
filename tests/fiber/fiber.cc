// Launches, and what threads in them ask for: meetings, copies made ahead, tensor cores.
#include "tests/fiber/fiber.h"

#include <pthread.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "baton/base/float.h"
#include "tests/fiber/block.h"

namespace baton::fiber {
namespace {

struct Start {
  const Options* options;
  Turns* turns;
  const std::function<void()>* body;
  uint32_t block;
};

void* run_block(void* argument) {
  const Start& start = *static_cast<const Start*>(argument);
  const Options& options = *start.options;
  start.turns->wait(start.block);
  blockIdx = {start.block, 0, 0};
  blockDim = {options.threads, 1, 1};
  gridDim = {options.blocks, 1, 1};
  std::memset(cuda::shared, 0xff, kSharedMax);
  Block(options, *start.turns, *start.body).run();
  const std::span<const unsigned char> behind(cuda::shared + options.shared_bytes, kSharedMax - options.shared_bytes);
  if (std::any_of(behind.begin(), behind.end(), [](unsigned char byte) { return byte != 0xff; }))
    die("wrote behind its shared memory");
  start.turns->pass_on(start.block, true);
  return nullptr;
}

constexpr uint32_t kBias = 0x40000000;  // of the addresses of shared memory
unsigned char* shared_pointer(uint32_t address) { return cuda::shared + static_cast<int32_t>(address - kBias); }

struct Multiplicands {
  float* sum;
  const uint32_t* a;
  uint32_t b[2];
};

void multiply_matrices(bool bf16, void* const* owns) {
  float a[16][16], b[16][8];
  const auto half = [&](uint32_t word, int i) {
    const auto bits = static_cast<uint16_t>(word >> (16 * i));
    return bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
  };
  for (int i = 0; i < 32; ++i) {
    const auto& own = *static_cast<const Multiplicands*>(owns[i]);
    for (int r = 0; r < 4; ++r) {
      for (int h = 0; h < 2; ++h) a[i / 4 + 8 * (r % 2)][2 * (i % 4) + h + 8 * (r / 2)] = half(own.a[r], h);
    }
    for (int r = 0; r < 2; ++r) {
      for (int h = 0; h < 2; ++h) b[2 * (i % 4) + h + 8 * r][i / 4] = half(own.b[r], h);
    }
  }
  for (int i = 0; i < 32; ++i) {
    for (int v = 0; v < 4; ++v) {
      const int row = i / 4 + 8 * (v / 2), column = 2 * (i % 4) + v % 2;
      float& sum = static_cast<const Multiplicands*>(owns[i])->sum[v];
      double all = double{sum};
      for (int k = 0; k < 16; ++k) all += double{a[row][k]} * double{b[k][column]};
      sum = static_cast<float>(all);
    }
  }
}

}  // namespace

void launch(const Options& options, const std::function<void()>& body) {
  if (options.shared_bytes > kSharedMax) die("more shared memory than there is");
  Turns turns(options.blocks);
  std::vector<Start> starts;
  for (uint32_t i = 0; i < options.blocks; ++i) starts.push_back({&options, &turns, &body, i});
  std::vector<pthread_t> threads(options.blocks);
  for (uint32_t i = 0; i < options.blocks; ++i) {
    if (pthread_create(&threads[i], nullptr, run_block, &starts[i]) != 0) die("no thread for a block");
  }
  for (const pthread_t thread : threads) pthread_join(thread, nullptr);
}

uint32_t shared_bytes() { return current_block->options.shared_bytes; }
int meet_block(const char* kind, int value) { return current_block->meet_block(kind, value); }
int meet_some(const char* kind, uint32_t barrier, uint32_t count, int value) {
  return current_block->meet_some(kind, barrier, count, value);
}
void meet_lanes(const char* kind, uint32_t mask, void* own, const Combine& combine) {
  current_block->meet_lanes(kind, mask, own, combine);
}
void look_again() { current_block->look_again(); }

uint32_t shared_address(const void* in) {
  const std::ptrdiff_t offset = static_cast<const unsigned char*>(in) - cuda::shared;
  if (offset < -(1 << 26) || offset > (1 << 26)) die("no address of shared memory");
  return kBias + static_cast<uint32_t>(offset);
}

void copy_ahead(uint32_t to, const void* from, uint32_t bytes) {
  if (to % bytes != 0 || reinterpret_cast<uintptr_t>(from) % bytes != 0) die("copies what is not aligned");
  std::memset(shared_pointer(to), 0xff, bytes);
  current_thread->copies.push_back({shared_pointer(to), from, bytes});
}
void put_here(uint32_t to, const void* what, uint32_t bytes) {
  if (to % bytes != 0) die("puts down what is not aligned");
  std::memcpy(shared_pointer(to), what, bytes);
}
void copies_end_group() { current_thread->ends.push_back(current_thread->copies.size()); }
void copies_wait(size_t left) {
  std::vector<size_t>& ends = current_thread->ends;
  if (ends.size() <= left) return;
  const auto groups = static_cast<std::ptrdiff_t>(ends.size() - left);
  std::vector<Copy>& copies = current_thread->copies;
  const size_t count = ends[ends.size() - left - 1];
  for (size_t i = 0; i < count; ++i) copies[i].come();
  copies.erase(copies.begin(), copies.begin() + static_cast<std::ptrdiff_t>(count));
  ends.erase(ends.begin(), ends.begin() + groups);
  for (size_t& end : ends) end -= count;
}

void make_barrier(uint32_t at, uint32_t arrivals) {
  if (at % 8 != 0) die("a barrier that is not aligned");
  current_block->make_barrier(at, arrivals, shared_pointer(at));
}
void arrive(uint32_t at, uint32_t count) { current_block->arrive(at, count, {}); }
void arrive_behind_copies(uint32_t at) {
  // Those of ended groups, which it would wait for as well, stay as they are until their group is waited for.
  std::vector<Copy>& copies = current_thread->copies;
  const auto first =
      copies.begin() + static_cast<std::ptrdiff_t>(current_thread->ends.empty() ? 0 : current_thread->ends.back());
  std::vector<Copy> own(first, copies.end());
  copies.erase(first, copies.end());
  current_block->arrive(at, 1, std::move(own));
}
void copy_in_bulk(uint32_t to, const void* from, uint32_t bytes, uint32_t barrier) {
  if (to % 16 != 0 || reinterpret_cast<uintptr_t>(from) % 16 != 0 || bytes % 16 != 0) die("copies what is not aligned");
  std::memset(shared_pointer(to), 0xff, bytes);
  current_block->copy_in_bulk(barrier, {shared_pointer(to), from, bytes});
}
void arrive_with_bulk(uint32_t at, uint32_t bytes) { current_block->arrive(at, 32, {}, bytes); }
bool has_ended(uint32_t at, uint32_t parity) {
  if (current_block->has_ended(at, parity)) return true;
  current_block->look_aside();
  return false;
}

void load_matrices(uint32_t address, uint32_t (&to)[4], bool turned) {
  if (address % 16 != 0) die("ldmatrix: a row is not aligned");
  struct Own {
    const unsigned char* row;
    uint32_t* to;
  } own = {shared_pointer(address), to};
  // Lanes 8i to 8i + 7 name the rows of matrix i; a lane gets two values of each.
  meet_lanes(turned ? "ldmatrix.trans" : "ldmatrix", 0xffffffffu, &own, [&](void* const* owns, uint32_t) {
    uint16_t of[4][8][8];
    for (int i = 0; i < 32; ++i) std::memcpy(of[i / 8][i % 8], static_cast<const Own*>(owns[i])->row, 16);
    for (int i = 0; i < 32; ++i) {
      const int r = i / 4, c = 2 * (i % 4);
      for (int m = 0; m < 4; ++m) {
        const uint32_t low = turned ? of[m][c][r] : of[m][r][c], high = turned ? of[m][c + 1][r] : of[m][r][c + 1];
        static_cast<const Own*>(owns[i])->to[m] = low | high << 16;
      }
    }
  });
}

void multiply_add(bool bf16, float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
  Multiplicands own = {sum, a, {b0, b1}};
  meet_lanes(bf16 ? "mma.bf16" : "mma.f16", 0xffffffffu, &own,
             [&](void* const* owns, uint32_t) { multiply_matrices(bf16, owns); });
}

}  // namespace baton::fiber
