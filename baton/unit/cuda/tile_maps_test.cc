// Maps of operands: which boxes, of what, and what becomes of a driver that makes none.
#include "baton/unit/cuda/tile_maps.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "baton/unit/cuda/driver_emulated.h"
#include "baton/unit/cuda/tile_layout.h"

namespace baton::cuda {
namespace {

constexpr uint32_t kManyProcessors = 132;

// As the emulated driver has maps.
struct Seen {
  uint64_t at, columns, rows, pitch, box_columns, box_rows;
  bool operator==(const Seen&) const = default;
};
Seen seen(const TensorMap& map) {
  return {map.words[0], map.words[1], map.words[2], map.words[3], map.words[4], map.words[5]};
}

Work work_of_product(std::vector<int32_t> rows, int32_t columns, Epilogue epilogue = Epilogue::kNone) {
  Work work;
  Instruction& in = work.instruction;
  in.what = Do::kTile, in.epilogue = epilogue, in.matrices = static_cast<int32_t>(rows.size()), in.x = 4096;
  for (size_t i = 0; i < rows.size(); ++i) {
    Matrix& matrix = in.matrix[i];
    matrix.rows = rows[i], matrix.columns = columns, matrix.pitch = pitch_of(columns), matrix.form = Form::kBF16;
    matrix.values = 65536 * (i + 1);
  }
  return work;
}

class TileMaps : public testing::Test {
 protected:
  void open(const Driver& driver) {
    card_ = *Card::open(driver, 0);
    stream_ = *card_->stream();
  }
  void SetUp() override { open(emulated_driver()); }
  void TearDown() override {
    stream_ = {};
    card_.reset();
  }
  Result<TileWork> made(const Work& work, int32_t rows) {
    const TileGeometry tiles = tile_geometry(work.instruction, rows, 90, kManyProcessors);
    return tile_work(stream_, work, rows, tiles.launches().back());
  }
  Driver old_ = emulated_driver();  // outlives the card
  std::shared_ptr<Card> card_;
  Stream stream_;
};

TEST_F(TileMaps, EachOperandIsDescribedAsItLies) {
  const Work work = work_of_product({6144, 2000, 16}, 1000);
  const auto tile = made(work, 300);
  ASSERT_TRUE(tile);
  EXPECT_EQ(tile->rows, 300);
  EXPECT_EQ(tile->instruction.x, 4096u);
  EXPECT_EQ(seen(tile->x), (Seen{4096, 1024, 300, 2048, 64, 128})) << "padding is read as columns are: there are zeros";
  const uint64_t box = 64;
  EXPECT_EQ(seen(tile->matrix[0]), (Seen{65536, 1024, 6144, 2048, 64, box}));
  EXPECT_EQ(seen(tile->matrix[1]), (Seen{131072, 1024, 2000, 2048, 64, box}));
  EXPECT_EQ(seen(tile->matrix[2]), (Seen{196608, 1024, 16, 2048, 64, box}));
  EXPECT_EQ(seen(tile->matrix[3]), (Seen{})) << "there is none";
  EXPECT_EQ(seen(tile->out), (Seen{})) << "bf16 is not wanted";
}

// To the end of a row, where zeros are.
TEST_F(TileMaps, WhatGoesOnInBf16IsDescribedWithItsPadding) {
  Work work = work_of_product({1000, 1000}, 1024, Epilogue::kSwiGlu);
  work.instruction.to_bf16 = true, work.instruction.out = 8192;
  const auto tile = made(work, 300);
  ASSERT_TRUE(tile);
  EXPECT_EQ(seen(tile->out), (Seen{8192, 1024, 300, 2048, 32, 16}));
  work.instruction.matrix[0].rows = work.instruction.matrix[1].rows = 24;
  const auto narrow = made(work, 8);
  ASSERT_TRUE(narrow);
  EXPECT_EQ(seen(narrow->out), (Seen{})) << "of 16 columns: by threads";
}

TEST_F(TileMaps, WhatWasUnpackedIsReadInScratch) {
  Work work = work_of_product({2048, 4096}, 2048);
  work.instruction.matrix[1].form = Form::kCodes, work.instruction.matrix[1].bits = 4;
  work.instruction.scratch = 1 << 20;
  const auto tile = made(work, 2048);
  ASSERT_TRUE(tile);
  EXPECT_EQ(seen(tile->matrix[0]).at, 65536u);
  EXPECT_EQ(seen(tile->matrix[1]).at, uint64_t{1} << 20);
}

// A box is of one matrix, and of one group of warps: its columns follow each other as those of the tile do.
TEST_F(TileMaps, BoxesAreOfOneMatrix) {
  const Work works[] = {work_of_product({6144, 2048, 16, 16}, 1024),
                        work_of_product({3584, 3584}, 1024, Epilogue::kSwiGlu),
                        work_of_product({1000, 1000}, 256, Epilogue::kGeGlu), work_of_product({1024}, 3584)};
  for (const Work& work : works) {
    for (const auto& [rows, width] : {std::pair{128, 256}, {128, 192}, {128, 128}, {128, 64}, {64, 64}}) {
      const int32_t share = rows == 128 ? width : width / 2, run = tile_run(rows, width);
      ASSERT_EQ(width % run, 0);
      for (int32_t tile = 0; tile < tile_grid(work.instruction, 1, rows, width).column_tiles; ++tile) {
        for (int32_t c = 0; c < width; ++c) {
          const TileColumn first = tile_column(work.instruction, tile, width, share, c / run * run);
          const TileColumn column = tile_column(work.instruction, tile, width, share, c);
          ASSERT_EQ(column.matrix, first.matrix) << rows << "x" << width << " tile " << tile << " column " << c;
          if (first.matrix >= 0) {
            ASSERT_EQ(column.n, first.n + c % run);
          }
        }
      }
    }
  }
}

// As before CUDA 12: the kernels of other cards.
TEST_F(TileMaps, DriversWithoutMapsHaveKernelsThatNeedNone) {
  EXPECT_TRUE(card_->facts().maps);
  old_.describe_matrix = nullptr;
  stream_ = {};
  open(old_);
  EXPECT_FALSE(card_->facts().maps);
  for (const int32_t rows : {8, 300, 2048}) {
    const Work work = work_of_product({1024}, 3584);
    const TileGeometry tiles = tile_geometry(work.instruction, rows, 90, kManyProcessors, card_->facts().maps);
    for (const TileLaunch& one : tiles.launches()) {
      EXPECT_EQ(one.kernel.find("baton_tile_plain"), 0u) << one.kernel;
      EXPECT_EQ(one.x_box, 0u);
      EXPECT_TRUE(tile_work(stream_, work, rows, one));
    }
  }
}

TEST_F(TileMaps, WhatADriverRefusesIsAnError) {
  Work work = work_of_product({4096}, 4096);
  work.instruction.x = 4100;
  const auto tile = made(work, 300);
  ASSERT_FALSE(tile);
  EXPECT_EQ(tile.error().code, Code::kDevice);
}

}  // namespace
}  // namespace baton::cuda
