// Kernels of decode steps on the host, thread by thread: products of a few rows and lists, against their bodies, and
// that the harness sees what is wrong in a kernel.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "baton/unit/cuda/feed_layout.h"
#include "baton/unit/cuda/kernels/list.cu"
#include "baton/unit/cuda/kernels/list_plain.cu"
#include "baton/unit/cuda/kernels/list_plain_codes.cu"
#include "baton/unit/cuda/reference.h"
#include "tests/fiber/fiber.h"
#include "tests/fiber/products.h"
#include "tests/support/words_of_list.h"

namespace baton::cuda::test {
namespace {

using fiber::Order;

constexpr uint32_t kLargeCard = 227 * 1024, kSmallCard = 99 * 1024;  // shared memory that a block may have

constexpr Kind kPlain = {Form::kBF16}, kCoded = {Form::kCodes, 8};
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all = {{Form::kF32},
                                        {Form::kF16},
                                        kPlain,
                                        kCoded,
                                        {Form::kCodes, 4},
                                        {Form::kCodes, 4, 5, 0, false, true},
                                        {Form::kCodes, 4, 8, 5, true},
                                        {Form::kCodes, 2, 8, 4, true},
                                        {Form::kCodes, 6, 8, 4},
                                        {Form::kCodes, 5, 5, 0, true},
                                        {Form::kCodes, 4, 4, 0, false, true, Form::kF32},
                                        {Form::kCodes, 3},
                                        {Form::kCodes, 1, 5, 0, false, false, Form::kBF16}};
  return all;
}

std::vector<Row> run(Product& product, const ListWork& work, uint32_t blocks, Order order, double bound) {
  fiber::launch(
      {.blocks = blocks, .threads = kThreads + kFeederThreads, .shared_bytes = feed_bytes(work.feed), .order = order},
      [&] { baton_list(work); });
  EXPECT_LT(product.worst(), bound);
  return product.take();
}

std::vector<Row> run(Product& product, uint32_t card, uint32_t blocks, Order order, double bound) {
  const ListWork work = list_of_one(product.instruction(), reinterpret_cast<Address>(&product.pass()), card, blocks);
  EXPECT_NE(work.feed.set, 0u);
  if (work.feed.set == 0) return {};
  return run(product, work, blocks, order, bound);
}

// On a large and on a small card, in three orders of threads.
void check(const Case& of) {
  SCOPED_TRACE(name_of(of));
  const double bound = of.kind.form == Form::kCodes ? 1e-4 : 1e-5;
  Product product(of);
  const std::vector<Row> first = run(product, kLargeCard, of.blocks, Order::kForward, bound);
  EXPECT_TRUE(same_bits(first, run(product, kLargeCard, of.blocks, Order::kBackward, bound)));
  EXPECT_TRUE(same_bits(first, run(product, kLargeCard, of.blocks + 2, Order::kRandom, bound)));
  run(product, kSmallCard, of.blocks, Order::kRandom, bound);
}

TEST(CudaProductKernels, EveryFormOfWeights) {
  for (const Kind& kind : kinds()) check({kind, 3, kind.block_log2 == 8 ? 512 : 330, {37}});
}

TEST(CudaProductKernels, OneToFiveRows) {
  for (const Kind& kind : {kPlain, kCoded}) {
    for (int rows = 1; rows <= 5; ++rows) check({kind, rows, 1088, {20, 5, 1}, Prologue::kRms, 1088});
  }
}

TEST(CudaProductKernels, RowsOfSeveralSpans) {
  for (const Kind& kind : kinds()) check({kind, 1, kind.block_log2 == 8 ? 5120 : 5000, {7, 3}});
  for (const Kind& kind : kinds()) check({kind, 1, 2560, {7, 3}});
  check({kPlain, 2, 17472, {5}});  // one row of x at a time
  check({kCoded, 1, 17472, {5}});
  check({kCoded, 1, 30656, {3}});
}

// As on cards before capability 9.0.
TEST(CudaProductKernels, WithoutCopiesInBulk) {
  kCopiesInBulk = false;
  for (const Kind& kind : kinds()) check({kind, 1, 2560, {7, 3}});
  check({kPlain, 2, 2048, {140, 90}, Prologue::kGated, 128});
  kCopiesInBulk = true;
}

// So little memory that a piece is a part of a strip: its planes come apart from the strip's scales.
TEST(CudaProductKernels, PiecesNarrowerThanAStrip) {
  for (const bool bulk : {true, false}) {
    kCopiesInBulk = bulk;
    for (const Kind& kind : kinds()) {
      const int odd = kind.block_log2 == 8 ? 1280 : 1088;
      for (const int columns : {odd, 2560}) {
        const Case of = {kind, 1, columns, {7, 3}};
        Product product(of);
        for (const int32_t span : {512, 256}) {
          SCOPED_TRACE(name_of(of) + ", span " + std::to_string(span));
          ListWork work = list_of_one(product.instruction(), reinterpret_cast<Address>(&product.pass()), kLargeCard, 3);
          work.feed.ahead = false;
          work.feed.span = span, work.feed.set = 2, work.feed.slots_log2 = 3;
          work.feed.slot_bytes = kBundle * piece_bytes(work.alone.matrix[0], span);
          share_out(work.alone, work.feed, 3);
          run(product, work, 3, Order::kRandom, kind.form == Form::kCodes ? 1e-4 : 1e-5);
        }
      }
    }
  }
  kCopiesInBulk = true;
}

TEST(CudaProductKernels, MoreOutputsThanARingHolds) {
  check({kPlain, 2, 2048, {140, 90}, Prologue::kGated, 128});
  check({kPlain, 1, 2560, {140, 90}});  // three pieces of four in each bundle
  check({{Form::kCodes, 4, 8, 5, true}, 1, 1024, {350, 350}, Prologue::kRms, 1024, Epilogue::kSwiGlu});
}

// Rows of a warp's set that are stored as none before them.
TEST(CudaProductKernels, MatricesOfSeveralForms) {
  Case of = {{Form::kCodes, 4, 8, 5, true}, 2, 768, {40, 30, 20, 10}, Prologue::kRms, 768};
  of.others = {{Form::kCodes, 6, 8, 4}, kCoded, {Form::kCodes, 4, 5, 0, false, true}};
  check(of);
  of.blocks = 1;
  check(of);
}

TEST(CudaProductKernels, ProloguesAndEpilogues) {
  for (const Kind& kind : {kPlain, kCoded}) {
    check({kind, 3, 256, {33}, Prologue::kLayer, 256, Epilogue::kAdd});
    check({kind, 5, 256, {33}, Prologue::kGated, 128});
    check({kind, 2, 256, {33}, Prologue::kGated, 64, Epilogue::kAdd});
    check({kind, 3, 250, {33}, Prologue::kGate, 1});
    check({kind, 3, 250, {33}, Prologue::kGate, 50});
    check({kind, 3, 250, {18, 18}, Prologue::kRms, 50, Epilogue::kSwiGlu});
    check({kind, 3, 1030, {18, 18}, Prologue::kRms, 1030, Epilogue::kGeGlu, Gelu::kErf});
    check({kind, 3, 1030, {18, 18}, Prologue::kLayer, 1030, Epilogue::kGeGlu, Gelu::kTanh});
  }
}

// Which kernel runs a list, and whether products tell each other words.
enum class Way { kAny, kPlain, kWords };

// Three products, each of what the one before has written.
struct Chain {
  explicit Chain(const Kind& kind, Way way) : desk(9), kWidths{200, 96, 72, way == Way::kWords ? 132 : 130, 200} {
    const int kRows = rows = way == Way::kAny ? 3 : 1;
    pass.rows = pass.rows_out = kRows;
    list = reinterpret_cast<Instruction*>(desk.raw(3 * sizeof(Instruction)));
    std::array<Instruction, 3> all;
    auto& [one, two, three] = all;
    registers[0] = desk.values(kRows, kWidths[0]);
    for (int i = 1; i < 5; ++i) registers[i] = desk.out(kRows, kWidths[i]);
    one.what = two.what = three.what = Do::kMultiply;
    one.x = registers[0], one.x_width = 200, one.matrices = way == Way::kWords ? 1 : 2;
    one.matrix[0] = desk.matrix(kind, 96, 200), one.matrix[1] = desk.matrix(kind, 72, 200);
    one.outs[0] = registers[1], one.outs[1] = registers[2];
    desk.prologue(one, Prologue::kRms, kRows, 200);
    two.x = registers[1], two.x_width = 96, two.matrices = 2, two.epilogue = Epilogue::kSwiGlu;
    two.matrix[0] = desk.matrix(kind, kWidths[3], 96), two.matrix[1] = desk.matrix(kind, kWidths[3], 96);
    two.outs[0] = registers[3];
    three.x = registers[3], three.x_width = kWidths[3], three.matrices = 1, three.epilogue = Epilogue::kAdd;
    three.matrix[0] = desk.matrix(kind, 200, kWidths[3]), three.z = registers[0], three.z_width = 200;
    three.outs[0] = registers[4];
    std::uninitialized_copy(all.begin(), all.end(), list);
  }

  Desk desk;
  const int kWidths[5];
  int rows;
  Pass pass;
  Instruction* list;
  Address registers[5];
};

void check_list(const Kind& kind, uint32_t card, Order order, uint32_t seed, Way way = Way::kAny) {
  SCOPED_TRACE(testing::Message() << "order " << static_cast<int>(order) << ", seed " << seed << ", card " << card
                                  << ", way " << static_cast<int>(way));
  const bool plain = way != Way::kAny;
  Chain chain(kind, way), want(kind, way);
  WordsOfList words;
  if (way == Way::kWords) {
    std::vector<Instruction> copy(chain.list, chain.list + 3);
    words.put(copy);
    ASSERT_NE(words.bytes(), 0u);
    std::copy(copy.begin(), copy.end(), chain.list);
    ASSERT_EQ(chain.list[0].worded, kWordsOut);
    ASSERT_EQ(chain.list[1].worded, kWordsX | kWordsOut);
    ASSERT_EQ(chain.list[2].worded, kWordsX);
  }
  uint32_t barrier[64] = {};
  uint64_t times[3] = {};
  ListWork work;
  work.list = reinterpret_cast<Address>(chain.list), work.count = 3;
  work.first_product = chain_products({chain.list, 3});
  work.pass = reinterpret_cast<Address>(&chain.pass), work.barrier = reinterpret_cast<Address>(barrier);
  work.times = reinterpret_cast<Address>(times);
  words.tell(work);
  work.feed = plan_feed({chain.list, 3}, card);
  ASSERT_NE(work.feed.set, 0u);
  for (int i = 0; i < 3; ++i) share_out(chain.list[i], work.feed, 4);
  for (int i = 0; plain && i < 3; ++i) ASSERT_TRUE(is_plain(chain.list[i], work.feed)) << i;
  EXPECT_EQ(work.feed.ahead, card == kLargeCard);
  for (int launches = 0; launches < 4; ++launches) {
    // Others than before: words of a launch are not taken for those of one behind it.
    for (const Address at : {chain.registers[0], want.registers[0]}) {
      for (int r = 0; launches > 0 && r < chain.rows; ++r) {
        float* const row = host_row(at, 200, r);
        std::transform(row, row + 200, row, [](float value) { return -0.5f * value; });
      }
    }
    for (int i = 0; i < 3; ++i) reference(want.list[i], want.pass);
    fiber::launch({.blocks = 4,
                   .threads = kThreads + kFeederThreads + (plain ? kClerkThreads : 0),
                   .shared_bytes = feed_bytes(work.feed),
                   .order = order,
                   .seed = seed,
                   .hop = order == Order::kRandom},
                  [&] { plain ? baton_list_plain_codes(work) : baton_list(work); });
    EXPECT_EQ(barrier[0], 0u);
    EXPECT_EQ(barrier[1], launches + 1u);
    EXPECT_EQ(barrier[2], way == Way::kWords ? launches + 1u : 0u);
    for (int i = way == Way::kWords ? 4 : 1; i < 5; ++i)
      EXPECT_LT(difference(chain.registers[i], want.registers[i], chain.rows, chain.kWidths[i]), 1e-4) << i;
  }
}

TEST(CudaListKernel, WeightsComeAcrossInstructions) {
  for (const Kind& kind : {kPlain, kCoded}) {
    for (uint32_t seed = 1; seed < 4; ++seed) check_list(kind, kLargeCard, Order::kRandom, seed);
    check_list(kind, kLargeCard, Order::kForward, 1);
    check_list(kind, kLargeCard, Order::kBackward, 1);
    check_list(kind, kSmallCard, Order::kRandom, 7);
  }
}

TEST(CudaListKernel, PlainListsOfOneRow) {
  for (const Kind& kind :
       {kPlain, Kind{Form::kF16}, kCoded, Kind{Form::kCodes, 4, 5, 0, false, true}, kind_of(Packing::kQ8_0)}) {
    for (const Way way : {Way::kPlain, Way::kWords}) {
      for (uint32_t seed = 1; seed < 4; ++seed) check_list(kind, kLargeCard, Order::kRandom, seed, way);
      check_list(kind, kLargeCard, Order::kForward, 1, way);
      check_list(kind, kLargeCard, Order::kBackward, 1, way);
    }
  }
}

// A value whose bits are those of a word that has not come: nobody waits for it.
TEST(CudaListKernel, AValueThatLooksAsIfItHadNotCome) {
  Chain chain(kPlain, Way::kWords);
  WordsOfList words;
  std::vector<Instruction> list(chain.list, chain.list + 3);
  words.put(list);
  ASSERT_NE(words.bytes(), 0u);
  for (int i = 0; i < 200; ++i) host_row(chain.registers[0], 200, 0)[i] = std::bit_cast<float>(kNoWord);
  uint32_t barrier[64] = {};
  ListWork work;
  work.list = reinterpret_cast<Address>(list.data()), work.count = 3;
  work.first_product = chain_products(list);
  work.pass = reinterpret_cast<Address>(&chain.pass), work.barrier = reinterpret_cast<Address>(barrier);
  words.tell(work);
  work.feed = plan_feed(list, kLargeCard);
  for (Instruction& in : list) share_out(in, work.feed, 4);
  fiber::launch(
      {.blocks = 4, .threads = kThreads + kFeederThreads + kClerkThreads, .shared_bytes = feed_bytes(work.feed)},
      [&] { baton_list_plain(work); });
  EXPECT_TRUE(std::isnan(host_row(chain.registers[4], chain.kWidths[4], 0)[0]));
}

// One row has the bits that it has among others, whichever kernel multiplies it.
TEST(CudaListKernel, PlainProductsHaveTheBitsOfOthers) {
  std::vector<Case> cases;
  for (const int columns : {1024, 1030, 5000})
    cases.push_back({kPlain, 1, columns, {130, 70}, Prologue::kRms, columns});
  cases.push_back({kPlain, 1, 3584, {67, 67}, Prologue::kRms, 3584, Epilogue::kSwiGlu});
  cases.push_back({{Form::kCodes, 4, 8, 5, true}, 1, 1024, {40, 30, 20, 10}, Prologue::kRms, 1024});
  cases.back().others = {{Form::kCodes, 6, 8, 4}, kCoded, {Form::kCodes, 4, 5, 0, false, true}};
  cases.push_back({kCoded, 1, 3584, {67, 67}, Prologue::kRms, 3584, Epilogue::kSwiGlu});
  for (const Packing packing : kPackings) {
    const Kind kind = kind_of(packing);
    cases.push_back({kind, 1, 1024, {130, 70}, Prologue::kRms, 1024});
    cases.push_back({kind, 1, 3584, {67, 67}, Prologue::kRms, 3584, Epilogue::kSwiGlu});
    cases.push_back({kind, 1, 2560, {3}, Prologue::kGate, 64, Epilogue::kAdd});  // fewer outputs than warps
    cases.push_back({kind, 1, 256, {660}, Prologue::kNone, 0});                  // several rounds
    cases.push_back({kind, 1, 1024, {40, 30}, Prologue::kRms, 1024});
    cases.back().others = {{Form::kCodes, 6, 8, 4}};  // taken apart as it says of itself
  }
  for (const int rows : {30, 200}) {  // one round, and several
    cases.push_back({kind_of(Packing::kQ8_0), 1, 2560, {rows, 30, 20, 10}, Prologue::kRms, 2560});
    cases.back().others = {kind_of(Packing::kQ4_K), kind_of(Packing::kQ5_K), kind_of(Packing::kQ6_K)};
  }
  cases.push_back({{Form::kCodes, 6, 8, 4}, 1, 2560, {130}, Prologue::kGate, 64, Epilogue::kAdd});
  for (const Case& of : cases) {
    SCOPED_TRACE(name_of(of));
    Product product(of);
    const std::vector<Row> first = run(product, kLargeCard, 3, Order::kRandom, 1e-4);
    const Pass& pass = product.pass();
    Instruction in = product.instruction();
    ListWork work;
    work.feed = plan_feed({&in, 1}, kLargeCard);
    share_out(in, work.feed, 5);
    ASSERT_TRUE(is_plain(in, work.feed));
    const bool mixed = of.others.size() == 3 && of.others[0].packing != Packing::kOther;
    ASSERT_EQ(in.product.packing, mixed ? Packing::kMixed : of.others.empty() ? of.kind.packing : Packing::kOther);
    uint32_t barrier[64] = {};
    work.list = reinterpret_cast<Address>(&in), work.count = 1, work.first_product = chain_products({&in, 1});
    work.pass = reinterpret_cast<Address>(&pass), work.barrier = reinterpret_cast<Address>(barrier);
    for (const bool codes : {of.kind.form == Form::kCodes, true}) {
      fiber::launch({.blocks = 5,
                     .threads = kThreads + kFeederThreads + kClerkThreads,
                     .shared_bytes = feed_bytes(work.feed),
                     .order = Order::kRandom},
                    [&] { codes ? baton_list_plain_codes(work) : baton_list_plain(work); });
      EXPECT_LT(product.worst(), 1e-4);
      EXPECT_TRUE(same_bits(first, product.take()));
    }
  }
}

// Norms of whole rows: as the body has them, and with the bits that a block a row makes.
TEST(CudaRowKernels, WholeRowsAreNormed) {
  for (const int width : {516, 1024, 2048, 2564, 4100}) {
    for (const int rows : {1, 9}) {
      for (const bool to_bf16 : {false, true}) {
        SCOPED_TRACE(testing::Message() << width << " values, " << rows << " rows, bf16 " << to_bf16);
        Desk desk(3);
        Instruction in;
        in.what = Do::kPrepare, in.x_width = in.out_width = width, in.to_bf16 = to_bf16;
        in.x = desk.values(rows, width);
        desk.prologue(in, Prologue::kRms, rows, width);
        Pass pass;
        pass.rows = rows;
        const size_t bytes = static_cast<size_t>(rows) * static_cast<size_t>(pitch_of(width)) * (to_bf16 ? 2 : 4);
        const auto made = [&](const std::function<void()>& body) {
          std::memset(reinterpret_cast<void*>(in.out = desk.out(rows, width)), 0xff, to_bf16 ? bytes : 0);
          fiber::launch({.blocks = 2, .threads = kThreads, .shared_bytes = kBeforeRows, .order = Order::kRandom}, body);
          return std::vector<unsigned char>(reinterpret_cast<unsigned char*>(in.out),
                                            reinterpret_cast<unsigned char*>(in.out) + bytes);
        };
        const auto got = made([&] { do_prepare(in, pass, blockIdx.x, gridDim.x, shared); });
        const auto by_blocks = made([&] {
          prepare<4>(in, rows, blockIdx.x, gridDim.x, reinterpret_cast<float*>(shared));
          meet();
        });
        EXPECT_EQ(got, by_blocks);
        const Instruction own = in;
        in.out = desk.out(rows, width);
        reference(in, pass);
        for (int i = 0; i < rows * width && !to_bf16; ++i) {
          const float* const mine = host_row(own.out, width, i / width) + i % width;
          const float* const wanted = host_row(in.out, width, i / width) + i % width;
          ASSERT_NEAR(*mine, *wanted, 1e-5 * (1 + std::fabs(*wanted)));
        }
      }
    }
  }
}

// That a kernel with a fault is not taken for one without.
void launch_two_warps(const std::function<void()>& body, Order order = Order::kForward) {
  fiber::launch({.threads = 64, .shared_bytes = 4096, .order = order}, body);
}

TEST(CudaFibersDeathTest, LanesThatDiverge) {
  const auto body = [] {
    if (lane() < 16) {
      __shfl_xor_sync(kAll, 1, 1);
    } else {
      __any_sync(kAll, true);
    }
  };
  EXPECT_DEATH(launch_two_warps(body), "lanes diverge");
}

TEST(CudaFibersDeathTest, ThreadsThatStayAway) {
  EXPECT_DEATH(launch_two_warps([] {
                 if (threadIdx.x != 5) __syncthreads();
               }),
               "at __syncthreads");
  EXPECT_DEATH(launch_two_warps([] {
                 if (threadIdx.x != 5) __syncwarp();
               }),
               "nobody can go on");
  EXPECT_DEATH(launch_two_warps([] {
                 if (warp() == 0) {
                   __syncthreads();
                 } else {
                   __syncthreads_or(1);
                 }
               }),
               "threads diverge");
}

TEST(CudaFibersDeathTest, CopiesThatNobodyWaitsFor) {
  alignas(16) static int from[4] = {};
  EXPECT_DEATH(launch_two_warps([] {
                 copy_ahead(shared_address(shared), from);
                 copies_end_group();
               }),
               "copies that nobody waited for");
}

TEST(CudaFibersDeathTest, WaitingForBlocksThatDoNotCome) {
  static uint32_t count = 0;
  EXPECT_DEATH(launch_two_warps([] {
                 while (threadIdx.x == 0 && load_acquired(&count) < 1) {
                 }
               }),
               "waits for other blocks");
}

TEST(CudaFibersDeathTest, ValuesWhereABarrierIs) {
  const auto make = [] {
    if (threadIdx.x == 0) make_barrier(shared_address(shared + 64), 1);
  };
  EXPECT_DEATH(launch_two_warps([&] {
                 make();
                 if (threadIdx.x == 0) shared[66] = 0;
               }),
               "writes values where a barrier is");
  EXPECT_DEATH(launch_two_warps([&] {
                 make();
                 make();
               }),
               "makes a barrier where there is one");
}

TEST(CudaFibersDeathTest, WritingBehindItsSharedMemory) {
  EXPECT_DEATH(launch_two_warps([] { shared[4096] = 1; }), "wrote behind its shared memory");
}

TEST(CudaFibersDeathTest, ReadingBehindAMatrix) {
  Desk desk(1);
  const Matrix matrix = desk.matrix(kPlain, 1, 64);
  const auto* const end = reinterpret_cast<const volatile unsigned char*>(matrix.values) + matrix.row_bytes;
  EXPECT_NO_FATAL_FAILURE(static_cast<void>(end[-1]));
  EXPECT_DEATH(static_cast<void>(*end), "");
}

TEST(CudaFibers, AMissingBarrierShowsInTheOrderOfThreads) {
  const auto sum_of = [](bool meets, Order order) {
    float sum = 0;
    launch_two_warps(
        [&, meets] {
          auto* const values = reinterpret_cast<float*>(shared);
          values[threadIdx.x] = static_cast<float>(threadIdx.x);
          if (meets) __syncthreads();
          if (threadIdx.x == 7) sum = values[6] + values[8];
        },
        order);
    return sum;
  };
  for (const Order order : {Order::kForward, Order::kBackward, Order::kRandom}) EXPECT_EQ(sum_of(true, order), 14.0f);
  EXPECT_TRUE(std::isnan(sum_of(false, Order::kForward)));
  EXPECT_TRUE(std::isnan(sum_of(false, Order::kBackward)));
}

TEST(CudaFibers, CopiesComeWhenTheyAreWaitedFor) {
  alignas(16) static const float from[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  float early = 0, late = 0, first = 0, last = 0, zero = 1;
  launch_two_warps([&] {
    if (threadIdx.x != 0) return;
    auto* const place = reinterpret_cast<float*>(shared);
    copy_ahead(shared_address(place), from, true);
    copies_end_group();
    copy_ahead(shared_address(place + 4), from + 4, true);
    copy_ahead(shared_address(place + 8), from, false);
    copies_end_group();
    early = place[0];
    copies_wait<1>();
    first = place[0], late = place[4];
    copies_wait<0>();
    last = place[7], zero = place[8];
  });
  EXPECT_TRUE(std::isnan(early));
  EXPECT_EQ(first, 1.0f);
  EXPECT_TRUE(std::isnan(late));
  EXPECT_EQ(last, 8.0f);
  EXPECT_EQ(zero, 0.0f);
}

}  // namespace
}  // namespace baton::cuda::test
