// The kernel that runs any list of instructions in one launch, or a kMultiply alone, which shares its code with those
// of lists.
#include "baton/unit/cuda/kernels/run_list.cuh"

namespace baton::cuda {

extern "C" __global__ void __launch_bounds__(kThreads + kFeederThreads, 1)
    baton_list(const __grid_constant__ ListWork work) {
  run_list(work);
}

}  // namespace baton::cuda
