// Bodies of the kinds that see more than their own row: attention, convolutions, the delta rule. Straight from what
// program.h says of the ops, over pages and rings as they lie.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <vector>

#include "baton/unit/cuda/mixers_geometry.h"
#include "baton/unit/cuda/reference.h"

namespace baton::cuda {
namespace {

float sigmoid_of(float x) { return 1.0f / (1.0f + std::exp(-x)); }
float silu_of(float x) { return x * sigmoid_of(x); }
float softplus_of(float x) { return x > 20.0f ? x : std::log1p(std::exp(x)); }

float dot(const float* a, const float* b, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(a[i]) * b[i];
  return static_cast<float>(sum);
}

// out = sum of softmax(scores) values, whose rows are `count`.
template <class Value>
void weigh(std::vector<float>& scores, Value value, int64_t width, float* out) {
  const float highest = *std::max_element(scores.begin(), scores.end());
  double sum = 0;
  for (float& score : scores) sum += score = std::exp(score - highest);
  std::vector<double> total(static_cast<size_t>(width));
  for (size_t p = 0; p < scores.size(); ++p) {
    const float* const row = value(static_cast<int64_t>(p));
    for (int64_t i = 0; i < width; ++i) total[static_cast<size_t>(i)] += static_cast<double>(scores[p]) * row[i];
  }
  for (int64_t i = 0; i < width; ++i) out[i] = static_cast<float>(total[static_cast<size_t>(i)] / sum);
}

// Rows of keys or values of one kv head, decoded.
std::vector<float> kv_rows(const Instruction& instruction, const Run& run, const Place& place, int32_t head) {
  const int64_t width = instruction.op.width, count = int64_t{run.start} + run.rows;
  std::vector<float> rows(static_cast<size_t>(width * count));
  for (int64_t p = 0; p < count; ++p)
    load_values(place.form, host_kv_row(run, place, head, p),
                std::span(rows).subspan(static_cast<size_t>(p * width), static_cast<size_t>(width)));
  return rows;
}

void attend_head(const Instruction& instruction, const Run& run, int32_t kv_head) {
  const Op& op = instruction.op;
  const std::vector<float> keys = kv_rows(instruction, run, instruction.slot, kv_head);
  const std::vector<float> values = kv_rows(instruction, run, instruction.slot2, kv_head);
  const int32_t shared = op.heads / op.kv_heads;
  std::vector<float> scores;
  for (int32_t t = 0; t < run.rows; ++t) {
    const int64_t position = run.start + t, first = first_seen(op.window, op.chunk, run.start + t);
    for (int32_t head = kv_head * shared; head < (kv_head + 1) * shared; ++head) {
      const float* const q = host_row(instruction.x, instruction.x_width, run.first_row + t) + head * op.width;
      scores.clear();
      for (int64_t p = first; p <= position; ++p) {
        const float score = op.scale * dot(q, keys.data() + p * op.width, op.width);
        scores.push_back(op.cap != 0 ? op.cap * std::tanh(score / op.cap) : score);
      }
      weigh(
          scores, [&](int64_t p) { return values.data() + (first + p) * op.width; }, op.width,
          host_row(instruction.out, instruction.out_width, run.first_row + t) + head * op.width);
    }
  }
}

float slope_of(const Op& op, int32_t head) { return op.alibi != 0 ? alibi_slope(op, head) : 0.0f; }

void attend_all_row(const Instruction& instruction, const Run& run, int32_t t, int32_t head) {
  const Op& op = instruction.op;
  const int64_t kv_at = int64_t{head / (op.heads / op.kv_heads)} * op.width;
  const int32_t first = op.window == 0 ? 0 : std::max(0, t - op.window);
  const int32_t end = op.window == 0 ? run.rows : std::min(run.rows, t + op.window + 1);
  const float* const q = host_row(instruction.x, instruction.x_width, run.first_row + t) + head * op.width;
  std::vector<float> scores;
  for (int32_t p = first; p < end; ++p) {
    const float* const key = host_row(instruction.y, instruction.y_width, run.first_row + p) + kv_at;
    scores.push_back(op.scale * dot(q, key, op.width) - slope_of(op, head) * static_cast<float>(std::abs(p - t)));
  }
  weigh(
      scores,
      [&](int64_t p) { return host_row(instruction.z, instruction.z_width, run.first_row + first + p) + kv_at; },
      op.width, host_row(instruction.out, instruction.out_width, run.first_row + t) + head * op.width);
}

// Of a ring: the column of the token at `position`, which may be before the first.
float* ring_column(const Run& run, const Place& place, int32_t taps, int32_t channels, int64_t position) {
  return host_at<float>(run.parts + place.offset) + (position % taps + taps) % taps * channels;
}

// One run: its inputs, old ones first, as one array [taps - 1 + rows][channels]; then the ring gets the last ones.
std::vector<float> ring_inputs(const Run& run, const Place& place, int32_t taps, int32_t channels, const float* x,
                               int32_t pitch) {
  std::vector<float> all;
  for (int32_t j = taps - 1; j > 0; --j) {
    const float* const column = ring_column(run, place, taps, channels, int64_t{run.start} - j);
    all.insert(all.end(), column, column + channels);
  }
  for (int32_t t = 0; t < run.rows; ++t)
    all.insert(all.end(), x + int64_t{t} * pitch, x + int64_t{t} * pitch + channels);
  for (int32_t t = std::max(0, run.rows - taps); t < run.rows; ++t)
    std::copy_n(x + int64_t{t} * pitch, channels, ring_column(run, place, taps, channels, int64_t{run.start} + t));
  return all;
}

float tap_sum(const float* taps_of, const float* inputs, int32_t taps, int32_t channels) {
  float sum = 0;
  for (int32_t j = 0; j < taps; ++j) sum += taps_of[j] * inputs[int64_t{j} * channels];
  return sum;
}

void conv_run(const Run& run, const Place& place, const Op& op, const float* taps, int32_t channels, const float* x,
              int32_t pitch, float* out, int32_t out_pitch) {
  const std::vector<float> inputs = ring_inputs(run, place, op.taps, channels, x, pitch);
  for (int32_t t = 0; t < run.rows; ++t) {
    for (int32_t c = 0; c < channels; ++c)
      out[int64_t{t} * out_pitch + c] =
          silu_of(tap_sum(taps + int64_t{c} * op.taps, inputs.data() + int64_t{t} * channels + c, op.taps, channels));
  }
}

void l2_norm(const float* x, int32_t width, float eps, float factor, float* to) {
  const float scale = factor / std::sqrt(dot(x, x, width) + eps);
  for (int32_t i = 0; i < width; ++i) to[i] = x[i] * scale;
}

// One token of one value head: program.h.
void delta_step(const Op& op, float* state, const float* q, const float* k, const float* v, float decay, float beta,
                float* out) {
  const int32_t width = op.value_dim;
  for (int32_t j = 0; j < width; ++j) {
    float kept = 0, sum = 0;
    for (int32_t i = 0; i < op.key_dim; ++i) kept += (state[i * width + j] *= decay) * k[i];
    const float change = beta * (v[j] - kept);
    for (int32_t i = 0; i < op.key_dim; ++i) sum += (state[i * width + j] += k[i] * change) * q[i];
    out[j] = sum;
  }
}

// A row of one run: x is convolved, out gets all heads.
void delta_row(const Instruction& instruction, const Run& run, const Place& place, const float* x, int32_t row) {
  const Op& op = instruction.op;
  const int32_t key_width = op.kv_heads * op.key_dim;
  const float* const rate = host_at<const float>(instruction.vectors[0]);
  const float* const bias = host_at<const float>(instruction.vectors[1]);
  std::vector<float> q(static_cast<size_t>(op.key_dim)), k(q.size());
  for (int32_t head = 0; head < op.heads; ++head) {
    const int32_t key_head = key_head_of(op, head);
    l2_norm(x + key_head * op.key_dim, op.key_dim, op.eps, 1.0f / std::sqrt(static_cast<float>(op.key_dim)), q.data());
    l2_norm(x + key_width + key_head * op.key_dim, op.key_dim, op.eps, 1.0f, k.data());
    const float beta = sigmoid_of(host_row(instruction.y, instruction.y_width, row)[head]);
    const float g = rate[head] * softplus_of(host_row(instruction.z, instruction.z_width, row)[head] + bias[head]);
    delta_step(op, host_at<float>(run.parts + place.offset) + int64_t{head} * op.key_dim * op.value_dim, q.data(),
               k.data(), x + 2 * key_width + head * op.value_dim, std::exp(g), beta,
               host_row(instruction.out, instruction.out_width, row) + head * op.value_dim);
  }
}

}  // namespace

// kAttend: runs that decode; kAttendTile: the others.
void reference_attend(const Instruction& instruction, const Pass& pass) {
  for (int32_t i = 0; i < pass.runs; ++i) {
    const Run& run = pass.run[i];
    if ((run.decodes != 0) == (instruction.what == Do::kAttendTile)) continue;
    for (int32_t kv_head = 0; kv_head < instruction.op.kv_heads; ++kv_head) attend_head(instruction, run, kv_head);
  }
}

// Nothing is left in parts.
void reference_attend_join(const Instruction&, const Pass&) {}

void reference_attend_row(const Instruction& instruction, const Pass& pass) {
  std::vector<float> queries(static_cast<size_t>(pitch_of(instruction.out_width)));
  Instruction part = instruction;
  part.what = Do::kHeads;
  part.out = reinterpret_cast<Address>(queries.data());
  reference_heads(part, pass);
  part.what = Do::kAttend;
  part.x = part.out, part.x_width = instruction.out_width;
  part.out = instruction.out;
  reference_attend(part, pass);
}

void reference_attend_all(const Instruction& instruction, const Pass& pass) {
  for (int32_t i = 0; i < pass.runs; ++i) {
    for (int32_t t = 0; t < pass.run[i].rows; ++t) {
      for (int32_t head = 0; head < instruction.op.heads; ++head) attend_all_row(instruction, pass.run[i], t, head);
    }
  }
}

void reference_conv(const Instruction& instruction, const Pass& pass) {
  for (int32_t i = 0; i < pass.runs; ++i) {
    const Run& run = pass.run[i];
    conv_run(run, instruction.slot, instruction.op, host_at<const float>(instruction.vectors[0]), instruction.x_width,
             host_row(instruction.x, instruction.x_width, run.first_row), pitch_of(instruction.x_width),
             host_row(instruction.out, instruction.out_width, run.first_row), pitch_of(instruction.out_width));
  }
}

void reference_delta(const Instruction& instruction, const Pass& pass) {
  for (int32_t i = 0; i < pass.runs; ++i) {
    const Run& run = pass.run[i];
    for (int32_t row = run.first_row; row < run.first_row + run.rows; ++row)
      delta_row(instruction, run, instruction.slot, host_row(instruction.x, instruction.x_width, row), row);
  }
}

void reference_conv_delta(const Instruction& instruction, const Pass& pass) {
  const int32_t channels = instruction.x_width;
  std::vector<float> convolved(static_cast<size_t>(channels));
  for (int32_t i = 0; i < pass.runs; ++i) {
    Run run = pass.run[i];
    const int32_t first = run.first_row, rows = run.rows;
    for (int32_t t = 0; t < rows; ++t) {
      run.rows = 1;
      run.first_row = first + t;
      run.start = pass.run[i].start + t;
      conv_run(run, instruction.slot2, instruction.op, host_at<const float>(instruction.vectors[2]), channels,
               host_row(instruction.x, channels, run.first_row), 0, convolved.data(), 0);
      delta_row(instruction, run, instruction.slot, convolved.data(), run.first_row);
    }
  }
}

void reference_short_conv(const Instruction& instruction, const Pass& pass) {
  const int32_t channels = instruction.out_width, taps = instruction.op.taps;
  const float* const taps_of = host_at<const float>(instruction.vectors[0]);
  for (int32_t i = 0; i < pass.runs; ++i) {
    const Run& run = pass.run[i];
    for (int32_t row = run.first_row; row < run.first_row + run.rows; ++row) {
      for (int32_t c = 0; c < channels; ++c)
        host_row(instruction.out2, instruction.out2_width, row)[c] =
            host_row(instruction.x, instruction.x_width, row)[c] * host_row(instruction.y, instruction.y_width, row)[c];
    }
    const std::vector<float> inputs = ring_inputs(run, instruction.slot, taps, channels,
                                                  host_row(instruction.out2, instruction.out2_width, run.first_row),
                                                  pitch_of(instruction.out2_width));
    for (int32_t t = 0; t < run.rows; ++t) {
      for (int32_t c = 0; c < channels; ++c)
        host_row(instruction.out, instruction.out_width, run.first_row + t)[c] =
            host_row(instruction.z, instruction.z_width, run.first_row + t)[c] *
            tap_sum(taps_of + int64_t{c} * taps, inputs.data() + int64_t{t} * channels + c, taps, channels);
    }
  }
}

}  // namespace baton::cuda
