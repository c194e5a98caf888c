// An attention layer of one row in lists, on the host, thread by thread: by words in one instruction, and by kHeads and
// kAttend with meetings between.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "baton/base/float.h"
#include "baton/unit/cuda/feed_layout.h"
#include "baton/unit/cuda/kernels/list_plain.cu"
#include "baton/unit/cuda/reference.h"
#include "tests/fiber/fiber.h"
#include "tests/fiber/products.h"
#include "tests/support/words_of_list.h"

namespace baton::cuda::test {
namespace {

using fiber::Order;

struct Shape {
  int heads = 4, kv_heads = 2, width = 64;
  Form form = Form::kF16;
  bool gates = true, norms = true;
  int rotary = 64;
  RopePairing pairing = RopePairing::kHalf;
  int window = 0;
  float size = 1;  // of keys
};

// Products before and behind, then a pick and a product of it.
class Layer {
 public:
  static constexpr int kInner = 192, kLast = 70;

  Layer(const Shape& shape, int position) : desk_(11) {
    const int queries = shape.heads * shape.width, keys = shape.kv_heads * shape.width;
    list.resize(7);
    Instruction &first = list[0], &heads = list[1], &attend = list[2], &behind = list[4], &pick = list[5],
                &last = list[6];
    first.what = behind.what = last.what = Do::kMultiply;
    first.x = desk_.values(1, kInner), first.x_width = kInner, first.matrices = 3;
    const int widths[] = {queries * (shape.gates ? 2 : 1), keys, keys};
    for (int i = 0; i < 3; ++i) {
      first.matrix[i] = desk_.matrix({Form::kBF16}, widths[i], kInner);
      first.outs[i] = desk_.out(1, widths[i]);
    }
    if (shape.size != 1) {
      auto* const values = reinterpret_cast<uint16_t*>(first.matrix[1].values);
      for (int i = 0; i < keys * first.matrix[1].pitch; ++i)
        values[i] = f32_to_bf16(bf16_to_f32(values[i]) * shape.size);
    }
    heads.what = Do::kHeads;
    heads.x = first.outs[0], heads.x_width = widths[0], heads.x_stride = shape.gates ? 2 * shape.width : 0;
    heads.y = first.outs[1], heads.z = first.outs[2], heads.y_width = heads.z_width = keys;
    heads.out = shape.gates ? desk_.out(1, queries) : heads.x, heads.out_width = queries;
    if (shape.gates) heads.out2 = desk_.out(1, queries), heads.out2_width = queries;
    Op& op = heads.op;
    op.heads = shape.heads, op.kv_heads = shape.kv_heads, op.width = shape.width, op.window = shape.window;
    op.scale = 0.2f, op.eps = 1e-6f;
    heads.rope.rotary = shape.rotary, heads.rope.pairing = shape.pairing;
    heads.rope.rope_theta = 1e4f, heads.rope.rope_magnitude = 1.1f;
    heads.vectors[3] = desk_.vector(shape.rotary / 2 + 1, 0.0f);
    for (int i = 0; i < shape.rotary / 2; ++i)
      host_at<float>(heads.vectors[3])[i] =
          std::pow(1e-4f, 2.0f * static_cast<float>(i) / static_cast<float>(shape.rotary));
    if (shape.norms)
      heads.vectors[0] = desk_.vector(shape.width, 1.0f), heads.vectors[1] = desk_.vector(shape.width, 1);
    const int row_bytes = 2 * shape.width;
    heads.slot = {64, row_bytes, shape.form};
    heads.slot2 = {64 + static_cast<uint64_t>(shape.kv_heads * kPageTokens * row_bytes), row_bytes, shape.form};
    attend.what = Do::kAttend;
    attend.op = op;
    attend.x = heads.out, attend.x_width = queries;
    attend.out = desk_.out(1, queries), attend.out_width = queries;
    attend.slot = heads.slot, attend.slot2 = heads.slot2;
    attend.splits = attend_splits(op);
    attend.scratch = desk_.out(1, shape.heads * attend.splits * static_cast<int>(part_values(op)));
    list[3] = attend;
    list[3].what = Do::kAttendJoin;
    behind.x = attend.out, behind.x_width = queries, behind.matrices = 1, behind.op.width = 1;
    if (shape.gates) behind.prologue = Prologue::kGate, behind.y = heads.out2, behind.y_width = queries;
    behind.matrix[0] = desk_.matrix({Form::kBF16}, kInner, queries);
    behind.epilogue = Epilogue::kAdd, behind.z = first.x, behind.z_width = kInner;
    behind.outs[0] = middle = desk_.out(1, kInner);
    pick.what = Do::kPick;
    pick.x = middle, pick.x_width = pick.out_width = kInner, pick.out = desk_.out(1, kInner);
    last.x = pick.out, last.x_width = kInner, last.matrices = 1, last.wanted_only = true;
    last.matrix[0] = desk_.matrix({Form::kBF16}, kLast, kInner);
    last.outs[0] = result = desk_.out(1, kLast);
    make_pages(shape, position);
  }

  // The pages, behind a run.
  std::vector<unsigned char> pages() const {
    std::vector<unsigned char> all;
    for (const Address page : table_) {
      const auto* const from = reinterpret_cast<const unsigned char*>(page);
      all.insert(all.end(), from, from + page_bytes_);
    }
    return all;
  }

  std::vector<Instruction> list;
  Pass pass;
  Address middle, result;

 private:
  void make_pages(const Shape& shape, int position) {
    Random random(7);
    page_bytes_ = 64 + 2 * static_cast<size_t>(shape.kv_heads * kPageTokens * list[1].slot.row_bytes);
    for (int i = 0; i <= position / kPageTokens; ++i)
      table_.push_back(reinterpret_cast<Address>(desk_.raw(page_bytes_)));
    pass.rows = pass.rows_out = pass.runs = 1;
    pass.out_rows = reinterpret_cast<Address>(&row_);
    pass.run_of_row = reinterpret_cast<Address>(&row_);
    pass.run[0] = {0, reinterpret_cast<Address>(table_.data()), position, 0, 1, 1};
    for (int p = 0; p < position; ++p) {
      for (int head = 0; head < shape.kv_heads; ++head) {
        for (const Place* place : {&list[1].slot, &list[1].slot2}) {
          auto* const row = reinterpret_cast<unsigned char*>(host_kv_row(pass.run[0], *place, head, p));
          for (int i = 0; i < shape.width; ++i) heads::put_value(place->form, row, i, random.normal());
        }
      }
    }
  }

  Desk desk_;
  size_t page_bytes_ = 0;
  std::vector<Address> table_;
  int32_t row_ = 0;
};

// What comes out, of the first product behind and of the last.
struct Got {
  Row result;
  std::vector<unsigned char> pages;
};

Got run(const Shape& shape, int position, bool by_words, uint32_t blocks, Order order, uint32_t launches = 1) {
  constexpr uint32_t kCard = 227 * 1024;
  Layer layer(shape, position);
  std::vector<Instruction>& list = layer.list;
  for (const Instruction& in : list) {
    EXPECT_TRUE(in.what == Do::kMultiply || is_plain(in, {}));
  }
  WordsOfList words;
  if (by_words) {
    words.put(list);
    EXPECT_EQ(list.size(), 5u);
    EXPECT_EQ(list[1].what, Do::kAttendRow);
  }
  uint32_t barrier[64] = {};
  ListWork work;
  work.list = reinterpret_cast<Address>(list.data()), work.count = static_cast<int32_t>(list.size());
  work.pass = reinterpret_cast<Address>(&layer.pass), work.barrier = reinterpret_cast<Address>(barrier);
  words.tell(work);
  work.feed = plan_feed(list, kCard);
  work.first_product = chain_products(list);
  for (Instruction& in : list) {
    if (in.what == Do::kMultiply) share_out(in, work.feed, blocks);
  }
  for (uint32_t i = 0; i < launches; ++i) {
    fiber::launch({.blocks = blocks,
                   .threads = kThreads + kFeederThreads + kClerkThreads,
                   .shared_bytes = feed_bytes(work.feed),
                   .order = order,
                   .seed = i + 1,
                   .hop = order == Order::kRandom},
                  [&] { baton_list_plain(work); });
    EXPECT_EQ(barrier[0], 0u);
  }
  const float* const from = host_row(layer.result, Layer::kLast, 0);
  return {Row(from, from + Layer::kLast), layer.pages()};
}

void check(const Shape& shape, const std::vector<int>& positions) {
  for (const int position : positions) {
    SCOPED_TRACE(testing::Message() << shape.heads << "/" << shape.kv_heads << " heads of " << shape.width << ", form "
                                    << static_cast<int>(shape.form) << ", rotary " << shape.rotary << ", at "
                                    << position);
    Layer want(shape, position);
    for (const Instruction& in : want.list) reference(in, want.pass);
    const Got plain = run(shape, position, false, 3, Order::kRandom);
    for (const auto& [blocks, order] :
         {std::pair{1u, Order::kForward}, {3u, Order::kRandom}, {24u, Order::kBackward}}) {
      const Got got = run(shape, position, true, blocks, order);
      EXPECT_TRUE(same_bits(got.result, plain.result)) << blocks;
      EXPECT_EQ(got.pages, plain.pages) << blocks;
      for (int i = 0; i < Layer::kLast; ++i)
        EXPECT_NEAR(got.result[static_cast<size_t>(i)], host_row(want.result, Layer::kLast, 0)[i], 2e-2) << i;
    }
  }
}

TEST(CudaAttendRow, HasTheBitsOfItsParts) {
  check({}, {0, 63, 64, 200, 255});
  check({4, 1, 256, Form::kBF16}, {5, 130});
  check({2, 2, 128, Form::kF16, false, false, 128}, {70});
}

TEST(CudaAttendRow, SeveralParts) {
  check({}, {256, 700});
  check({4, 1, 256}, {140, 2300});  // more parts than lanes, too
  check({4, 1, 128, Form::kBF16, true, true, 64}, {1100});
  check({2, 2, 64, Form::kF16, true, true, 64, RopePairing::kHalf, 400}, {300, 900});
}

TEST(CudaAttendRow, RotationsAndNone) {
  for (const RopePairing pairing : {RopePairing::kHalf, RopePairing::kAdjacent}) {
    for (const bool norms : {false, true}) {
      check({4, 2, 256, Form::kF16, false, norms, pairing == RopePairing::kHalf ? 256 : 128, pairing}, {77});
      check({3, 1, 128, Form::kF16, norms, norms, 64, pairing}, {77});
      check({4, 2, 64, Form::kF16, norms, norms, 0, pairing}, {77});
    }
  }
}

// A key that its type keeps nothing of: no numbers, instead of wrong ones.
TEST(CudaAttendRow, KeysThatAreLost) {
  const Shape shape = {.norms = false, .size = 1e-12f};
  const Got got = run(shape, 9, true, 3, Order::kRandom);
  for (const float value : got.result) EXPECT_TRUE(std::isnan(value));
  EXPECT_EQ(got.pages, run(shape, 9, false, 3, Order::kRandom).pages) << "no zeros are kept for later tokens";
}

// Words of the launch before are not taken for this one's.
TEST(CudaAttendRow, ManyLaunches) {
  for (const int position : {40, 300}) {
    const Got once = run({}, position, true, 5, Order::kRandom);
    EXPECT_TRUE(same_bits(run({}, position, true, 5, Order::kRandom, 4).result, once.result));
  }
}

}  // namespace
}  // namespace baton::cuda::test
