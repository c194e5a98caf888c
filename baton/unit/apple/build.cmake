# The loops of the emulated engine's products, once per instruction set; mac.cc chooses at run time.
foreach(set scalar avx2 avx512)
  baton_kernels(baton/unit/apple/mac_${set}.cc ${set})
endforeach()
