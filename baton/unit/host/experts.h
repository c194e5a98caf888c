// The rows of a pass by the experts that they go to. Experts are done in batches of whole ones, as many as their rows
// fit the buffers: so each expert's matrices are read, and where they are not packed opened, once for a pass.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "baton/base/thread_pool.h"
#include "baton/unit/host/operands.h"
#include "baton/unit/host/weights.h"
#include "baton/unit/unit.h"

namespace baton::host {

// The `count` largest of n logits, the first of equals, by ascending number, and what each result counts for: no
// number when one of the logits, chosen or not, is none or infinite.
void choose_experts(const float* logits, int64_t n, int64_t count, Routing routing, int32_t* chosen, float* weights);

class ExpertPass {
 public:
  // For passes of up to rows_max rows. kOutOfMemory.
  static Result<std::unique_ptr<ExpertPass>> create(Weights& weights, ThreadPool& pool, int64_t rows_max);

  // Rows [begin, end) of a register each, the first `tiled` of them through tiles where matrices have them.
  struct Rows {
    float* x;
    int64_t x_stride;
    float* out;
    int64_t out_stride;
    int64_t count, tiled;
    bool precise;                   // operands keep 15 bits
    unsigned char* thread_scratch;  // scratch_bytes of weights for each thread, `thread_stride` apart
    int64_t thread_stride;
  };
  void run(const Op& op, const Rows& rows);

  // Since the beginning, of each layer with experts. Any thread.
  std::vector<ExpertLoad> loads() const;

 private:
  // An expert's rows in a batch: from `at` on in the buffers, those through tiles first.
  struct Group {
    int32_t expert;
    int64_t at, rows, tiled;
    int64_t sorted;  // its first batch of sorted planes
  };
  struct ExpertForms {
    OperandForms in, inner;  // what gates and ups read, and downs
  };
  struct Counter {
    Counter(int32_t of_layer, int32_t experts)
        : layer(of_layer), rows(static_cast<size_t>(experts)), opened(static_cast<size_t>(experts)) {}
    const int32_t layer;
    std::atomic<uint64_t> tokens{0};
    std::vector<std::atomic<uint64_t>> rows, opened;  // by expert
  };
  // Products of the batch: of each group the panels of one or two matrices.
  struct Product {
    WeightId first;  // of expert 0
    float* out;
    int64_t out_stride;
  };

  ExpertPass(Weights& weights, ThreadPool& pool, int64_t rows_max)
      : weights_(weights), kernels_(weights.kernels()), pool_(pool), rows_max_(rows_max) {}
  Status make_buffers();
  void route(const Op& op, const Rows& rows);
  void count(const Op& op, int64_t rows);
  // The experts from `expert` on whose rows fit the buffers, into groups_; the first behind them.
  int32_t next_batch(const Op& op, int32_t expert, const Rows& rows);
  // Has the matrices of groups_ kept.
  void keep(const Op& op);
  void make_inputs(const Op& op, const Rows& rows);
  void make_inner(const Op& op, const Rows& rows);
  void sort(Operands& operands, int64_t columns);
  void multiply(std::span<const Product> products, const Operands& operands, const float* floats, int64_t stride,
                int64_t columns, const Rows& rows);
  void add_results(const Op& op, const Rows& rows);

  Weights& weights_;
  const Kernels& kernels_;
  ThreadPool& pool_;
  const int64_t rows_max_;
  bool integers_in_tiles_ = false;  // rows through tiles need no planes of integers

  std::map<WeightId, ExpertForms> forms_;                  // by Op::kGates
  std::map<WeightId, std::unique_ptr<Counter>> counters_;  // likewise
  int64_t capacity_ = 0;                                   // rows of the buffers
  int64_t inputs_stride_ = 0, inner_stride_ = 0, results_stride_ = 0, logits_stride_ = 0;
  Memory memory_;
  float *inputs_ = nullptr, *gates_ = nullptr, *ups_ = nullptr, *results_ = nullptr, *logits_ = nullptr;
  std::optional<Operands> in_, inner_;

  std::vector<int32_t> chosen_;  // [row][experts_used], ascending
  std::vector<float> shares_;    // likewise
  std::vector<int64_t> starts_;  // of each expert in order_, and their end
  std::vector<int32_t> order_;   // places in chosen_, by expert, then by row
  std::vector<int64_t> place_;   // of each place in chosen_: its row in the buffers
  std::vector<Group> groups_;
  std::vector<WeightId> used_matrices_;
  std::vector<int32_t> row_from_;  // of each row in the buffers: its place in chosen_, -1: none
  int64_t used_ = 0;               // rows of the buffers in this batch
};

}  // namespace baton::host
