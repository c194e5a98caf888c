// The bodies that stand for kernels of attention, convolutions and the delta rule, against what program.h says in
// double; and the maps from units to keys, rows and chunks that kernels share with the host.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <limits>
#include <vector>

#include "baton/base/float.h"
#include "baton/base/random.h"
#include "baton/unit/cuda/mixers_geometry.h"
#include "baton/unit/cuda/reference.h"

namespace baton::cuda {
namespace {

using SequenceRun = Run;  // inside a test Run is gtest's
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

// A pass over memory of the host.
class Scene {
 public:
  Instruction in;
  Pass pass;

  Address take(size_t bytes) {
    memory_.emplace_back((bytes + 7) / 8);
    return reinterpret_cast<Address>(memory_.back().data());
  }
  Address put(const std::vector<float>& values) {
    const Address to = take(values.size() * sizeof(float));
    std::memcpy(host_at<void>(to), values.data(), values.size() * sizeof(float));
    return to;
  }
  std::vector<float> values(size_t count, float scale = 1) {
    std::vector<float> made(count);
    for (float& value : made) value = scale * random_.normal();
    return made;
  }
  Run& run(int32_t start, int32_t rows, bool decodes = false) {
    Run& made = pass.run[pass.runs++];
    made.start = start, made.first_row = pass.rows, made.rows = rows, made.decodes = decodes ? 1 : 0;
    pass.rows += rows;
    return made;
  }
  // What lies between rows is no number.
  Address reg(int32_t width, bool random = true) {
    const Address to = put(std::vector<float>(static_cast<size_t>(pass.rows * pitch_of(width)), kNan));
    for (int32_t row = 0; row < pass.rows; ++row) {
      const std::vector<float> from = random ? values(static_cast<size_t>(width)) : std::vector<float>();
      std::copy(from.begin(), from.end(), host_row(to, width, row));
    }
    return to;
  }
  // Pages of random keys and values; what lies behind the last row is no number.
  void pages(Form form) {
    const int32_t row_bytes = in.op.width * (form == Form::kF32 ? 4 : 2);
    const uint64_t half = static_cast<uint64_t>(in.op.kv_heads * kPageTokens * row_bytes);
    in.slot = {64, row_bytes, form};
    in.slot2 = {64 + half, row_bytes, form};
    for (Run& run : std::span(pass.run, static_cast<size_t>(pass.runs))) {
      const int32_t end = run.start + run.rows, count = (end + kPageTokens - 1) / kPageTokens;
      run.pages = take(static_cast<size_t>(count) * sizeof(Address));
      for (int32_t p = 0; p < count; ++p) host_at<Address>(run.pages)[p] = take(64 + 2 * half);
      for (int32_t position = 0; position < count * kPageTokens; ++position) {
        for (int32_t head = 0; head < in.op.kv_heads; ++head) {
          for (const Place& place : {in.slot, in.slot2}) {
            const auto width = static_cast<size_t>(in.op.width);
            const std::vector<float> row = position < end ? values(width) : std::vector<float>(width, kNan);
            store_values(form, row, host_kv_row(run, place, head, position));
          }
        }
      }
    }
  }

 private:
  std::deque<std::vector<uint64_t>> memory_;
  Random random_{5};
};

// One row of one head, from the definition.
std::vector<double> attended(const Scene& scene, const Run& run, int32_t t, int32_t head) {
  const Op& op = scene.in.op;
  const int32_t position = run.start + t, kv_head = head / (op.heads / op.kv_heads);
  const float* const q = host_row(scene.in.x, scene.in.x_width, run.first_row + t) + head * op.width;
  std::vector<double> out(static_cast<size_t>(op.width));
  std::vector<float> row(out.size());
  double sum = 0;
  for (int32_t p = 0; p <= position; ++p) {
    if (op.window != 0 && p <= position - op.window) continue;
    if (op.chunk != 0 && p < position - position % op.chunk) continue;
    load_values(scene.in.slot.form, host_kv_row(run, scene.in.slot, kv_head, p), row);
    double score = 0;
    for (size_t i = 0; i < row.size(); ++i) score += static_cast<double>(q[i]) * row[i];
    score *= op.scale;
    if (op.cap != 0) score = op.cap * std::tanh(score / op.cap);
    load_values(scene.in.slot2.form, host_kv_row(run, scene.in.slot2, kv_head, p), row);
    sum += std::exp(score);
    for (size_t i = 0; i < row.size(); ++i) out[i] += std::exp(score) * row[i];
  }
  for (double& value : out) value /= sum;
  return out;
}

struct Attention {
  Form form;
  int32_t heads, kv_heads, width, window, chunk;
  float cap;
};

TEST(Mixers, RunsThatDecodeAttendApartFromOthers) {
  for (const Attention& one : {Attention{Form::kF32, 4, 2, 24, 0, 0, 0}, Attention{Form::kF16, 3, 1, 16, 70, 0, 0},
                               Attention{Form::kBF16, 2, 2, 8, 0, 50, 1.5f}}) {
    Scene scene;
    scene.in.op.heads = one.heads, scene.in.op.kv_heads = one.kv_heads, scene.in.op.width = one.width;
    scene.in.op.window = one.window, scene.in.op.chunk = one.chunk, scene.in.op.cap = one.cap;
    scene.in.op.scale = 0.4f;
    scene.run(0, 3);
    scene.run(129, 1, true);
    scene.run(60, 70);
    scene.pages(one.form);
    scene.in.x_width = scene.in.out_width = one.heads * one.width;
    scene.in.x = scene.reg(scene.in.x_width);
    for (const Do what : {Do::kAttend, Do::kAttendTile}) {
      scene.in.what = what;
      scene.in.out = scene.reg(scene.in.out_width, false);
      reference_attend(scene.in, scene.pass);
      for (int32_t r = 0; r < scene.pass.runs; ++r) {
        const SequenceRun& run = scene.pass.run[r];
        for (int32_t t = 0; t < run.rows; ++t) {
          const float* const out = host_row(scene.in.out, scene.in.out_width, run.first_row + t);
          if ((run.decodes != 0) != (what == Do::kAttend)) {
            ASSERT_TRUE(std::isnan(out[0])) << "a run that is not this kind's";
            continue;
          }
          for (int32_t head = 0; head < one.heads; ++head) {
            const std::vector<double> want = attended(scene, run, t, head);
            for (int32_t i = 0; i < one.width; ++i)
              ASSERT_NEAR(out[head * one.width + i], want[static_cast<size_t>(i)], 2e-6)
                  << r << " " << t << " " << head;
          }
        }
      }
    }
  }
}

TEST(Mixers, AllTokensSeeEachOther) {
  for (const auto& [window, alibi] : {std::pair{0, 0.0f}, {3, 0.0f}, {0, 8.0f}}) {
    Scene scene;
    Op& op = scene.in.op;
    op.heads = 6, op.kv_heads = 2, op.width = 8, op.window = window, op.alibi = alibi, op.scale = 0.3f;
    scene.run(0, 4);
    const SequenceRun& run = scene.run(0, 9);
    scene.in.x_width = scene.in.out_width = 48, scene.in.y_width = scene.in.z_width = 16;
    scene.in.x = scene.reg(48), scene.in.y = scene.reg(16), scene.in.z = scene.reg(16);
    scene.in.out = scene.reg(48, false);
    reference_attend_all(scene.in, scene.pass);
    for (int32_t t = 0; t < run.rows; ++t) {
      for (int32_t head = 0; head < op.heads; ++head) {
        std::vector<double> want(8);
        double sum = 0;
        for (int32_t p = 0; p < run.rows; ++p) {
          if (window != 0 && std::abs(p - t) > window) continue;
          double score = 0;
          for (int32_t i = 0; i < 8; ++i)
            score += static_cast<double>(host_row(scene.in.x, 48, run.first_row + t)[head * 8 + i]) *
                     host_row(scene.in.y, 16, run.first_row + p)[head / 3 * 8 + i];
          score = score * op.scale - (alibi != 0 ? alibi_slope(op, head) * std::abs(p - t) : 0.0);
          sum += std::exp(score);
          for (int32_t i = 0; i < 8; ++i)
            want[static_cast<size_t>(i)] +=
                std::exp(score) * host_row(scene.in.z, 16, run.first_row + p)[head / 3 * 8 + i];
        }
        for (int32_t i = 0; i < 8; ++i)
          ASSERT_NEAR(host_row(scene.in.out, 48, run.first_row + t)[head * 8 + i], want[static_cast<size_t>(i)] / sum,
                      2e-6)
              << window << " " << t << " " << head;
      }
    }
  }
}

// The same inputs in pieces of these rows: outputs of all.
std::vector<float> convolved(Do what, int32_t taps, const std::vector<int32_t>& pieces) {
  constexpr int32_t kChannels = 5;
  Scene scene;
  const std::vector<float> weights = scene.values(static_cast<size_t>(kChannels * taps));
  const std::vector<float> inputs = scene.values(size_t{100} * kChannels), others = scene.values(inputs.size());
  const auto columns = static_cast<size_t>(taps * kChannels);
  const Address parts = scene.put(std::vector<float>(4 + columns));
  std::vector<float> all;
  int32_t position = 0;
  for (const int32_t rows : pieces) {
    scene.pass = {};
    scene.run(0, 2).parts = scene.put(scene.values(4 + columns));  // a neighbour
    SequenceRun& run = scene.run(position, rows);
    run.parts = parts;
    scene.in.what = what, scene.in.op.taps = taps, scene.in.slot.offset = 16;
    scene.in.vectors[0] = scene.put(weights);
    scene.in.x_width = scene.in.y_width = scene.in.z_width = scene.in.out_width = scene.in.out2_width = kChannels;
    scene.in.x = scene.reg(kChannels), scene.in.y = scene.reg(kChannels), scene.in.z = scene.reg(kChannels);
    scene.in.out = scene.reg(kChannels, false);
    scene.in.out2 = scene.in.x;
    for (int32_t t = 0; t < rows; ++t) {
      for (int32_t c = 0; c < kChannels; ++c) {
        const auto i = static_cast<size_t>((position + t) * kChannels + c);
        host_row(scene.in.x, kChannels, 2 + t)[c] = inputs[i];
        host_row(scene.in.y, kChannels, 2 + t)[c] = others[i];
        host_row(scene.in.z, kChannels, 2 + t)[c] = 1.5f;
      }
    }
    what == Do::kConv ? reference_conv(scene.in, scene.pass) : reference_short_conv(scene.in, scene.pass);
    for (int32_t t = 0; t < rows; ++t) {
      const float* const out = host_row(scene.in.out, kChannels, 2 + t);
      all.insert(all.end(), out, out + kChannels);
    }
    position += rows;
  }
  for (int32_t j = 1; j < taps; ++j) {
    const float* const column = host_at<float>(parts + 16) + (position - j) % taps * kChannels;
    for (int32_t c = 0; c < kChannels; ++c) {
      const auto i = static_cast<size_t>((position - j) * kChannels + c);
      EXPECT_EQ(column[c], what == Do::kConv ? inputs[i] : inputs[i] * others[i]) << "of the ring, " << j << " back";
    }
  }
  // The definition, for the last row.
  for (int32_t c = 0; c < kChannels; ++c) {
    double sum = 0;
    for (int32_t j = 0; j < taps; ++j) {
      const auto i = static_cast<size_t>((position - taps + j) * kChannels + c);
      sum += static_cast<double>(weights[static_cast<size_t>(c * taps + j)]) * inputs[i] *
             (what == Do::kConv ? 1 : others[i]);
    }
    const double want = what == Do::kConv ? sum / (1 + std::exp(-sum)) : 1.5 * sum;
    EXPECT_NEAR(all[static_cast<size_t>((position - 1) * kChannels + c)], want, 1e-5) << taps;
  }
  return all;
}

TEST(Mixers, PiecesOfAConvolutionAreTheWhole) {
  for (const Do what : {Do::kConv, Do::kShortConv}) {
    for (const int32_t taps : {2, 3, 4, 7}) {
      const std::vector<float> whole = convolved(what, taps, {23});
      EXPECT_EQ(whole, convolved(what, taps, {1, 2, 3, 1, 1, 9, 4, 2})) << taps;
      EXPECT_EQ(whole, convolved(what, taps, std::vector<int32_t>(23, 1))) << taps;
    }
  }
}

struct Rule {
  HeadMap map;
  std::vector<double> state;  // of all heads
};

// One row from the definition in double; `x` is convolved.
void step(const Op& op, Rule& rule, const float* x, const float* b, const float* a, const float* rate,
          const float* bias, std::vector<double>& out) {
  const int32_t keys = op.kv_heads * op.key_dim;
  out.assign(static_cast<size_t>(op.heads * op.value_dim), 0);
  for (int32_t head = 0; head < op.heads; ++head) {
    const int32_t key_head = rule.map == HeadMap::kTiled ? head % op.kv_heads : head * op.kv_heads / op.heads;
    const float* const q = x + key_head * op.key_dim;
    const float* const k = q + keys;
    double q_sum = op.eps, k_sum = op.eps;
    for (int32_t i = 0; i < op.key_dim; ++i) q_sum += double{q[i]} * q[i], k_sum += double{k[i]} * k[i];
    const double decay = std::exp(rate[head] * std::log1p(std::exp(double{a[head]} + bias[head])));
    const double beta = 1 / (1 + std::exp(-double{b[head]}));
    double* const state = rule.state.data() + head * op.key_dim * op.value_dim;
    for (int32_t j = 0; j < op.value_dim; ++j) {
      double kept = 0;
      for (int32_t i = 0; i < op.key_dim; ++i) kept += (state[i * op.value_dim + j] *= decay) * k[i] / std::sqrt(k_sum);
      const double change = beta * (x[2 * keys + head * op.value_dim + j] - kept);
      for (int32_t i = 0; i < op.key_dim; ++i)
        out[static_cast<size_t>(head * op.value_dim + j)] +=
            (state[i * op.value_dim + j] += k[i] / std::sqrt(k_sum) * change) * q[i] / std::sqrt(q_sum * op.key_dim);
    }
  }
}

// Many rows of kDelta behind kConv, and kConvDelta row by row, are what the definition says.
TEST(Mixers, DeltaRuleByRowsAndWithTheConvolution) {
  for (const HeadMap map : {HeadMap::kGrouped, HeadMap::kTiled}) {
    Scene scene;
    Instruction& in = scene.in;
    Op& op = in.op;
    op.heads = 4, op.kv_heads = 2, op.key_dim = 6, op.value_dim = 5, op.taps = 3, op.eps = 1e-6f, op.head_map = map;
    const int32_t channels = 2 * 2 * 6 + 4 * 5;
    const size_t states = 4 * 6 * 5, ring = static_cast<size_t>(3 * channels);
    std::vector<float> rate = scene.values(4);
    for (float& value : rate) value = -0.2f - std::abs(value);
    const std::vector<float> bias = scene.values(4), taps = scene.values(ring);
    scene.run(0, 2).parts = scene.put(scene.values(states + ring));
    SequenceRun& run = scene.run(7, 9);
    const std::vector<float> parts = scene.values(states + ring, 0.3f);
    run.parts = scene.put(parts);
    in.x_width = channels, in.y_width = in.z_width = 4, in.out_width = 20;
    in.y = scene.reg(4), in.z = scene.reg(4);
    in.vectors[0] = scene.put(taps);
    in.x = scene.reg(channels);
    const Address inputs = in.x, mixed = scene.reg(channels, false);
    in.slot.offset = states * sizeof(float);
    Instruction conv = in;
    conv.out_width = channels, conv.out = mixed;
    reference_conv(conv, scene.pass);
    in.slot.offset = 0, in.slot2.offset = states * sizeof(float);
    in.vectors[0] = scene.put(rate), in.vectors[1] = scene.put(bias), in.vectors[2] = scene.put(taps);
    in.x = mixed;
    in.out = scene.reg(20, false);
    reference_delta(in, scene.pass);

    Rule rule{map, std::vector<double>(parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(states))};
    std::vector<double> want;
    for (int32_t row = 2; row < 11; ++row) {
      step(op, rule, host_row(mixed, channels, row), host_row(in.y, 4, row), host_row(in.z, 4, row), rate.data(),
           bias.data(), want);
      for (size_t i = 0; i < want.size(); ++i) ASSERT_NEAR(host_row(in.out, 20, row)[i], want[i], 1e-5) << row;
    }
    for (size_t i = 0; i < states; ++i) ASSERT_NEAR(host_at<float>(run.parts)[i], rule.state[i], 1e-5);

    // Once more from the same state, a row at a time.
    const Address apart = scene.put(parts);
    Pass one;
    one.runs = one.rows = 1;
    one.run[0] = run;
    one.run[0].parts = apart;
    one.run[0].rows = one.run[0].decodes = 1;
    const Address before = in.out;
    in.what = Do::kConvDelta, in.x = inputs, in.out = scene.reg(20, false);
    for (int32_t row = 2; row < 11; ++row, ++one.run[0].start, ++one.run[0].first_row) reference_conv_delta(in, one);
    for (int32_t row = 2; row < 11; ++row)
      ASSERT_TRUE(std::equal(host_row(before, 20, row), host_row(before, 20, row) + 20, host_row(in.out, 20, row)));
    ASSERT_EQ(std::memcmp(host_at<void>(apart), host_at<void>(run.parts), (states + ring) * sizeof(float)), 0);
  }
}

TEST(MixersGeometry, PartsOfKeysAreAllOfThem) {
  for (const auto& [splits, width] : {std::pair{1, 256}, {2, 64}, {16, 128}, {66, 256}, {kPartsMax, 64}}) {
    for (const int32_t position : {0, 1, 63, 64, 127, 128, 1000, 8191, 8192, 32768, 1000000}) {
      for (const auto& [window, chunk] : {std::pair{0, 0}, {100, 0}, {4096, 0}, {0, 1024}}) {
        Op op;
        op.window = window, op.chunk = chunk, op.width = width;
        const KeyParts parts = key_parts(op, position, splits);
        ASSERT_GE(parts.count, 1);
        ASSERT_LE(parts.count, splits);
        EXPECT_EQ(parts.first_tile(0), parts.seen_from / kPageTokens);
        EXPECT_EQ(parts.first_tile(parts.count), position / kPageTokens + 1);
        for (int32_t part = 0; part < parts.count; ++part)
          ASSERT_LT(parts.first_tile(part), parts.first_tile(part + 1)) << position << " " << splits;
        EXPECT_EQ(parts.seen_from, chunk != 0    ? position - position % chunk
                                   : window != 0 ? std::max(0, position - window + 1)
                                                 : 0);
      }
    }
  }
  // What a block has in two turns is one part; of more each has a turn or more. By the position alone.
  const auto count = [](int32_t width, int32_t position) {
    Op op;
    op.width = width;
    return key_parts(op, position, 66).count;
  };
  EXPECT_EQ(count(256, 127), 1);
  EXPECT_EQ(count(256, 128), 3);
  EXPECT_EQ(count(256, 8192), 66);
  EXPECT_EQ(count(128, 255), 1);
  EXPECT_EQ(count(128, 256), 3);
  EXPECT_EQ(count(64, 511), 1);
  EXPECT_EQ(count(64, 512), 3);
  EXPECT_EQ(count(64, 32768), 66);
}

TEST(MixersGeometry, TilesAndChunksAreAllRowsOnce) {
  Pass pass;
  const struct {
    int32_t start, rows, decodes;
  } runs[] = {{0, 1, 0}, {63, 1, 0}, {64, 64, 0}, {5, 1, 1}, {60, 200, 0}, {1, 63, 0}, {130, 0, 0}, {0, 129, 0}};
  for (const auto& one : runs) {
    SequenceRun& run = pass.run[pass.runs++];
    run.start = one.start, run.rows = one.rows, run.decodes = one.decodes, run.first_row = pass.rows;
    pass.rows += one.rows;
  }
  for (const Rows which : {Rows::kAll, Rows::kPrompts}) {
    for (const int32_t rows : {16, 64, INT32_MAX / 2}) {
      std::vector<int32_t> seen(static_cast<size_t>(pass.rows));
      const int32_t tiles = row_tiles(pass, rows, which);
      for (int32_t i = 0; i < tiles; ++i) {
        const RowTile tile = row_tile(pass, i, rows, which);
        ASSERT_GE(tile.run, 0);
        ASSERT_TRUE(tile.count > 0 && tile.count <= rows);
        for (int32_t t = 0; t < tile.count; ++t)
          ++seen[static_cast<size_t>(pass.run[tile.run].first_row + tile.offset + t)];
      }
      EXPECT_EQ(row_tile(pass, tiles, rows, which).run, -1);
      EXPECT_EQ(std::count(seen.begin(), seen.end(), 1), pass.rows - (which == Rows::kPrompts ? 1 : 0));
    }
  }
  int32_t rows = 0;
  for (int32_t i = 0; i < delta_chunks(pass); ++i) {
    const RowTile chunk = delta_chunk(pass, i);
    const SequenceRun& run = pass.run[chunk.run];
    ASSERT_GT(chunk.count, 0);
    EXPECT_EQ(run.decodes, 0);
    EXPECT_EQ((run.start + chunk.offset) / kDeltaRows, (run.start + chunk.offset + chunk.count - 1) / kDeltaRows);
    EXPECT_TRUE(chunk.offset == 0 || (run.start + chunk.offset) % kDeltaRows == 0);
    rows += chunk.count;
  }
  EXPECT_EQ(rows, pass.rows - 1);
  EXPECT_EQ(delta_chunk(pass, delta_chunks(pass)).run, -1);
}

TEST(MixersGeometry, LongTilesComeFirst) {
  for (const auto& [tiles, heads] : {std::pair{32, 8}, {5, 1}, {1, 2}, {40, 16}}) {
    std::vector<int32_t> order;
    for (int32_t i = 0; i < tiles; ++i) order.push_back(attend_tile_at(i, tiles, heads));
    EXPECT_EQ(order[0], tiles - 1);
    std::sort(order.begin(), order.end());
    for (int32_t i = 0; i < tiles; ++i) EXPECT_EQ(order[static_cast<size_t>(i)], i);
  }
}

std::vector<std::string> kernels(const MixerLaunches& launches) {
  std::vector<std::string> names;
  for (int32_t i = 0; i < launches.count; ++i) names.emplace_back(launches.each[i].kernel);
  return names;
}

TEST(MixersGeometry, KernelsByTypeWidthAndRuns) {
  using Names = std::vector<std::string>;
  Instruction in;
  in.op.heads = 8, in.op.kv_heads = 2, in.op.width = 256;
  in.slot.form = in.slot2.form = Form::kF16;
  in.what = Do::kAttend, in.splits = attend_splits(in.op), in.scratch = 1;
  EXPECT_EQ(in.splits, 66);
  Pass decode;
  decode.runs = decode.rows = 1;
  decode.run[0].rows = decode.run[0].decodes = 1;
  Pass prompt = decode;
  prompt.rows = prompt.run[0].rows = 100;
  prompt.run[0].decodes = 0;
  EXPECT_EQ(mixer_launches(in, decode, 132).each[0].grid, 132u);
  EXPECT_EQ(kernels(mixer_launches(in, prompt, 132)), Names());
  EXPECT_EQ(mixer_scratch_bytes(in, 64, 3, 0), uint64_t{3} * 8 * 66 * 258 * 4);
  in.what = Do::kAttendTile;
  EXPECT_EQ(kernels(mixer_launches(in, decode, 132)), Names());
  EXPECT_EQ(kernels(mixer_launches(in, prompt, 132)), Names{"baton_attend_tile_f16_256"});
  EXPECT_EQ(mixer_launches(in, prompt, 132).each[0].grid, 16u);
  in.op.width = 80, in.slot.form = in.slot2.form = Form::kBF16;
  EXPECT_EQ(kernels(mixer_launches(in, prompt, 132)), Names{"baton_attend_tile_bf16_128"});
  in.slot.form = in.slot2.form = Form::kF32;
  EXPECT_EQ(kernels(mixer_launches(in, prompt, 132)), Names{"baton_attend_tile"});

  in.what = Do::kDelta, in.op.key_dim = in.op.value_dim = 128;
  EXPECT_EQ(kernels(mixer_launches(in, decode, 132)), Names{"baton_delta"});
  EXPECT_EQ(kernels(mixer_launches(in, prompt, 132)), (Names{"baton_delta_prepare", "baton_delta_chunks_16"}));
  EXPECT_EQ(mixer_launches(in, prompt, 132).each[0].grid, 16u);
  EXPECT_EQ(mixer_launches(in, prompt, 132).each[1].grid, 64u);
  EXPECT_EQ(kernels(mixer_launches(in, prompt, 63))[1], "baton_delta_chunks_32") << "more blocks than processors";
  EXPECT_EQ(mixer_launches(in, prompt, 63).each[1].grid, 32u);
  EXPECT_GE(mixer_scratch_bytes(in, 100, 1, 227 * 1024), uint64_t{2} * 8 * kDeltaChunkBytes);
  EXPECT_EQ(mixer_scratch_bytes(in, 100, 1, 136 * 1024), 0u) << "a card without room for chunks";
  EXPECT_EQ(mixer_launches(in, prompt, 16).each[0].shared_bytes, kDeltaPrepareAlone) << "a processor for each block";
  EXPECT_EQ(mixer_launches(in, prompt, 15).each[0].shared_bytes, kDeltaPrepareShared);
  in.what = Do::kConvDelta, in.op.taps = 4;
  EXPECT_EQ(kernels(mixer_launches(in, prompt, 132)), (Names{"baton_conv_delta_prepare", "baton_delta_chunks_16"}));
  EXPECT_GT(mixer_scratch_bytes(in, 100, 1, 227 * 1024), 0u);
  in.scratch = 0;
  EXPECT_EQ(kernels(mixer_launches(in, decode, 132)), Names{"baton_conv_delta"});
  in.what = Do::kDelta;
  EXPECT_EQ(kernels(mixer_launches(in, prompt, 132)), Names{"baton_delta"});
}

}  // namespace
}  // namespace baton::cuda
