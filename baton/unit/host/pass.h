// A pass of rows through a model on the host's kernels: registers and scratch for up to rows_max rows, and the steps of
// a plan over them. Rows belong to runs, each a sequence's consecutive tokens. What looks along a sequence (attention,
// convolution, delta rule) works by runs, the rest by rows. The attention of a run that decodes is shared out by ranges
// of keys, and none of it goes through tiles.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "baton/base/thread_pool.h"
#include "baton/state/rows.h"
#include "baton/unit/host/experts.h"
#include "baton/unit/host/host_state.h"
#include "baton/unit/host/operands.h"
#include "baton/unit/host/weights.h"
#include "baton/unit/unit.h"

namespace baton::host {

inline constexpr uint32_t kRunsMax = 64;         // sequences of a pass
inline constexpr int64_t kAttendSplitsMax = 16;  // pieces of the keys in a decode step

// What a run is made of: a sequence's tokens from `position` on, of which the last `rows_out` make rows of logits. The
// state has room for them.
struct RunInput {
  HostState* state = nullptr;
  uint64_t position = 0;
  std::span<const int32_t> tokens;
  uint32_t rows_out = 0;
  bool decodes = false;  // see Seat; one row
  uint32_t kept = 0;     // of the last tokens: what the state's other slots hold before each is kept
};

struct Run {
  HostState* state;
  int64_t first_row, rows;
  int64_t start;  // position of the first row
  int64_t kept;   // of the last rows
  bool searches;  // what it writes is searched for values that are no numbers while it is in cache: of prefills, where
                  // it costs little; HostState::searched
};

enum class RowBits : uint8_t {
  kFast,         // the quickest kernel: rows that prefill go through tiles
  kIndependent,  // a row's bits do not depend on what else is in the pass; activations keep 15 bits
};

// Of rows of `width` values: not a multiple of 4 KiB, or all tokens would share a few cache sets.
inline int64_t register_stride(int64_t width) {
  const int64_t padded = round_up(width, kLanes);
  return padded % 1024 == 0 ? padded + kLanes : padded;
}

class Pass {
 public:
  // Borrows weights and pool. `kv`: of keys and values in the states; not kF32. kOutOfMemory.
  static Result<std::unique_ptr<Pass>> create(Weights& weights, ThreadPool& pool, int64_t rows_max, RowBits bits,
                                              DType kv = DType::kF16);

  // 1 to kRunsMax runs of at least one token and rows_max rows together, of distinct states, those that
  // decode last; checked by the caller. `out` receives the rows of logits, [sum of rows_out, output_width] in the order
  // of the runs.
  void start(std::span<const RunInput> runs, float* out);
  // After start: steps that only lead to logits run for all rows too, for a caller that watches what they read. It runs
  // the steps one by one and leaves the head out.
  void keep_all_rows() { logit_row_ = 0; }
  // After the last step: moves the positions of the states on.
  void finish();

  // One of the plan's, which run in order. Those with matrices that are not packed are the caller's.
  void run(const Step& step);
  // The rows a step is for: [first_row(step), rows()). None when its only use is logits that nobody wants.
  int64_t first_row(const Step& step) const { return step.only_for_logits ? logit_row_ : 0; }
  int64_t first_logit_row() const { return logit_row_; }
  int64_t rows() const { return row_count_; }

  float* row(RegisterId id, int64_t r) const {
    return registers_[static_cast<size_t>(id)] + r * strides_[static_cast<size_t>(id)];
  }
  int64_t stride(RegisterId id) const { return strides_[static_cast<size_t>(id)]; }
  int64_t width(RegisterId id) const { return weights_.program().registers[static_cast<size_t>(id)].width; }
  // ExpertPass::loads.
  std::vector<ExpertLoad> expert_loads() const {
    return experts_ == nullptr ? std::vector<ExpertLoad>() : experts_->loads();
  }
  // Where the logits of a row go; null when not wanted.
  float* logits(int64_t r) const { return logit_rows_[static_cast<size_t>(r)]; }

 private:
  Pass(Weights& weights, ThreadPool& pool, int64_t rows_max, RowBits bits, DType kv)
      : weights_(weights), kernels_(weights.kernels()), pool_(pool), rows_max_(rows_max), bits_(bits), kv_(kv) {}
  Status make_scratch();

  void run_rows(const Step& step, int64_t begin, int64_t end);
  void run_row(const RowPart& part, int64_t row, int64_t begin);
  void norm_row(Row kind, const Op& op, int64_t row);
  void append_row(const Op& op, int64_t row);
  void gate_groups(const Op& op, int64_t row);
  // How many of the rows from `begin` on, of `width` values, go through tiles. None of the runs that decode: their bits
  // must not depend on what else is in the pass.
  int64_t rows_in_tiles(int64_t begin, int64_t width) const {
    return bits_ == RowBits::kFast && begin < long_rows_ && tiled(kernels_, width) ? long_rows_ - begin : 0;
  }
  void run_linears(const Step& step, int64_t begin, int64_t end);
  void run_head(const Op& op, int64_t begin, int64_t end);
  void cap_logits(const Op& op, int64_t begin, int64_t end);
  void run_output(const Op& op, int64_t begin, int64_t end);
  void run_experts(const Op& op, int64_t begin, int64_t end);
  void prepare_angles();

  // mixers.cc
  void run_attend(const Op& op, int64_t begin);
  // Where keys and values are rotated, queries are too, and sums of values are turned back: a row of all heads, each
  // filled up to whole blocks, which holds first the one, then the other.
  bool rotates() const { return is_rotated(kv_); }
  int64_t attend_width(const Op& op) const {
    return rotates() ? static_cast<int64_t>(padded_columns(kv_, static_cast<uint64_t>(op.width))) : op.width;
  }
  float* query(const Op& op, int64_t r) const {
    return rotates() ? rotated_memory_.floats() + r * op.heads * attend_width(op) : row(op.x, r);
  }
  float* attended(const Op& op, int64_t r) const { return rotates() ? query(op, r) : row(op.out, r); }
  int64_t attend_stride(const Op& op, RegisterId id) const {
    return rotates() ? op.heads * attend_width(op) : stride(id);
  }
  void rotate_rows(const Op& op, int64_t begin, bool back);
  void attend_one(const Op& op, std::span<const Run> runs);
  void attend_all(const Op& op);
  void attend_many(const Op& op, int64_t begin, std::span<const Run> runs);
  void run_conv(const Op& op);
  void conv_long(const Op& op, const Run& run);
  // `count` channels of a row from `channel` on; inputs[j]: theirs at tap j.
  void convolve(const Op& op, const float* const* inputs, int64_t row, int64_t channel, int64_t count);
  void conv_short(const Op& op, const Run& run, int64_t channel, int64_t count);
  void run_delta(const Op& op);
  void delta_head(const Op& op, const Run& run, int64_t head, uint32_t thread);

  unsigned char* scratch(uint32_t thread) const { return scratch_.data() + thread * scratch_bytes_; }

  Weights& weights_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  const int64_t rows_max_;
  const RowBits bits_;
  const DType kv_;

  // Registers [rows_max, width], angles, per-thread kernel scratch.
  Memory register_memory_, angle_memory_, scratch_, partial_memory_, rotated_memory_;
  std::vector<float*> registers_;
  std::vector<int64_t> strides_;
  std::optional<Operands> operands_;
  std::unique_ptr<ExpertPass> experts_;  // of models that have some
  std::vector<float*> angles_;           // by rope table: [row][cosines | sines]
  int64_t scratch_bytes_ = 0;
  int64_t attend_query_tokens_ = 0;
  std::vector<float> slopes_;  // of kAttendAll, by head

  // The rows under way.
  std::vector<Run> runs_;
  std::vector<int32_t> tokens_;
  std::vector<int64_t> positions_;
  std::vector<uint8_t> run_of_row_;
  std::vector<float*> logit_rows_;
  size_t long_runs_ = 0;  // that do not decode: the first
  int64_t row_count_ = 0, long_rows_ = 0, logit_row_ = 0;
};

}  // namespace baton::host
