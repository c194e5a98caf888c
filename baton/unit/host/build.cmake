# Kernels, once per instruction set: kernels_<set>.cc; kernel_sets.cc lists those that can run.
set(kernel_options "")
# The kernels are unrolled: with every reference checked a file took 4 minutes and 2 GB to compile.
# Memory accesses stay checked, but for the stack; fuzz targets are about readers, so there the kernels are left plain.
if(BATON_SANITIZE MATCHES "undefined")
  list(APPEND kernel_options -fno-sanitize=undefined)
endif()
if(BATON_FUZZ)
  list(APPEND kernel_options -fno-sanitize=all -fno-sanitize-coverage=trace-pc-guard,inline-8bit-counters)
elseif(BATON_SANITIZE MATCHES "address" AND CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND kernel_options --param=asan-stack=0)
elseif(BATON_SANITIZE MATCHES "address")
  list(APPEND kernel_options -mllvm -asan-stack=0)
endif()

# Lanes as arrays: -O3 unrolls and rebuilds them for five minutes, -O2 takes half a minute.
baton_kernels(baton/unit/host/kernels_scalar.cc scalar $<$<CONFIG:Release>:-O2> ${kernel_options})
foreach(set IN LISTS BATON_INSTRUCTION_SETS)
  baton_kernels(baton/unit/host/kernels_${set}.cc ${set} ${kernel_options})
endforeach()
