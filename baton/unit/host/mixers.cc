// Attention, causal convolution and the delta rule over the rows of a pass.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "baton/state/values.h"
#include "baton/unit/host/pass.h"
#include "baton/unit/host/softplus.h"

namespace baton::host {
namespace {

constexpr int64_t kSplitTokens = 256;    // keys one piece of a decode step's attention reads at least
constexpr int64_t kMergesMin = 64;       // fewer merges of pieces take less time than waking the others
constexpr int64_t kConvChannels = 1024;  // channels per piece of a convolution of several runs

// Pieces depend on the number of keys alone, so that results do not depend on the threads.
int64_t split_count(int64_t keys) {
  return std::clamp<int64_t>((keys + kSplitTokens - 1) / kSplitTokens, 1, kAttendSplitsMax);
}
int64_t split_size(int64_t keys) {
  const int64_t splits = split_count(keys);
  return round_up((keys + splits - 1) / splits, kAttendKeys);
}

// The first key that a token at `position` sees.
int64_t first_seen(const Op& op, int64_t position) {
  if (op.chunk != 0) return position / op.chunk * op.chunk;
  return op.window == 0 || position < op.window ? 0 : position + 1 - op.window;
}
// Where it begins to read keys: a multiple of kAttendKeys, so that tiles are the same for all.
int64_t first_key(const Op& op, int64_t position) { return first_seen(op, position) / kAttendKeys * kAttendKeys; }

KeyForm form_of(DType kv) {
  switch (kv) {
    case DType::kBF16:
      return KeyForm::kBF16;
    case DType::kQ8_0:
      return KeyForm::kQ8_0;
    case DType::kQ4_0:
      return KeyForm::kQ4_0;
    default:
      return KeyForm::kF16;
  }
}

KeyPages key_pages(const Op& op, const Run& run, int64_t head, int64_t width, DType kv) {
  const auto of = static_cast<uint64_t>(head);
  return {run.state->pages(), run.state->in_page(op.slot, of), run.state->in_page(op.slot2, of), width, form_of(kv)};
}

// `count` channels from `channel` on of what a convolution's slot holds before each row that is kept. input(t): those
// of the run's row t, from 1 - taps on.
template <class Input>
void keep_columns(const Op& op, const Run& run, int64_t channels, int64_t channel, int64_t count, Input input) {
  for (int64_t t = run.rows - run.kept; t < run.rows; ++t) {
    float* kept = run.state->kept(op.slot, static_cast<uint64_t>(run.start + t)) + channel;
    for (int64_t j = 0; j < op.taps - 1; ++j)
      std::memcpy(kept + j * channels, input(t - op.taps + 1 + j), static_cast<size_t>(count) * sizeof(float));
  }
}

void search(const Run& run, const float* values, int64_t count) {
  if (!run.searches) return;
  if (first_not_finite(std::as_bytes(std::span(values, static_cast<size_t>(count))), DType::kF32))
    run.state->found_bad();
}

}  // namespace

// Of the rows from `begin` on.
void Pass::run_attend(const Op& op, int64_t begin) {
  if (rotates()) rotate_rows(op, begin, false);
  const std::span<const Run> all(runs_);
  if (bits_ == RowBits::kIndependent) {
    attend_many(op, begin, all);
  } else {
    if (begin < long_rows_) attend_many(op, begin, all.first(long_runs_));
    const auto skipped = static_cast<size_t>(std::max<int64_t>(0, begin - long_rows_));
    if (const auto singles = all.subspan(long_runs_ + skipped); !singles.empty()) attend_one(op, singles);
  }
  if (rotates()) rotate_rows(op, begin, true);
}

void Pass::rotate_rows(const Op& op, int64_t begin, bool back) {
  const int64_t wide = attend_width(op), rows = row_count_ - begin;
  pool_.parallel_for(rows, rows < 4 ? rows : 4, [&](int64_t first, int64_t last, uint32_t) {
    for (int64_t r = begin + first; r < begin + last; ++r) {
      for (int64_t head = 0; head < op.heads; ++head) {
        float* const at = query(op, r) + head * wide;
        if (!back) {
          std::copy_n(row(op.x, r) + head * op.width, op.width, at);
          std::fill(at + op.width, at + wide, 0.0f);
        }
        rotate(at, static_cast<uint64_t>(wide));
        if (back) std::copy_n(at, op.width, row(op.out, r) + head * op.width);
      }
    }
  });
}

// One query token per run: pieces of (run, kv head, range of keys), then their merge.
void Pass::attend_one(const Op& op, std::span<const Run> runs) {
  const auto count = static_cast<int64_t>(runs.size());
  const int64_t shared = op.heads / op.kv_heads, width = attend_width(op);
  const int64_t piece_floats = shared * (width + 2);
  const int64_t pieces = count * op.kv_heads * kAttendSplitsMax;
  const auto piece_memory = [&](int64_t piece) { return partial_memory_.floats() + piece * piece_floats; };
  const auto attend = [&](int64_t piece) {
    const Run& run = runs[static_cast<size_t>(piece / kAttendSplitsMax / op.kv_heads)];
    const int64_t begin = first_key(op, run.start), keys = run.start + 1 - begin, split = piece % kAttendSplitsMax;
    const int64_t first = split * split_size(keys);
    if (first >= keys) return;
    const int64_t head = piece / kAttendSplitsMax % op.kv_heads;
    AttendDecode a{};
    a.q = query(op, run.first_row) + head * shared * width;
    a.q_stride = width;
    a.keys = key_pages(op, run, head, width, kv_);
    a.first = begin + first;
    a.tokens = std::min(split_size(keys), keys - first);
    a.seen_from = first_seen(op, run.start);
    a.groups = static_cast<int>(shared);
    a.scale = op.scale;
    a.cap = op.cap;
    a.out = piece_memory(piece);
    a.highest = a.out + shared * width;
    a.sum = a.highest + shared;
    kernels_.attend_decode(a);
  };
  const auto merge = [&](int64_t head_of_all) {
    const Run& run = runs[static_cast<size_t>(head_of_all / op.kv_heads)];
    const int64_t keys = run.start + 1 - first_key(op, run.start), head = head_of_all % op.kv_heads;
    const int64_t splits = (keys + split_size(keys) - 1) / split_size(keys);
    for (int64_t g = 0; g < shared; ++g) {
      const auto part = [&](int64_t split) { return piece_memory(head_of_all * kAttendSplitsMax + split); };
      const auto highest_of = [&](int64_t split) { return part(split)[shared * width + g]; };
      const auto sum_of = [&](int64_t split) { return part(split)[shared * (width + 1) + g]; };
      float highest = highest_of(0);
      for (int64_t split = 1; split < splits; ++split) highest = std::max(highest, highest_of(split));
      float total = 0;
      for (int64_t split = 0; split < splits; ++split) total += std::exp(highest_of(split) - highest) * sum_of(split);
      float* to = attended(op, run.first_row) + (head * shared + g) * width;
      std::fill_n(to, width, 0.0f);
      for (int64_t split = 0; split < splits; ++split) {
        kernels_.add_scaled(part(split) + g * width, std::exp(highest_of(split) - highest) / total, width, to);
      }
    }
  };
  int64_t keys_max = 0;
  for (const Run& run : runs) keys_max = std::max(keys_max, run.start + 1 - first_key(op, run.start));
  const bool small = keys_max * count * op.kv_heads < 64;  // less work than waking the others
  const int64_t grain = small ? pieces : 1;
  pool_.parallel_for(pieces, grain, [&](int64_t first, int64_t last, uint32_t) {
    for (int64_t piece = first; piece < last; ++piece) attend(piece);
  });
  const int64_t heads = count * op.kv_heads;
  pool_.parallel_for(heads, heads < kMergesMin ? heads : 1, [&](int64_t first, int64_t last, uint32_t) {
    for (int64_t head = first; head < last; ++head) merge(head);
  });
}

// Pieces of (run, block of queries, kv head), all runs' in one loop.
void Pass::attend_many(const Op& op, int64_t begin, std::span<const Run> runs) {
  const int64_t shared = op.heads / op.kv_heads, width = attend_width(op);
  const auto first_row_of = [&](const Run& run) { return std::max(begin, run.first_row); };
  const auto blocks_of = [&](const Run& run) {
    const int64_t rows = std::max<int64_t>(0, run.first_row + run.rows - first_row_of(run));
    return (rows + attend_query_tokens_ - 1) / attend_query_tokens_;
  };
  std::array<int64_t, kRunsMax> ends;  // of each run's pieces
  int64_t pieces = 0;
  for (size_t i = 0; i < runs.size(); ++i) ends[i] = pieces += blocks_of(runs[i]) * op.kv_heads;
  // The last blocks see the most keys: they go first, so that the threads end together.
  const auto attend = [&](int64_t piece, uint32_t thread) {
    size_t i = 0;
    while (piece >= ends[i]) ++i;
    const Run& run = runs[i];
    const int64_t left = ends[i] - 1 - piece;
    const int64_t head = op.kv_heads - 1 - left % op.kv_heads, block = left / op.kv_heads;
    const int64_t first = first_row_of(run) + block * attend_query_tokens_;
    AttendPrefill a{};
    a.q = query(op, first) + head * shared * width;
    a.q_stride = attend_stride(op, op.x);
    a.keys = key_pages(op, run, head, width, kv_);
    a.start = run.start + first - run.first_row;
    a.queries = std::min(attend_query_tokens_, run.first_row + run.rows - first);
    a.window = op.window;
    a.chunk = op.chunk;
    a.groups = static_cast<int>(shared);
    a.scale = op.scale;
    a.cap = op.cap;
    a.out = attended(op, first) + head * shared * width;
    a.out_stride = attend_stride(op, op.out);
    a.scratch = reinterpret_cast<float*>(scratch(thread));
    kernels_.attend_prefill(a);
  };
  pool_.parallel_for(pieces, 1, [&](int64_t piece, int64_t last, uint32_t thread) {
    for (; piece < last; ++piece) attend(piece, thread);
  });
}

// Pieces of (run, block of queries, kv head). A run is a whole sequence.
void Pass::attend_all(const Op& op) {
  const int64_t shared = op.heads / op.kv_heads;
  const auto blocks_of = [&](const Run& run) { return (run.rows + attend_query_tokens_ - 1) / attend_query_tokens_; };
  std::array<int64_t, kRunsMax> ends;  // of each run's pieces
  int64_t pieces = 0;
  for (size_t i = 0; i < runs_.size(); ++i) ends[i] = pieces += blocks_of(runs_[i]) * op.kv_heads;
  for (int32_t head = 0; head < op.heads && op.alibi != 0; ++head)
    slopes_[static_cast<size_t>(head)] = alibi_slope(op, head);
  pool_.parallel_for(pieces, 1, [&](int64_t piece, int64_t last, uint32_t thread) {
    for (; piece < last; ++piece) {
      size_t i = 0;
      while (piece >= ends[i]) ++i;
      const Run& run = runs_[i];
      BATON_CHECK(run.start == 0);
      const int64_t left = ends[i] - 1 - piece, head = left % op.kv_heads;
      const int64_t first = run.first_row + left / op.kv_heads * attend_query_tokens_;
      AttendAll a{};
      a.q = row(op.x, first) + head * shared * op.width;
      a.q_stride = stride(op.x);
      a.keys = row(op.y, run.first_row) + head * op.width;
      a.keys_stride = stride(op.y);
      a.values = row(op.z, run.first_row) + head * op.width;
      a.values_stride = stride(op.z);
      a.head_dim = op.width;
      a.tokens = run.rows;
      a.start = first - run.first_row;
      a.queries = std::min(attend_query_tokens_, run.first_row + run.rows - first);
      a.window = op.window;
      a.groups = static_cast<int>(shared);
      a.scale = op.scale;
      a.slopes = op.alibi == 0 ? nullptr : slopes_.data() + head * shared;
      a.out = row(op.out, first) + head * shared * op.width;
      a.out_stride = stride(op.out);
      a.scratch = reinterpret_cast<float*>(scratch(thread));
      kernels_.attend_all(a);
    }
  });
}

// All forms add the taps of a row in the same order.
void Pass::run_conv(const Op& op) {
  if (runs_.size() == 1 && row_count_ > 1) return conv_long(op, runs_[0]);
  const int64_t channels = width(op.x), blocks = (channels + kConvChannels - 1) / kConvChannels;
  pool_.parallel_for(static_cast<int64_t>(runs_.size()) * blocks, 1, [&](int64_t item, int64_t last, uint32_t) {
    for (; item < last; ++item) {
      const int64_t channel = item % blocks * kConvChannels;
      conv_short(op, runs_[static_cast<size_t>(item / blocks)], channel, std::min(kConvChannels, channels - channel));
    }
  });
}

void Pass::convolve(const Op& op, const float* const* inputs, int64_t r, int64_t channel, int64_t count) {
  const float* const taps = weights_.vector(op.weights[Op::kTaps]) + channel;
  float* const out = row(op.out, r) + channel;
  if (op.kind == OpKind::kShortConv)
    return kernels_.short_conv(inputs, op.taps, taps, width(op.x), row(op.z, r) + channel, count, out);
  kernels_.conv(inputs, op.taps, taps, width(op.x), count, out);
}

// One run by rows.
void Pass::conv_long(const Op& op, const Run& run) {
  const int64_t channels = width(op.x), past = op.taps - 1;
  float* columns = run.state->floats(op.slot);
  const auto input = [&](int64_t t) {  // t from -past on
    return t < 0 ? columns + (t + past) * channels : row(op.x, run.first_row + t);
  };
  pool_.parallel_for(run.rows, 16, [&](int64_t first, int64_t last, uint32_t) {
    const float* rows[kTapsMax];
    for (int64_t t = first; t < last; ++t) {
      for (int64_t j = 0; j <= past; ++j) rows[j] = input(t - past + j);
      convolve(op, rows, run.first_row + t, 0, channels);
    }
  });
  keep_columns(op, run, channels, 0, channels, input);
  for (int64_t j = 0; j < past; ++j) {  // oldest first, so nothing is overwritten before it is read
    std::memmove(columns + j * channels, input(run.rows - past + j), static_cast<size_t>(channels) * sizeof(float));
  }
  search(run, columns, past * channels);
}

// `count` channels of one run from `channel` on, all its rows.
void Pass::conv_short(const Op& op, const Run& run, int64_t channel, int64_t count) {
  const int64_t channels = width(op.x), past = op.taps - 1;
  float* columns = run.state->floats(op.slot) + channel;
  const auto input = [&](int64_t t) {  // t from -past on
    return t < 0 ? columns + (t + past) * channels : row(op.x, run.first_row + t) + channel;
  };
  const float* rows[kTapsMax];
  for (int64_t t = 0; t < run.rows; ++t) {
    for (int64_t j = 0; j <= past; ++j) rows[j] = input(t - past + j);
    convolve(op, rows, run.first_row + t, channel, count);
  }
  keep_columns(op, run, channels, channel, count, input);
  for (int64_t j = 0; j < past; ++j) {  // oldest first
    std::memcpy(columns + j * channels, input(run.rows - past + j), static_cast<size_t>(count) * sizeof(float));
    search(run, columns + j * channels, count);
  }
}

void Pass::run_delta(const Op& op) {
  const auto items = static_cast<int64_t>(runs_.size()) * op.heads;
  pool_.parallel_for(items, 1, [&](int64_t item, int64_t last, uint32_t thread) {
    for (; item < last; ++item) delta_head(op, runs_[static_cast<size_t>(item / op.heads)], item % op.heads, thread);
  });
}

void Pass::delta_head(const Op& op, const Run& run, int64_t head, uint32_t thread) {
  float* memory = reinterpret_cast<float*>(scratch(thread));
  float* log_decay = memory;
  float* beta = memory + rows_max_;
  const float rate = weights_.vector(op.weights[Op::kDecayRate])[head];
  const float bias = weights_.vector(op.weights[Op::kTimeBias])[head];
  for (int64_t t = 0; t < run.rows; ++t) {
    const float a = row(op.z, run.first_row + t)[head] + bias;
    log_decay[t] = rate * softplus(a);
    beta[t] = 1.0f / (1.0f + std::exp(-row(op.y, run.first_row + t)[head]));
  }
  const int64_t key_head = op.head_map == HeadMap::kGrouped ? head / (op.heads / op.kv_heads) : head % op.kv_heads;
  const int64_t keys_width = int64_t{op.kv_heads} * op.key_dim;
  DeltaHead h{};
  h.x_stride = stride(op.x);
  h.gate_stride = 1;
  h.key_dim = op.key_dim;
  h.value_dim = op.value_dim;
  h.eps = op.eps;
  h.state = run.state->floats(op.slot) + head * op.key_dim * op.value_dim;
  h.out_stride = stride(op.out);
  h.scratch = memory + 2 * rows_max_;
  const auto run_rows = [&](int64_t first, int64_t count) {
    const float* x = row(op.x, run.first_row + first);
    h.q = x + key_head * op.key_dim;
    h.k = x + keys_width + key_head * op.key_dim;
    h.v = x + 2 * keys_width + head * op.value_dim;
    h.log_decay = log_decay + first;
    h.beta = beta + first;
    h.tokens = count;
    h.out = row(op.out, run.first_row + first) + head * op.value_dim;
    const bool one_by_one = count <= kRecurrentTokens || bits_ == RowBits::kIndependent;
    (one_by_one ? kernels_.delta_recurrent : kernels_.delta_chunked)(h);
  };
  const int64_t together = run.rows - run.kept, values = int64_t{op.key_dim} * op.value_dim;
  if (together > 0) run_rows(0, together);
  for (int64_t t = together; t < run.rows; ++t) {
    std::memcpy(run.state->kept(op.slot, static_cast<uint64_t>(run.start + t)) + head * values, h.state,
                static_cast<size_t>(values) * sizeof(float));
    run_rows(t, 1);
  }
  search(run, h.state, values);
}

}  // namespace baton::host
