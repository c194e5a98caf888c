// Which kernel makes a product of many rows.
#include "baton/unit/cuda/tile_geometry.h"

#include <algorithm>

#include "baton/unit/cuda/tile_layout.h"

namespace baton::cuda {
namespace {

// A kernel of kernels/tile.cu: the rows, columns and stages of its tile, as there.
struct Tile {
  std::string_view kernel;
  int32_t rows, width, stages;
  uint32_t blocks = 1;  // of a tile
  uint32_t beside =
      1;  // blocks with the same columns, one under the other, each of which brings a part of them for all
};
constexpr Tile kWhole[] = {{"baton_tile_pair_128x256", 128, 256, 4, 1, 2},
                           {"baton_tile_pair_128x192", 128, 192, 5, 1, 2},
                           {"baton_tile_pair_128x128", 128, 128, 6, 1, 2},
                           {"baton_tile_pair_64x128", 64, 128, 8, 1, 2},
                           {"baton_tile_128x128", 128, 128, 6},
                           {"baton_tile_128x64", 128, 64, 8},
                           {"baton_tile_64x64", 64, 64, 12}};
constexpr Tile kInSegments[] = {{"baton_tile_segments_128x128", 128, 128, 6, 1, 2},
                                {"baton_tile_cluster_128x192", 128, 192, 5, kTileSegments},
                                {"baton_tile_cluster_128x128", 128, 128, 6, kTileSegments},
                                {"baton_tile_cluster_64x64", 64, 64, 8, kTileSegments}};
constexpr Tile kInHalves[] = {{"baton_tile_halves_pair_128x128", 128, 128, 6, 1, 2},
                              {"baton_tile_halves_128x128", 128, 128, 6, kTileHalves},
                              {"baton_tile_halves_64x64", 64, 64, 8, kTileHalves}};
constexpr Tile kCodes = {"baton_tile_codes_64x64", 64, 64, 8};
constexpr Tile kCodesInSegments = {"baton_tile_codes_cluster_64x64", 64, 64, 8, kTileSegments};
constexpr Tile kCodesInHalves = {"baton_tile_codes_halves_64x64", 64, 64, 8, kTileHalves};
constexpr Tile kPlain[] = {{"baton_tile_plain_128", 128, 128, 3}, {"baton_tile_plain_64", 64, 64, 4}};
constexpr Tile kPlainCodes = {"baton_tile_plain_codes", 64, 64, 4};
constexpr uint32_t kWideThreads = 384, kWideCodesThreads = 640;

uint32_t stage_bytes(const Tile& tile) { return static_cast<uint32_t>((tile.rows + tile.width) * 2 * kTileDepth); }

// Tiles, or groups of them beside each other.
int32_t groups_of(const Tile& tile, const Instruction& in, int32_t rows) {
  return tile_grid(in, rows, tile.rows * static_cast<int32_t>(tile.beside), tile.width).tiles();
}

// Clocks that the product takes, roughly: of a 9.0, where a processor makes 2048 products in a clock, gets 56 bytes
// from the second-level cache, and all of them together 5000. Clusters of four do not fit everywhere: of 132 processors
// an H200 has 120 for them at a time.
int64_t clocks_of(const Tile& tile, const Instruction& in, int32_t rows, uint32_t processors) {
  const int64_t tiles = groups_of(tile, in, rows) * int64_t{tile.blocks * tile.beside};
  const int64_t room =
      tile.blocks > 2 ? std::max<int64_t>(processors * 10 / 11 / tile.blocks, 1) * tile.blocks : int64_t{processors};
  const int64_t at_once = std::min(tiles, room), waves = (tiles + at_once - 1) / at_once;
  const int64_t products = int64_t{tile.rows} * tile.width * kTileDepth * 21 / 20 / 2048;
  const int64_t bytes = (tile.rows + tile.width / static_cast<int32_t>(tile.beside)) * 2 * kTileDepth;
  const int64_t loads = bytes / std::min<int64_t>(56, 5000 / at_once);
  const int64_t ends = int64_t{tile.rows} * tile.width * 4 / 32;
  const int64_t steps = in.matrix[0].pitch / kTileDepth / tile.blocks;
  const int64_t meets = tile.blocks > 1 ? 1500 + ends : 0;
  return waves * (steps * std::max(products, loads) + ends + meets + 1500);
}

const Tile& fastest(std::span<const Tile> tiles, const Instruction& in, int32_t rows, uint32_t processors) {
  return *std::min_element(tiles.begin(), tiles.end(), [&](const Tile& a, const Tile& b) {
    return clocks_of(a, in, rows, processors) < clocks_of(b, in, rows, processors);
  });
}

TileLaunch launch_of(const Tile& tile, const Instruction& in, int32_t rows, uint32_t processors, uint32_t at_once,
                     uint32_t threads) {
  const auto groups = static_cast<uint32_t>(groups_of(tile, in, rows));
  const uint32_t stages = static_cast<uint32_t>(tile.stages);
  const uint32_t barriers = threads == kPlainThreads ? 0 : 16 * stages + 1024;
  // A cluster that shares a tile makes one: how many run at once is the card's business.
  const uint32_t grid =
      tile.blocks > 1 ? groups * tile.blocks : std::min(groups, processors * at_once / tile.beside) * tile.beside;
  TileLaunch launch = {tile.kernel, grid, threads, stages * stage_bytes(tile) + barriers};
  if (threads == kWideThreads) {
    launch.x_box = static_cast<uint32_t>(tile.rows);
    launch.matrix_box = static_cast<uint32_t>(tile_run(tile.rows, tile.width));
    const int32_t patches = tile.blocks > 1 ? 0 : tile_patches(tile.rows, tile.width);
    launch.patches = patches > 0;
    launch.shared_bytes += static_cast<uint32_t>(patches * kPatchWarps) * kPatchBytes;
  }
  return launch;
}

std::span<const Tile> tiles_for(const Instruction& in) {
  const int32_t segments = tile_segments(in);
  return segments == kTileSegments ? std::span<const Tile>(kInSegments)
         : segments == kTileHalves ? std::span<const Tile>(kInHalves)
                                   : std::span<const Tile>(kWhole);
}

TileLaunch launch_on_90(const Instruction& in, int32_t rows, bool coded, uint32_t processors) {
  if (coded) {
    const int32_t segments = tile_segments(in);
    const Tile& tile = segments == kTileSegments ? kCodesInSegments : segments == kTileHalves ? kCodesInHalves : kCodes;
    return launch_of(tile, in, rows, processors, 1, kWideCodesThreads);
  }
  return launch_of(fastest(tiles_for(in), in, rows, processors), in, rows, processors, 1, kWideThreads);
}

TileLaunch launch_plain(const Instruction& in, int32_t rows, bool coded, uint32_t processors) {
  if (coded) return launch_of(kPlainCodes, in, rows, processors, 2, kPlainThreads);
  const bool many = tile_grid(in, rows, 128, 128).tiles() >= static_cast<int32_t>(processors);
  return launch_of(kPlain[many ? 0 : 1], in, rows, processors, 2, kPlainThreads);
}

}  // namespace

bool tile_takes(const Instruction& in) {
  if (in.matrices < 1 || in.matrices > kMatricesMax) return false;
  if (in.epilogue == Epilogue::kAdd && in.matrices != 1) return false;
  if (is_paired(in) && (in.matrices != 2 || in.matrix[0].rows != in.matrix[1].rows)) return false;
  return std::all_of(in.matrix, in.matrix + in.matrices, [&](const Matrix& matrix) {
    return matrix.form != Form::kF32 && matrix.pitch == in.matrix[0].pitch && matrix.pitch > 0 && matrix.rows > 0;
  });
}

TileGeometry tile_geometry(const Instruction& in, int32_t rows, uint32_t capability, uint32_t processors, bool boxes) {
  TileGeometry made;
  if (rows <= 0 || !tile_takes(in)) return made;
  bool coded = std::any_of(in.matrix, in.matrix + in.matrices, [](const Matrix& m) { return m.form != Form::kBF16; });
  if (coded && in.scratch != 0 && rows > kUnpackRows) {
    made.all[made.count++] = {"baton_unpack", processors * 8, kPlainThreads, 0};
    coded = false;
  }
  made.all[made.count++] =
      capability == 90 && boxes ? launch_on_90(in, rows, coded, processors) : launch_plain(in, rows, coded, processors);
  return made;
}

std::vector<TileGeometry> tile_choices(const Instruction& in, int32_t rows, uint32_t capability, uint32_t processors,
                                       bool boxes) {
  const TileGeometry chosen = tile_geometry(in, rows, capability, processors, boxes);
  if (chosen.count == 0 || chosen.launches().back().x_box == 0) return {chosen};
  std::vector<TileGeometry> all;
  for (const Tile& tile : tiles_for(in)) {
    all.push_back(chosen);
    all.back().all[chosen.count - 1] = launch_of(tile, in, rows, processors, 1, kWideThreads);
  }
  return all;
}

}  // namespace baton::cuda
