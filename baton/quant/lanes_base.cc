// The searches with 4 lanes.
#define BATON_LANES 4
#define BATON_LANES_NAME "base"
#define BATON_LANES_TABLE lanes_base
#include "baton/quant/lanes.inl.h"
