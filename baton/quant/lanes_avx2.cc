// The searches with 8 lanes.
#if defined(__x86_64__)
#define BATON_LANES 8
#define BATON_LANES_NAME "avx2"
#define BATON_LANES_TABLE lanes_avx2
#include "baton/quant/lanes.inl.h"
#endif
