// What a card can do at most (DeviceLimit), by kernels of its own (kernels/limits.cu) and its copies.
//
// Reads and copies go over as much memory as `bytes`, or a quarter of what is free where that is less, 16 bytes a load,
// eight loads of a thread on their way, all processors. Products are what tensor cores do with inputs that lie in
// shared memory or registers already: wgmma on 9.0, mma elsewhere. A rate is the median of `runs` runs by the card's
// clock, each at least run_ms long, behind warm-ups of warm_ms, in which clocks rise. Each run's sums are looked at:
// work that was not done has no rate.
#pragma once

#include <cstdint>
#include <map>
#include <memory>

#include "baton/unit/cuda/card.h"
#include "baton/unit/device_limits.h"

namespace baton::cuda {

struct CardLimitSizes {
  uint64_t bytes = uint64_t{1} << 30;          // read; copied: half of it to the other half
  uint64_t pinned_bytes = uint64_t{64} << 20;  // that come from the host
  uint32_t runs = 7;
  double run_ms = 4, warm_ms = 20;
};

// kOutOfMemory: too little is free. kInternal: a kernel did not do all of its work. Errors of the card.
Result<Rate> measure_limit(Card& card, DeviceLimit which, const CardLimitSizes& sizes = {});

// Bytes/s that come to memory of the card from pinned memory, the best of three times four copies. Overwrites `to`.
// Waits.
Result<double> measure_link(Card& card, Stream& stream, Address to, const PinnedMemory& from, uint64_t bytes);

}  // namespace baton::cuda
