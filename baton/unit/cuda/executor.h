// The executor of a card: passes of prompts as one launch for each instruction, steps of rows that decode as one launch
// of a list, and calls of many such steps without the host in between.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "baton/unit/cuda/card.h"
#include "baton/unit/cuda/sharing.h"
#include "baton/unit/cuda/state.h"
#include "baton/unit/cuda/weights.h"
#include "baton/unit/cuda/workspace.h"
#include "baton/unit/unit.h"

namespace baton::cuda {

inline constexpr uint32_t kRowsOfPass = 2048;  // of a prompt
inline constexpr uint32_t kEmulatedRows = 192;
inline constexpr uint32_t kPrefillSeats = 8;  // that share a pass of prompts
inline constexpr uint32_t kDecodeSeats = 8;   // that share what a step reads; with ExecutorOptions::together kRunsMax

struct ExecutorOptions {
  DType kv = DType::kF16;               // of keys and values
  Products products = Products::kBF16;  // of prompts
  uint32_t threads = 0;                 // that pack weights; 0: some
  bool together = false;                // more than 4 rows that decode share tensor cores
  bool times = false;                   // placement() says how long the instructions of a step took
  Unit::LoadProgress on_progress = {};  // of weights
};

// By the card's clock, of the steps so far.
struct InstructionTime {
  std::string what;
  uint64_t count = 0;  // of them
  double us = 0;
};

class CudaExecutor final : public Executor {
 public:
  // Packs and sends all weights. kOutOfMemory says what is missing, before anything was sent.
  static Result<std::unique_ptr<Executor>> load(std::shared_ptr<Card> card, std::shared_ptr<const Model> model,
                                                const ExecutorOptions& options);
  // What was asked for and failed half-way is done before memory goes.
  ~CudaExecutor() override {
    if (!events_.empty()) static_cast<void>(stream_.wait());
  }

  const Model& model() const override { return *model_; }
  const StateShape& shape() const override { return states_->shape(); }
  uint64_t state_bytes(uint64_t tokens) const override { return states_->bytes_for(tokens); }
  std::optional<StateMemory> state_memory() const override { return states_->memory(); }
  uint64_t device_bytes() const override { return card_->held_bytes(); }
  Result<std::unique_ptr<SequenceState>> new_state(uint64_t tokens_max) override { return states_->state(tokens_max); }
  Result<std::unique_ptr<SequenceState>> fork(const SequenceState& from, uint64_t position) override {
    return static_cast<const CudaState&>(from).fork(position);
  }
  Status rewind(SequenceState& state, uint64_t position) override {
    return static_cast<CudaState&>(state).rewind(position);
  }
  Status step(std::span<const Seat> seats, std::span<float> out, const StepContext& context) override;
  // Where the card can draw for all (docs/cuda_inside.md), it does, and the host reads what it drew one step behind it.
  Status step_on(std::span<const Seat> seats, std::span<float> out, const StepLimits& limits,
                 const StepContext& context) override;
  Placement placement() const override;
  std::string arithmetic() const override;

 private:
  CudaExecutor(std::shared_ptr<Card> card, std::shared_ptr<const Model> model, const ExecutorOptions& options);
  Status step_seats(std::span<const Seat> seats, std::span<float> out, const StepContext& context);
  // What `step` says. When it failed or threw, what was asked for before that is done: states and rows may go.
  template <class Step>
  auto settled(const Step& step);
  // Tokens of a seat in a pass of prompts, from row `row` on.
  struct PassPart {
    size_t seat, begin, count, row;
  };
  // The seats of a step that prefill, which come first; those of one pass; rows of several sequences that decode, the
  // first of them `first` of the step. `out` goes on behind what was written.
  Status prefill_seats(std::span<const Seat> seats, float*& out, const StepContext& context);
  Status run_pass(std::span<const Seat> seats, std::span<const PassPart> parts, float*& out,
                  const StepContext& context);
  Status decode_seats(std::span<const Seat> seats, size_t first, float* out, const StepContext& context);
  // The last `count` tokens of a seat that keeps: as rows that decode.
  Status keep_rows(const Seat& seat, size_t index, size_t count, float* out, const StepContext& context);
  // As run_few, of such rows. Waits.
  Status run_in_turn(CudaState& state, float* out);
  void start_few();
  // A row of what start_few began: a token of a seat, `ahead` of its state's position.
  void add_few(const Seat& seat, size_t token, uint64_t ahead, bool wanted);
  // together: products on tensor cores. Waits.
  Status run_few(float* out, bool together = false);
  void set_run(size_t index, const Seat& seat, size_t first_token, size_t count, int32_t first_row);
  Status run_body(const Lists& lists);
  // As run_body, where seats that end with the pass are watched.
  Status run_telling(const Lists& lists, std::span<const Seat> seats, std::span<const PassPart> parts,
                     const StepContext& context);
  // All layers of a seat, whose state the step brings `tokens` further.
  void tell_decoded(const Seat& seat, size_t index, uint64_t tokens, const StepContext& context) const;
  // A row of a pass whose outputs are asked for, and where they go.
  struct Wanted {
    int32_t row;
    float* out;
  };
  // Those that are made at a time, as few rows or as many are.
  struct Outputs {
    std::vector<Wanted> rows;
    bool few = false;
  };
  std::vector<Outputs> outputs_of(std::span<const Seat> seats, std::span<const PassPart> parts, float*& out) const;
  void want(const Outputs& outputs);
  // Waits.
  Status make_outputs(const Outputs& outputs);
  Status take_outputs(const Lists& lists, int32_t rows, float* out);
  Status bring_outputs(const Lists& lists, int32_t rows);

  // Whether so many seats go on tensor cores.
  bool goes_together(size_t seats) const;
  // Whether each of so many could have a step of its own, one behind the other: by which of both is faster (Sharing).
  bool may_go_alone(size_t seats) const;
  bool draws_here(std::span<const Seat> seats) const;
  struct Drawn {
    uint32_t steps = 0;
    bool more = false;  // none of them says that it was the last
  };
  // Up to `steps` of them.
  Result<Drawn> draw_steps(std::span<Seat> seats, uint32_t steps, std::span<float> out, const StepLimits& limits,
                           const StepContext& context);
  // One step of each seat by itself.
  Result<Drawn> draw_alone(std::span<Seat> seats, std::span<float> out, const StepLimits& limits,
                           const StepContext& context);
  // What steps of these seats draw by, and what draws then.
  Result<Drawing> send_rules(std::span<const Seat> seats, uint32_t steps);
  Status read_row(size_t row);
  // Of the list that has just run, when the first block had done each instruction. Waits.
  Status add_times(const ListWork& list);
  std::string times_text() const;
  // What step `step` of a call drew; where the card left it to the host, its sampler draws. False when the card does
  // not go on behind it.
  Result<bool> take_drawn(std::span<Seat> seats, uint32_t step, const Clock& clock);

  const std::shared_ptr<Card> card_;
  const std::shared_ptr<const Model> model_;
  const ExecutorOptions options_;
  std::unique_ptr<StatePool> states_;
  std::unique_ptr<Weights> weights_;
  std::unique_ptr<Workspace> work_;
  Stream stream_;
  Sharing steps_, draws_;  // `step`, whose outputs the host takes; steps that draw
  std::vector<InstructionTime> times_;
  uint64_t timed_steps_ = 0;
  std::vector<Event> events_;  // of steps that draw, or of layers that are told of
};

// That the wait fails, too, says nothing new.
template <class Step>
auto CudaExecutor::settled(const Step& step) {
  try {
    auto done = step();
    if (!done) static_cast<void>(stream_.wait());
    return done;
  } catch (...) {
    static_cast<void>(stream_.wait());
    throw;
  }
}

}  // namespace baton::cuda
