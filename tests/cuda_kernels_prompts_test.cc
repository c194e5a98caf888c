// Kernels of prompts on the host, thread by thread: the delta rule in chunks and attention by tiles (as mma makes
// them), against their bodies; that neither neighbours nor cuts of a prompt change a bit; and what prepares rows.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <vector>

#include "baton/base/random.h"
#include "baton/unit/cuda/kernels/attention_tile.cuh"
#include "baton/unit/cuda/kernels/delta_chunk.cuh"
#include "baton/unit/cuda/kernels/prepare.cuh"
#include "baton/unit/cuda/reference.h"
#include "baton/unit/cuda/rows_geometry.h"
#include "tests/fiber/fiber.h"

namespace baton::cuda::test {
namespace {

using fiber::Order;
using Values = std::vector<float>;

// Some tokens of a sequence from a position on.
struct Piece {
  int32_t sequence, start, rows;
};

// Memory of the host that lives as long as this.
class Memory {
 public:
  explicit Memory(uint64_t seed) : random(seed) {}
  Address take(size_t bytes, int fill) {
    kept_.push_back(std::make_unique<unsigned char[]>(bytes + 16));
    auto* const to = kept_.back().get() + (16 - reinterpret_cast<uintptr_t>(kept_.back().get()) % 16) % 16;
    std::memset(to, fill, bytes);
    return reinterpret_cast<Address>(to);
  }
  Address values(int64_t count, float size = 1) {
    const Address made = take(static_cast<size_t>(count) * sizeof(float), 0);
    for (int64_t i = 0; i < count; ++i) host_at<float>(made)[i] = size * random.normal();
    return made;
  }

  Random random;

 private:
  std::vector<std::unique_ptr<unsigned char[]>> kept_;
};

double relative(const Values& got, const Values& want) {
  double error = 0, energy = 1e-30;
  for (size_t i = 0; i < want.size(); ++i) {
    error += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
    energy += double{want[i]} * want[i];
  }
  return got.size() == want.size() ? std::sqrt(error / energy) : 1e9;
}

// Some prompts, whose tokens' inputs a pass picks from.
class Prompts {
 public:
  static constexpr int32_t kSequences = 3, kTokens = 210;

  // The pass of some pieces, with a row that decodes between the first and the others.
  Pass pass_of(const std::vector<Piece>& pieces) {
    Pass pass;
    const auto add = [&](int32_t start, int32_t rows, int32_t decodes) {
      Run& run = pass.run[pass.runs++];
      run.start = start, run.rows = rows, run.decodes = decodes, run.first_row = pass.rows;
      pass.rows += rows;
      return &run;
    };
    for (size_t i = 0; i < pieces.size(); ++i) {
      if (i == 1) add(5, 1, 1);
      add(pieces[i].start, pieces[i].rows, 0);
    }
    return pass;
  }
  // A register: rows of sequences' tokens, each of `width` values of `all`.
  static void gather(Address to, int32_t width, Address all, const std::vector<Piece>& pieces, const Pass& pass) {
    size_t piece = 0;
    for (int32_t r = 0; r < pass.runs; ++r) {
      const Run& run = pass.run[r];
      for (int32_t t = 0; t < run.rows; ++t) {
        const int64_t token = run.decodes != 0 ? 0 : int64_t{pieces[piece].sequence} * kTokens + run.start + t;
        std::memcpy(host_row(to, width, run.first_row + t), host_row(all, width, token),
                    static_cast<size_t>(pitch_of(width)) * sizeof(float));
      }
      if (run.decodes == 0) ++piece;
    }
  }
  // Of the rows that do not decode.
  static Values outputs(const Instruction& in, const Pass& pass) {
    Values all;
    for (int32_t r = 0; r < pass.runs; ++r) {
      for (int32_t t = 0; pass.run[r].decodes == 0 && t < pass.run[r].rows; ++t) {
        const float* const row = host_row(in.out, in.out_width, pass.run[r].first_row + t);
        all.insert(all.end(), row, row + in.out_width);
      }
    }
    return all;
  }
};

// kDelta of prompts, or kConvDelta, whose states go on from pass to pass; of the latter also by kConv before kDelta.
class Delta : Prompts {
 public:
  enum class With { kNone, kConv, kConvApart };
  Delta(int32_t heads, int32_t key_heads, HeadMap map, With with = With::kNone) : memory_(7), with_(with) {
    in_.what = with == With::kConv ? Do::kConvDelta : Do::kDelta;
    Op& op = in_.op;
    op.taps = 4;
    op.heads = heads, op.kv_heads = key_heads, op.key_dim = op.value_dim = 128, op.eps = 1e-6f, op.head_map = map;
    in_.x_width = (2 * key_heads + heads) * 128, in_.y_width = in_.z_width = heads, in_.out_width = heads * 128;
    const int64_t tokens = kSequences * kTokens;
    x_ = memory_.values(tokens * pitch_of(in_.x_width)), y_ = memory_.values(tokens * pitch_of(heads));
    z_ = memory_.values(tokens * pitch_of(heads));
    in_.vectors[0] = memory_.values(heads), in_.vectors[1] = memory_.values(heads);
    for (int i = 0; i < heads; ++i) {
      float& rate = host_at<float>(in_.vectors[0])[i];
      rate = -0.05f - std::abs(rate);
    }
    size_ = int64_t{heads} * 128 * 128;
    in_.slot2.offset = static_cast<uint64_t>(size_) * sizeof(float);
    in_.vectors[2] = memory_.values(int64_t{4} * in_.x_width, 0.5f);
    if (with != With::kNone) size_ += int64_t{4} * in_.x_width;
    begin_ = memory_.values(kSequences * size_, 0.3f);
    states_ = memory_.values(kSequences * size_);
  }

  void begin() { std::memcpy(host_at<void>(states_), host_at<void>(begin_), kSequences * size_ * sizeof(float)); }
  // Outputs of the pieces' rows. columns: of a block; 0: what the body makes.
  Values go(const std::vector<Piece>& pieces, int columns, Order order = Order::kForward) {
    Pass pass = pass_of(pieces);
    size_t piece = 0;
    for (int32_t r = 0; r < pass.runs; ++r) {
      Run& run = pass.run[r];
      run.parts = run.decodes != 0 ? memory_.values(size_) : states_ + pieces[piece++].sequence * size_ * sizeof(float);
    }
    const auto reg = [&](int32_t width, Address all) {
      const Address made = memory_.take(static_cast<size_t>(pass.rows * pitch_of(width)) * sizeof(float), 0xff);
      if (all != 0) gather(made, width, all, pieces, pass);
      return made;
    };
    in_.x = reg(in_.x_width, x_), in_.y = reg(in_.y_width, y_), in_.z = reg(in_.z_width, z_);
    in_.out = reg(in_.out_width, 0);
    const auto units = static_cast<uint32_t>(delta_chunks(pass) * in_.op.heads);
    in_.scratch = memory_.take(units * kDeltaChunkBytes, 0xff);
    if (columns == 0) {
      with_ == With::kConv ? reference_conv_delta(in_, pass) : reference_delta(in_, pass);
    } else {
      if (with_ == With::kConvApart) convolve(pass, reg(in_.x_width, 0), order);
      const Work work{in_, reinterpret_cast<Address>(&pass)};
      fiber::launch({units, kDeltaPrepareThreads, kDeltaPrepareShared, order}, [&] {
        if (with_ == With::kConv) return delta_prepare_block<true>(work, shared);
        delta_prepare_block<false>(work, shared);
      });
      const auto blocks = static_cast<uint32_t>(pass.runs * in_.op.heads * (128 / columns));
      fiber::launch({blocks, kDeltaChunksThreads, kDeltaChunksShared, order}, [&] {
        if (columns == 16) delta_chunks_block<16>(work, shared);
        if (columns == 32) delta_chunks_block<32>(work, shared);
      });
    }
    return outputs(in_, pass);
  }
  // And the ring behind it.
  Values state(int32_t sequence) const {
    const auto* const from = host_at<const float>(states_) + sequence * size_;
    return {from, from + size_};
  }

 private:
  void convolve(const Pass& pass, Address out, Order order) {
    Instruction conv = in_;
    conv.what = Do::kConv, conv.slot = in_.slot2, conv.vectors[0] = in_.vectors[2];
    conv.out = out, conv.out_width = in_.x_width;
    fiber::launch({4, kThreads, 0, order}, [&] { do_conv(conv, pass, blockIdx.x, gridDim.x, shared); });
    in_.x = out;
  }

  Memory memory_;
  With with_;
  Instruction in_;
  Address x_, y_, z_, begin_, states_;
  int64_t size_;
};

TEST(CudaPromptKernels, TheDeltaRuleInChunksIsWhatItsBodyIs) {
  using With = Delta::With;
  for (const auto& [heads, key_heads, map, with] : {std::tuple{2, 2, HeadMap::kGrouped, With::kNone},
                                                    {4, 2, HeadMap::kGrouped, With::kNone},
                                                    {4, 2, HeadMap::kTiled, With::kConv},
                                                    {2, 2, HeadMap::kGrouped, With::kConv}}) {
    Delta delta(heads, key_heads, map, with);
    const std::vector<Piece> pieces = {{0, 30, 150}, {1, 0, 64}, {2, 63, 2}};
    delta.begin();
    const Values want = delta.go(pieces, 0);
    std::vector<Values> states;
    for (int s = 0; s < 3; ++s) states.push_back(delta.state(s));
    Values first;
    for (const bool bulk : {true, false}) {
      kCopiesInBulk = bulk;
      for (const int columns : {32, 16}) {
        delta.begin();
        const Values got = delta.go(pieces, columns, bulk ? Order::kRandom : Order::kBackward);
        EXPECT_LT(relative(got, want), 3e-5) << columns;
        for (int s = 0; s < 3; ++s) EXPECT_LT(relative(delta.state(s), states[static_cast<size_t>(s)]), 3e-5) << s;
        if (first.empty()) first = got;
        EXPECT_EQ(got, first) << "bits by columns of a block, and by how copies come";
      }
    }
    kCopiesInBulk = true;
  }
}

// Whether the convolution is made by itself before or not shows nowhere.
TEST(CudaPromptKernels, TheConvolutionHasTheBitsThatItHasApart) {
  Delta one(4, 2, HeadMap::kGrouped, Delta::With::kConv), apart(4, 2, HeadMap::kGrouped, Delta::With::kConvApart);
  one.begin(), apart.begin();
  for (const std::vector<Piece>& pieces :
       {std::vector<Piece>{{0, 0, 1}, {1, 0, 64}, {2, 62, 67}}, {{0, 1, 2}, {1, 64, 3}, {2, 129, 1}}, {{0, 3, 66}}}) {
    EXPECT_EQ(one.go(pieces, 16, Order::kRandom), apart.go(pieces, 16));
    for (int s = 0; s < 3; ++s) EXPECT_EQ(one.state(s), apart.state(s)) << s;
  }
}

TEST(CudaPromptKernels, TheDeltaRuleShowsNeitherNeighboursNorCuts) {
  Delta delta(2, 1, HeadMap::kGrouped, Delta::With::kConv);
  delta.begin();
  const Values whole = delta.go({{1, 0, 64}, {0, 0, 200}}, 16);
  const Values state = delta.state(0);
  const Values behind(whole.begin() + 64 * 256, whole.end());
  delta.begin();
  Values cut = delta.go({{0, 0, 128}}, 32);
  const Values more = delta.go({{0, 128, 72}}, 16);
  cut.insert(cut.end(), more.begin(), more.end());
  EXPECT_EQ(cut, behind);
  EXPECT_EQ(delta.state(0), state);
}

struct Heads {
  Form form;
  int32_t heads, kv_heads, width;
  int32_t window = 0, chunk = 0;
  float cap = 0;
};

// kAttendTile of prompts whose keys and values are in pages; what no token of a piece may see is no number.
class Attend : Prompts {
 public:
  explicit Attend(const Heads& of) : memory_(11) {
    in_.what = Do::kAttendTile;
    Op& op = in_.op;
    op.heads = of.heads, op.kv_heads = of.kv_heads, op.width = of.width, op.scale = 0.3f;
    op.window = of.window, op.chunk = of.chunk, op.cap = of.cap;
    in_.x_width = in_.out_width = of.heads * of.width;
    const int32_t row = (2 * of.width + 15) / 16 * 16, rows = kPageTokens * of.kv_heads;
    in_.slot = {0, row, of.form}, in_.slot2 = {static_cast<uint64_t>(rows) * static_cast<uint64_t>(row), row, of.form};
    page_bytes_ = static_cast<size_t>(2 * rows * row);
    x_ = memory_.values(int64_t{kSequences} * kTokens * pitch_of(in_.x_width));
    // Queries that the type of keys has: what is left of an error is that of weights.
    auto* const x = host_at<float>(x_);
    for (int64_t i = 0; i < int64_t{kSequences} * kTokens * pitch_of(in_.x_width); ++i) {
      std::byte narrow[4];
      store_values(of.form, {x + i, 1}, narrow);
      load_values(of.form, narrow, {x + i, 1});
    }
    for (int32_t s = 0; s < kSequences; ++s) {
      for (int32_t p = 0; p * kPageTokens < kTokens; ++p) pages_[s].push_back(memory_.take(page_bytes_, 0));
      Run run;
      run.pages = reinterpret_cast<Address>(pages_[s].data());
      for (int32_t t = 0; t < kTokens; ++t) {
        for (const Place* place : {&in_.slot, &in_.slot2}) {
          for (int32_t head = 0; head < of.kv_heads; ++head) {
            const float* const from = host_at<float>(memory_.values(of.width));
            store_values(of.form, {from, static_cast<size_t>(of.width)}, host_kv_row(run, *place, head, t));
          }
        }
      }
    }
  }

  Values go(const std::vector<Piece>& pieces, bool kernel, Order order = Order::kForward) {
    Pass pass = pass_of(pieces);
    std::vector<std::vector<Address>> tables(static_cast<size_t>(pass.runs));
    size_t piece = 0;
    for (int32_t r = 0; r < pass.runs; ++r) {
      Run& run = pass.run[r];
      std::vector<Address>& table = tables[static_cast<size_t>(r)];
      table = pages_[run.decodes != 0 ? 0 : pieces[piece++].sequence];
      if (run.decodes == 0) forget_behind(table, run);
      run.pages = reinterpret_cast<Address>(table.data());
    }
    const auto bytes = static_cast<size_t>(pass.rows * pitch_of(in_.x_width)) * sizeof(float);
    in_.x = memory_.take(bytes, 0xff), in_.out = memory_.take(bytes, 0xff);
    gather(in_.x, in_.x_width, x_, pieces, pass);
    const Work work{in_, reinterpret_cast<Address>(&pass)};
    if (kernel) {
      const auto blocks = static_cast<uint32_t>(row_tiles(pass, kAttendTileRows, Rows::kPrompts) * in_.op.heads);
      fiber::launch({blocks, kAttendTileThreads, attend_tile_shared(in_.op), order}, [&] { block(work); });
    } else {
      reference_attend_tile(in_, pass);
    }
    return outputs(in_, pass);
  }

 private:
  // The last page's rows behind the run are no numbers, as in a page that had other tokens before.
  void forget_behind(std::vector<Address>& table, const Run& run) {
    const int32_t end = run.start + run.rows, last = (end - 1) / kPageTokens;
    const Address copy = memory_.take(page_bytes_, 0xff);
    std::memcpy(host_at<void>(copy), host_at<void>(table[static_cast<size_t>(last)]), page_bytes_);
    table.resize(static_cast<size_t>(last) + 1);
    table.back() = copy;
    Run of = run;
    of.pages = reinterpret_cast<Address>(table.data());
    for (int32_t t = end; t < (last + 1) * kPageTokens; ++t) {
      for (const Place* place : {&in_.slot, &in_.slot2}) {
        for (int32_t head = 0; head < in_.op.kv_heads; ++head)
          std::memset(host_kv_row(of, *place, head, t), 0xff, static_cast<size_t>(place->row_bytes));
      }
    }
  }
  void block(const Work& work) const {
    const int32_t width = attend_tile_width(in_.op);
    const bool bf16 = in_.slot.form == Form::kBF16;
    if (width == 64)
      return bf16 ? attend_tile_block<64, true>(work, shared) : attend_tile_block<64, false>(work, shared);
    if (width == 128)
      return bf16 ? attend_tile_block<128, true>(work, shared) : attend_tile_block<128, false>(work, shared);
    bf16 ? attend_tile_block<256, true>(work, shared) : attend_tile_block<256, false>(work, shared);
  }

  Memory memory_;
  Instruction in_;
  Address x_;
  size_t page_bytes_;
  std::vector<Address> pages_[kSequences];
};

void check(const Heads& of) {
  SCOPED_TRACE(testing::Message() << "form " << static_cast<int>(of.form) << ", heads of " << of.width << ", window "
                                  << of.window << ", chunk " << of.chunk << ", cap " << of.cap);
  Attend attend(of);
  const std::vector<Piece> pieces = {{0, 70, 100}, {1, 0, 10}, {2, 128, 65}};
  const Values got = attend.go(pieces, true, Order::kRandom), want = attend.go(pieces, false);
  EXPECT_LT(relative(got, want), of.form == Form::kBF16 ? 3e-3 : 4e-4);
  EXPECT_EQ(got, attend.go(pieces, true, Order::kBackward));
  // Alone, and from another row on.
  const Values alone = attend.go({{0, 134, 36}}, true);
  const auto width = static_cast<int64_t>(of.heads * of.width);
  EXPECT_EQ(alone, Values(got.begin() + 64 * width, got.begin() + 100 * width));
}

TEST(CudaPromptKernels, AttentionByTilesIsWhatItsBodyIs) {
  for (const Form form : {Form::kF16, Form::kBF16}) {
    for (const int32_t width : {64, 80, 128, 256}) check({form, 2, 1, width});
  }
  check({Form::kF16, 2, 2, 100});
  check({Form::kF16, 2, 1, 30});
}

TEST(CudaPromptKernels, WindowsChunksAndCaps) {
  check({Form::kF16, 2, 1, 64, 50});
  check({Form::kF16, 2, 1, 64, 0, 90});
  check({Form::kBF16, 2, 1, 128, 0, 0, 2.0f});
}

// The bytes that a kernel of kPrepare makes, launched with so many blocks.
std::vector<unsigned char> prepared(Instruction in, int32_t rows, uint32_t blocks, Order order,
                                    void (*what)(const Instruction&, const Pass&, uint32_t, uint32_t, unsigned char*)) {
  Pass pass;
  pass.rows = rows, pass.runs = 1;
  std::vector<unsigned char> out(static_cast<size_t>(rows * pitch_of(in.x_width)) * (in.to_bf16 ? 2 : 4) + 64, 0xff);
  in.out = (reinterpret_cast<Address>(out.data()) + 15) / 16 * 16;
  const size_t skipped = in.out - reinterpret_cast<Address>(out.data());
  fiber::launch({.blocks = blocks, .threads = kThreads, .shared_bytes = kBeforeRows, .order = order},
                [&] { what(in, pass, blockIdx.x, gridDim.x, shared); });
  return {out.begin() + static_cast<std::ptrdiff_t>(skipped), out.end() - static_cast<std::ptrdiff_t>(64 - skipped)};
}

TEST(CudaPromptKernels, RowsAreMadeAsInLists) {
  Memory memory(5);
  for (const bool narrow : {true, false}) {
    for (const int32_t width : {640, 1024, 2500}) {
      Instruction in;
      in.what = Do::kPrepare, in.prologue = Prologue::kRms, in.to_bf16 = narrow;
      in.x_width = in.op.width = width, in.op.eps = 1e-6f;
      in.x = memory.values(int64_t{9} * pitch_of(width)), in.vectors[0] = memory.values(pitch_of(width));
      EXPECT_EQ(prepare_kernel(in), "baton_prepare_rows");
      EXPECT_EQ(prepare_blocks(in, 9), 3);
      EXPECT_EQ(prepared(in, 9, 3, Order::kRandom, do_prepare_rows), prepared(in, 9, 2, Order::kForward, do_prepare));
    }
    for (const int32_t groups : {1, 3, 16}) {
      const int32_t width = groups * 128;
      Instruction in;
      in.what = Do::kPrepare, in.prologue = Prologue::kGated, in.to_bf16 = narrow;
      in.x_width = in.y_width = width, in.op.width = 128, in.op.eps = 1e-6f;
      in.x = memory.values(int64_t{11} * pitch_of(width)), in.y = memory.values(int64_t{11} * pitch_of(width));
      in.vectors[0] = memory.values(128);
      EXPECT_EQ(prepare_kernel(in), "baton_prepare_gated");
      EXPECT_EQ(prepare_blocks(in, 11), (11 * groups + 63) / 64);
      EXPECT_EQ(prepared(in, 11, 2, Order::kRandom, do_prepare_gated), prepared(in, 11, 3, Order::kForward, do_prepare))
          << groups;
    }
  }
  Instruction in;
  in.what = Do::kPrepare, in.x_width = 2048;
  EXPECT_EQ(prepare_kernel(in), "baton_prepare");
  EXPECT_EQ(prepare_blocks(in, 9), 9);
  in.prologue = Prologue::kGated, in.op.width = 64;
  EXPECT_EQ(prepare_kernel(in), "baton_prepare");
  EXPECT_EQ(prepare_blocks(in, 9), 9 * 32 / 16);
}

}  // namespace
}  // namespace baton::cuda::test
