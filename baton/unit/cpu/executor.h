// The cpu executor: a model packed for the kernels, a plan of steps, and scratch for one prefill chunk or one decode
// step.
#pragma once

#include <memory>
#include <vector>

#include "baton/base/thread_pool.h"
#include "baton/unit/cpu/cpu_state.h"
#include "baton/unit/cpu/kernels.h"
#include "baton/unit/cpu/memory.h"
#include "baton/unit/cpu/plan.h"
#include "baton/unit/unit.h"

namespace baton::cpu {

inline constexpr int64_t kChunkTokens = 256;  // tokens per pass over the weights in prefill
inline constexpr uint32_t kDecodeSlotsMax = 16;
inline constexpr int64_t kAttendSplitsMax = 16;  // pieces of the keys in a decode step
inline constexpr int32_t kTapsMax = 64;          // of a convolution

// Part of a pass: consecutive rows that belong to one sequence.
struct Run {
  CpuState* state;
  int64_t first_row, rows;
  int64_t start;  // position of the first row
};

class CpuExecutor final : public Executor {
 public:
  // Packs the weights; slow. Errors: kOutOfMemory, kUnsupported (a shape the kernels cannot do, with the weight's
  // name).
  static Result<std::unique_ptr<Executor>> load(std::shared_ptr<const Model> model, const Kernels& kernels,
                                                uint32_t threads);

  const Model& model() const override { return *model_; }
  const Layout& layout() const override { return layout_; }
  Result<std::unique_ptr<SequenceState>> new_state(uint64_t tokens_max) override;
  Result<std::unique_ptr<SequenceState>> clone(const SequenceState& state) override;
  Status prefill(SequenceState& state, std::span<const int32_t> tokens, std::span<float> logits) override;
  Status decode(std::span<const DecodeSlot> slots) override;
  Estimate estimate(const WorkShape& work) const override;
  Placement placement() const override;

 private:
  CpuExecutor(std::shared_ptr<const Model> model, const Kernels& kernels, uint32_t threads);

  // load.cc
  Status pack_weights();
  Status make_vectors();
  Status make_scratch();

  // pass.cc
  // Runs all steps for the rows in rows_; rows [logit_row, row_count) are wanted as logits.
  void run_pass(int64_t logit_row);
  void run_step(const Step& step, int64_t begin, int64_t end);
  void run_rows(const Step& step, int64_t begin, int64_t end);
  void run_row(const RowPart& part, int64_t row);
  void run_linears(const Step& step, int64_t begin, int64_t end);
  void run_head(const Op& op, int64_t begin, int64_t end);
  void prepare_angles();

  // mixers.cc
  void run_attend(const Op& op, int64_t begin, int64_t end);
  void attend_one(const Op& op, int64_t begin, int64_t end);
  void attend_many(const Op& op, const Run& run, int64_t begin, int64_t end);
  void run_conv(const Op& op);
  void run_delta(const Op& op);
  void delta_head(const Op& op, const Run& run, int64_t head, uint32_t thread);

  float* row(RegisterId id, int64_t r) const {
    return registers_[static_cast<size_t>(id)] + r * strides_[static_cast<size_t>(id)];
  }
  int64_t stride(RegisterId id) const { return strides_[static_cast<size_t>(id)]; }
  int64_t width(RegisterId id) const { return model_->program.registers[static_cast<size_t>(id)].width; }
  const float* vector_of(WeightId id) const { return vectors_[static_cast<size_t>(id)]; }
  const Matrix& matrix_of(WeightId id) const { return matrices_[static_cast<size_t>(id)]; }
  unsigned char* scratch(uint32_t thread) const { return scratch_.data() + thread * scratch_bytes_; }

  const std::shared_ptr<const Model> model_;
  const Kernels& kernels_;
  Layout layout_;
  Plan plan_;
  ThreadPool pool_;

  std::vector<Matrix> matrices_;                 // by WeightId; empty where the weight is not a matrix of a linear
  std::vector<const float*> vectors_;            // by WeightId; norms, gates, convolutions ([taps, channels])
  std::vector<std::vector<float>> frequencies_;  // by rope table
  Memory packed_, vector_memory_;
  size_t decoded_weights_ = 0;  // matrices of a type without kernels

  // Scratch: registers [kChunkTokens, width], quantised activations, angles, per-thread kernel scratch.
  Memory register_memory_, quantized_memory_, angle_memory_, scratch_, partial_memory_, head_memory_;
  std::vector<float*> registers_;
  std::vector<int64_t> strides_;
  ActivationBlock* quantized_ = nullptr;  // [kChunkTokens][columns / 32]
  std::vector<float*> angles_;            // by rope table: [row][cosines | sines]
  int64_t scratch_bytes_ = 0;
  int64_t attend_query_tokens_ = 0;

  // The pass under way.
  std::vector<Run> runs_;
  std::vector<int32_t> tokens_;
  std::vector<int64_t> positions_;
  std::vector<float*> logit_rows_;  // by row; null when not wanted
  int64_t row_count_ = 0;

  // What earlier calls took, for estimates.
  double prefill_ms_per_token_ = 0;
  double decode_ms_[kDecodeSlotsMax + 1] = {};
};

}  // namespace baton::cpu
