// The kernel that multiplies several rows on tensor cores, on the host, thread by thread: against the body, and a row
// alone against the same row beside others.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <span>
#include <utility>
#include <vector>

#include "baton/base/float.h"
#include "baton/base/random.h"
#include "baton/unit/cuda/kernels/list_together.cu"
#include "baton/unit/cuda/mma_list.h"
#include "baton/unit/cuda/reference.h"
#include "tests/fiber/fiber.h"
#include "tests/fiber/products.h"

namespace baton::cuda::test {
namespace {

using fiber::Order;

constexpr Kind kPlain = {Form::kBF16}, kCoded = {Form::kCodes, 4, 8, 5, true};

struct Launch {
  uint32_t blocks;
  Order order = Order::kForward;
  uint32_t shared_bytes = kSharedBytes;
};

void multiply(std::span<const Instruction> step, int rows, const Launch& how) {
  Pass pass;
  pass.rows = rows;
  ListWork work;
  uint32_t barrier = 0;
  std::vector<Instruction> list = *mma_list(step);
  std::vector<unsigned char> planes(planes_bytes_of(list) + 128, 0xff);
  list = with_planes(list, (reinterpret_cast<Address>(planes.data()) + 127) & ~Address{127});
  for (Instruction& each : list) share_mma(each, how.blocks);
  work.list = reinterpret_cast<Address>(list.data());
  work.count = static_cast<int32_t>(list.size());
  work.pass = reinterpret_cast<Address>(&pass);
  work.barrier = reinterpret_cast<Address>(&barrier);
  fiber::launch({.blocks = how.blocks, .shared_bytes = how.shared_bytes, .order = how.order},
                [&] { baton_list_together(work); });
  EXPECT_EQ(barrier, 0u);
}

void multiply(const Instruction& in, int rows, const Launch& how) {
  Instruction bound = in;
  bound.scratch = 1;  // that of other kinds
  multiply({&bound, 1}, rows, how);
}

// Rows from `first` on alone have the bits that they have in `whole`, and no other row is touched.
void check_alone(Product& product, const std::vector<Row>& whole, int first, int rows, const Launch& how) {
  multiply(product.from_row(first), rows, how);
  const std::vector<Row> alone = product.take();
  for (int r = 0; r < product.pass().rows; ++r) {
    const auto i = static_cast<size_t>(r);
    if (r >= first && r < first + rows) {
      EXPECT_TRUE(same_bits(alone[i], whole[i])) << "row " << r << " of rows from " << first;
    } else {
      EXPECT_TRUE(std::isnan(alone[i][0])) << "row " << r << " of rows from " << first;
    }
  }
}

void check(const Case& of, bool every_way = false) {
  SCOPED_TRACE(name_of(of));
  Product product(of);
  ASSERT_TRUE(takes_mma(product.instruction()));
  multiply(product.instruction(), of.rows, {of.blocks});
  EXPECT_LT(product.worst(), 1e-4);
  const std::vector<Row> whole = product.take();
  check_alone(product, whole, of.rows - 1, 1, {of.blocks + 1, Order::kBackward});
  if (of.rows > 16) check_alone(product, whole, 0, of.rows, {of.blocks + 7, Order::kBackward, 227 * 1024});
  if (!every_way) return;
  check_alone(product, whole, 0, of.rows, {of.blocks, Order::kRandom});
  check_alone(product, whole, of.rows / 2, of.rows - of.rows / 2, {1, Order::kBackward, 227 * 1024});
  check_alone(product, whole, 0, of.rows, {30, Order::kForward});
}

TEST(CudaMmaKernels, EveryFormOfWeights) {
  const std::vector<Kind> kinds = {{Form::kF32},
                                   {Form::kF16},
                                   kPlain,
                                   kCoded,
                                   {Form::kCodes, 8},
                                   {Form::kCodes, 4},
                                   {Form::kCodes, 4, 5, 0, false, true},
                                   {Form::kCodes, 4, 4, 0, false, true},
                                   {Form::kCodes, 3, 8, 4},
                                   {Form::kCodes, 6, 8, 4},
                                   {Form::kCodes, 5, 5, 0, true},
                                   {Form::kCodes, 2, 8, 4, true},
                                   {Form::kCodes, 1, 5, 0, false, false, Form::kF32}};
  for (const Kind& kind : kinds) {
    check({kind, 5, 256, {37}}, true);
    check({kind, 17, 512, {20, 5, 1}, Prologue::kRms, 512});
  }
}

TEST(CudaMmaKernels, NumbersOfRows) {
  for (const int rows : {1, 8, 9, 33, 64}) {
    check({kPlain, rows, 320, {50}, Prologue::kRms, 320}, true);
    check({kCoded, rows, 768, {50}, Prologue::kRms, 768});
  }
}

TEST(CudaMmaKernels, ProloguesAndEpilogues) {
  for (const Kind& kind : {kPlain, kCoded}) {
    check({kind, 11, 256, {33}, Prologue::kLayer, 256, Epilogue::kAdd});
    check({kind, 5, 512, {33}, Prologue::kGated, 128});
    check({kind, 20, 2048, {20}, Prologue::kGated, 128, Epilogue::kAdd, Gelu::kErf, 9});
    check({kind, 6, 256, {33}, Prologue::kGated, 64, Epilogue::kAdd});
    check({kind, 18, 256, {33}, Prologue::kGate, 1});
    check({kind, 9, 512, {33}, Prologue::kGate, 64});
    check({kind, 12, 512, {18, 18}, Prologue::kRms, 64, Epilogue::kSwiGlu});
    check({kind, 35, 1280, {18, 18}, Prologue::kRms, 1280, Epilogue::kGeGlu, Gelu::kErf});
    check({kind, 8, 1280, {45, 45}, Prologue::kLayer, 1280, Epilogue::kGeGlu, Gelu::kTanh, 2});
  }
}

TEST(CudaMmaKernels, OddWidths) {
  check({kPlain, 20, 190, {70}, Prologue::kRms, 190}, true);
  check({kPlain, 20, 1030, {30, 40}, Prologue::kLayer, 1030});
  check({kPlain, 20, 250, {33}, Prologue::kGate, 50});
  check({kPlain, 20, 250, {33}, Prologue::kRms, 50});
  check({kPlain, 20, 64, {33}});
}

TEST(CudaMmaKernels, MatricesOfSeveralForms) {
  Case several = {kCoded, 20, 768, {40, 30, 20, 10}, Prologue::kRms, 768};
  several.others = {{Form::kCodes, 6, 8, 4}, {Form::kCodes, 8}, {Form::kCodes, 4, 5, 0, false, true}};
  check(several, true);
  Case gate = {{Form::kCodes, 4, 5, 0, false, true}, 20, 512, {40, 40}, Prologue::kRms, 512, Epilogue::kSwiGlu};
  gate.others = {kCoded};
  check(gate);
  gate.columns = gate.group = 2304;  // of codes of one size whose strips are not
  check(gate);
}

// Of many outputs fewer warps share each, and their rounds follow one another.
TEST(CudaMmaKernels, ManyOutputs) {
  check({kCoded, 5, 1024, {2500}, Prologue::kRms, 1024});
  check({kPlain, 5, 512, {4300}, Prologue::kNone, 0, Epilogue::kAdd});
  check({kPlain, 9, 256, {17000}, Prologue::kRms, 256, Epilogue::kNone, Gelu::kErf, 5});
}

// Of many columns the rows of x come span by span, each to the place of one that all warps are done with; of many
// outputs again for each round. By copies in bulk, and by those that cards before capability 9.0 have.
TEST(CudaMmaKernels, SpansTakeTurns) {
  for (const bool bulk : {true, false}) {
    SCOPED_TRACE(bulk);
    kCopiesInBulk = bulk;
    check({kPlain, 40, 1408, {1200}, Prologue::kRms, 1408, Epilogue::kNone, Gelu::kErf, 3});
    check({kCoded, 64, 1024, {2200}, Prologue::kRms, 1024, Epilogue::kAdd, Gelu::kErf, 7});
    check({kPlain, 20, 4480, {40}, Prologue::kRms, 4480});
    check({kCoded, 3, 8448, {20}, Prologue::kNone, 0, Epilogue::kAdd});
    check({kPlain, 64, 4352, {70, 70}, Prologue::kRms, 4352, Epilogue::kSwiGlu, Gelu::kErf, 2});
  }
  kCopiesInBulk = true;
}

// Products of which each hands its rows on: a gate and an up, a down, and three that take what is there then: with a
// norm, with the same norm but a matrix of another form, and without one.
class Handed {
 public:
  Handed(const Kind& kind, const Kind& other, int rows) : desk_(7), rows_(rows), list_(5) {
    const auto product = [&](size_t i, Address x, int columns, const std::vector<std::pair<Kind, int>>& matrices) {
      Instruction& in = list_[i];
      in.what = Do::kMultiply;
      in.x = x, in.x_width = columns;
      for (const auto& [of, width] : matrices) in.matrix[in.matrices++] = desk_.matrix(of, width, columns);
      const size_t outs = i == 0 ? 1 : matrices.size();
      for (size_t k = 0; k < outs; ++k)
        outs_.push_back({in.outs[k] = desk_.out(rows, matrices[k].second), matrices[k].second});
    };
    product(0, desk_.values(rows, kWidth), kWidth, {{kind, kInner}, {kind, kInner}});
    list_[0].epilogue = Epilogue::kSwiGlu;
    desk_.prologue(list_[0], Prologue::kRms, rows, kWidth);
    product(1, list_[0].outs[0], kInner, {{kind, kWidth}});
    list_[1].epilogue = Epilogue::kAdd, list_[1].z = list_[0].x, list_[1].z_width = kWidth;
    product(2, list_[1].outs[0], kWidth, {{kind, 100}, {kind, 20}});
    desk_.prologue(list_[2], Prologue::kRms, rows, kWidth);
    product(3, list_[1].outs[0], kWidth, {{other, 40}});
    list_[3].prologue = Prologue::kRms, list_[3].op = list_[2].op, list_[3].vectors[0] = list_[2].vectors[0];
    product(4, list_[1].outs[0], kWidth, {{kind, 30}});
  }

  std::span<const Instruction> list() const { return list_; }
  // Rows from `first` on; the bits of the whole result, by row, which is then no number again.
  std::vector<Row> run(int first, int rows, const Launch& how) {
    std::vector<Instruction> from = list_;
    for (Instruction& in : from) {
      in.x = moved(in.x, in.x_width, first), in.z = moved(in.z, in.z_width, first);
      for (int k = 0; k < in.matrices; ++k) in.outs[k] = moved(in.outs[k], in.matrix[k].rows, first);
    }
    multiply(from, rows, how);
    return take();
  }
  std::vector<Row> want() {
    Pass pass;
    pass.rows = rows_;
    for (const Instruction& in : list_) reference(in, pass);
    return take();
  }

 private:
  static constexpr int kWidth = 128, kInner = 384;

  static Address moved(Address of, int width, int row) {
    return of == 0 ? 0 : reinterpret_cast<Address>(host_row(of, width, row));
  }
  std::vector<Row> take() {
    std::vector<Row> all(static_cast<size_t>(rows_));
    for (const auto& [out, width] : outs_) {
      for (int r = 0; r < rows_; ++r) {
        float* const from = host_row(out, width, r);
        all[static_cast<size_t>(r)].insert(all[static_cast<size_t>(r)].end(), from, from + width);
        std::memset(from, 0xff, static_cast<size_t>(width) * sizeof(float));
      }
    }
    return all;
  }

  Desk desk_;
  int rows_;
  std::vector<Instruction> list_;
  std::vector<std::pair<Address, int>> outs_;
};

TEST(CudaMmaKernels, ProductsHandTheirRowsOn) {
  const Kind coded = {Form::kCodes, 4, 5, 0, true};
  for (const auto& [kind, other] : {std::pair(kPlain, coded), {coded, Kind{Form::kF32}}, {coded, kPlain}}) {
    for (const int rows : {5, 20, 64}) {
      SCOPED_TRACE(testing::Message() << "form " << static_cast<int>(kind.form) << ", " << rows << " rows");
      Handed handed(kind, other, rows);
      const bool shared = kind.form == Form::kCodes && other.form == Form::kF32;
      const auto list = with_planes(*mma_list(handed.list()), 4096);
      EXPECT_EQ(std::count_if(list.begin(), list.end(), [](const Instruction& in) { return in.to_planes; }),
                shared ? 2 : 3);
      const std::vector<Row> want = handed.want();
      const std::vector<Row> whole = handed.run(0, rows, {12});
      for (size_t r = 0; r < whole.size(); ++r) {
        ASSERT_EQ(whole[r].size(), want[r].size());
        for (size_t i = 0; i < whole[r].size(); ++i)
          ASSERT_NEAR(whole[r][i], want[r][i], 1e-4 * (1 + std::fabs(want[r][i]))) << r << ' ' << i;
      }
      const auto same = [&](int first, int count, const Launch& how) {
        const std::vector<Row> alone = handed.run(first, count, how);
        for (int r = 0; r < count; ++r) {
          const auto i = static_cast<size_t>(first + r);
          EXPECT_TRUE(same_bits(alone[i], whole[i])) << "row " << r << " of " << count << " from " << first;
        }
      };
      same(0, rows, {20, Order::kRandom, 227 * 1024});
      same(0, rows, {7, Order::kBackward});
      same(rows - 1, 1, {20, Order::kBackward});
      same(2, 3, {1, Order::kForward, 227 * 1024});
    }
  }
}

// What stands for ldmatrix and mma: whole numbers, so that sums are exact.
TEST(CudaFibers, MatricesAreLoadedAndMultiplied) {
  Random random(3);
  uint16_t a[16][16], b[16][8], turned[8][16];
  const auto draw = [&] { return f32_to_bf16(static_cast<float>(random.below(9)) - 4.0f); };
  for (int k = 0; k < 16; ++k) {
    for (uint16_t& value : a[k]) value = draw();
    for (int n = 0; n < 8; ++n) b[k][n] = turned[n][k] = draw();
  }
  for (const bool turn : {false, true}) {
    fiber::launch({.threads = 32, .shared_bytes = 4096}, [&] {
      const int own = static_cast<int>(lane());
      if (own == 0) {
        std::memcpy(shared, a, sizeof(a));
        std::memcpy(shared + 512, turn ? static_cast<const void*>(b) : turned, sizeof(b));
      }
      __syncwarp();
      uint32_t of_a[4], of_b[4];
      load_matrices(shared_address(shared + (own & 15) * 32 + (own >> 4) * 16), of_a);
      if (turn) {
        load_matrices_turned(shared_address(shared + 512 + (own & 15) * 16), of_b);
      } else {
        load_matrices(shared_address(shared + 512 + (own & 7) * 32 + (own >> 3 & 1) * 16), of_b);
      }
      float sum[4] = {};
      multiply_add<true>(sum, of_a, of_b[0], of_b[1]);
      for (int v = 0; v < 4; ++v) {
        const int row = own / 4 + 8 * (v / 2), column = 2 * (own % 4) + v % 2;
        float want = 0;
        for (int k = 0; k < 16; ++k) want += bf16_to_f32(a[row][k]) * bf16_to_f32(b[k][column]);
        EXPECT_EQ(sum[v], want) << row << ' ' << column;
      }
    });
  }
}

}  // namespace
}  // namespace baton::cuda::test
