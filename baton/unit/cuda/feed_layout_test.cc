// What of a block's shared memory is for weights, on large cards and small ones.
#include "baton/unit/cuda/feed_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "baton/unit/cuda/kernels.h"

namespace baton::cuda {
namespace {

constexpr uint32_t kShared90 = 227 * 1024, kShared86 = 99 * 1024;

Instruction product_of(Form form, int bits, int32_t columns, Prologue prologue = Prologue::kRms) {
  Instruction in;
  in.what = Do::kMultiply;
  in.prologue = prologue;
  in.x_width = in.op.width = columns;
  in.matrices = 1;
  in.matrix[0].form = form;
  in.matrix[0].bits = static_cast<uint8_t>(bits);
  in.matrix[0].block_log2 = 5;
  in.matrix[0].scale_form = Form::kF16;
  in.matrix[0].pitch = pitch_of(columns);
  return in;
}

TEST(FeedLayout, BytesOfAPiece) {
  Matrix matrix;
  matrix.form = Form::kBF16;
  EXPECT_EQ(piece_bytes(matrix, 1024), 2048u);
  EXPECT_EQ(piece_bytes(matrix, 256), 512u);
  matrix.form = Form::kF32;
  EXPECT_EQ(piece_bytes(matrix, 1024), 4096u);
  matrix.form = Form::kCodes;
  matrix.scale_form = Form::kF16;
  matrix.bits = 6, matrix.block_log2 = 8;  // 16 and 8 bytes of a group's planes, four scales
  EXPECT_EQ(piece_bytes(matrix, 1024), 32u * 24 + 16);
  EXPECT_EQ(piece_bytes(matrix, 256), 8u * 24 + 16) << "all scales of the strip";
  matrix.has_minimums = true;
  matrix.part_log2 = 5;
  EXPECT_EQ(piece_bytes(matrix, 1024), 32u * 24 + 8 + 8 + 64);
  matrix.has_minimums = false;
  matrix.block_log2 = 4, matrix.part_log2 = 0;
  matrix.scale_form = Form::kF32;
  EXPECT_EQ(piece_bytes(matrix, 1024), 32u * (24 + 8)) << "two scales of a group";
}

// Beside what attention needs there is room for four pieces of each warp, or more smaller ones.
TEST(FeedLayout, LargeCardsAreAhead) {
  const std::vector<Instruction> bf16 = {product_of(Form::kBF16, 0, 1024), product_of(Form::kBF16, 0, 3584)};
  const FeedPlan plan = plan_feed(bf16, kShared90);
  EXPECT_TRUE(plan.ahead);
  EXPECT_EQ(plan.span, 1024);
  EXPECT_EQ(plan.set, 4u);
  EXPECT_EQ(plan.slots_log2, 4u);
  EXPECT_EQ(plan.work_bytes, kAttendShared);
  EXPECT_EQ(plan.slot_bytes, 4 * 2048u);
  EXPECT_EQ(barriers_at(plan), kAttendShared + 16 * 8192);
  EXPECT_EQ(feed_bytes(plan), kAttendShared + 16 * (8192 + kSlotBarriers));
  EXPECT_LE(feed_bytes(plan) + kKeptBytes, kShared90);
  const std::vector<Instruction> codes = {product_of(Form::kCodes, 4, 1024), product_of(Form::kCodes, 6, 3584)};
  const FeedPlan smaller = plan_feed(codes, kShared90);
  EXPECT_TRUE(smaller.ahead);
  EXPECT_EQ(smaller.slot_bytes, 4 * (32u * 24 + 64));
  EXPECT_EQ(smaller.slots_log2, 5u) << "no more than kSlotsMax";
}

// Where there is less, weights lie where other kinds work: they are asked for when their product begins.
TEST(FeedLayout, SmallCardsAreNot) {
  for (const Form form : {Form::kF32, Form::kBF16, Form::kCodes}) {
    for (const int32_t columns : {64, 1024, 3584, 8192}) {
      const Instruction in = product_of(form, 8, columns);
      const FeedPlan plan = plan_feed({&in, 1}, kShared86);
      EXPECT_FALSE(plan.ahead);
      EXPECT_GE(plan.set, 2u) << columns;
      EXPECT_GE(kBundle << plan.slots_log2, plan.set * (kThreads / 32)) << "a set of every warp";
      EXPECT_GE(plan.work_bytes, staged_bytes(in, 1));
      EXPECT_LE(feed_bytes(plan) + kKeptBytes, kShared86);
      EXPECT_GE(barriers_at(plan), plan.work_bytes + (plan.slot_bytes << plan.slots_log2));
      EXPECT_GE(barriers_at(plan), kAttendShared) << "what other kinds work in leaves barriers alone";
    }
  }
}

TEST(FeedLayout, RowsThatDoNotFit) {
  const Instruction in = product_of(Form::kF32, 0, 60'000);
  EXPECT_EQ(plan_feed({&in, 1}, kShared90).set, 0u);
  const Instruction far = product_of(Form::kF32, 0, 1'073'741'888);  // 2^32 bytes and a few
  EXPECT_EQ(plan_feed({&far, 1}, kShared90).set, 0u);
  Instruction other;
  other.what = Do::kAttend;
  EXPECT_LE(feed_bytes(plan_feed({&other, 1}, kShared90)) + kKeptBytes, kShared90) << "no product";
}

// Four rows of x at a time where they fit.
TEST(FeedLayout, RowsAtATime) {
  const Instruction in = product_of(Form::kBF16, 0, 1024);
  EXPECT_EQ(tile_rows(in, 1, kAttendShared), 1);
  EXPECT_EQ(tile_rows(in, 2, kAttendShared), kTile);
  EXPECT_EQ(tile_rows(in, 2, kBeforeRows + 4 * 4096 - 1), 1);
  EXPECT_EQ(staged_bytes(in, 4), kBeforeRows + 4 * 4096u);
  EXPECT_EQ(staged_bytes(product_of(Form::kCodes, 8, 1024), 2), kBeforeRows + 2 * 2560u);
  EXPECT_EQ(staged_bytes(product_of(Form::kCodes, 8, 1024, Prologue::kLayer), 2), kBeforeRows + 2 * 2560u + 4096)
      << "with a row of f32 that the integers are made of";
}

// Blocks have equal parts, the first ones one more; teams of warps have as many as a row has spans.
TEST(FeedLayout, SharesOfBlocksAndWarps) {
  Instruction in = product_of(Form::kBF16, 0, 3584);
  in.matrix[0].rows = 1024;
  const FeedPlan plan = plan_feed({&in, 1}, kShared90);
  share_out(in, plan, 132);
  EXPECT_EQ(in.product.outputs, 7);
  EXPECT_EQ(in.product.more, 100);
  EXPECT_EQ(in.product.spans, 4);
  EXPECT_EQ(in.product.slices_log2, 2);
  EXPECT_EQ(in.product.each_log2, 2);
  EXPECT_EQ(in.product.bundle_log2, 0);
  EXPECT_EQ(in.product.span_stride, 2048);
  EXPECT_EQ(in.product.row_stride, 7168) << "as in memory";
  EXPECT_TRUE(in.product.has(ProductShares::kOneForm));
  EXPECT_TRUE(is_plain(in, plan));
  in.matrices = 2;
  in.matrix[1] = in.matrix[0];
  in.matrix[1].form = Form::kF16;
  share_out(in, plan, 132);
  EXPECT_EQ(in.product.outputs, 15) << "rows of both";
  EXPECT_FALSE(is_plain(in, plan)) << "of two forms";
  in.matrix[1].form = Form::kBF16;
  in.epilogue = Epilogue::kSwiGlu;
  share_out(in, plan, 132);
  EXPECT_EQ(in.product.outputs, 7) << "pairs";
  EXPECT_EQ(in.product.each_log2, 1);
  Instruction wide = product_of(Form::kBF16, 0, 17'408);
  share_out(wide, plan, 132);
  EXPECT_EQ(wide.product.slices_log2, 4);
  EXPECT_EQ(wide.product.each_log2, 0) << "pieces of an output come one behind the other";
  EXPECT_FALSE(is_plain(wide, plan));
}

// Rows of one span come by fours, of two by twos, longer ones alone or in parts.
TEST(FeedLayout, BundlesOfPieces) {
  const std::vector<Instruction> list = {product_of(Form::kBF16, 0, 17'408), product_of(Form::kCodes, 8, 17'408)};
  const FeedPlan plan = plan_feed(list, kShared90);
  struct Want {
    Form form;
    int32_t columns, bundle_log2, row_stride, span_stride;
  };
  for (const Want& want : {Want{Form::kBF16, 1024, 2, 2048, 2048}, Want{Form::kBF16, 960, 2, 1920, 2048},
                           Want{Form::kBF16, 1536, 1, 3072, 2048}, Want{Form::kBF16, 3072, 0, 6144, 2048},
                           Want{Form::kBF16, 7168, 0, 14336, 2048}, Want{Form::kCodes, 1024, 2, 1088, 1088},
                           Want{Form::kCodes, 1088, 1, 1088 + 80, 1088}}) {
    Instruction in = product_of(want.form, 8, want.columns);
    in.matrix[0].rows = 1024;
    share_out(in, plan, 132);
    EXPECT_EQ(in.product.bundle_log2, want.bundle_log2) << want.columns;
    EXPECT_EQ(in.product.row_stride, want.row_stride) << want.columns;
    EXPECT_EQ(in.product.span_stride, want.span_stride) << want.columns;
  }
  Instruction mixed = product_of(Form::kCodes, 4, 2048);
  mixed.matrices = 2;
  mixed.matrix[1] = product_of(Form::kCodes, 6, 2048).matrix[0];
  share_out(mixed, plan, 132);
  EXPECT_EQ(mixed.product.span_stride, 768 + 64) << "of the larger";
  EXPECT_EQ(mixed.product.row_stride, 2 * (768 + 64));
}

// Of other kinds those that most models have; attention on tensor cores.
TEST(FeedLayout, KindsOfPlainLists) {
  const std::vector<Do> plain = {Do::kEmbed, Do::kPrepare, Do::kHeads,    Do::kAppend, Do::kAttendJoin, Do::kEach,
                                 Do::kPick,  Do::kCap,     Do::kPenalise, Do::kArgmax, Do::kDraw,       Do::kAdvance};
  for (const Do what : kKinds) {
    if (what == Do::kMultiply || what == Do::kConvDelta || what == Do::kAttend) continue;
    Instruction in;
    in.what = what;
    EXPECT_EQ(is_plain(in, {}), std::find(plain.begin(), plain.end(), what) != plain.end()) << static_cast<int>(what);
  }
  Instruction attend;
  attend.what = Do::kAttend;
  attend.op.width = 64;
  attend.slot = attend.slot2 = {0, 128, Form::kF16};
  EXPECT_TRUE(is_plain(attend, {}));
  attend.slot = attend.slot2 = {0, 256, Form::kF32};
  EXPECT_FALSE(is_plain(attend, {}));
  attend.op.width = 80;
  attend.slot = attend.slot2 = {0, 160, Form::kF16};
  EXPECT_FALSE(is_plain(attend, {}));
}

TEST(FeedLayout, PassesOfOneRow) {
  Pass pass;
  pass.rows = pass.runs = 1;
  EXPECT_FALSE(is_one_row(pass)) << "nobody asks for its outputs: kernels would wait for weights of the head";
  pass.rows_out = 1;
  EXPECT_TRUE(is_one_row(pass));
  pass.rows = pass.rows_out = 2;
  EXPECT_FALSE(is_one_row(pass));
}

TEST(FeedLayout, ProductsOfAList) {
  std::vector<Instruction> list(5);
  list[1] = list[2] = list[4] = product_of(Form::kBF16, 0, 64);
  list[0].what = list[3].what = Do::kHeads;
  EXPECT_EQ(chain_products(list), 1);
  EXPECT_EQ(list[1].next_product, 2);
  EXPECT_EQ(list[2].next_product, 4);
  EXPECT_EQ(list[4].next_product, -1);
  EXPECT_EQ(chain_products(std::span(list).first(1)), -1);
}

TEST(FeedLayout, AProductAlone) {
  Instruction in = product_of(Form::kBF16, 0, 1024);
  in.matrix[0].rows = 1024;
  in.next_product = 3;
  const ListWork work = list_of_one(in, 64, kShared90, 132);
  EXPECT_EQ(work.list, 0u);
  EXPECT_EQ(work.barrier, 0u);
  EXPECT_EQ(work.pass, 64u);
  EXPECT_EQ(work.count, 1);
  EXPECT_EQ(work.first_product, 0);
  EXPECT_EQ(work.alone.next_product, -1) << "that of a list it was in";
  EXPECT_EQ(work.alone.product.outputs, 7);
  EXPECT_EQ(work.feed.set, 4u);
  EXPECT_EQ(list_of_one(product_of(Form::kF32, 0, 60'000), 64, kShared90, 132).feed.set, 0u);
}

TEST(FeedLayout, WhichRowsGoByFours) {
  EXPECT_TRUE(by_fours(product_of(Form::kBF16, 0, 8192)));
  EXPECT_TRUE(by_fours(product_of(Form::kBF16, 0, 14336, Prologue::kNone)));
  EXPECT_FALSE(by_fours(product_of(Form::kBF16, 0, 1022)));
  EXPECT_FALSE(by_fours(product_of(Form::kBF16, 0, 1024, Prologue::kLayer)));
  Instruction gated = product_of(Form::kBF16, 0, 2048, Prologue::kGated);
  EXPECT_FALSE(by_fours(gated));
  gated.op.width = 128;
  EXPECT_TRUE(by_fours(gated));
  Instruction grouped = product_of(Form::kBF16, 0, 2048);
  grouped.op.width = 64;
  EXPECT_FALSE(by_fours(grouped)) << "norms of groups";
  Instruction gates = product_of(Form::kBF16, 0, 2048, Prologue::kGate);
  gates.op.width = 1;
  EXPECT_TRUE(by_fours(gates));
  gates.op.width = 64;
  EXPECT_FALSE(by_fours(gates)) << "values that share a gate";
}

}  // namespace
}  // namespace baton::cuda
