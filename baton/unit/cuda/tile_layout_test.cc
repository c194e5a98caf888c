// Where the values of a tile lie, against what the instructions of the card ask for.
#include "baton/unit/cuda/tile_layout.h"

#include <gtest/gtest.h>

#include <array>
#include <map>
#include <set>
#include <vector>

#include "baton/base/random.h"

namespace baton::cuda {
namespace {

Instruction one_product(std::vector<int32_t> rows, int32_t columns, Epilogue epilogue = Epilogue::kNone) {
  Instruction in{};
  in.what = Do::kTile, in.epilogue = epilogue, in.matrices = static_cast<int32_t>(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    Matrix& matrix = in.matrix[i];
    matrix.rows = rows[i], matrix.columns = columns, matrix.pitch = pitch_of(columns), matrix.form = Form::kBF16;
  }
  return in;
}

// A tile of random values in shared memory at `start`, as the kernels put it there.
struct SharedTile {
  SharedTile(uint32_t begin, uint32_t rows) : start(begin), bytes(begin + rows * 128), values(rows) {
    Random random(rows);
    for (uint32_t row = 0; row < rows; ++row) {
      for (uint32_t k = 0; k < kTileDepth; ++k) {
        values[row][k] = static_cast<uint16_t>(random.next());
        put(start + tile_offset(row, k / 8) + 2 * (k % 8), values[row][k]);
      }
    }
  }
  void put(uint32_t at, uint16_t value) { bytes[at] = value & 255, bytes[at + 1] = static_cast<uint8_t>(value >> 8); }
  uint16_t get(uint32_t at) const { return static_cast<uint16_t>(bytes[at] | bytes[at + 1] << 8); }

  uint32_t start;
  std::vector<uint8_t> bytes;
  std::vector<std::array<uint16_t, kTileDepth>> values;
};

TEST(TileLayout, EightLanesMeetNoBankTwice) {
  for (uint32_t piece = 0; piece < 8; ++piece) {
    for (uint32_t first = 0; first < 16; first += 8) {
      std::set<uint32_t> banks;  // of 16 bytes, as a quarter of a warp asks for them at a time
      for (uint32_t row = first; row < first + 8; ++row) banks.insert(tile_offset(row, piece) / 16 % 8);
      EXPECT_EQ(banks.size(), 8u) << piece;
    }
  }
  for (uint32_t lane = 0; lane < 32; lane += 8) {  // threads that fill: eight pieces of a row
    std::set<uint32_t> banks;
    for (uint32_t i = lane; i < lane + 8; ++i) banks.insert(tile_offset(i / 8, i % 8) / 16 % 8);
    EXPECT_EQ(banks.size(), 8u);
  }
}

// A swizzle of 64 bytes (CUDA's description of tensor maps): bits 4 and 5 of a place are those of the unswizzled one,
// with its bits 7 and 8 added without carry.
TEST(TileLayout, PatchesLieAsTheCopyReadsThem) {
  std::set<uint32_t> places;
  for (uint32_t row = 0; row < kPatchRows; ++row) {
    for (uint32_t column = 0; column < kPatchColumns; ++column) {
      const uint32_t plain = row * 64 + column * 2, place = patch_offset(row, column);
      EXPECT_EQ(place, plain ^ (plain >> 7 & 3) << 4) << row << ", " << column;
      places.insert(place);
    }
    EXPECT_EQ(patch_offset(row % 8 + 8, 2), patch_offset(row % 8, 2) + kPatchBytes / 2) << "as kernels go down";
  }
  EXPECT_EQ(places.size(), size_t{kPatchRows} * kPatchColumns);
  EXPECT_LT(*places.rbegin(), kPatchBytes);
  for (uint32_t g = 0; g < 4; ++g) {  // a store of all lanes
    std::set<uint32_t> banks;
    for (uint32_t lane = 0; lane < 32; ++lane)
      banks.insert(patch_offset(value_row(lane, 0), 8 * g + value_column(lane, 0)) / 4 % 32);
    EXPECT_EQ(banks.size(), 32u) << g;
  }
}

// What wgmma reads by a descriptor (PTX ISA, "Asynchronous warpgroup level matrix shared memory layout"): eight rows of
// 128 bytes, groups of them a stride apart, address bits 4 to 6 changed by bits 7 to 9.
TEST(TileLayout, DescriptorsFindEveryValue) {
  const SharedTile tile(3 * 1024, 64);
  for (uint32_t k16 = 0; k16 < kTileDepth / 16; ++k16) {
    const uint64_t descriptor = tile_descriptor(tile.start) + 2 * k16;
    ASSERT_EQ(descriptor >> 62, 1u);
    ASSERT_EQ(descriptor >> 49 & 7, 0u);
    const auto start = static_cast<uint32_t>(descriptor & 0x3fff) << 4;
    const auto stride = static_cast<uint32_t>(descriptor >> 32 & 0x3fff) << 4;
    for (uint32_t row = 0; row < 64; ++row) {
      for (uint32_t k = 0; k < 16; ++k) {
        uint32_t at = start + row / 8 * stride + row % 8 * 128 + 2 * k;
        at ^= (at >> 7 & 7) << 4;
        ASSERT_EQ(tile.get(at), tile.values[row][16 * k16 + k]) << row << " " << k;
      }
    }
  }
}

// ldmatrix: matrix m of four has the rows that lanes 8 m to 8 m + 7 name; lane l gets values 2 (l mod 4) and the next
// of row l / 4 of each. mma wants of x: rows l / 4 and 8 more, then the same of the next 8 values of K; of columns:
// column l / 4, values 2 (l mod 4), then 8 more.
TEST(TileLayout, LanesNameWhatMmaWants) {
  const SharedTile tile(0, 32);
  const auto loaded = [&](uint32_t lane, uint32_t m, auto address_of) {
    return tile.get(address_of(8 * m + lane / 4) + 4 * (lane & 3));
  };
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t k16 = 0; k16 < 4; ++k16) {
      const auto of_rows = [&](uint32_t l) { return tile_offset(16 + row_of_lane(l), 2 * k16 + piece_of_lane(l)); };
      const auto of_columns = [&](uint32_t l) {
        return tile_offset(16 + column_of_lane(l), 2 * k16 + column_piece_of_lane(l));
      };
      for (uint32_t m = 0; m < 4; ++m) {
        const uint32_t k = 16 * k16 + 2 * (lane & 3);
        EXPECT_EQ(loaded(lane, m, of_rows), tile.values[16 + lane / 4 + 8 * (m & 1)][k + 8 * (m / 2)]);
        EXPECT_EQ(loaded(lane, m, of_columns), tile.values[16 + lane / 4 + 8 * (m / 2)][k + 8 * (m & 1)]);
      }
    }
  }
}

TEST(TileLayout, EveryValueOfAProductHasOneLane) {
  std::set<std::pair<uint32_t, uint32_t>> seen;
  for (uint32_t lane = 0; lane < 32; ++lane) {
    for (uint32_t v = 0; v < 4; ++v) seen.insert({value_row(lane, v), value_column(lane, v)});
  }
  EXPECT_EQ(seen.size(), 128u);
  EXPECT_EQ(value_row(5, 2), 9u);
  EXPECT_EQ(value_column(5, 3), 3u);
}

TEST(TileLayout, TilesHaveEveryColumnOnce) {
  const Instruction instructions[] = {one_product({6144, 2048, 16, 17}, 1024), one_product({100}, 64),
                                      one_product({3584, 3584}, 1024, Epilogue::kSwiGlu),
                                      one_product({100, 100}, 64, Epilogue::kGeGlu)};
  for (const Instruction& in : instructions) {
    for (const auto& [width, share] :
         {std::pair(256, 256), std::pair(192, 192), std::pair(64, 32), std::pair(64, 16)}) {
      std::map<std::pair<int32_t, int32_t>, int> seen;
      for (int32_t tile = 0; tile < tile_grid(in, 1, 64, width).column_tiles; ++tile) {
        for (int32_t c = 0; c < width; ++c) {
          const TileColumn column = tile_column(in, tile, width, share, c);
          if (column.matrix < 0) continue;
          ++seen[{column.matrix, column.n}];
          if (!is_paired(in) || c % share >= share / 2) continue;
          const TileColumn other = tile_column(in, tile, width, share, c + share / 2);
          EXPECT_TRUE(column.matrix == 0 && other.matrix == 1 && other.n == column.n);
        }
      }
      size_t all = 0;
      for (int32_t i = 0; i < in.matrices; ++i) {
        all += static_cast<size_t>(pitch_of(in.matrix[i].rows));
        for (int32_t n = 0; n < in.matrix[i].rows; ++n) ASSERT_EQ((seen[{i, n}]), 1) << i << " " << n << " " << width;
      }
      EXPECT_EQ(seen.size(), all);
    }
  }
}

TEST(TileLayout, SegmentsAreAllSteps) {
  for (const int32_t segments : {kTileSegments, kTileHalves}) {
    for (const int32_t pitch : {1024, 1088, 1152, 3584}) {
      int32_t next = 0;
      for (int32_t s = 0; s < segments; ++s) {
        const TileSteps steps = segment_steps(pitch, s, segments);
        EXPECT_EQ(steps.first, next);
        EXPECT_GT(steps.last, steps.first);
        next = steps.last;
      }
      EXPECT_EQ(next, pitch / kTileDepth);
    }
  }
}

TEST(TileLayout, UnpackedMatricesLieBehindEachOther) {
  Instruction in = one_product({10, 20, 30}, 100);
  in.matrix[0].form = in.matrix[2].form = Form::kCodes;
  EXPECT_EQ(unpacked_offset(in, 0), 0u);
  EXPECT_EQ(unpacked_offset(in, 2), 10u * 128 * 2);
  EXPECT_EQ(unpacked_bytes(in), 40u * 128 * 2);
}

}  // namespace
}  // namespace baton::cuda
