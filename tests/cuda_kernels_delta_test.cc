// Convolution and delta rule of rows that decode, on the host, thread by thread: against the body, and a row alone
// against the same row beside others.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <vector>

#include "baton/unit/cuda/feed_layout.h"
#include "baton/unit/cuda/kernels/list_plain.cu"
#include "baton/unit/cuda/kernels/list_together.cu"
#include "baton/unit/cuda/mma_list.h"
#include "baton/unit/cuda/reference.h"
#include "tests/fiber/fiber.h"
#include "tests/fiber/products.h"
#include "tests/support/words_of_list.h"

namespace baton::cuda::test {
namespace {

using fiber::Order;

struct Shape {
  int heads = 2, key_heads = 2, keys = 128, values = 128;
  HeadMap map = HeadMap::kGrouped;
  int taps = 4;

  int channels() const { return 2 * key_heads * keys + heads * values; }
};

// A step of some runs, each at another position, and what is in their parts.
class Step {
 public:
  Step(const Shape& shape, int runs) : shape_(shape), desk_(3) {
    in_.what = Do::kConvDelta;
    Op& op = in_.op;
    op.heads = shape.heads, op.kv_heads = shape.key_heads, op.head_map = shape.map;
    op.key_dim = shape.keys, op.value_dim = shape.values, op.taps = shape.taps, op.eps = 1e-6f;
    in_.x_width = shape.channels(), in_.y_width = in_.z_width = shape.heads;
    in_.out_width = shape.heads * shape.values;
    in_.x = desk_.values(runs, in_.x_width), in_.y = desk_.values(runs, in_.y_width);
    in_.z = desk_.values(runs, in_.z_width), in_.out = desk_.out(runs, in_.out_width);
    in_.vectors[0] = desk_.vector(shape.heads, -1.0f), in_.vectors[1] = desk_.vector(shape.heads, 0.0f);
    in_.vectors[2] = desk_.vector(shape.channels() * shape.taps, 0.5f);
    ring_at_ = static_cast<size_t>(shape.heads * shape.keys * shape.values);
    in_.slot2.offset = ring_at_ * sizeof(float);
    pass_.rows = pass_.rows_out = pass_.runs = runs;
    for (int r = 0; r < runs; ++r) {
      const size_t size = ring_at_ + static_cast<size_t>(shape.channels() * shape.taps);
      const Address parts = desk_.vector(static_cast<int>(size), 0.0f);
      const auto* const from = reinterpret_cast<const float*>(parts);
      begin_.emplace_back(from, from + size);
      pass_.run[r] = {parts, 0, 5 + 3 * r, r, 1, 1};
    }
  }

  const Instruction& in() const { return in_; }
  Desk& desk() { return desk_; }
  // Of one of the runs alone, or of all.
  Pass pass(int run = -1) const {
    if (run < 0) return pass_;
    Pass one = pass_;
    one.run[0] = pass_.run[run];
    one.runs = one.rows = one.rows_out = 1;
    return one;
  }
  // What a run's row, state and ring have become; they are again what they were.
  Row take(int run) {
    const Run& of = pass_.run[run];
    auto* const parts = reinterpret_cast<float*>(of.parts);
    const std::vector<float>& begin = begin_[static_cast<size_t>(run)];
    auto* const out = reinterpret_cast<float*>(in_.out) + of.first_row * pitch_of(in_.out_width);
    Row all(out, out + pitch_of(in_.out_width));
    all.insert(all.end(), parts, parts + begin.size());
    std::copy(begin.begin(), begin.end(), parts);
    std::memset(out, 0xff, static_cast<size_t>(in_.out_width) * sizeof(float));
    return all;
  }

 private:
  const Shape shape_;
  Desk desk_;
  Instruction in_;
  Pass pass_;
  size_t ring_at_;
  std::vector<std::vector<float>> begin_;
};

enum class Way : uint8_t { kAny, kRows, kMany };

void run(const Step& step, const Pass& pass, Way way, int blocks, Order order) {
  const auto body = [&] {
    if (way == Way::kAny) do_conv_delta(step.in(), pass, blockIdx.x, gridDim.x, shared);
    if (way == Way::kRows) {
      const Op& op = step.in().op;
      DeltaUnit first = {};
      if (static_cast<int>(blockIdx.x) < DeltaUnit::count(op, pass.runs, 1))
        first = DeltaUnit(op, static_cast<int>(blockIdx.x), 1);
      do_conv_delta_rows(step.in(), pass, blockIdx.x, gridDim.x, first, shared, [] { meet(); });
    }
    if (way == Way::kMany) do_conv_delta_of_many(step.in(), pass, shared, nullptr);
  };
  fiber::launch({.blocks = static_cast<uint32_t>(blocks),
                 .threads = kThreads,
                 .shared_bytes = way == Way::kMany   ? kDeltaManyShared
                                 : way == Way::kRows ? kDeltaRowRoom
                                                     : kSmallShared,
                 .order = order},
                body);
}

double worst(const Row& got, const Row& want) {
  double most = got.size() == want.size() ? 0 : 1e9;
  for (size_t i = 0; i < want.size() && most < 1e9; ++i) {
    const double by = std::abs(double{got[i]} - double{want[i]}) / (1 + std::abs(double{want[i]}));
    most = by <= most ? most : by;  // no number stays
    if (std::isnan(by)) return 1e9;
  }
  return most;
}

// By numbers of blocks that give units one, two and four groups of columns.
void check(const Shape& shape, const std::vector<Way>& ways) {
  constexpr int kRuns = 3;
  Step step(shape, kRuns);
  reference(step.in(), step.pass());
  std::vector<Row> want;
  for (int r = 0; r < kRuns; ++r) want.push_back(step.take(r));
  std::vector<Row> exact;
  for (const Way way : ways) {
    SCOPED_TRACE(testing::Message() << "way " << static_cast<int>(way) << ", keys " << shape.keys << ", values "
                                    << shape.values << ", heads " << shape.heads);
    std::vector<Row> first;
    run(step, step.pass(), way, 3, Order::kRandom);
    for (int r = 0; r < kRuns; ++r) {
      first.push_back(step.take(r));
      EXPECT_LT(worst(first.back(), want[static_cast<size_t>(r)]), 1e-5) << r;
    }
    if (exact.empty()) exact = first;
    EXPECT_TRUE(same_bits(first, exact));
    for (const int blocks : {1, 2, 5}) {  // of many, one and two have whole heads of 128 columns
      run(step, step.pass(), way, blocks, blocks == 2 ? Order::kBackward : Order::kForward);
      for (int r = 0; r < kRuns; ++r)
        EXPECT_TRUE(same_bits(step.take(r), first[static_cast<size_t>(r)])) << r << ", blocks " << blocks;
    }
    for (const int blocks : {40, 12, 1}) {
      for (int r = 0; r < kRuns; ++r) {
        run(step, step.pass(r), way, blocks, blocks == 12 ? Order::kBackward : Order::kForward);
        EXPECT_TRUE(same_bits(step.take(r), first[static_cast<size_t>(r)])) << r << ", blocks " << blocks;
        for (int other = 0; other < kRuns; ++other) static_cast<void>(step.take(other));
      }
    }
  }
}

TEST(CudaDeltaKernels, RowsThatDecode) {
  const std::vector<Way> all = {Way::kAny, Way::kRows, Way::kMany};
  check({}, all);
  check({4, 2}, all);
  check({4, 2, 128, 128, HeadMap::kTiled}, all);
  check({2, 1, 64, 64}, all);
  check({2, 2, 40, 48}, all);
  check({1, 1, 128, 256}, all);
  check({2, 1, 36, 144}, all);
}

TEST(CudaDeltaKernels, OddShapes) {
  check({2, 2, 33, 21}, {Way::kAny});
  check({2, 1, 200, 30}, {Way::kAny});
  check({2, 2, 32, 32, HeadMap::kGrouped, 3}, {Way::kAny});
}

// A product that makes what it works on, the step, and a product of what it makes: in a list kernel, where it waits for
// the one and the other waits for it.
struct Chain {
  static constexpr int kInner = 192, kLast = 70;

  Chain(const Shape& shape, int rows) : step(shape, rows), pass(step.pass()) {
    Desk& desk = step.desk();
    list.resize(3);
    list[1] = step.in();
    Instruction &first = list[0], &last = list[2];
    first.what = last.what = Do::kMultiply;
    first.x = desk.values(rows, kInner), first.x_width = kInner, first.matrices = 3;
    const int widths[] = {shape.channels(), shape.heads, shape.heads};
    Address* const outs[] = {&list[1].x, &list[1].y, &list[1].z};
    for (int i = 0; i < 3; ++i) {
      first.matrix[i] = desk.matrix({Form::kBF16}, widths[i], kInner);
      first.outs[i] = *outs[i] = desk.out(rows, widths[i]);
    }
    last.x = list[1].out, last.x_width = list[1].out_width, last.matrices = 1;
    last.matrix[0] = desk.matrix({Form::kBF16}, kLast, last.x_width);
    last.outs[0] = result = desk.out(rows, kLast);
  }

  Step step;
  Pass pass;
  std::vector<Instruction> list;
  Address result;
};

enum class Lists { kPlain, kWords, kTogether };

void run_list(Chain& chain, Lists lists, uint32_t kBlocks, Order order) {
  const bool together = lists == Lists::kTogether;
  constexpr uint32_t kCard = 227 * 1024;
  uint32_t barrier[64] = {};
  std::vector<Instruction> list = chain.list;
  std::vector<unsigned char> planes;
  if (together) {
    list = *mma_list(list);
    planes.assign(planes_bytes_of(list) + 128, 0xff);
    list = with_planes(list, (reinterpret_cast<Address>(planes.data()) + 127) & ~Address{127});
  }
  WordsOfList words;
  if (lists == Lists::kWords) {
    words.put(list);
    ASSERT_EQ(list[0].worded, kWordsOut);
    ASSERT_EQ(list[1].worded, kWordsX | kWordsY | kWordsZ | kWordsOut);
    ASSERT_EQ(list[2].worded, kWordsX);
  }
  ListWork work;
  work.list = reinterpret_cast<Address>(list.data()), work.count = static_cast<int32_t>(list.size());
  work.pass = reinterpret_cast<Address>(&chain.pass), work.barrier = reinterpret_cast<Address>(barrier);
  words.tell(work);
  if (!together) {
    work.feed = plan_feed(list, kCard);
    work.first_product = chain_products(list);
  }
  for (Instruction& in : list) {
    if (in.what != Do::kMultiply && !together) continue;
    together ? share_mma(in, kBlocks) : share_out(in, work.feed, kBlocks);
  }
  for (const Instruction& in : list) ASSERT_TRUE(together || is_plain(in, work.feed));
  fiber::launch({.blocks = kBlocks,
                 .threads = together ? kThreads : kThreads + kFeederThreads + kClerkThreads,
                 .shared_bytes = together ? kCard - 10240 : feed_bytes(work.feed),
                 .order = order,
                 .hop = order == Order::kRandom},
                [&] { together ? baton_list_together(work) : baton_list_plain(work); });
  EXPECT_EQ(barrier[0], 0u);
}

TEST(CudaDeltaKernels, WaitInListsForWhatTheyWorkOn) {
  const Shape shape = {4, 2, 64, 64};
  for (const Lists lists : {Lists::kPlain, Lists::kWords, Lists::kTogether}) {
    const int rows = lists == Lists::kTogether ? 6 : 1;
    Chain want(shape, rows);
    for (const Instruction& in : want.list) reference(in, want.pass);
    std::vector<Row> states;
    for (int r = 0; r < rows; ++r) states.push_back(want.step.take(r));
    for (const auto& [blocks, order] : {std::pair{5u, Order::kForward},
                                        {5u, Order::kBackward},
                                        {5u, Order::kRandom},
                                        {24u, Order::kBackward},
                                        {24u, Order::kRandom}}) {  // 24: some have no unit
      SCOPED_TRACE(testing::Message() << "lists " << static_cast<int>(lists) << ", order " << static_cast<int>(order));
      Chain chain(shape, rows);
      run_list(chain, lists, blocks, order);
      EXPECT_LT(difference(chain.result, want.result, rows, Chain::kLast), 1e-4);
      for (int r = 0; r < rows; ++r) {
        Row got = chain.step.take(r);
        // What went on as words.
        for (size_t i = 0; lists == Lists::kWords && i < got.size(); ++i) {
          if (std::isnan(got[i])) got[i] = states[static_cast<size_t>(r)][i];
        }
        EXPECT_LT(worst(got, states[static_cast<size_t>(r)]), 1e-4) << r;
      }
    }
  }
}

}  // namespace
}  // namespace baton::cuda::test
