// What an executor has on its card beside weights and states: registers, scratch, the lists of instructions, and the
// block of memory that says what a pass is for, on both sides of the link.
#pragma once

#include <memory>
#include <vector>

#include "baton/unit/cuda/card.h"
#include "baton/unit/cuda/lowering.h"
#include "baton/unit/cuda/state.h"
#include "baton/unit/cuda/weights.h"

namespace baton::cuda {

inline constexpr int32_t kTailRows = 64;    // whose outputs are made at a time
inline constexpr int32_t kFewOut = 1;       // outputs of a prompt that are made as those of rows that decode are
inline constexpr int32_t kStepsAhead = 64;  // of a call that draws on the card

// What draws behind the outputs of a step: nothing, the largest logit, or rules.
enum class Drawing { kNone, kLargest, kRules };

// The last instruction that touches a layer's slots.
struct LayerEnd {
  size_t behind = 0;
  int32_t layer = -1;
};

// A Program for few or for many rows: what runs for all of them, and what for those whose outputs are asked for.
struct Lists {
  std::vector<Instruction> body, tail, tail_of_few;
  std::vector<LayerEnd> layers;  // in the order of the body
  int32_t outputs_width = 0;
  Address outputs = 0;  // f32 [kTailRows][pitch_of(outputs_width)]
};

class Workspace {
 public:
  // For passes of up to rows_max rows of prompts, or kRunsMax that decode. together: with lists of batches for tensor
  // cores. times: lists note them. kOutOfMemory.
  static Result<std::unique_ptr<Workspace>> create(std::shared_ptr<Card> card, const Weights& weights,
                                                   const StatePool& states, Products products, int32_t rows_max,
                                                   bool together = false, bool times = false);

  int32_t rows_max() const { return rows_max_; }
  const Lists& few() const { return few_; }
  const Lists& many() const { return many_; }
  // The lists of few rows on the card: body and tail; with draws behind them. None where a list cannot hold them.
  bool has_list() const { return !exact_.empty(); }
  // The same with products of all rows on tensor cores (mma_list.h): a row's bits are then not those that it has alone.
  bool has_list_together() const { return !together_.empty(); }
  // One for one row, by kernels of its own.
  bool has_list_of_one() const { return !worded_.empty(); }
  ListWork list(Drawing drawing, bool together) const;
  // The tail_of_few of a pass of prompts, of its rows_out; by kernels of one row where that is 1 and they can.
  bool has_list_of_tail() const { return !tail_.empty(); }
  ListWork list_of_tail() const;
  // Instruction i of a list, and when the first block had done each, in ns. Waits.
  const Instruction& listed(const ListWork& list, size_t i) const {
    return listed_[(list.list - list_.address()) / sizeof(Instruction) + i];
  }
  Result<std::vector<uint64_t>> times(Stream& stream, const ListWork& list) const;

  // The host's side of a pass, to be filled and sent: arrays have room for rows_max or kRunsMax rows.
  Pass& pass() { return *reinterpret_cast<Pass*>(pinned_.data()); }
  const Pass& pass() const { return *reinterpret_cast<const Pass*>(pinned_.data()); }
  int32_t* tokens() { return array(tokens_at_); }
  int32_t* run_of_row() { return array(run_of_row_at_); }
  int32_t* out_rows() { return array(out_rows_at_); }
  int32_t* stops() { return array(stops_at_); }
  Status send(Stream& stream);
  Address pass_on_card() const { return pass_.address(); }
  // Its counts and out_rows, for the next rows of a tail.
  Status send_counts(Stream& stream);

  // Passes of one row each, for what takes the rows of a pass one after the other: row i of one that decodes.
  Pass& one(int32_t i) { return *reinterpret_cast<Pass*>(pinned_.data() + one_at(i)); }
  Address one_on_card(int32_t i) const { return pass_.address() + one_at(i); }
  // The first `count`.
  Status send_ones(Stream& stream, int32_t count);

  // What the card draws, [kStepsAhead][kRunsMax].
  Address drawn_on_card() const { return pass_.address() + drawn_at_; }
  int32_t* drawn() { return array(drawn_at_); }
  // What it draws by, [kRunsMax], [kRunsMax] and [kStepsAhead][kRunsMax], to be filled and sent beside the pass: the
  // first of them.
  DrawRule* rules() { return reinterpret_cast<DrawRule*>(pinned_.data() + rules_at_); }
  uint64_t* numbers() { return reinterpret_cast<uint64_t*>(pinned_.data() + numbers_at_); }
  DrawWindow* windows() { return reinterpret_cast<DrawWindow*>(pinned_.data() + windows_at_); }
  Status send_rules(Stream& stream, size_t rules, size_t windows, size_t numbers);
  // The bits of ids that row `row` never draws, sent where they are not what arrived last; none: 0. Nothing that was
  // asked for before reads them any more.
  Result<Address> send_banned(Stream& stream, size_t row, std::span<const int32_t> ids);
  // All that was sent was waited for, and is there.
  void banned_arrived();
  // Rows of outputs for the host, [kTailRows][pitch].
  float* outputs() { return reinterpret_cast<float*>(outputs_.data()); }

 private:
  Workspace() = default;
  Status make_registers(const Lowered& few, const Lowered& many);
  Status make_scratch(const Lowered& few, const Lowered& many, const Weights& weights);
  Status make_rotations(const Model& model);
  Status make_pass();
  // What draws lies behind the instructions of a step; `rules` and the others.
  struct Listing {
    size_t first = 0;  // in listed_
    int32_t step = 0;  // instructions, without those that draw
    int32_t first_product = -1;
    bool empty() const { return step == 0; }
  };
  struct Listings {
    Listing rules, largest;
    bool empty() const { return rules.empty(); }
  };
  Listing add_list(std::span<const Instruction> step, std::span<const Do> drawing, const FeedPlan& feed, bool together);
  Listings add_lists(std::span<const Instruction> step, bool together);
  Status make_lists(bool together, bool times);
  Status make_worded(std::vector<Instruction> step, std::vector<Instruction> tail);
  bool all_plain(const Listing& listing, size_t drawn, const FeedPlan& feed) const;
  ListWork work_of(const Listing& listing, size_t drawn, const FeedPlan& feed, bool plain) const;
  Status fill(Address at, uint8_t value, uint64_t bytes);
  Status put(Address at, const void* from, uint64_t bytes);
  Result<Address> take(uint64_t bytes, const char* what);
  uint64_t one_at(int32_t i) const;
  uint64_t banned_bytes() const;
  int32_t* array(uint64_t at) { return reinterpret_cast<int32_t*>(pinned_.data() + at); }

  std::shared_ptr<Card> card_;
  int32_t rows_max_ = 0;
  Bindings bindings_;
  std::vector<std::pair<Op, Address>> rotations_;
  Lists few_, many_;
  std::vector<DeviceMemory> memory_;
  DeviceMemory pass_, list_, barrier_, times_;
  std::vector<Instruction> listed_;  // all lists, one behind the other
  Listings exact_, together_;
  Listings worded_;             // exact_ of one row (word_list.h), where is_plain says yes to all
  Listing tail_, tail_of_one_;  // tail_of_few, and of one row
  Address draws_ = 0;
  DeviceMemory words_;         // of worded_, of two turns
  uint64_t words_bytes_ = 0;   // of one
  bool codes_ = false;         // some products are of codes
  FeedPlan feed_, tail_feed_;  // of lists of steps, and of tails
  uint64_t tokens_at_ = 0, run_of_row_at_ = 0, out_rows_at_ = 0, stops_at_ = 0, drawn_at_ = 0, sent_bytes_ = 0;
  uint64_t rules_at_ = 0, numbers_at_ = 0, windows_at_ = 0, ones_at_ = 0;
  PinnedMemory pinned_, outputs_;
  struct Banned {
    std::vector<int32_t> ids;
    bool sent = false, arrived = false;
  };
  std::vector<Banned> banned_;   // by row
  DeviceMemory banned_on_card_;  // [kRunsMax][banned_bytes()]
  PinnedMemory banned_pinned_;
};

}  // namespace baton::cuda
