// The searches with 16 lanes.
#if defined(__x86_64__)
#define BATON_LANES 16
#define BATON_LANES_NAME "avx512"
#define BATON_LANES_TABLE lanes_avx512
#include "baton/quant/lanes.inl.h"
#endif
