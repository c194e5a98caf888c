// The kernel that multiplies several rows on tensor cores.
#include "baton/unit/cuda/kernels/products_mma.cuh"

namespace baton::cuda {

extern "C" __global__ void __launch_bounds__(kThreads, 1) baton_multiply_together(const __grid_constant__ Work work) {
  const Pass& pass = *at<const Pass>(work.pass);
  const Instruction& in = work.instruction;
  multiply_mma(in, in.wanted_only ? pass.rows_out : pass.rows, blockIdx.x, gridDim.x, dynamic_shared_bytes());
}

}  // namespace baton::cuda
