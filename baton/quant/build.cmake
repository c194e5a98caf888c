# The quantizers' searches, once per instruction set; searches.cc chooses at run time.
foreach(set scalar avx2 avx512)
  baton_kernels(baton/quant/searches_${set}.cc ${set} -O3)
endforeach()
