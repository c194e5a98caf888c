// Which of a list's registers become words, and that nobody takes an old one for a new one.
#include "baton/unit/cuda/word_list.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <vector>

#include "baton/unit/cuda/reference.h"

namespace baton::cuda {
namespace {

constexpr Address kWords = 0x100000;

Instruction product(Address x, int32_t columns, std::vector<std::pair<Address, int32_t>> outs) {
  Instruction in;
  in.what = Do::kMultiply;
  in.x = x, in.x_width = columns;
  for (const auto& [at, rows] : outs) {
    in.matrix[in.matrices].rows = rows, in.matrix[in.matrices].columns = columns;
    in.outs[in.matrices++] = at;
  }
  return in;
}

// A layer's products with a delta rule between, as Qwen3.5 has them, and the head's.
std::vector<Instruction> layer() {
  std::vector<Instruction> list;
  list.push_back(product(0x1000, 64, {{0x2000, 96}, {0x3000, 128}, {0x4000, 4}, {0x5000, 4}}));
  Instruction delta;
  delta.what = Do::kConvDelta;
  delta.x = 0x2000, delta.x_width = 96, delta.y = 0x4000, delta.z = 0x5000, delta.y_width = delta.z_width = 4;
  delta.out = 0x6000, delta.out_width = 128;
  list.push_back(delta);
  list.push_back(product(0x6000, 128, {{0x7000, 64}}));
  list.back().prologue = Prologue::kGated, list.back().op.width = 128;
  list.back().y = 0x3000, list.back().y_width = 128;
  list.back().epilogue = Epilogue::kAdd, list.back().z = 0x1000, list.back().z_width = 64;
  list.push_back(product(0x7000, 64, {{0x8000, 200}}));
  list.push_back(product(0x8000, 200, {{0x9000, 64}}));
  list.back().epilogue = Epilogue::kAdd, list.back().z = 0x7000, list.back().z_width = 64;
  list.push_back(product(0x9000, 64, {{0xa000, 300}}));
  return list;
}

TEST(WordList, ALayersProductsAndDeltaRule) {
  std::vector<Instruction> list = layer();
  const uint64_t bytes = put_words(list, 0);
  list = layer();
  ASSERT_EQ(put_words(list, kWords), bytes);
  EXPECT_EQ(bytes, 8u * (128 + 128 + 64 + 64 + 128 + 64 + 256 + 64));
  EXPECT_EQ(list[0].worded, kWordsOut);
  EXPECT_EQ(list[1].worded, kWordsX | kWordsY | kWordsZ | kWordsOut);
  EXPECT_EQ(list[2].worded, kWordsX | kWordsY | kWordsOut);
  EXPECT_EQ(list[3].worded, kWordsX | kWordsOut);
  EXPECT_EQ(list[4].worded, kWordsX | kWordsZ | kWordsOut);
  EXPECT_EQ(list[5].worded, kWordsX);
  EXPECT_EQ(list[5].outs[0], 0xa000u);
  EXPECT_EQ(list[1].x, list[0].outs[0]);
  EXPECT_EQ(list[1].y, list[0].outs[2]);
  EXPECT_EQ(list[1].z, list[0].outs[3]);
  EXPECT_EQ(list[2].y, list[0].outs[1]);
  EXPECT_EQ(list[2].z, 0x1000u);
  EXPECT_EQ(list[4].z, list[2].outs[0]);
}

TEST(WordList, NotWhatOthersReadOrNobody) {
  std::vector<Instruction> list = layer();
  Instruction each;
  each.what = Do::kEach;
  each.x = 0x7000;
  list.push_back(each);  // it knows no words
  put_words(list, kWords);
  EXPECT_EQ(list[2].worded & kWordsOut, 0);
  EXPECT_EQ(list[2].outs[0], 0x7000u);
  EXPECT_EQ(list[3].x, 0x7000u);
  EXPECT_EQ(list[4].z, 0x7000u);
  EXPECT_EQ(list[3].worded, kWordsOut);

  list = layer();
  list[1].z = 0;  // nobody waits for that output of the first
  put_words(list, kWords);
  EXPECT_EQ(list[0].worded, 0);
  EXPECT_EQ(list[1].worded, kWordsOut);

  list = layer();
  list[4].x_width = 180;  // not the whole
  put_words(list, kWords);
  EXPECT_EQ(list[3].worded & kWordsOut, 0);
}

TEST(WordList, AnOldWordIsNoNumber) {
  std::vector<float> x(64), out(64);
  std::vector<uint64_t> words(64);
  for (size_t i = 0; i < 64; ++i) words[i] = uint64_t{7} << 32 | std::bit_cast<uint32_t>(static_cast<float>(i));
  Instruction add;
  add.what = Do::kEach;
  add.op.kind = OpKind::kScale, add.op.scale = 2;
  add.x = reinterpret_cast<Address>(words.data()), add.x_width = add.out_width = 64;
  add.out = reinterpret_cast<Address>(out.data());
  add.worded = kWordsX;
  Pass pass;
  pass.rows = pass.runs = 1;
  reference_worded(add, pass, 7);
  EXPECT_EQ(out[5], 10.0f);
  words[6] -= uint64_t{1} << 32;
  reference_worded(add, pass, 7);
  EXPECT_TRUE(std::isnan(out[6]));
  EXPECT_EQ(out[5], 10.0f);
}

}  // namespace
}  // namespace baton::cuda
