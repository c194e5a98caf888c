// Which kernel makes which product, and that its launch fits the card.
#include "baton/unit/cuda/tile_geometry.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "baton/unit/cuda/tile_layout.h"

namespace baton::cuda {
namespace {

constexpr uint32_t kH100 = 132;

Instruction product(std::vector<int32_t> rows, int32_t columns, Epilogue epilogue = Epilogue::kNone) {
  Instruction in{};
  in.what = Do::kTile, in.epilogue = epilogue, in.matrices = static_cast<int32_t>(rows.size());
  for (size_t i = 0; i < rows.size(); ++i) {
    Matrix& matrix = in.matrix[i];
    matrix.rows = rows[i], matrix.columns = columns, matrix.pitch = pitch_of(columns), matrix.form = Form::kBF16;
  }
  return in;
}

std::string kernel(const Instruction& in, int32_t rows, uint32_t capability = 90) {
  std::string names;
  const TileGeometry made = tile_geometry(in, rows, capability, kH100);
  for (const TileLaunch& launch : made.launches()) names += (names.empty() ? "" : " ") + std::string(launch.kernel);
  return names;
}

TEST(TileGeometry, WideTilesWhereTheyFillTheCard) {
  EXPECT_EQ(kernel(product({4096}, 4096), 2048), "baton_tile_pair_128x256");
  EXPECT_EQ(kernel(product({6144, 2048, 16, 16}, 1024), 512), "baton_tile_pair_128x256");
  EXPECT_EQ(kernel(product({6144, 2048, 16, 16}, 1024), 16), "baton_tile_64x64");
  EXPECT_EQ(kernel(product({4096}, 4096), 2048, 80), "baton_tile_plain_128");
  EXPECT_EQ(kernel(product({512}, 4096), 64, 120), "baton_tile_plain_64");
}

// 64 tiles of 128x128 would leave half of the processors without work.
TEST(TileGeometry, SmallerTilesWhereWideOnesAreTooFew) {
  EXPECT_EQ(kernel(product({2048}, 2048, Epilogue::kAdd), 512), "baton_tile_pair_64x128");
  EXPECT_EQ(kernel(product({2048}, 2048, Epilogue::kAdd), 2048), "baton_tile_pair_128x256");
}

// Two tiles under each other, of which the lower one may have no rows at all.
TEST(TileGeometry, PairsAreWholeClusters) {
  for (const int32_t rows : {129, 200, 257, 512, 900}) {
    const Instruction in = product({6144, 2048, 16, 16}, 1024);
    const TileLaunch launch = tile_geometry(in, rows, 90, kH100).all[0];
    ASSERT_NE(launch.kernel.find("pair"), std::string_view::npos) << rows << ": " << launch.kernel;
    EXPECT_EQ(launch.grid % 2, 0u);
    EXPECT_LE(launch.grid, kH100);
    EXPECT_EQ(launch.x_box, launch.kernel.find("64x128") == std::string_view::npos ? 128u : 64u);
  }
}

TEST(TileGeometry, NarrowProductsAreInSegmentsWhateverTheRows) {
  const Instruction in = product({1024}, 3584, Epilogue::kAdd);
  EXPECT_EQ(kernel(in, 16), "baton_tile_cluster_64x64");
  EXPECT_EQ(kernel(in, 256), "baton_tile_cluster_128x128");
  EXPECT_EQ(kernel(in, 512), "baton_tile_cluster_128x192") << "32 clusters of 128x128 do not fit at once";
  EXPECT_EQ(kernel(in, 2048), "baton_tile_segments_128x128");
  for (const int32_t rows : {1, 64, 65, 300, 1000, 5000}) {
    const std::string name = kernel(in, rows);
    EXPECT_TRUE(name.find("segments") != std::string::npos || name.find("cluster") != std::string::npos) << name;
  }
  EXPECT_EQ(tile_segments(in), kTileSegments);
  EXPECT_EQ(tile_segments(product({1025}, 3584)), 1);
  EXPECT_EQ(tile_segments(product({512, 512}, 3584, Epilogue::kSwiGlu)), 1);
}

// Of long rows and twice as many columns two.
TEST(TileGeometry, LongProductsAreInHalvesWhateverTheRows) {
  const Instruction in = product({2048}, 6144, Epilogue::kAdd);
  EXPECT_EQ(kernel(in, 16), "baton_tile_halves_64x64");
  EXPECT_EQ(kernel(in, 512), "baton_tile_halves_128x128") << "128 blocks, each of half the sum";
  EXPECT_EQ(kernel(in, 2048), "baton_tile_halves_pair_128x128");
  EXPECT_EQ(tile_geometry(in, 512, 90, kH100).all[0].grid, 128u);
  for (const int32_t rows : {1, 64, 65, 300, 1000, 5000}) {
    const std::string name = kernel(in, rows);
    EXPECT_NE(name.find("halves"), std::string::npos) << name;
  }
  EXPECT_EQ(tile_segments(in), kTileHalves);
  EXPECT_EQ(tile_segments(product({1024}, 6144)), kTileSegments);
  EXPECT_EQ(tile_segments(product({2049}, 6144)), 1);
  EXPECT_EQ(tile_segments(product({2048}, 4000)), 1);
  EXPECT_EQ(tile_segments(product({1025}, 4096)), kTileHalves);
  EXPECT_EQ(tile_segments(product({1024, 1024}, 6144, Epilogue::kSwiGlu)), 1);
}

TEST(TileGeometry, CodesAreUnpackedForManyRowsAndWithScratchOnly) {
  Instruction in = product({4096}, 4096);
  in.matrix[0].form = Form::kCodes, in.matrix[0].bits = 4;
  EXPECT_EQ(kernel(in, 2048), "baton_tile_codes_64x64");
  in.scratch = 256;
  EXPECT_EQ(kernel(in, kUnpackRows), "baton_tile_codes_64x64");
  EXPECT_EQ(kernel(in, 2048), "baton_unpack baton_tile_pair_128x256");
  EXPECT_EQ(kernel(in, 2048, 86), "baton_unpack baton_tile_plain_128");
  in.matrix[0].rows = 1024;
  EXPECT_EQ(kernel(in, 8), "baton_tile_codes_cluster_64x64");
  in.matrix[0].rows = 2000;
  EXPECT_EQ(kernel(in, 8), "baton_tile_codes_halves_64x64");
}

TEST(TileGeometry, GridsFit) {
  const Instruction instructions[] = {product({4096}, 4096), product({1024}, 2048, Epilogue::kAdd), product({33}, 100),
                                      product({3584, 3584}, 1024, Epilogue::kSwiGlu), product({1500}, 5000)};
  for (const Instruction& in : instructions) {
    for (const int32_t rows : {1, 64, 130, 512, 4096}) {
      for (const uint32_t capability : {80u, 90u}) {
        const TileLaunch launch = tile_geometry(in, rows, capability, kH100).all[0];
        EXPECT_GT(launch.grid, 0u);
        EXPECT_LE(launch.shared_bytes, capability == 90 ? 227u * 1024 : 99u * 1024);
        if (launch.kernel.find("cluster") != std::string::npos) {
          EXPECT_EQ(launch.grid % kTileSegments, 0u);
        }
        if (launch.kernel.find("halves") != std::string::npos) {
          EXPECT_EQ(launch.grid % kTileHalves, 0u);
        }
      }
    }
  }
}

TEST(TileGeometry, WhatItDoesNotTake) {
  EXPECT_EQ(kernel(product({16}, 64), 0), "");
  Instruction router = product({16}, 64);
  router.matrix[0].form = Form::kF32;
  EXPECT_FALSE(tile_takes(router));
  EXPECT_EQ(kernel(router, 64), "");
  EXPECT_FALSE(tile_takes(product({16, 17}, 64, Epilogue::kSwiGlu)));
  EXPECT_FALSE(tile_takes(product({16, 16}, 64, Epilogue::kAdd)));
  Instruction unequal = product({16, 16}, 64);
  unequal.matrix[1].pitch = 128;
  EXPECT_FALSE(tile_takes(unequal));
}

}  // namespace
}  // namespace baton::cuda
