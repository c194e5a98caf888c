# The quantizers' searches, once per instruction set; lanes.cc chooses at run time.
set(lanes_options -O3)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  list(APPEND lanes_options -Wno-psabi)  # vectors are passed between functions of one file only
endif()
baton_kernels(baton/quant/lanes_base.cc scalar ${lanes_options})
baton_kernels(baton/quant/lanes_avx2.cc avx2 ${lanes_options})
baton_kernels(baton/quant/lanes_avx512.cc avx512 ${lanes_options})
