// A compute unit without arithmetic, for tests of what is around units: its "model" is a running hash of the tokens,
// kept in real segments (keys and values per token, a recurrent state), so that a lost, mixed, stale or damaged state
// gives other logits. What it should answer is computed here without any state.
#pragma once

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/bridge/compare.h"
#include "baton/sample/sampler.h"
#include "baton/unit/unit.h"
#include "tests/support/fake_constraint.h"

namespace baton::fake {

inline constexpr int32_t kVocab = 32;
inline constexpr uint32_t kHeads = 2, kHeadDim = 2, kValuesPerToken = kHeads * kHeadDim;

inline uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 31)) * 0x9e3779b97f4a7c15ull;
  value = (value ^ (value >> 29)) * 0xbf58476d1ce4e5b9ull;
  return value ^ (value >> 32);
}
// The hash of no tokens: what tells the answers of one fake model from another's.
inline constexpr uint64_t kStart = 0x243f6a8885a308d3ull, kOtherStart = 0x13198a2e03707344ull;
inline uint64_t after_token(uint64_t hash, int32_t token) {
  return mix(hash ^ (static_cast<uint64_t>(token) + 1) * 0x100000001b3ull);
}
// What the slot keeps for a token: whole numbers below 2048, exact in f16.
inline uint32_t kept_value(uint64_t hash, SlotKind kind, uint32_t index) {
  return static_cast<uint32_t>(mix(hash + (kind == SlotKind::kKeys ? 0 : 16) + index) & 2047u);
}
inline uint64_t fold(uint64_t digest, uint32_t value) { return mix(digest ^ value); }
inline float logit(uint64_t digest, int32_t id) {
  return static_cast<float>(mix(digest + static_cast<uint64_t>(id)) % 4096) / 256.0f;
}

// The logits after `tokens`, without a state.
inline std::vector<float> expected_logits(std::span<const int32_t> tokens, uint64_t start = kStart,
                                          int32_t vocab = kVocab) {
  std::vector<uint64_t> hashes;
  uint64_t hash = start;
  for (const int32_t token : tokens) hashes.push_back(hash = after_token(hash, token));
  uint64_t digest = hash;
  for (const SlotKind kind : {SlotKind::kKeys, SlotKind::kValues}) {
    for (const uint64_t each : hashes) {
      for (uint32_t i = 0; i < kValuesPerToken; ++i) digest = fold(digest, kept_value(each, kind, i));
    }
  }
  std::vector<float> logits(static_cast<size_t>(vocab));
  for (int32_t id = 0; id < vocab; ++id) logits[static_cast<size_t>(id)] = logit(digest, id);
  return logits;
}

// Those of the tokens from `first` on, without a state.
inline std::vector<Logprobs> expected_logprobs(std::span<const int32_t> tokens, size_t first, uint32_t top,
                                               uint64_t start = kStart, int32_t vocab = kVocab) {
  std::vector<Logprobs> logprobs;
  for (size_t i = first; i < tokens.size(); ++i)
    logprobs.push_back(*logprobs_of(expected_logits(tokens.first(i), start, vocab), tokens[i], top));
  return logprobs;
}

struct ExpectedAnswer {
  std::vector<int32_t> tokens;
  int32_t stop_id = -1;
};
inline ExpectedAnswer expected_answer(std::vector<int32_t> tokens, uint64_t max_new, SamplerParams params,
                                      const std::vector<int32_t>& stop_ids, uint64_t start = kStart,
                                      int32_t vocab = kVocab) {
  ExpectedAnswer answer;
  if (params.constraint) params.constraint = static_cast<const Constraint&>(*params.constraint).again();
  auto sampler = Sampler::create(params, vocab);
  BATON_CHECK(sampler);
  while (answer.tokens.size() < max_new) {
    const auto sampled = sampler->sample(expected_logits(tokens, start, vocab));
    BATON_CHECK(sampled);
    for (const int32_t stop : stop_ids) {
      if (*sampled == stop) answer.stop_id = stop;
    }
    if (answer.stop_id >= 0) break;
    answer.tokens.push_back(*sampled);
    tokens.push_back(*sampled);
  }
  return answer;
}

inline std::shared_ptr<const Model> make_model(int32_t context_max, uint64_t fingerprint = 1, int32_t vocab = kVocab) {
  auto model = std::make_shared<Model>();
  model->spec.architecture = "fake";
  model->spec.vocab = vocab;
  model->spec.context_max = context_max;
  model->program.vocab = model->program.output_width = vocab;
  model->program.slots = {
      {.kind = SlotKind::kKeys, .layer = 0, .heads = kHeads, .rows = 0, .columns = kHeadDim},
      {.kind = SlotKind::kValues, .layer = 0, .heads = kHeads, .rows = 0, .columns = kHeadDim},
      {.kind = SlotKind::kRecurrent, .layer = 1, .heads = 1, .rows = 2, .columns = 2},
  };
  model->set_fingerprints({.model = fingerprint, .quantization = fingerprint + 1});
  return model;
}

// Fake units agree to the bit, whatever they keep their values in.
inline ProofBounds exact_bounds() { return {}; }

// How a unit keeps keys and values: two units that differ need conversion and transposition on the bridge.
struct Storage {
  DType kv_type = DType::kF32;
  bool tokens_outermost = false;  // [tokens, heads, dim] instead of [heads, tokens, dim]
  bool common = false;            // of such states one may have the other's memory, where the rest is alike

  friend bool operator==(const Storage&, const Storage&) = default;
};

inline StateShape make_shape(const Storage& storage) {
  return {{{SlotKind::kKeys, 0, storage.kv_type, {kHeads, 0, kHeadDim}},
           {SlotKind::kValues, 0, storage.kv_type, {kHeads, 0, kHeadDim}},
           {SlotKind::kRecurrent, 1, DType::kF32, {1, 2, 2}}}};
}

class State final : public SequenceState {
 public:
  State(const Storage& storage, uint64_t tokens_max, LiveStates& live, uint64_t start = kStart)
      : SequenceState(tokens_max, live), storage_(storage), start_(start), shape_(make_shape(storage)) {
    for (const Segment& segment : shape_.segments) {
      const Dims dims = dims_at(segment, tokens_max);
      memory_.emplace_back(dims[0] * dims[1] * dims[2] * value_bytes(segment.dtype));
    }
    store_hash(start_);
  }

  const StateShape& shape() const override { return shape_; }
  uint64_t bytes() const override { return section_bytes(shape_, tokens_max()) + bytes_per_token * position(); }
  uint64_t bytes_per_token = 0;  // beside those it began with
  uint64_t owner = 0;            // of the simulation: whose it is

  uint64_t hash() const {
    uint64_t hash = 0;
    for (size_t i = 0; i < 4; ++i) {
      hash |= static_cast<uint64_t>(load_as<float>(memory_[2].data() + 4 * i)) << (16 * i);
    }
    return hash ^ start_;
  }
  // Kept so that a fresh sequence holds zeros.
  void store_hash(uint64_t hash) {
    hash ^= start_;
    for (size_t i = 0; i < 4; ++i) {
      store_as<float>(memory_[2].data() + 4 * i, static_cast<float>((hash >> (16 * i)) & 0xffffu));
    }
  }
  void append(int32_t token) {
    const uint64_t hash_now = after_token(hash(), token);
    for (size_t segment = 0; segment < 2; ++segment) {
      for (uint32_t i = 0; i < kValuesPerToken; ++i) {
        store_value(segment, position(), i, kept_value(hash_now, shape_.segments[segment].kind, i));
      }
    }
    store_hash(hash_now);
    set_position(position() + 1);
  }
  void write_logits(std::span<float> logits) const {
    uint64_t digest = hash();
    for (size_t segment = 0; segment < 2; ++segment) {
      for (uint64_t token = 0; token < position(); ++token) {
        for (uint32_t i = 0; i < kValuesPerToken; ++i) digest = fold(digest, value(segment, token, i));
      }
    }
    for (size_t id = 0; id < logits.size(); ++id) logits[id] = logit(digest, static_cast<int32_t>(id));
  }

 private:
  size_t place(size_t segment, uint64_t token, uint32_t index) const {
    BATON_CHECK(segment < 2 && token < tokens_max() && index < kValuesPerToken);
    if (storage_.tokens_outermost) return token * kValuesPerToken + index;
    return (index / kHeadDim * tokens_max() + token) * kHeadDim + index % kHeadDim;
  }
  // Of a row of two values, in whichever segment.
  size_t row_place(size_t segment, const Dims& dims, uint64_t row) const {
    return segment == 2 ? 2 * row : place(segment, row % dims[1], static_cast<uint32_t>(row / dims[1] * kHeadDim));
  }
  Status read_rows(size_t segment, const Dims& dims, RowRange rows, std::byte* out) const override {
    const size_t size = value_bytes(shape_.segments[segment].dtype);
    for (uint64_t i = 0; i < rows.count; ++i)
      std::memcpy(out + 2 * i * size, memory_[segment].data() + row_place(segment, dims, rows.first + i) * size,
                  2 * size);
    return {};
  }
  Status write_rows(size_t segment, const Dims& dims, RowRange rows, const std::byte* in) override {
    const size_t size = value_bytes(shape_.segments[segment].dtype);
    for (uint64_t i = 0; i < rows.count; ++i)
      std::memcpy(memory_[segment].data() + row_place(segment, dims, rows.first + i) * size, in + 2 * i * size,
                  2 * size);
    return {};
  }
  bool fits_memory(const SequenceState& from) const override {
    const auto* other = dynamic_cast<const State*>(&from);
    return other != nullptr && storage_.common && other->storage_ == storage_ && other->start_ == start_ &&
           other->tokens_max() == tokens_max();
  }
  bool exchange_memory(SequenceState& from) override {
    std::swap(memory_, static_cast<State&>(from).memory_);
    return true;
  }
  uint32_t value(size_t segment, uint64_t token, uint32_t index) const {
    const size_t at = place(segment, token, index);
    const std::byte* data = memory_[segment].data();
    const bool wide = shape_.segments[segment].dtype == DType::kF32;
    return static_cast<uint32_t>(wide ? load_as<float>(data + 4 * at) : f16_to_f32(load_as<uint16_t>(data + 2 * at)));
  }
  void store_value(size_t segment, uint64_t token, uint32_t index, uint32_t number) {
    const size_t at = place(segment, token, index);
    std::byte* data = memory_[segment].data();
    if (shape_.segments[segment].dtype == DType::kF32) {
      store_as<float>(data + 4 * at, static_cast<float>(number));
    } else {
      store_as<uint16_t>(data + 2 * at, f32_to_f16(static_cast<float>(number)));
    }
  }

  const Storage storage_;
  const uint64_t start_;
  const StateShape shape_;
  std::vector<std::vector<std::byte>> memory_;
};

enum class Act { kNewState, kPrefill, kDecode };

struct Behaviour {
  Storage storage = {};
  uint32_t prefill_tokens_preferred = 8, prefill_tokens_min = 1;
  uint32_t prefill_seats_shared = 1;
  uint32_t decode_seats_max = 2;  // 0: it only prefills
  bool mixes = false, tells_layers = false;
  std::string warning = {};  // of its placement
  // Called before each act with its tokens or seats; may sleep; an error is the act's result. Null: nothing fails.
  std::function<Status(Act, size_t)> before = nullptr;
  // Called after a prefill: true spoils the state without a word.
  std::function<bool()> spoils_prefill = nullptr;
  // Called for each seat of a decode: true spoils the seat's state before its logits are made.
  std::function<bool(size_t seat, size_t seats)> spoils_decode = nullptr;
  uint64_t start = kStart;
  uint64_t bytes_per_token = 0;                   // that a state takes for those it holds
  std::function<bool()> spoils_logits = nullptr;  // called for each row: true makes one of them no number
};

class FakeExecutor final : public Executor {
 public:
  FakeExecutor(std::string name, std::shared_ptr<const Model> model, Behaviour behaviour)
      : name_(std::move(name)),
        model_(std::move(model)),
        behaviour_(std::move(behaviour)),
        shape_(make_shape(behaviour_.storage)) {
    caps_.prefill_tokens_preferred = behaviour_.prefill_tokens_preferred;
    caps_.prefill_tokens_min = behaviour_.prefill_tokens_min;
    caps_.prefill_seats_shared = behaviour_.prefill_seats_shared;
    caps_.decode_seats_max = behaviour_.decode_seats_max;
    caps_.mixes = behaviour_.mixes;
    caps_.tells_layers = behaviour_.tells_layers;
    caps_.kv_type = behaviour_.storage.kv_type;
    caps_.logit_tolerances = equal_tolerances(1e-3f);
  }

  const std::string& name() const { return name_; }
  const Caps& caps() const { return caps_; }
  int64_t live_states() const { return live_.count(); }
  uint64_t prefilled_tokens() const { return prefilled_; }
  uint64_t prefill_calls() const { return prefills_; }
  uint64_t decode_calls() const { return decodes_; }

  const Model& model() const override { return *model_; }
  const StateShape& shape() const override { return shape_; }
  Result<std::unique_ptr<SequenceState>> new_state(uint64_t tokens_max) override {
    BATON_OK(before(Act::kNewState, tokens_max));
    auto state = std::make_unique<State>(behaviour_.storage, tokens_max, live_, behaviour_.start);
    state->bytes_per_token = behaviour_.bytes_per_token;
    return state;
  }
  Status step(std::span<const Seat> seats, std::span<float> out, const StepContext& context) override {
    const auto first = std::find_if(seats.begin(), seats.end(), [](const Seat& seat) { return seat.decodes; });
    const auto prefills = static_cast<size_t>(first - seats.begin()), decodes = seats.size() - prefills;
    prefills_ += prefills > 0 ? 1 : 0;
    decodes_ += decodes > 0 ? 1 : 0;
    const Status status = decodes > 0 ? before(Act::kDecode, decodes) : Status();
    Status done = status && prefills > 0 ? run(seats.first(prefills), out, false, context.watch) : status;
    size_t rows = 0;
    for (const Seat& seat : seats.first(prefills)) rows += seat.rows_out;
    if (done && decodes > 0) done = run(seats.subspan(prefills), out.subspan(rows * width()), true);
    if (prefills > 0 && decodes > 0 && !caps_.mixes) done = fail(Code::kInvalidInput, "the fake unit does not mix");
    // Whichever it was: none of them may be gone on from.
    for (const Seat& seat : seats) {
      if (!done) poison(static_cast<State&>(*seat.state));
    }
    return done;
  }
  Placement placement() const override {
    return {.ran = name_, .arithmetic = "hashes on the host", .warning = behaviour_.warning};
  }
  std::string arithmetic() const override { return arithmetic_name("fake/" + name_); }

 private:
  Status run(std::span<const Seat> seats, std::span<float> out, bool decodes, LayerWatch* watch = nullptr) {
    // The proof's two states go in one step wherever they are.
    const size_t most = decodes ? std::max(caps_.decode_seats_max, 2u) : caps_.prefill_seats_shared;
    if (seats.empty() || seats.size() > most) {
      return fail(Code::kInvalidInput, "the fake unit was given too many sequences");
    }
    for (size_t i = 0; i < seats.size(); ++i) {
      const Seat& seat = seats[i];
      auto& mine = static_cast<State&>(*seat.state);
      if (!decodes) BATON_OK(before(Act::kPrefill, seat.tokens.size()));
      if (seat.tokens.empty() || seat.tokens.size() > mine.tokens_max() - mine.position()) {
        return fail(Code::kInvalidInput, "the fake unit was given more tokens than the state holds");
      }
      const size_t silent = seat.tokens.size() - std::max<size_t>(seat.rows_out, 1);
      for (size_t token = 0; token < seat.tokens.size(); ++token) {
        if (token > silent) write_row(mine, out);
        mine.append(seat.tokens[token]);
      }
      if (!decodes) prefilled_ += seat.tokens.size();
      const bool spoilt = decodes ? behaviour_.spoils_decode && behaviour_.spoils_decode(i, seats.size())
                                  : behaviour_.spoils_prefill && behaviour_.spoils_prefill();
      if (spoilt) mine.store_hash(mix(mine.hash()));
      for (int32_t layer = 0; watch != nullptr && caps_.tells_layers && layer < 2; ++layer) watch->layer_done(i, layer);
      if (seat.rows_out == 0) continue;
      write_row(mine, out);
    }
    return {};
  }
  // To the front of `out`, which goes on behind it.
  void write_row(const State& state, std::span<float>& out) {
    state.write_logits(out.first(width()));
    if (behaviour_.spoils_logits && behaviour_.spoils_logits()) out[0] = std::nanf("");
    out = out.subspan(width());
  }
  size_t width() const { return static_cast<size_t>(model_->program.output_width); }
  // A failed step leaves rubbish behind, so that going on from it shows.
  static void poison(State& state) { state.store_hash(mix(~state.hash())); }
  Status before(Act act, size_t count) { return behaviour_.before ? behaviour_.before(act, count) : Status(); }

  const std::string name_;
  const std::shared_ptr<const Model> model_;
  const Behaviour behaviour_;
  const StateShape shape_;
  Caps caps_;
  std::atomic<uint64_t> prefilled_{0}, prefills_{0}, decodes_{0};
};

}  // namespace baton::fake
