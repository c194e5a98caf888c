// The kernel that runs a list for one row of x where matrices may be codes: is_plain.
#include "baton/unit/cuda/kernels/run_plain_list.cuh"

namespace baton::cuda {

extern "C" __global__ void __launch_bounds__(kThreads + kFeederThreads + kClerkThreads, 1)
    baton_list_plain_codes(const __grid_constant__ ListWork work) {
  run_plain_list<true>(work);
}

}  // namespace baton::cuda
