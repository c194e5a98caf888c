// Memory for passes, and the lists bound to it.
#include "baton/unit/cuda/workspace.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "baton/unit/cuda/feed_layout.h"
#include "baton/unit/cuda/kernels.h"
#include "baton/unit/cuda/launch.h"
#include "baton/unit/cuda/mixers_geometry.h"
#include "baton/unit/cuda/mma_layout.h"
#include "baton/unit/cuda/mma_list.h"
#include "baton/unit/cuda/tile_layout.h"
#include "baton/unit/cuda/word_list.h"

namespace baton::cuda {
namespace {

constexpr uint64_t kStepBytes = 256;
uint64_t in_steps(uint64_t bytes) { return (bytes + kStepBytes - 1) / kStepBytes * kStepBytes; }
uint64_t row_bytes(int32_t width) { return static_cast<uint64_t>(pitch_of(width)) * sizeof(float); }

bool same_rotation(const Op& a, const Op& b) {
  return a.rope_theta == b.rope_theta && a.rotary == b.rotary &&
         a.weights[Op::kRopeFactors] == b.weights[Op::kRopeFactors];
}

constexpr Do kLargest[] = {Do::kArgmax, Do::kAdvance}, kRules[] = {Do::kPenalise, Do::kArgmax, Do::kDraw, Do::kAdvance};

Instruction draw_instruction(const Lists& lists, Do what, Address scratch) {
  Instruction draw;
  draw.what = what;
  draw.wanted_only = true;
  draw.x = lists.outputs;
  draw.x_width = lists.outputs_width;
  draw.scratch = scratch;
  return draw;
}

}  // namespace

Result<std::unique_ptr<Workspace>> Workspace::create(std::shared_ptr<Card> card, const Weights& weights,
                                                     const StatePool& states, Products products, int32_t rows_max,
                                                     bool together, bool times) {
  const Program& program = weights.model().program;
  std::unique_ptr<Workspace> made(new Workspace());
  made->card_ = std::move(card);
  made->rows_max_ = std::max(rows_max, kRunsMax);
  const auto form = [&](WeightId id) { return weights.matrix(id).form; };
  const uint32_t shared = made->card_->facts().shared_bytes;
  const Lowered few = lower(program, RowCount::kFew, products, form, shared),
                many = lower(program, RowCount::kMany, products, form, shared);
  BATON_OK(made->make_registers(few, many));
  Bindings& bindings = made->bindings_;
  bindings.matrix = [&](WeightId id) { return weights.matrix(id); };
  bindings.vector = [&](WeightId id) { return weights.vector(id); };
  bindings.place = [&](SlotId slot) { return states.place(slot); };
  bindings.experts = [&](const Op& op, Instruction& instruction) {
    instruction.expert_bytes[0] = weights.expert_stride(op, Op::kGates);
    instruction.expert_bytes[1] = weights.expert_stride(op, Op::kUps);
    instruction.expert_bytes[2] = weights.expert_stride(op, Op::kDowns);
  };
  bindings.rotation = [&](const Op& op) {
    for (const auto& [rotation, table] : made->rotations_) {
      if (same_rotation(rotation, op)) return table;
    }
    BATON_CHECK(false);  // made of the same ops
  };
  BATON_OK(made->make_rotations(weights.model()));
  BATON_OK(made->make_scratch(few, many, weights));
  for (const auto& [lowered, lists] : {std::pair{&few, &made->few_}, std::pair{&many, &made->many_}}) {
    lists->body = cuda::bind(*lowered, lowered->body, false, bindings);
    lists->tail = cuda::bind(*lowered, lowered->tail, true, bindings);
    lists->tail_of_few = cuda::bind(*lowered, lowered->tail_of_few, true, bindings);
    for (size_t i = 0; i < lowered->body.size(); ++i) {
      if (const int32_t layer = lowered->body[i].layer_done; layer >= 0) lists->layers.push_back({i, layer});
    }
    lists->outputs = bindings.tail[static_cast<size_t>(lowered->outputs)];
    lists->outputs_width = program.output_width;
  }
  bindings.matrix = nullptr, bindings.vector = nullptr, bindings.place = nullptr, bindings.experts = nullptr,
  bindings.rotation = nullptr;
  BATON_OK(made->make_pass());
  BATON_OK(made->make_lists(together, times));
  return made;
}

Result<Address> Workspace::take(uint64_t bytes, const char* what) {
  BATON_TRY(DeviceMemory memory, card_->allocate(in_steps(bytes), what));
  BATON_OK(fill(memory.address(), 0, in_steps(bytes)));
  memory_.push_back(std::move(memory));
  return memory_.back().address();
}

Status Workspace::fill(Address at, uint8_t value, uint64_t bytes) {
  BATON_TRY(Stream stream, card_->stream());
  BATON_OK(stream.fill(at, value, bytes));
  return stream.wait();
}

// What lies behind a register's width stays zero: kernels write no further.
Status Workspace::make_registers(const Lowered& few, const Lowered& many) {
  BATON_CHECK(few.registers.size() == many.registers.size());
  const size_t count = few.registers.size();
  for (const bool tail : {false, true}) {
    std::vector<bool> used(count);
    for (const Lowered* lowered : {&few, &many}) {
      for (const std::vector<Node>* nodes : {tail ? &lowered->tail : &lowered->body, &lowered->tail_of_few}) {
        if (!tail && nodes == &lowered->tail_of_few) continue;
        const std::vector<bool> own = registers_of(*lowered, *nodes);
        for (size_t i = 0; i < count; ++i) used[i] = used[i] || own[i];
      }
      // What is picked lies in both.
      for (const Node& node : lowered->tail) {
        if (!tail && node.instruction.what == Do::kPick) used[static_cast<size_t>(node.instruction.op.x)] = true;
      }
    }
    // The tail's own do not lie in the body.
    const auto rows = static_cast<uint64_t>(tail ? kTailRows : rows_max_);
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; ++i) bytes += used[i] ? in_steps(rows * row_bytes(few.registers[i].width)) : 0;
    Address next = 0;
    if (bytes > 0) {
      BATON_TRY(next, take(bytes, tail ? "rows of outputs" : "rows of a pass"));
    }
    std::vector<Address>& addresses = tail ? bindings_.tail : bindings_.body;
    addresses.assign(count, 0);
    for (size_t i = 0; i < count; ++i) {
      if (!used[i]) continue;
      addresses[i] = next;
      next += in_steps(rows * row_bytes(few.registers[i].width));
    }
  }
  return {};
}

Status Workspace::make_scratch(const Lowered& few, const Lowered& many, const Weights& weights) {
  const auto rows = static_cast<uint64_t>(rows_max_);
  for (int32_t i = 0; i < kOperands; ++i) {
    if (many.operand_width[i] == 0) continue;
    const uint64_t bytes = static_cast<uint64_t>(pitch_of(many.operand_width[i])) * 2;
    // Tiles of rows are read whole.
    BATON_TRY(bindings_.operand[i], take((rows + 256) * bytes, "rounded rows of a pass"));
  }
  uint64_t scratch = 0;
  for (const Lowered* lowered : {&few, &many}) {
    for (const Node& node : lowered->body) {
      Instruction instruction = node.instruction;
      if (instruction.what == Do::kAttend || instruction.what == Do::kAttendJoin)
        instruction.splits = attend_splits(instruction.op);
      for (int32_t i = 0; i < instruction.matrices; ++i) instruction.matrix[i] = weights.matrix(node.matrices[i]);
      if (instruction.what == Do::kTile) scratch = std::max(scratch, unpacked_bytes(instruction));
      if (!lowered->many && instruction.what == Do::kConvDelta) continue;
      const uint64_t bytes = mixer_scratch_bytes(instruction, lowered == &few ? kRunsMax : rows_max_,
                                                 lowered == &few ? kRunsMax : 1, card_->facts().shared_bytes);
      const bool delta = instruction.what == Do::kDelta || instruction.what == Do::kConvDelta;
      if (delta && bytes > 0) bindings_.delta_in_chunks = true;
      scratch = std::max(scratch, bytes);
    }
  }
  // An emulated card's bodies need none, and fill what they get.
  if (card_->facts().emulated) scratch = 0;
  if (scratch > 0) {
    BATON_TRY(bindings_.scratch, take(scratch, "scratch of attention and state"));
  }
  if (few.experts_used > 0) {
    const uint64_t chosen = rows * static_cast<uint64_t>(few.experts_used);
    BATON_TRY(bindings_.ids, take(chosen * sizeof(int32_t), "experts that are chosen"));
    BATON_TRY(bindings_.shares, take(chosen * sizeof(float), "experts' shares"));
    BATON_TRY(bindings_.inner, take(chosen * row_bytes(weights.matrix(few.gates).rows), "rows of experts"));
  }
  return {};
}

Status Workspace::make_rotations(const Model& model) {
  for (const Op& op : model.program.ops) {
    if (op.kind != OpKind::kRope) continue;
    if (std::any_of(rotations_.begin(), rotations_.end(),
                    [&](const auto& one) { return same_rotation(one.first, op); }))
      continue;
    const WeightId id = op.weights[Op::kRopeFactors];
    const auto* factors =
        id < 0 ? nullptr : reinterpret_cast<const float*>(model.weights[static_cast<size_t>(id)].data);
    const std::vector<float> table = rope_frequencies(op, factors);
    const uint64_t bytes = table.size() * sizeof(float);
    BATON_TRY(const Address at, take(bytes, "frequencies of a rotation"));
    BATON_OK(put(at, table.data(), bytes));
    rotations_.push_back({op, at});
  }
  return {};
}

// Waits.
Status Workspace::put(Address at, const void* from, uint64_t bytes) {
  BATON_TRY(PinnedMemory pinned, card_->allocate_pinned(bytes));
  std::memcpy(pinned.data(), from, bytes);
  BATON_TRY(Stream stream, card_->stream());
  BATON_OK(stream.copy_in(at, pinned.data(), bytes));
  return stream.wait();
}

Status Workspace::make_pass() {
  const auto rows = static_cast<uint64_t>(rows_max_);
  tokens_at_ = in_steps(sizeof(Pass));
  run_of_row_at_ = tokens_at_ + in_steps(rows * sizeof(int32_t));
  out_rows_at_ = run_of_row_at_ + in_steps(rows * sizeof(int32_t));
  stops_at_ = out_rows_at_ + in_steps(kTailRows * sizeof(int32_t));
  sent_bytes_ = stops_at_ + in_steps(uint64_t{kRunsMax} * kStopsMax * sizeof(int32_t));
  drawn_at_ = sent_bytes_;
  rules_at_ = drawn_at_ + in_steps(uint64_t{kStepsAhead} * kRunsMax * sizeof(int32_t));
  numbers_at_ = rules_at_ + in_steps(uint64_t{kRunsMax} * sizeof(DrawRule));
  windows_at_ = numbers_at_ + in_steps(uint64_t{kStepsAhead} * kRunsMax * sizeof(uint64_t));
  ones_at_ = windows_at_ + in_steps(uint64_t{kRunsMax} * sizeof(DrawWindow));
  const uint64_t bytes = one_at(kKeptMax);
  BATON_TRY(pass_, card_->allocate(bytes, "a pass"));
  BATON_OK(fill(pass_.address(), 0, bytes));  // ids of steps that did nothing are copied, too
  BATON_TRY(pinned_, card_->allocate_pinned(bytes));
  std::memset(pinned_.data(), 0, bytes);
  BATON_TRY(outputs_, card_->allocate_pinned(kTailRows * row_bytes(few_.outputs_width)));
  Pass& pass = this->pass();
  pass = Pass{};
  pass.tokens = pass_.address() + tokens_at_;
  pass.run_of_row = pass_.address() + run_of_row_at_;
  pass.out_rows = pass_.address() + out_rows_at_;
  pass.stops = pass_.address() + stops_at_;
  pass.drawn = drawn_on_card();
  pass.rules = pass_.address() + rules_at_;
  pass.numbers = pass_.address() + numbers_at_;
  pass.windows = pass_.address() + windows_at_;
  return {};
}

Workspace::Listing Workspace::add_list(std::span<const Instruction> step, std::span<const Do> drawing,
                                       const FeedPlan& feed, bool together) {
  Listing listing = {listed_.size(), static_cast<int32_t>(step.size()), -1};
  listed_.insert(listed_.end(), step.begin(), step.end());
  for (const Do what : drawing) listed_.push_back(draw_instruction(few_, what, draws_));
  const std::span<Instruction> own = std::span(listed_).subspan(listing.first);
  for (Instruction& in : own) {
    if (together) {
      share_mma(in, card_->facts().processors);
    } else {
      share_out(in, feed, card_->facts().processors);
    }
  }
  listing.first_product = chain_products(own);
  return listing;
}

Workspace::Listings Workspace::add_lists(std::span<const Instruction> step, bool together) {
  Listings listings;
  listings.rules = add_list(step, kRules, feed_, together);
  listings.largest = add_list(step, kLargest, feed_, together);
  return listings;
}

bool Workspace::all_plain(const Listing& listing, size_t drawn, const FeedPlan& feed) const {
  const auto own = std::span(listed_).subspan(listing.first, static_cast<size_t>(listing.step) + drawn);
  return std::all_of(own.begin(), own.end(), [&](const Instruction& in) { return is_plain(in, feed); });
}

Status Workspace::make_lists(bool together, bool times) {
  std::vector<Instruction> step = few_.body;
  step.insert(step.end(), few_.tail.begin(), few_.tail.end());
  feed_ = plan_feed(step, card_->facts().shared_bytes);
  if (!fits_list(step) || feed_.set == 0) return {};
  BATON_TRY(draws_, take((1 + kRunsMax) * sizeof(uint64_t), "draws of blocks"));
  banned_.resize(kRunsMax);
  BATON_TRY(banned_on_card_, card_->allocate(kRunsMax * banned_bytes(), "ids that are never drawn"));
  BATON_TRY(banned_pinned_, card_->allocate_pinned(kRunsMax * banned_bytes()));
  exact_ = add_lists(step, false);
  const std::vector<Instruction>& tail = many_.tail_of_few;
  tail_feed_ = plan_feed(tail, card_->facts().shared_bytes);
  if (fits_list(tail) && tail_feed_.set != 0) tail_ = add_list(tail, {}, tail_feed_, false);
  const bool one_row = all_plain(exact_.rules, std::size(kRules), feed_);
  const bool tail_of_one = !tail_.empty() && all_plain(tail_, 0, tail_feed_);
  if (one_row || tail_of_one)
    BATON_OK(make_worded(one_row ? step : std::vector<Instruction>(), tail_of_one ? tail : std::vector<Instruction>()));
  codes_ = std::any_of(listed_.begin(), listed_.end(), [](const Instruction& in) {
    return in.what == Do::kMultiply && in.matrix[0].form == Form::kCodes;
  });
  if (const auto batch = together ? mma_list(step) : std::nullopt) {
    BATON_TRY(const Address planes, take(planes_bytes_of(*batch), "rows of a batch for tensor cores"));
    together_ = add_lists(with_planes(*batch, planes), true);
  }
  const uint64_t bytes = listed_.size() * sizeof(Instruction);
  BATON_TRY(list_, card_->allocate(bytes, "the instructions of a step"));
  BATON_TRY(barrier_, card_->allocate(kStepBytes, "a counter"));
  BATON_OK(fill(barrier_.address(), 0, kStepBytes));
  if (times) {
    BATON_TRY(times_, card_->allocate(listed_.size() * sizeof(uint64_t), "times of instructions"));
  }
  return put(list_.address(), listed_.data(), bytes);
}

// Both have the same words: launches take turns, whichever they are.
Status Workspace::make_worded(std::vector<Instruction> step, std::vector<Instruction> tail) {
  const auto bytes_of = [](std::vector<Instruction> list) { return put_words(list, 0); };
  words_bytes_ = std::max(bytes_of(step), bytes_of(tail));
  if (words_bytes_ > 0) {
    BATON_TRY(words_, card_->allocate(2 * words_bytes_, "values that blocks hand each other"));
    BATON_OK(fill(words_.address(), 0xff, 2 * words_bytes_));  // kNoWord
  }
  put_words(step, words_.address()), put_words(tail, words_.address());
  if (!step.empty()) worded_ = add_lists(step, false);
  if (!tail.empty()) tail_of_one_ = add_list(tail, {}, tail_feed_, false);
  return {};
}

ListWork Workspace::list(Drawing drawing, bool together) const {
  const bool plain = !together && !worded_.empty() && is_one_row(pass());
  const Listings& listings = plain ? worded_ : together ? together_ : exact_;
  const size_t drawn = drawing == Drawing::kNone      ? 0
                       : drawing == Drawing::kLargest ? std::size(kLargest)
                                                      : std::size(kRules);
  ListWork work = work_of(drawing == Drawing::kLargest ? listings.largest : listings.rules, drawn, feed_, plain);
  work.together = together;
  return work;
}

ListWork Workspace::list_of_tail() const {
  const bool plain = pass().rows_out == 1 && !tail_of_one_.empty();
  return work_of(plain ? tail_of_one_ : tail_, 0, tail_feed_, plain);
}

ListWork Workspace::work_of(const Listing& listing, size_t drawn, const FeedPlan& feed, bool plain) const {
  ListWork work;
  work.list = list_.address() + listing.first * sizeof(Instruction);
  work.count = listing.step + static_cast<int32_t>(drawn);
  work.first_product = listing.first_product;
  work.pass = pass_.address();
  work.barrier = barrier_.address();
  work.feed = feed;
  work.times = times_.address();
  work.plain = plain;
  if (plain) work.words = words_.address(), work.words_bytes = words_bytes_;
  work.codes = codes_;
  return work;
}

Result<std::vector<uint64_t>> Workspace::times(Stream& stream, const ListWork& list) const {
  std::vector<uint64_t> done(static_cast<size_t>(list.count));
  const uint64_t bytes = done.size() * sizeof(uint64_t);
  BATON_TRY(PinnedMemory pinned, card_->allocate_pinned(bytes));
  BATON_OK(stream.copy_out(pinned.data(), list.times, bytes));
  BATON_OK(stream.wait());
  std::memcpy(done.data(), pinned.data(), bytes);
  return done;
}

uint64_t Workspace::one_at(int32_t i) const { return ones_at_ + static_cast<uint64_t>(i) * in_steps(sizeof(Pass)); }

Status Workspace::send_ones(Stream& stream, int32_t count) {
  return stream.copy_in(one_on_card(0), pinned_.data() + ones_at_, one_at(count) - ones_at_);
}

Status Workspace::send(Stream& stream) { return stream.copy_in(pass_.address(), pinned_.data(), sent_bytes_); }

Status Workspace::send_rules(Stream& stream, size_t rules, size_t windows, size_t numbers) {
  BATON_OK(stream.copy_in(pass_.address() + rules_at_, this->rules(), rules * sizeof(DrawRule)));
  if (windows > 0)
    BATON_OK(stream.copy_in(pass_.address() + windows_at_, this->windows(), windows * sizeof(DrawWindow)));
  if (numbers == 0) return {};
  return stream.copy_in(pass_.address() + numbers_at_, this->numbers(), numbers * sizeof(uint64_t));
}

Result<Address> Workspace::send_banned(Stream& stream, size_t row, std::span<const int32_t> ids) {
  if (ids.empty()) return Address{0};
  Banned& banned = banned_[row];
  const uint64_t bytes = banned_bytes(), at = row * bytes;
  const Address on_card = banned_on_card_.address() + at;
  if (banned.arrived && std::equal(ids.begin(), ids.end(), banned.ids.begin(), banned.ids.end())) return on_card;
  banned.sent = true;
  banned.arrived = false;
  auto* const bits = reinterpret_cast<uint32_t*>(banned_pinned_.data() + at);
  std::fill_n(bits, bytes / sizeof(uint32_t), 0);
  for (const int32_t id : ids) bits[id / 32] |= 1u << (id % 32);
  BATON_OK(stream.copy_in(on_card, bits, bytes));
  banned.ids.assign(ids.begin(), ids.end());
  return on_card;
}

void Workspace::banned_arrived() {
  for (Banned& banned : banned_) banned.arrived = banned.sent;
}

uint64_t Workspace::banned_bytes() const {
  return in_steps((static_cast<uint64_t>(few_.outputs_width) + 31) / 32 * sizeof(uint32_t));
}

Status Workspace::send_counts(Stream& stream) {
  BATON_OK(stream.copy_in(pass_.address(), pinned_.data(), sizeof(Pass)));
  return stream.copy_in(pass_.address() + out_rows_at_, pinned_.data() + out_rows_at_, kTailRows * sizeof(int32_t));
}

}  // namespace baton::cuda
