// What kernels of products of many rows copy boxes by: maps of what they read and write, which the driver makes.
#pragma once

#include "baton/unit/cuda/card.h"
#include "baton/unit/cuda/tile_geometry.h"

namespace baton::cuda {

// The argument of a launch of tile_geometry, for `rows` rows. Columns behind a matrix's rows, and rows behind x's, are
// zero in a box. Errors: those of the driver.
Result<TileWork> tile_work(const Stream& stream, const Work& work, int32_t rows, const TileLaunch& launch);

}  // namespace baton::cuda
