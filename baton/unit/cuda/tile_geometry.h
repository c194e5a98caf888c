// Which kernels make a product of many rows (Do::kTile), and with how many blocks. The choice of a tile changes how
// fast the product is made, not a bit of it.
//
//   x        [rows][matrix pitch] of bf16, as kPrepare makes it with to_bf16
//   matrix   of bf16, f16 or codes; all of the same pitch
//   outs     f32; 0: not wanted
//   out      with to_bf16: what outs[0] gets, in bf16, zeros in the padding of a row: the operand of a next product
//   z        of kAdd: f32, may be outs[0]
//   scratch  0, or unpacked_bytes(in) (tile_layout.h) for matrices that are not in bf16: products of more than
//            kUnpackRows rows are several times as fast then
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "baton/unit/cuda/instruction.h"

namespace baton::cuda {

inline constexpr int32_t kUnpackRows = 64;

struct TileLaunch {
  std::string_view kernel;
  uint32_t grid = 0, threads = 0, shared_bytes = 0;
  // Rows of the boxes in which the kernel copies x and the matrices, kTileDepth columns each: its TileWork has maps for
  // them (tile_maps.h). 0: it has no boxes.
  uint32_t x_box = 0, matrix_box = 0;
  bool patches = false;  // and bf16 that it makes goes by patches (tile_layout.h): there is a map of `out`, too
};
// Launches one after the other, with the same Work. None for no rows and for what kTile does not take.
struct TileGeometry {
  std::array<TileLaunch, 2> all;
  uint32_t count = 0;
  std::span<const TileLaunch> launches() const { return {all.data(), count}; }
};

// Whether kTile takes the product at all; otherwise it is for kMultiply.
bool tile_takes(const Instruction& in);
// For `rows` rows on a card of a compute capability (90: 9.0) with so many processors. `boxes`: its driver makes maps;
// where it does not, a 9.0 has the kernels of other cards.
TileGeometry tile_geometry(const Instruction& in, int32_t rows, uint32_t capability, uint32_t processors,
                           bool boxes = true);
// All that it chooses from, behind what unpacks, each of which makes the same bits: for tests.
std::vector<TileGeometry> tile_choices(const Instruction& in, int32_t rows, uint32_t capability, uint32_t processors,
                                       bool boxes = true);

}  // namespace baton::cuda
