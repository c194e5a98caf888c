// Products of many rows on the card that is here: every kernel that may make one, held to sums in double and to the
// bits of the others, with what lies around outputs and operands poisoned. Skipped without a card.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "baton/base/float.h"
#include "baton/base/random.h"
#include "baton/unit/cuda/card.h"
#include "baton/unit/cuda/tile_geometry.h"
#include "baton/unit/cuda/tile_layout.h"
#include "baton/unit/cuda/tile_maps.h"

namespace baton::cuda {
namespace {

constexpr int32_t kRowsAround = 160;  // poisoned, behind x and behind outputs: more than a tile has
constexpr uint32_t kPoison32 = 0x7fc54321;
constexpr uint16_t kPoison16 = 0x7fc5;

struct Case {
  std::vector<int32_t> outputs;
  int32_t columns;
  Epilogue epilogue = Epilogue::kNone;
  bool f32 = true, to_bf16 = false, in_place = false;
  Form form = Form::kBF16;
  bool unpacks = true;  // of other forms

  bool paired() const { return epilogue == Epilogue::kSwiGlu || epilogue == Epilogue::kGeGlu; }
  std::string text(int32_t rows) const {
    std::string text = fmt::format("{} rows, {} columns to", rows, columns);
    for (const int32_t out : outputs) text += fmt::format(" {}", out);
    return text + fmt::format(" epilogue {} form {}{}", static_cast<int>(epilogue), static_cast<int>(form),
                              to_bf16 ? " to bf16" : "");
  }
};

class CudaTiles : public testing::Test {
 protected:
  void SetUp() override {
    const auto driver = installed_driver();
    if (!driver) GTEST_SKIP() << driver.error().message;
    auto card = Card::open(**driver, 0, "tile");
    if (!card) GTEST_SKIP() << card.error().message;
    card_ = std::move(*card);
    stream_ = *card_->stream();
  }
  void TearDown() override {
    held_.clear();
    stream_ = {};
    card_.reset();
  }

  // To the card; it stays until the next case.
  template <class T>
  Address put(const std::vector<T>& values) {
    const uint64_t bytes = values.size() * sizeof(T);
    held_.push_back(*card_->allocate(bytes, "test"));
    auto pinned = *card_->allocate_pinned(bytes);
    std::memcpy(pinned.data(), values.data(), bytes);
    EXPECT_TRUE(stream_.copy_in(held_.back().address(), pinned.data(), bytes) && stream_.wait());
    return held_.back().address();
  }
  template <class T>
  std::vector<T> get(Address from, size_t count) {
    auto pinned = *card_->allocate_pinned(count * sizeof(T));
    EXPECT_TRUE(stream_.copy_out(pinned.data(), from, count * sizeof(T)) && stream_.wait());
    std::vector<T> values(count);
    std::memcpy(values.data(), pinned.data(), count * sizeof(T));
    return values;
  }

  // Rows of `pitch` with zeros behind `columns`, and poison behind all.
  std::vector<uint16_t> random_rows(int32_t rows, int32_t columns, int32_t pitch, Form form, int32_t around) {
    std::vector<uint16_t> values(static_cast<size_t>(rows + around) * pitch, kPoison16);
    for (int32_t r = 0; r < rows; ++r) {
      for (int32_t c = 0; c < pitch; ++c) {
        const float value = c < columns ? random_.uniform(-1, 1) : 0;
        values[size_t{1} * r * pitch + c] = form == Form::kF16 ? f32_to_f16(value) : f32_to_bf16(value);
      }
    }
    return values;
  }

  void make(const Case& of, int32_t rows);
  void run(const Case& of, int32_t rows, const TileGeometry& tiles, const std::string& what);
  void compare(const Case& of, int32_t rows, const std::string& what);
  void look_around(const Case& of, int32_t rows, const std::string& what);
  void check(const Case& of, int32_t rows);
  // Of the f32 outputs of matrix m.
  size_t count_of(const Case& of, int32_t rows, size_t m) const {
    return size_t{1} * static_cast<size_t>(rows + kRowsAround) * static_cast<size_t>(pitch_of(of.outputs[m]));
  }

  std::shared_ptr<Card> card_;
  Stream stream_;
  std::vector<DeviceMemory> held_;
  Random random_{7};
  std::map<std::string, int> ran_;  // kernels
  // Of the case in hand.
  Instruction in_;
  Address pass_ = 0;
  std::vector<uint16_t> x_;
  std::vector<std::vector<uint16_t>> weights_;
  std::vector<float> z_;
  std::vector<std::vector<uint32_t>> outs_;
  std::vector<uint16_t> out_;
};

// Places that are looked at: edges, and some between.
std::vector<std::pair<int32_t, int32_t>> places(int32_t rows, int32_t width, Random& random) {
  std::vector<std::pair<int32_t, int32_t>> all;
  for (const int32_t r : {0, rows / 2, rows - 1})
    for (const int32_t c : {0, width / 2, width - 1}) all.emplace_back(r, c);
  for (int i = 0; i < 150; ++i)
    all.emplace_back(static_cast<int32_t>(random.below(static_cast<uint64_t>(rows))),
                     static_cast<int32_t>(random.below(static_cast<uint64_t>(width))));
  return all;
}

void CudaTiles::make(const Case& of, int32_t rows) {
  held_.clear();
  in_ = {};
  const int32_t pitch = pitch_of(of.columns), width = pitch_of(of.outputs[0]);
  in_.what = Do::kTile, in_.epilogue = of.epilogue, in_.matrices = static_cast<int32_t>(of.outputs.size());
  in_.op.gelu = Gelu::kErf, in_.to_bf16 = of.to_bf16;
  x_ = random_rows(rows, of.columns, pitch, Form::kBF16, kRowsAround);
  in_.x = put(x_), in_.x_width = of.columns;
  weights_.clear();
  for (size_t m = 0; m < of.outputs.size(); ++m) {
    Matrix& matrix = in_.matrix[m];
    matrix.rows = of.outputs[m], matrix.columns = of.columns, matrix.pitch = pitch, matrix.row_bytes = 2 * pitch;
    matrix.form = of.form;
    weights_.push_back(random_rows(of.outputs[m], of.columns, pitch, of.form, kRowsAround));
    matrix.values = put(weights_.back());
  }
  if (of.form != Form::kBF16 && of.unpacks)
    in_.scratch = put(std::vector<uint16_t>(unpacked_bytes(in_) / 2 + size_t{kRowsAround} * pitch, kPoison16));
  z_.assign(count_of(of, rows, 0), 0.0f);
  for (int32_t r = 0; r < rows; ++r)
    for (int32_t c = 0; c < of.outputs[0]; ++c) z_[size_t{1} * r * width + c] = random_.uniform();
  Pass pass{};
  pass.rows = rows;
  pass_ = put(std::vector<Pass>{pass});
}

// One way to make it, into outputs that are poisoned.
void CudaTiles::run(const Case& of, int32_t rows, const TileGeometry& tiles, const std::string& what) {
  if (of.epilogue == Epilogue::kAdd) in_.z = put(z_);
  for (size_t m = 0; m < of.outputs.size(); ++m) {
    const bool wanted = of.f32 && (m == 0 || !of.paired());
    in_.outs[m] = !wanted ? 0 : of.in_place ? in_.z : put(std::vector<uint32_t>(count_of(of, rows, m), kPoison32));
  }
  if (of.to_bf16) in_.out = put(std::vector<uint16_t>(count_of(of, rows, 0), kPoison16));
  for (const TileLaunch& one : tiles.launches()) {
    const auto work = tile_work(stream_, {in_, pass_}, rows, one);
    ASSERT_TRUE(work) << what << ": " << work.error().message;
    const Status asked = stream_.launch_ahead(one.kernel, one.grid, one.threads, one.shared_bytes, &*work);
    ASSERT_TRUE(asked) << what << ": " << asked.error().message;
    ++ran_[std::string(one.kernel)];
  }
  const Status done = stream_.wait();
  ASSERT_TRUE(done) << what << ": " << done.error().message;
  outs_.assign(of.outputs.size(), {});
  for (size_t m = 0; m < of.outputs.size(); ++m) {
    if (in_.outs[m] != 0) outs_[m] = get<uint32_t>(in_.outs[m], count_of(of, rows, m));
  }
  if (of.to_bf16) out_ = get<uint16_t>(in_.out, count_of(of, rows, 0));
}

void CudaTiles::compare(const Case& of, int32_t rows, const std::string& what) {
  const int32_t pitch = pitch_of(of.columns);
  const auto sum_of = [&](size_t matrix, int32_t r, int32_t c, double& size) {
    double sum = 0;
    size = 0;
    for (int32_t k = 0; k < of.columns; ++k) {
      const uint16_t w = weights_[matrix][size_t{1} * c * pitch + k];
      const float weight = of.form == Form::kF16 ? bf16_to_f32(f32_to_bf16(f16_to_f32(w))) : bf16_to_f32(w);
      const double part = double{bf16_to_f32(x_[size_t{1} * r * pitch + k])} * weight;
      sum += part, size += std::abs(part);
    }
    return sum;
  };
  for (size_t m = 0; m < (of.paired() ? 1 : of.outputs.size()); ++m) {
    for (const auto& [r, c] : places(rows, of.outputs[m], random_)) {
      double size = 0, other = 0;
      double wanted = sum_of(m, r, c, size);
      if (of.paired()) {
        const double up = sum_of(1, r, c, other);
        const double act = of.epilogue == Epilogue::kSwiGlu ? wanted / (1 + std::exp(-wanted))
                                                            : 0.5 * wanted * (1 + std::erf(wanted / std::sqrt(2.0)));
        size = (size + 1) * (std::abs(up) + 1) + other * std::abs(act), wanted = act * up;
      }
      const size_t at = size_t{1} * r * pitch_of(of.outputs[m]) + c;
      if (of.epilogue == Epilogue::kAdd) wanted += z_[at];
      const double bound = 3e-6 * size + 1e-6;
      const std::string where = fmt::format("{}: output {}, row {}, column {}", what, m, r, c);
      if (of.f32) {
        ASSERT_NEAR(std::bit_cast<float>(outs_[m][at]), wanted, bound) << where;
      }
      if (of.to_bf16 && m == 0) {
        ASSERT_NEAR(bf16_to_f32(out_[at]), wanted, bound + std::abs(wanted) / 256) << where;
      }
    }
  }
}

// Behind a row's last value f32 stays as it is or is zero, bf16 is zero; behind the last row nothing is written.
void CudaTiles::look_around(const Case& of, int32_t rows, const std::string& what) {
  for (size_t m = 0; m < outs_.size(); ++m) {
    const auto width = static_cast<size_t>(of.outputs[m]), across = static_cast<size_t>(pitch_of(of.outputs[m]));
    const auto is = [&](size_t at) { return at < static_cast<size_t>(rows) * across; };
    for (size_t at = 0; at < outs_[m].size(); ++at) {
      const uint32_t bits = outs_[m][at];
      const bool inside = is(at) && at % across < width;
      const bool fine = inside || of.in_place ? std::isfinite(std::bit_cast<float>(bits))
                                              : bits == kPoison32 || (is(at) && bits == 0);
      ASSERT_TRUE(fine) << what << ": f32 output " << m << " at " << at << " is " << bits;
    }
    for (size_t at = 0; m == 0 && of.to_bf16 && at < out_.size(); ++at) {
      if (!is(at) || at % across >= width) {
        ASSERT_EQ(out_[at], is(at) ? 0 : kPoison16) << what << ": bf16 at " << at;
      }
    }
  }
}

void CudaTiles::check(const Case& of, int32_t rows) {
  make(of, rows);
  const CardFacts& facts = card_->facts();
  std::string first;
  std::vector<std::vector<uint32_t>> outs;
  std::vector<uint16_t> out;
  const size_t kept = held_.size();
  for (const TileGeometry& tiles : tile_choices(in_, rows, facts.capability, facts.processors, facts.maps)) {
    const std::string what = fmt::format("{}, {}", tiles.launches().back().kernel, of.text(rows));
    run(of, rows, tiles, what);
    if (!HasFatalFailure()) look_around(of, rows, what);
    if (!HasFatalFailure()) compare(of, rows, what);
    if (HasFatalFailure()) return;
    held_.resize(kept);
    if (first.empty()) first = what, outs = outs_, out = out_;
    ASSERT_EQ(out_, out) << what << " beside " << first;
    for (size_t m = 0; m < outs.size(); ++m) {
      const auto across = static_cast<size_t>(pitch_of(of.outputs[m]));
      for (size_t at = 0; at < outs[m].size(); ++at) {
        if (at % across >= static_cast<size_t>(of.outputs[m])) continue;
        ASSERT_EQ(outs_[m][at], outs[m][at]) << what << " beside " << first << ": output " << m << " at " << at;
      }
    }
  }
}

TEST_F(CudaTiles, EveryKernelMakesTheSameAndNothingElse) {
  const Case cases[] = {
      {.outputs = {2048}, .columns = 2048, .epilogue = Epilogue::kAdd},
      {.outputs = {1024}, .columns = 3584, .epilogue = Epilogue::kAdd},
      {.outputs = {1000}, .columns = 1100, .epilogue = Epilogue::kAdd, .in_place = true},
      {.outputs = {2048}, .columns = 4160, .epilogue = Epilogue::kAdd},
      {.outputs = {1100, 900}, .columns = 4096, .to_bf16 = true},
      {.outputs = {1300}, .columns = 4500, .form = Form::kF16, .unpacks = false},
      {.outputs = {33}, .columns = 100},
      {.outputs = {1500, 200, 16, 5}, .columns = 1024},
      {.outputs = {300, 900}, .columns = 1300},
      {.outputs = {512, 512}, .columns = 256, .epilogue = Epilogue::kSwiGlu, .f32 = false, .to_bf16 = true},
      {.outputs = {1000, 1000}, .columns = 320, .epilogue = Epilogue::kGeGlu, .f32 = true, .to_bf16 = true},
      {.outputs = {24, 24}, .columns = 64, .epilogue = Epilogue::kSwiGlu, .f32 = false, .to_bf16 = true},
      {.outputs = {1056}, .columns = 192, .to_bf16 = true},
      {.outputs = {1056}, .columns = 192, .epilogue = Epilogue::kAdd, .to_bf16 = true},
      {.outputs = {700}, .columns = 1024, .form = Form::kF16},
      {.outputs = {1400}, .columns = 512, .form = Form::kF16},
      {.outputs = {1400}, .columns = 512, .form = Form::kF16, .unpacks = false},
      {.outputs = {700}, .columns = 1024, .form = Form::kF16, .unpacks = false},
  };
  for (const Case& of : cases) {
    for (const int32_t rows : {1, 17, 64, 65, 128, 129, 200, 300, 515}) {
      check(of, rows);
      if (HasFatalFailure()) return;
    }
  }
  // More tiles than processors, so that blocks go on with another while the last one's is on its way.
  check({.outputs = {6000, 300}, .columns = 192}, 1100);
  if (HasFatalFailure()) return;
  check({.outputs = {5000, 5000}, .columns = 256, .epilogue = Epilogue::kSwiGlu, .f32 = false, .to_bf16 = true}, 1100);
  for (const auto& [kernel, times] : ran_) std::printf("%s: %d times\n", kernel.c_str(), times);
}

}  // namespace
}  // namespace baton::cuda
