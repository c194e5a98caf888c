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
  EXPECT_EQ(bytes, 4u * (128 + 128 + 64 + 64 + 128 + 64 + 256 + 64));
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

// A layer of attention, as Qwen3.5 has them, then a pick and the head's product.
std::vector<Instruction> attention() {
  std::vector<Instruction> list;
  list.push_back(product(0x1000, 64, {{0x2000, 1024}, {0x3000, 128}, {0x4000, 128}}));
  Instruction heads;
  heads.what = Do::kHeads;
  heads.op.heads = 8, heads.op.kv_heads = 2, heads.op.width = 64;
  heads.x = 0x2000, heads.x_width = 1024, heads.x_stride = 128;
  heads.y = 0x3000, heads.z = 0x4000, heads.y_width = heads.z_width = 128;
  heads.out = 0x5000, heads.out2 = 0x6000, heads.out_width = heads.out2_width = 512;
  heads.slot = {0, 128, Form::kF16}, heads.slot2 = {0x4000, 128, Form::kF16};
  heads.rope.rotary = 64, heads.vectors[3] = 0x100;
  list.push_back(heads);
  Instruction attend = heads;
  attend.what = Do::kAttend;
  attend.x = 0x5000, attend.x_width = 512, attend.y = attend.z = attend.out2 = 0;
  attend.out = 0x7000, attend.out_width = 512;
  attend.scratch = 0x20000, attend.splits = 66;
  list.push_back(attend);
  list.push_back(attend);
  list.back().what = Do::kAttendJoin;
  list.push_back(product(0x7000, 512, {{0x8000, 64}}));
  list.back().prologue = Prologue::kGate, list.back().op.width = 1;
  list.back().y = 0x6000, list.back().y_width = 512;
  list.back().epilogue = Epilogue::kAdd, list.back().z = 0x1000, list.back().z_width = 64;
  Instruction pick;
  pick.what = Do::kPick;
  pick.x = 0x8000, pick.out = 0x9000, pick.x_width = pick.out_width = 64;
  list.push_back(pick);
  list.push_back(product(0x9000, 64, {{0xa000, 300}}));
  return list;
}

TEST(WordList, AnAttentionLayerAndThePick) {
  std::vector<Instruction> list = attention();
  const uint64_t bytes = put_words(list, 0);
  list = attention();
  ASSERT_EQ(put_words(list, kWords), bytes);
  ASSERT_EQ(list.size(), 5u);
  EXPECT_EQ(bytes, 4u * (1024 + 128 + 128 + 512 + 512 + (8 * 66 * 66 + 63) / 64 * 64 + 64));
  EXPECT_EQ(list[1].what, Do::kAttendRow);
  EXPECT_EQ(list[2].what, Do::kAttendJoin);
  EXPECT_EQ(list[0].worded, kWordsOut);
  EXPECT_EQ(list[1].worded, kWordsX | kWordsY | kWordsZ | kWordsOut);
  EXPECT_EQ(list[2].worded, kWordsOut);
  EXPECT_EQ(list[3].worded, kWordsX | kWordsY | kWordsOut);
  EXPECT_EQ(list[4].worded, kWordsX);
  EXPECT_EQ(list[1].x, list[0].outs[0]);
  EXPECT_EQ(list[1].y, list[0].outs[1]);
  EXPECT_EQ(list[1].z, list[0].outs[2]);
  EXPECT_EQ(list[2].out, list[1].out);
  EXPECT_EQ(list[2].scratch, list[1].scratch);
  EXPECT_GE(list[1].scratch, kWords);
  EXPECT_EQ(list[3].x, list[1].out);
  EXPECT_EQ(list[3].y, list[1].out2);
  EXPECT_EQ(list[4].x, list[3].outs[0]);
  EXPECT_EQ(list[4].outs[0], 0xa000u);
}

TEST(WordList, AttentionThatStaysInParts) {
  const auto stays = [](const auto& change) {
    std::vector<Instruction> list = attention();
    change(list);
    put_words(list, kWords);
    return list[1].what == Do::kHeads && list[2].what == Do::kAttend && list[0].worded == 0;
  };
  EXPECT_FALSE(stays([](auto&) {}));
  EXPECT_TRUE(stays([](auto& list) { list[4].op.width = 64; })) << "gates that are shared: no word is known there";
  EXPECT_TRUE(stays([](auto& list) { list[1].rope.rotary = 32; }));
  EXPECT_TRUE(stays([](auto& list) { list[1].vectors[3] = 0; })) << "no frequencies";
  EXPECT_TRUE(stays([](auto& list) {
    for (size_t i = 1; i < 4; ++i) list[i].op.kv_heads = 1;
  })) << "more query heads than one unit has";
  EXPECT_TRUE(stays([](auto& list) { list[6].x = 0x5000, list[6].x_width = 512; })) << "queries that are read later";
  EXPECT_TRUE(stays([](auto& list) { list[2].slot2.form = Form::kF32; }));
}

TEST(WordList, APickThatStays) {
  std::vector<Instruction> list = attention();
  list.push_back(list.back());  // two read it
  put_words(list, kWords);
  EXPECT_EQ(list[4].what, Do::kPick);
  EXPECT_EQ(list[3].worded & kWordsOut, 0);
  EXPECT_EQ(list[5].x, 0x9000u);
}

TEST(WordList, WhatHasNotComeIsNoNumber) {
  std::vector<float> x(64), out(64);
  std::vector<uint32_t> words(128, kNoWord);
  for (size_t i = 0; i < 64; ++i) words[64 + i] = std::bit_cast<uint32_t>(static_cast<float>(i));
  Instruction add;
  add.what = Do::kEach;
  add.op.kind = OpKind::kScale, add.op.scale = 2;
  add.x = reinterpret_cast<Address>(words.data()), add.x_width = add.out_width = 64;
  add.out = reinterpret_cast<Address>(out.data());
  add.worded = kWordsX;
  Pass pass;
  pass.rows = pass.runs = 1;
  reference_worded(add, pass);
  EXPECT_TRUE(std::isnan(out[5])) << "of the other turn";
  move_words(add, 256);
  words[64 + 6] = kNoWord;
  reference_worded(add, pass);
  EXPECT_EQ(out[5], 10.0f);
  EXPECT_TRUE(std::isnan(out[6]));
}

TEST(WordList, WhatIsMovedWithTheTurn) {
  Instruction in;
  in.x = in.y = in.z = in.out = in.out2 = in.scratch = 0x1000;
  for (Address& out : in.outs) out = 0x1000;
  in.outs[3] = 0;
  const auto moved = [&](Do what, uint8_t worded) {
    Instruction copy = in;
    copy.what = what, copy.worded = worded;
    move_words(copy, 256);
    std::vector<int> all;
    for (const Address at : {copy.x, copy.y, copy.z, copy.out, copy.out2, copy.scratch, copy.outs[0], copy.outs[3]})
      all.push_back(at == 0x1100 ? 1 : at == 0 ? -1 : 0);
    return all;
  };
  EXPECT_EQ(moved(Do::kMultiply, 0), (std::vector{0, 0, 0, 0, 0, 0, 0, -1}));
  EXPECT_EQ(moved(Do::kMultiply, kWordsX), (std::vector{1, 0, 0, 0, 0, 0, 0, -1}));
  EXPECT_EQ(moved(Do::kMultiply, kWordsY | kWordsZ | kWordsOut), (std::vector{0, 1, 1, 0, 0, 0, 1, -1}));
  EXPECT_EQ(moved(Do::kConvDelta, kWordsOut), (std::vector{0, 0, 0, 1, 1, 0, 0, -1})) << "its scratch is for prompts";
  EXPECT_EQ(moved(Do::kAttendRow, kWordsOut), (std::vector{0, 0, 0, 1, 1, 1, 0, -1}));
  EXPECT_EQ(moved(Do::kAttendJoin, kWordsOut), (std::vector{0, 0, 0, 1, 1, 1, 0, -1}));
}

// All bits of a value that is no number may be ones: it has come all the same.
TEST(WordList, ANumberThatLooksLikeNone) {
  std::vector<uint32_t> x(64, kNoWord), out(64, 0);
  Instruction add;
  add.what = Do::kEach;
  add.op.kind = OpKind::kScale, add.op.scale = 1;
  add.x = reinterpret_cast<Address>(x.data()), add.x_width = add.out_width = 64;
  add.out = reinterpret_cast<Address>(out.data());
  add.worded = kWordsOut;
  Pass pass;
  pass.rows = pass.runs = 1;
  reference_worded(add, pass);
  EXPECT_TRUE(std::isnan(std::bit_cast<float>(out[5])));
  EXPECT_NE(out[5], kNoWord);
}

}  // namespace
}  // namespace baton::cuda
