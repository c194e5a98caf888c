// The bodies that stand for kernels of rows and experts, against what program.h says; and the functions that kernels
// share with the host.
#include "baton/unit/cuda/reference.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <deque>
#include <limits>
#include <set>
#include <vector>

#include "baton/base/float.h"
#include "baton/base/random.h"
#include "baton/unit/cuda/codes.h"
#include "baton/unit/cuda/kernels.h"
#include "baton/unit/cuda/values.h"

namespace baton::cuda {
namespace {

constexpr float kNoNumber = std::numeric_limits<float>::quiet_NaN();
constexpr float kInfinite = std::numeric_limits<float>::infinity();

// A card's memory and a pass over it.
class Desk {
 public:
  Instruction instruction;
  Pass pass;

  template <class T>
  Address put(std::vector<T> values) {
    const auto words = (values.size() * sizeof(T) + 15) / 16 * 2;
    std::vector<uint64_t>& to = memory_.emplace_back(words);
    std::memcpy(to.data(), values.data(), values.size() * sizeof(T));
    return reinterpret_cast<Address>(to.data());
  }
  void run(int32_t start, int32_t rows) {
    Run& run = pass.run[pass.runs];
    run.start = start, run.first_row = pass.rows, run.rows = rows;
    run_of_row_.insert(run_of_row_.end(), static_cast<size_t>(rows), pass.runs);
    pass.rows += rows;
    ++pass.runs;
    pass.run_of_row = put(run_of_row_);
  }
  void wanted(std::vector<int32_t> rows) {
    pass.rows_out = static_cast<int32_t>(rows.size());
    pass.out_rows = put(std::move(rows));
  }
  float value() { return static_cast<float>(random_.uniform() * 4 - 2); }
  std::vector<float> values(size_t count) {
    std::vector<float> made(count);
    for (float& one : made) one = value();
    return made;
  }
  // A register with these rows, zeros behind each.
  Address reg(const std::vector<std::vector<float>>& rows) {
    const auto pitch = static_cast<size_t>(pitch_of(static_cast<int32_t>(rows[0].size())));
    std::vector<float> all(rows.size() * pitch);
    for (size_t r = 0; r < rows.size(); ++r)
      std::copy(rows[r].begin(), rows[r].end(), all.begin() + static_cast<std::ptrdiff_t>(r * pitch));
    return put(all);
  }
  std::vector<std::vector<float>> rows(size_t count, size_t width) {
    std::vector<std::vector<float>> made;
    for (size_t r = 0; r < count; ++r) made.push_back(values(width));
    return made;
  }
  Address empty(int32_t count, int32_t width) {
    return put(std::vector<float>(static_cast<size_t>(count * pitch_of(width))));
  }
  Matrix f32_matrix(const std::vector<std::vector<float>>& rows) {
    Matrix matrix;
    matrix.rows = static_cast<int32_t>(rows.size()), matrix.columns = static_cast<int32_t>(rows[0].size());
    matrix.pitch = pitch_of(matrix.columns), matrix.row_bytes = matrix.pitch * 4;
    matrix.values = reg(rows);
    return matrix;
  }

 private:
  Random random_{7};
  std::deque<std::vector<uint64_t>> memory_;
  std::vector<int32_t> run_of_row_;
};

// A row of a register, and whether zeros follow.
std::vector<float> row_at(Address x, int32_t width, int64_t row) {
  const float* const from = host_row(x, width, row);
  for (int32_t i = width; i < pitch_of(width); ++i) EXPECT_EQ(from[i], 0.0f) << "padding of row " << row;
  return {from, from + width};
}

void expect_near(const std::vector<float>& got, const std::vector<double>& want, double tolerance = 1e-6) {
  ASSERT_EQ(got.size(), want.size());
  for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(got[i], want[i], tolerance * (1 + std::fabs(want[i]))) << i;
}

double silu(double x) { return x / (1 + std::exp(-x)); }

TEST(Kinds, EachHasAKernelOfItsOwn) {
  std::set<std::string_view> names;
  for (size_t i = 0; i < std::size(kKinds); ++i) {
    EXPECT_EQ(static_cast<size_t>(kKinds[i]), i) << "the list has the order of Do";
    names.insert(kernel_name(kKinds[i]));
  }
  EXPECT_EQ(names.size(), static_cast<size_t>(Do::kAdvance) + 1);
  EXPECT_EQ(kernel_name(Do::kEmbed), "baton_embed");
  EXPECT_EQ(kernel_name(Do::kExpertsOut), "baton_experts_out");
  EXPECT_EQ(kernel_name(Do::kAdvance), "baton_advance");
}

TEST(Values, KeysOfDrawsAreInOrder) {
  const std::vector<float> ascending = {-3e38f, -5, -1e-40f, 0, 1e-40f, 2, 2.0000002f, 3e38f};
  for (size_t i = 0; i + 1 < ascending.size(); ++i) EXPECT_LT(draw_key(ascending[i], 0), draw_key(ascending[i + 1], 9));
  EXPECT_GT(draw_key(7, 3), draw_key(7, 4)) << "the lower id of equals";
  EXPECT_GT(draw_key(-0.0f, 3), draw_key(0.0f, 4)) << "both zeros are equal";
  EXPECT_EQ(id_of_draw(draw_key(7, 262143)), 262143);
  EXPECT_EQ(id_of_draw(draw_key(-3e38f, 0)), 0);
  for (const float none : {kNoNumber, -kNoNumber, kInfinite, -kInfinite}) {
    EXPECT_EQ(id_of_draw(draw_key(none, 4)), -1);
    EXPECT_GT(draw_key(none, 4), draw_key(3e38f, 0));
  }
  EXPECT_EQ(id_of_draw(0), -1) << "nothing was seen";
}

TEST(Values, OfOneNumber) {
  for (const float x : {-30.0f, -3.0f, -0.1f, 0.0f, 0.7f, 4.0f, 50.0f}) {
    EXPECT_NEAR(gelu_of(x, Gelu::kErf), x / 2 * (1 + std::erf(x / std::sqrt(2.0))), 1e-6);
    EXPECT_NEAR(gelu_of(x, Gelu::kTanh),
                x / 2 * (1 + std::tanh(std::sqrt(2 / 3.14159265358979) * (x + 0.044715 * x * x * x))), 1e-6);
    EXPECT_NEAR(soft_cap_of(x, 30), 30 * std::tanh(x / 30), 1e-5);
  }
  EXPECT_TRUE(std::isnan(gelu_of(kNoNumber, Gelu::kErf)) && std::isnan(gelu_of(kNoNumber, Gelu::kTanh)));
  EXPECT_TRUE(std::isnan(soft_cap_of(kNoNumber, 30)));
  EXPECT_EQ(position_scale_of(8191, 0.1f, 8192), 1.0f);
  EXPECT_NEAR(position_scale_of(3 * 8192, 0.1f, 8192), 1 + 0.1 * std::log(4.0), 1e-6);
}

TEST(Values, FrequenciesOfRotationsAreThoseOfTheHost) {
  Op op;
  op.rotary = 128, op.rope_theta = 1e6f;
  const std::vector<float> plain = rope_frequencies(op, nullptr);
  ASSERT_EQ(plain.size(), 64u);
  std::vector<float> factors(64, 4.0f);
  for (int32_t i = 0; i < 64; ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_EQ(plain[at], std::pow(1e6f, -2.0f * static_cast<float>(i) / 128.0f));
    EXPECT_EQ(rope_frequencies(op, factors.data())[at], plain[at] / 4);
    EXPECT_NEAR(rope_frequency(1e6f, i, 128) / plain[at], 1, 1.3e-7) << "a kernel's own: the last bit may differ";
  }
}

struct Coded {
  int bits, block_log2, part_log2;
  bool minimums, table;
};

// A strip as the layout at Matrix says it, its codes zero: where it has what.
struct Strip {
  uint8_t* planes;
  int32_t columns;
  uint8_t *d, *m, *parts;

  Strip(const Matrix& matrix, int64_t row, int32_t column)
      : planes(host_at<uint8_t>(matrix.values) + row * matrix.row_bytes + column / 1024 * matrix.strip_bytes),
        columns(std::min(1024, matrix.pitch - column / 1024 * 1024)) {
    d = planes + (columns * matrix.bits / 8 + 15) / 16 * 16;
    const int32_t bytes = ((columns >> matrix.block_log2) * 2 + 3) / 4 * 4;
    m = d + bytes;
    parts = m + (matrix.has_minimums ? bytes : 0);
  }
  void put_code(int32_t bits_of_all, int32_t column, uint32_t code) const {
    uint8_t* plane = planes;
    const int32_t group = column / 32, i = column % 32;
    int done = 0;
    for (const int bits : {8, 4, 2, 1}) {
      const bool has = bits == 8 ? bits_of_all == 8 : bits_of_all < 8 && (bits_of_all & bits) != 0;
      if (!has) continue;
      const uint32_t own = code >> done & ((1u << bits) - 1);
      if (bits == 8) {
        plane[(i < 16 ? 0 : columns / 2) + 16 * group + i % 16] = static_cast<uint8_t>(own - 128);
        return;
      }
      uint8_t* const words = plane + 4 * bits * group;
      if (bits == 4) words[i % 16] = static_cast<uint8_t>(words[i % 16] | own << (i < 16 ? 0 : 4));
      if (bits == 2)
        words[4 * (i / 4 % 2) + i % 4] = static_cast<uint8_t>(words[4 * (i / 4 % 2) + i % 4] | own << 2 * (i / 8));
      if (bits == 1) words[i % 4] = static_cast<uint8_t>(words[i % 4] | own << i / 4);
      plane += columns / 8 * bits;
      done += bits;
    }
  }
};

void check_coded(const Coded& coded, int32_t columns) {
  Desk desk;
  Random random(static_cast<uint64_t>(coded.bits));
  Matrix m;
  m.form = Form::kCodes, m.bits = static_cast<uint8_t>(coded.bits), m.rows = 3, m.columns = m.pitch = columns;
  m.block_log2 = static_cast<uint8_t>(coded.block_log2), m.part_log2 = static_cast<uint8_t>(coded.part_log2);
  m.unit = 0.5f, m.scale_form = Form::kF16, m.has_minimums = coded.minimums, m.has_table = coded.table;
  m.zero = static_cast<int16_t>(coded.table ? 0 : coded.bits == 8 ? 100 - 128 : 1);
  for (int i = 0; i < 16; ++i) m.table[i] = static_cast<int8_t>(3 * i - 20);
  lay_strips(m);
  m.values = desk.put(std::vector<uint8_t>(static_cast<size_t>(3 * m.row_bytes)));
  for (int64_t r = 0; r < 3; ++r) {
    std::vector<double> want;
    for (int32_t c = 0; c < columns; ++c) {
      const auto code = static_cast<uint32_t>(random.next() & ((1u << coded.bits) - 1));
      const Strip strip(m, r, c);
      const int32_t own = c % 1024, block = own >> coded.block_log2, part = own >> coded.part_log2;
      strip.put_code(coded.bits, own, code);
      const auto scale = [&](uint8_t* array) {
        uint16_t bits;
        if (own % (1 << coded.block_log2) == 0) {
          bits = f32_to_f16(desk.value());
          std::memcpy(array + 2 * block, &bits, 2);
        }
        std::memcpy(&bits, array + 2 * block, 2);
        return static_cast<double>(f16_to_f32(bits));
      };
      const double d = scale(strip.d), minimum = coded.minimums ? scale(strip.m) : 0;
      const int zero = coded.bits == 8 ? 100 : 1;
      double v = coded.table ? 3.0 * code - 20 : static_cast<double>(code) - zero, n = coded.minimums ? 1 : 0;
      if (coded.part_log2 != 0) {
        uint8_t* const s = strip.parts + (coded.minimums ? 2 * part : part);
        if (own % (1 << coded.part_log2) == 0) {
          s[0] = static_cast<uint8_t>(random.next());
          if (coded.minimums) s[1] = static_cast<uint8_t>(random.next());
        }
        v *= coded.minimums ? s[0] : static_cast<int8_t>(s[0]);
        if (coded.minimums) n = s[1];
      }
      want.push_back(0.5 * (d * v - minimum * n));
    }
    std::vector<float> got(static_cast<size_t>(columns));
    decode_matrix_row(m, r, got);
    expect_near(got, want, 2e-6);
    for (int32_t c = 0; c < columns; ++c) got[static_cast<size_t>(c)] = value_at(m, r, c);
    expect_near(got, want, 2e-6);
    for (int32_t g = 0; g < columns / 32; ++g) decode32_any(m, r, g, got.data() + 32 * g);
    expect_near(got, want, 2e-6);
  }
}
void check_coded(const Coded& coded) {
  for (const int32_t columns : {512, 1024, 1280, 2304}) check_coded(coded, columns);
  if (coded.block_log2 < 7) check_coded(coded, 1088);
}

TEST(ReferenceRows, MatricesOfCodesAreWhatTheirLayoutSays) {
  for (const int bits : {1, 2, 3, 4, 5, 6, 8}) check_coded({bits, 5, 0, false, false});
  check_coded({4, 8, 5, true, false});
  check_coded({2, 8, 4, true, false});
  check_coded({6, 8, 4, false, false});
  check_coded({5, 5, 0, true, false});
  check_coded({4, 8, 5, false, true});
  check_coded({4, 4, 0, false, true});
}

TEST(ReferenceRows, EmbeddingsAndTokensThatThereAreNot) {
  Desk desk;
  const auto table = desk.rows(5, 70);
  desk.run(0, 4);
  desk.pass.tokens = desk.put(std::vector<int32_t>{4, 0, 5, -1});
  desk.instruction.matrix[0] = desk.f32_matrix(table);
  desk.instruction.out_width = 70;
  desk.instruction.out = desk.empty(4, 70);
  reference_embed(desk.instruction, desk.pass);
  EXPECT_EQ(row_at(desk.instruction.out, 70, 0), table[4]);
  EXPECT_EQ(row_at(desk.instruction.out, 70, 1), table[0]);
  for (const int64_t r : {2, 3}) {
    for (const float one : row_at(desk.instruction.out, 70, r)) EXPECT_TRUE(std::isnan(one));
  }
}

TEST(ReferenceRows, NormsAreOfGroups) {
  Desk desk;
  const auto x = desk.rows(2, 90), gates = desk.rows(2, 90);
  const auto scale = desk.values(30), shift = desk.values(30);
  desk.run(0, 2);
  Instruction& in = desk.instruction;
  in.op.width = 30, in.op.eps = 1e-3f, in.x_width = in.y_width = in.out_width = 90;
  in.vectors[0] = desk.put(scale), in.vectors[1] = desk.put(shift);
  in.x = desk.reg(x), in.y = desk.reg(gates), in.out = desk.empty(2, 90);
  for (const Prologue prologue : {Prologue::kRms, Prologue::kLayer, Prologue::kGated}) {
    in.prologue = prologue;
    reference_prepare(in, desk.pass);
    for (size_t r = 0; r < 2; ++r) {
      std::vector<double> want;
      for (size_t i = 0; i < 90; ++i) {
        const size_t first = i / 30 * 30;
        double mean = 0, squares = 0;
        for (size_t k = first; k < first + 30; ++k) mean += prologue == Prologue::kLayer ? x[r][k] / 30.0 : 0;
        for (size_t k = first; k < first + 30; ++k) squares += (x[r][k] - mean) * (x[r][k] - mean) / 30;
        double value = (x[r][i] - mean) / std::sqrt(squares + 1e-3) * scale[i - first];
        if (prologue == Prologue::kLayer) value += shift[i - first];
        if (prologue == Prologue::kGated) value *= silu(gates[r][i]);
        want.push_back(value);
      }
      expect_near(row_at(in.out, 90, static_cast<int64_t>(r)), want);
    }
  }
}

TEST(ReferenceRows, GatesAndRoundedOperands) {
  Desk desk;
  auto x = desk.rows(2, 90);
  x[1][3] = kNoNumber;
  const auto gates = desk.rows(2, 3);
  desk.run(0, 2);
  Instruction& in = desk.instruction;
  in.prologue = Prologue::kGate, in.op.width = 30, in.x_width = in.out_width = 90, in.y_width = 3, in.to_bf16 = true;
  in.x = desk.reg(x), in.y = desk.reg(gates), in.out = desk.put(std::vector<uint16_t>(2 * 128, 0x7f7f));
  reference_prepare(in, desk.pass);
  const auto* const out = host_at<const uint16_t>(in.out);
  for (size_t i = 0; i < 128; ++i) {
    const double want = i < 90 ? x[0][i] / (1 + std::exp(-gates[0][i / 30])) : 0;
    EXPECT_NEAR(bf16_to_f32(out[i]), want, std::fabs(want) / 256) << i;
    EXPECT_EQ(std::isnan(bf16_to_f32(out[128 + i])), i == 3);
  }
  EXPECT_EQ(out[128 + 90], 0) << "what was there is not in the padding";
}

TEST(ReferenceRows, PairsAreSplit) {
  Desk desk;
  const auto x = desk.rows(2, 2 * 3 * 10);
  desk.run(0, 2);
  Instruction& in = desk.instruction;
  in.op.heads = 3, in.op.width = 10, in.x_width = 60, in.out_width = in.out2_width = 30;
  in.x = desk.reg(x), in.out = desk.empty(2, 30), in.out2 = desk.empty(2, 30);
  reference_split_pairs(in, desk.pass);
  for (size_t i = 0; i < 30; ++i) {
    EXPECT_EQ(row_at(in.out, 30, 1)[i], x[1][i / 10 * 20 + i % 10]);
    EXPECT_EQ(row_at(in.out2, 30, 1)[i], x[1][i / 10 * 20 + 10 + i % 10]);
  }
}

// What a head becomes at a position, with an angle in f32 as everywhere.
std::vector<double> turned(const std::vector<float>& x, size_t first, size_t width, int32_t rotary, int32_t position,
                           float theta, bool adjacent) {
  std::vector<double> made(x.begin() + static_cast<std::ptrdiff_t>(first),
                           x.begin() + static_cast<std::ptrdiff_t>(first + width));
  for (int32_t i = 0; i < rotary / 2; ++i) {
    const float frequency = std::pow(theta, -2.0f * static_cast<float>(i) / static_cast<float>(rotary));
    const double angle = static_cast<float>(position) * frequency;
    const auto a = static_cast<size_t>(adjacent ? 2 * i : i),
               b = static_cast<size_t>(adjacent ? 2 * i + 1 : i + rotary / 2);
    const double old_a = made[a], old_b = made[b];
    made[a] = old_a * std::cos(angle) - old_b * std::sin(angle);
    made[b] = old_b * std::cos(angle) + old_a * std::sin(angle);
  }
  return made;
}

TEST(ReferenceRows, RotationsAtLatePositions) {
  Desk desk;
  const auto x = desk.rows(3, 3 * 24);
  desk.run(5, 1);
  desk.run(262142, 2);
  Instruction& in = desk.instruction;
  in.op.heads = 3, in.op.width = 24, in.op.rotary = 16, in.op.rope_theta = 1e4f, in.x_width = in.out_width = 72;
  const std::vector<float> table = rope_frequencies(in.op, nullptr);
  for (const bool adjacent : {false, true}) {
    for (const bool given : {false, true}) {
      in.op.pairing = adjacent ? RopePairing::kAdjacent : RopePairing::kHalf;
      in.vectors[3] = given ? desk.put(table) : 0;
      in.x = desk.reg(x), in.out = given ? in.x : desk.empty(3, 72);
      reference_rope(in, desk.pass);
      const std::vector<int32_t> positions = {5, 262142, 262143};
      for (size_t r = 0; r < 3; ++r) {
        for (size_t head = 0; head < 3; ++head) {
          const std::vector<float> all = row_at(in.out, 72, static_cast<int64_t>(r));
          const auto from = all.begin() + static_cast<std::ptrdiff_t>(24 * head);
          expect_near({from, from + 24}, turned(x[r], 24 * head, 24, 16, positions[r], 1e4f, adjacent), 1e-5);
        }
      }
    }
  }
  in.op.rope_magnitude = 2, in.op.rotary = 24;
  in.vectors[3] = 0, in.vectors[0] = desk.put(std::vector<float>(12, 1e30f));  // nothing turns
  in.x = desk.reg(x), in.out = desk.empty(3, 72);
  reference_rope(in, desk.pass);
  for (size_t i = 0; i < 72; ++i) EXPECT_FLOAT_EQ(row_at(in.out, 72, 2)[i], 2 * x[2][i]);
}

// Two runs with pages of their own, of two kv heads of 8 values.
class PagesDesk : public Desk {
 public:
  explicit PagesDesk(Form form) {
    const int32_t bytes = 8 * (form == Form::kF32 ? 4 : 2);
    instruction.slot = {64, bytes, form}, instruction.slot2 = {64 + uint64_t{2} * 64 * 32, bytes, form};
    instruction.op.kv_heads = 2, instruction.op.width = 8, instruction.y_width = instruction.z_width = 16;
    run(63, 2);
    run(0, 1);
    for (int32_t r = 0; r < 2; ++r) {
      std::vector<Address> pages;
      for (int p = 0; p < 2; ++p) pages.push_back(put(std::vector<uint8_t>(64 + 4 * 64 * 32)));
      pass.run[r].pages = put(pages);
    }
  }
  std::vector<float> kept(int32_t run, bool value, int32_t head, int32_t position) {
    const Place& place = value ? instruction.slot2 : instruction.slot;
    const auto page = host_at<const Address>(pass.run[run].pages)[position / 64];
    std::vector<float> made(8);
    load_values(place.form,
                host_at<const std::byte>(page + place.offset) + (head * 64 + position % 64) * place.row_bytes, made);
    return made;
  }
};

TEST(ReferenceRows, KeysAndValuesLieInPages) {
  for (const Form form : {Form::kF32, Form::kF16, Form::kBF16}) {
    PagesDesk desk(form);
    const auto keys = desk.rows(3, 16), values = desk.rows(3, 16);
    desk.instruction.y = desk.reg(keys), desk.instruction.z = desk.reg(values);
    reference_append(desk.instruction, desk.pass);
    const int32_t runs[] = {0, 0, 1}, positions[] = {63, 64, 0};
    for (size_t r = 0; r < 3; ++r) {
      for (int32_t head = 0; head < 2; ++head) {
        for (size_t i = 0; i < 8; ++i) {
          const float bound = form == Form::kF32 ? 0.0f : form == Form::kF16 ? 1e-3f : 8e-3f;
          const size_t at = static_cast<size_t>(8 * head) + i;
          EXPECT_NEAR(desk.kept(runs[r], false, head, positions[r])[i], keys[r][at], bound);
          EXPECT_NEAR(desk.kept(runs[r], true, head, positions[r])[i], values[r][at], bound);
        }
      }
    }
    EXPECT_EQ(desk.kept(0, false, 0, 62), std::vector<float>(8)) << "others stay";
  }
}

TEST(ReferenceRows, WhatATypeCannotKeepIsNoNumber) {
  for (const Form form : {Form::kF16, Form::kBF16, Form::kF32}) {
    PagesDesk desk(form);
    auto keys = desk.rows(3, 16), values = desk.rows(3, 16);
    values[0][2] = 1e6f;                                     // too large for halves
    for (size_t i = 0; i < 8; ++i) keys[1][i] = 2e-8f;       // a key of which halves keep nothing
    for (size_t i = 0; i < 8; ++i) values[2][8 + i] = 0.0f;  // zeros are kept
    keys[2][15] = kNoNumber;
    desk.instruction.y = desk.reg(keys), desk.instruction.z = desk.reg(values);
    reference_append(desk.instruction, desk.pass);
    EXPECT_EQ(std::isfinite(desk.kept(0, true, 0, 63)[2]), form != Form::kF16);
    for (const float one : desk.kept(0, true, 0, 64)) EXPECT_EQ(std::isnan(one), form == Form::kF16);
    EXPECT_FALSE(std::isnan(desk.kept(0, true, 1, 64)[0])) << "of the other head";
    EXPECT_EQ(desk.kept(1, true, 1, 0), std::vector<float>(8));
    EXPECT_TRUE(std::isnan(desk.kept(1, false, 1, 0)[7]));
  }
}

TEST(ReferenceRows, HeadsAreNormedTurnedAndAppended) {
  PagesDesk desk(Form::kF32);
  const auto x = desk.rows(3, 4 * 16), keys = desk.rows(3, 16), values = desk.rows(3, 16);
  const auto scale = desk.values(8), key_scale = desk.values(8);
  Instruction& in = desk.instruction;
  in.op.heads = 4, in.op.eps = 1e-6f, in.x_stride = 16, in.x_width = 64, in.out_width = 32;
  in.rope.rotary = 4, in.rope.rope_theta = 100;
  in.x = desk.reg(x), in.y = desk.reg(keys), in.z = desk.reg(values), in.out = desk.empty(3, 32);
  in.vectors[0] = desk.put(scale), in.vectors[1] = desk.put(key_scale);
  reference_heads(in, desk.pass);
  const auto normed = [](const std::vector<float>& row, size_t first, const std::vector<float>& by) {
    double squares = 0;
    for (size_t i = 0; i < 8; ++i) squares += row[first + i] * row[first + i] / 8.0;
    std::vector<float> made;
    for (size_t i = 0; i < 8; ++i)
      made.push_back(static_cast<float>(row[first + i] / std::sqrt(squares + 1e-6) * by[i]));
    return made;
  };
  const std::vector<float> out = row_at(in.out, 32, 1);
  for (size_t head = 0; head < 4; ++head) {
    const auto from = out.begin() + static_cast<std::ptrdiff_t>(8 * head);
    expect_near({from, from + 8}, turned(normed(x[1], 16 * head, scale), 0, 8, 4, 64, 100, false), 1e-5);
  }
  expect_near(desk.kept(0, false, 1, 64), turned(normed(keys[1], 8, key_scale), 0, 8, 4, 64, 100, false), 1e-5);
  EXPECT_EQ(desk.kept(0, true, 1, 64), std::vector<float>(values[1].begin() + 8, values[1].end()));
}

TEST(ReferenceRows, SingleValues) {
  Desk desk;
  auto x = desk.rows(3, 70), y = desk.rows(3, 70);
  x[2][1] = kNoNumber;
  const auto bias = desk.values(70);
  const auto table = desk.rows(8, 70);
  desk.run(6, 3);
  Instruction& in = desk.instruction;
  in.op.scale = 0.25f, in.op.window = 3, in.op.ahead = 1, in.x_width = in.y_width = in.out_width = 70;
  in.vectors[0] = desk.put(bias), in.matrix[0] = desk.f32_matrix(table);
  const auto run = [&](OpKind kind, auto function) {
    in.op.kind = kind;
    in.x = in.out = desk.reg(x), in.y = desk.reg(y);  // in place
    reference_each(in, desk.pass);
    for (size_t r = 0; r < 3; ++r) {
      const std::vector<float> got = row_at(in.out, 70, static_cast<int64_t>(r));
      for (size_t i = 0; i < 70; ++i) {
        const double want = function(x[r][i], y[r][i], r, i);
        if (std::isnan(want)) {
          EXPECT_TRUE(std::isnan(got[i]));
        } else {
          EXPECT_NEAR(got[i], want, 1e-5) << to_string(kind) << r << " " << i;
        }
      }
    }
  };
  const auto gelu = [](double v) { return v / 2 * (1 + std::erf(v / std::sqrt(2.0))); };
  run(OpKind::kSwiGlu, [](double a, double b, size_t, size_t) { return silu(a) * b; });
  run(OpKind::kGeGlu, [&](double a, double b, size_t, size_t) { return gelu(a) * b; });
  run(OpKind::kGelu, [&](double a, double, size_t, size_t) { return gelu(a); });
  run(OpKind::kAdd, [](double a, double b, size_t, size_t) { return a + b; });
  run(OpKind::kScale, [](double a, double, size_t, size_t) { return 0.25 * a; });
  run(OpKind::kBias, [&](double a, double, size_t, size_t i) { return a + bias[i]; });
  run(OpKind::kPosition,
      [&](double a, double, size_t r, size_t i) { return r == 2 ? kNoNumber : a + table[6 + r][i]; });
  run(OpKind::kPositionScale, [](double a, double, size_t r, size_t) {
    return a * (1 + 0.25 * std::log(1.0 + std::floor((6.0 + static_cast<double>(r) + 1) / 3)));
  });
  run(OpKind::kHead, [](double, double, size_t, size_t) { return static_cast<double>(kNoNumber); });
}

TEST(ReferenceRows, RowsThatAreWanted) {
  Desk desk;
  const auto x = desk.rows(4, 70);
  desk.run(10, 4);
  desk.wanted({3, 1});
  Instruction& in = desk.instruction;
  in.x_width = in.out_width = 70, in.x = desk.reg(x), in.out = desk.empty(4, 70);
  reference_pick(in, desk.pass);
  EXPECT_EQ(row_at(in.out, 70, 0), x[3]);
  EXPECT_EQ(row_at(in.out, 70, 1), x[1]);
  in.x = in.out, in.op.kind = OpKind::kPositionScale, in.op.scale = 1, in.op.window = 1, in.wanted_only = true;
  reference_each(in, desk.pass);
  EXPECT_NEAR(row_at(in.out, 70, 0)[5], x[3][5] * (1 + std::log(14.0)), 1e-5) << "of position 13";
  EXPECT_EQ(row_at(in.out, 70, 2), std::vector<float>(70)) << "no further row";
  in.op.cap = 3;
  reference_cap(in, desk.pass);
  EXPECT_NEAR(row_at(in.out, 70, 1)[5], 3 * std::tanh(x[1][5] * (1 + std::log(12.0)) / 3), 1e-5);
}

TEST(ReferenceRows, TheLargestLogitIsDrawn) {
  Desk desk;
  std::vector<std::vector<float>> x(6, std::vector<float>(70, -4));
  x[0][69] = 3, x[1][7] = x[1][40] = -1, x[2][3] = kNoNumber, x[3][3] = kInfinite, x[4][3] = -kInfinite;
  desk.run(0, 6);
  desk.wanted({0, 1, 2, 3, 4, 5});
  desk.pass.step = 1;
  desk.pass.drawn = desk.put(std::vector<int32_t>(12, 77));
  desk.instruction.x_width = 70, desk.instruction.x = desk.reg(x);
  reference_argmax(desk.instruction, desk.pass);
  const auto* const drawn = host_at<const int32_t>(desk.pass.drawn);
  EXPECT_EQ(std::vector<int32_t>(drawn, drawn + 12),
            (std::vector<int32_t>{77, 77, 77, 77, 77, 77, 69, 7, -1, -1, -1, 0}));
}

TEST(ReferenceRows, RunsAdvanceTogetherOrNotAtAll) {
  for (const int32_t second : {7, 8, 9, -1}) {
    Desk desk;
    for (const int32_t start : {4, 90}) desk.run(start, 1);
    desk.wanted({0, 1});
    desk.pass.tokens = desk.put(std::vector<int32_t>{1, 2});
    desk.pass.step = 1;
    desk.pass.drawn = desk.put(std::vector<int32_t>{0, 0, 5, second});
    std::vector<int32_t> stops(2 * kStopsMax, -1);
    stops[0] = 8, stops[kStopsMax + 1] = 9, stops[kStopsMax + 2] = 7;  // 8 is the other run's, 7 behind the count
    desk.pass.stops = desk.put(stops), desk.pass.stop_count = 2;
    reference_advance(desk.instruction, desk.pass);
    const bool stops_here = second == 9 || second == -1;
    EXPECT_EQ(desk.pass.stopped, stops_here ? 1 : 0) << second;
    EXPECT_EQ(desk.pass.step, stops_here ? 1 : 2);
    EXPECT_EQ(desk.pass.run[0].start, stops_here ? 4 : 5);
    EXPECT_EQ(desk.pass.run[1].start, stops_here ? 90 : 91);
    EXPECT_EQ(host_at<const int32_t>(desk.pass.tokens)[1], stops_here ? 2 : second);
  }
}

// Routes one row of logits.
struct Routed {
  std::vector<int32_t> ids;
  std::vector<float> shares;
};
Routed route(const std::vector<float>& logits, int32_t used, Routing routing) {
  Desk desk;
  desk.run(0, 1);
  Instruction& in = desk.instruction;
  in.op.experts = in.y_width = static_cast<int32_t>(logits.size());
  in.op.experts_used = used, in.op.routing = routing;
  in.y = desk.reg({logits});
  in.ids = desk.put(std::vector<int32_t>(static_cast<size_t>(used), -1));
  in.shares = desk.put(std::vector<float>(static_cast<size_t>(used)));
  reference_route(in, desk.pass);
  const auto* const ids = host_at<const int32_t>(in.ids);
  const auto* const shares = host_at<const float>(in.shares);
  return {{ids, ids + used}, {shares, shares + used}};
}

TEST(ReferenceExperts, TheFirstOfEqualsAreChosen) {
  EXPECT_EQ(route({1, 5, 5, 2, 5}, 2, Routing::kSoftmaxOfAll).ids, (std::vector<int32_t>{1, 2}));
  EXPECT_EQ(route({3, 1, 9, 3}, 2, Routing::kSoftmaxOfAll).ids, (std::vector<int32_t>{0, 2})) << "ascending";
  EXPECT_EQ(route({1, kNoNumber, -9, 2}, 3, Routing::kSoftmaxOfAll).ids, (std::vector<int32_t>{0, 2, 3}));
  EXPECT_EQ(route({0, 0}, 2, Routing::kSoftmaxOfAll).ids, (std::vector<int32_t>{0, 1}));
}

TEST(ReferenceExperts, SharesOfTheChosen) {
  const std::vector<float> logits = {0.5f, -1, 2, 1};
  double all = 0;
  for (const float one : logits) all += std::exp(static_cast<double>(one));
  const auto near = [](const Routed& routed, double first, double second) {
    EXPECT_EQ(routed.ids, (std::vector<int32_t>{2, 3}));
    expect_near(routed.shares, {first, second});
  };
  near(route(logits, 2, Routing::kSoftmaxOfAll), std::exp(2.0) / all, std::exp(1.0) / all);
  near(route(logits, 2, Routing::kSoftmaxOfChosen), 1 / (1 + std::exp(-1.0)), 1 / (1 + std::exp(1.0)));
  near(route(logits, 2, Routing::kSigmoidOfInput), 1 / (1 + std::exp(-2.0)), 1 / (1 + std::exp(-1.0)));
  for (const Routing routing : {Routing::kSoftmaxOfAll, Routing::kSoftmaxOfChosen, Routing::kSigmoidOfInput}) {
    for (const float none : {kNoNumber, kInfinite, -kInfinite}) {
      for (const float share : route({1, 2, none, 3}, 2, routing).shares) EXPECT_TRUE(std::isnan(share));
    }
  }
}

TEST(ReferenceExperts, GatesUpsAndDownsOfTheChosen) {
  constexpr size_t kHidden = 20, kInner = 10, kExperts = 3;
  for (const bool of_input : {false, true}) {
    Desk desk;
    desk.run(0, 2);
    const auto x = desk.rows(2, kHidden);
    const auto gates = desk.rows(kExperts * kInner, kHidden), ups = desk.rows(kExperts * kInner, kHidden);
    const auto downs = desk.rows(kExperts * kHidden, kInner);
    Instruction& in = desk.instruction;
    in.op.experts = kExperts, in.op.experts_used = 2;
    in.op.routing = of_input ? Routing::kSigmoidOfInput : Routing::kSoftmaxOfChosen;
    in.x_width = in.out_width = kHidden, in.x = desk.reg(x), in.out = desk.empty(2, kHidden);
    const std::vector<int32_t> ids = {0, 2, 1, 2};
    const std::vector<float> shares = {0.25f, 0.5f, 0.75f, kNoNumber};
    in.ids = desk.put(ids), in.shares = desk.put(shares);
    in.inner = desk.put(std::vector<float>(4 * 64, 8.0f));
    in.matrix[0] = desk.f32_matrix(gates), in.matrix[1] = desk.f32_matrix(ups);
    in.matrix[0].rows = in.matrix[1].rows = kInner;
    in.expert_bytes[0] = in.expert_bytes[1] = kInner * 64 * 4, in.expert_bytes[2] = kHidden * 64 * 4;
    reference_experts_in(in, desk.pass);
    in.matrix[0] = desk.f32_matrix(downs);
    in.matrix[0].rows = kHidden;
    reference_experts_out(in, desk.pass);
    std::vector<double> want(kHidden);
    for (size_t j = 0; j < 2; ++j) {
      const auto e = static_cast<size_t>(ids[j]);
      std::vector<double> inner;
      for (size_t i = 0; i < kInner; ++i) {
        double gate = 0, up = 0;
        for (size_t k = 0; k < kHidden; ++k) {
          const double factor = of_input ? shares[j] : 1;
          gate += gates[e * kInner + i][k] * (x[0][k] * factor), up += ups[e * kInner + i][k] * (x[0][k] * factor);
        }
        inner.push_back(silu(gate) * up);
      }
      expect_near(row_at(in.inner, kInner, static_cast<int64_t>(j)), inner, 1e-5);
      for (size_t i = 0; i < kHidden; ++i) {
        for (size_t k = 0; k < kInner; ++k)
          want[i] += (of_input ? 1 : shares[j]) * downs[e * kHidden + i][k] * inner[k];
      }
    }
    expect_near(row_at(in.out, kHidden, 0), want, 2e-5);
    for (const float one : row_at(in.out, kHidden, 1)) EXPECT_TRUE(std::isnan(one));
  }
}

}  // namespace
}  // namespace baton::cuda
