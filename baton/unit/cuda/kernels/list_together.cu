// The kernel that runs a list of instructions in one launch for many rows: products on tensor cores. While blocks wait
// for others they ask for the first weights of the product that comes next, and the second level of cache for all.
#include "baton/unit/cuda/kernels/delta_many.cuh"
#include "baton/unit/cuda/kernels/list.cuh"
#include "baton/unit/cuda/kernels/products_mma.cuh"

namespace baton::cuda {
namespace {

constexpr int kAskAhead = 5;  // instructions, of which the first product's weights are asked for
static_assert(kAskAhead < kInstructionsKept);

// Apart, so that the products have all registers.
__device__ __noinline__ void conv_delta_of_many(const Instruction& in, const Pass& pass, unsigned char* shared) {
  is_shared(&in);
  DeltaOfMany(in, pass, static_cast<int>(gridDim.x), *reinterpret_cast<DeltaMany*>(shared))
      .run(static_cast<int>(blockIdx.x), static_cast<int>(gridDim.x));
}
__device__ __noinline__ void conv_delta_of_any(const Instruction& in, const Pass& pass, unsigned char* shared) {
  is_shared(&in);
  do_conv_delta(in, pass, blockIdx.x, gridDim.x, shared);
}

}  // namespace

extern "C" __global__ void __launch_bounds__(kThreads, 1) baton_list_together(const __grid_constant__ ListWork work) {
  unsigned char* const shared = block_shared();
  __shared__ __align__(16) unsigned char kept[kInstructionsKept][sizeof(Instruction)];
  const auto instruction = [&](int i) -> Instruction& {
    return *reinterpret_cast<Instruction*>(kept[i & (kInstructionsKept - 1)]);
  };
  __shared__ __align__(16) unsigned char pass_at[sizeof(Pass)];
  static_assert(sizeof(kept) + sizeof(pass_at) <= kMmaKeptBytes && sizeof(Pass) % 8 == 0 &&
                sizeof(Pass) / 8 <= kThreads);
  if (at<const Pass>(work.pass)->stopped != 0) return;
  const Pass& pass = *reinterpret_cast<const Pass*>(pass_at);
  if (threadIdx.x < sizeof(Pass) / 8)
    reinterpret_cast<uint64_t*>(pass_at)[threadIdx.x] = at<const uint64_t>(work.pass)[threadIdx.x];
  Meeting meeting(work.barrier);
  for (int i = 0; i < min(work.count, kInstructionsKept); ++i) bring(work.list, i, instruction(i));
  copies_wait<0>();
  __syncthreads();
  // What other kinds work in may reach into the ring of a card with little shared memory: no weights come there then.
  const int reach = MmaRoom().before >= kAttendShared ? kAskAhead : 2;
  int asked = -1;  // the last product whose weights were asked for
  for (int i = 0; i < work.count; ++i) {
    const Instruction& in = instruction(i);
    is_shared(&in);
    const int rows = rows::count_of(in, pass);
    if (in.what == Do::kMultiply) {
      multiply_mma(in, rows, asked == i);
    } else if (in.what == Do::kConvDelta) {
      if (is_plain_delta(in.op) && MmaRoom().before >= kDeltaManyShared) {
        conv_delta_of_many(in, pass, shared);
      } else {
        conv_delta_of_any(in, pass, shared);
      }
    } else if (in.what == Do::kPrepare && in.to_planes) {
      prepare_planes(in, rows, blockIdx.x, gridDim.x, shared);
    } else {
      run_other<false>(in, pass, work.pass, shared);
    }
    if (work.times != 0 && blockIdx.x == 0 && threadIdx.x == 0) at<uint64_t>(work.times)[i] = card_time();
    if (i + 1 == work.count) break;
    // Instructions have come that were asked for before the weights of a product, which may take longer.
    if (asked > i) {
      copies_wait<2>();
    } else {
      copies_wait<0>();
    }
    meeting.arrive();
    if (i + kInstructionsKept < work.count) bring(work.list, i + kInstructionsKept, instruction(i + kInstructionsKept));
    fetch_needed(instruction(i + 1), pass);
    for (int ahead = i + 1; asked <= i && ahead < min(i + reach, work.count); ++ahead) {
      const Instruction& then = instruction(ahead);
      if (then.what != Do::kMultiply) continue;
      ask_mma(then, rows::count_of(then, pass));
      fetch_units(then, rows::count_of(then, pass));
      asked = ahead;
    }
    meeting.wait();
  }
  meeting.leave();
}

}  // namespace baton::cuda
