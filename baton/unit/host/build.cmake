# Instruction sets: each kernels_<set>.cc, and nothing else, is compiled for its set; kernel_sets.cc chooses at run time.
set(kernel_options "")
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 reports its own intrinsics (_mm256_undefined_pd) in optimised code.
  list(APPEND kernel_options -Wno-uninitialized)
endif()
# The kernels are unrolled by nested lambdas: with every reference checked a file took 4 minutes and 2 GB to compile.
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

function(baton_kernels set)
  set_source_files_properties(${PROJECT_SOURCE_DIR}/baton/unit/host/kernels_${set}.cc PROPERTIES
    COMPILE_OPTIONS "${ARGN};${kernel_options}" SKIP_PRECOMPILE_HEADERS ON)
endfunction()
# Lanes as arrays: -O3 unrolls and rebuilds them for five minutes, -O2 takes half a minute.
baton_kernels(scalar $<$<CONFIG:Release>:-O2>)
if(CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64")
  baton_kernels(avx2 -mavx2 -mfma -mf16c)
  baton_kernels(avx512 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mfma -mf16c
    -mprefer-vector-width=512)
  baton_kernels(bf16 -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512bf16 -mfma -mf16c
    -mprefer-vector-width=512)
  baton_kernels(amx -mavx512f -mavx512bw -mavx512dq -mavx512vl -mavx512vnni -mavx512bf16 -mamx-tile -mamx-bf16 -mfma
    -mf16c -mprefer-vector-width=512)
elseif(APPLE)
  baton_kernels(neon)  # every arm64 Mac has dotprod, and compilers for it know
elseif(CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64")
  baton_kernels(neon -march=armv8.2-a+dotprod)
endif()
