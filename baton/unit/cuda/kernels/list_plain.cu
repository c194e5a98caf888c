// The kernel that runs a list for one row of x where matrices are 16-bit values: is_plain.
#include "baton/unit/cuda/kernels/run_plain_list.cuh"

namespace baton::cuda {

extern "C" __global__ void __launch_bounds__(kThreads + kFeederThreads + kClerkThreads, 1)
    baton_list_plain(const __grid_constant__ ListWork work) {
  run_plain_list<false>(work);
}

}  // namespace baton::cuda
