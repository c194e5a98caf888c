// Each unit, each op it claims, against `ref`: random shapes, odd sizes, unaligned weights, poisoned outputs, prefill
// in uneven pieces and decode after it, logits and states compared. A new unit or op is tested without an edit here.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>

#include "baton/api/units.h"
#include "tests/support/golden.h"
#include "tests/support/op_models.h"
#include "tests/support/seats.h"
#include "tests/support/smoke.h"
#include "tests/support/state_values.h"
#include "tests/support/test_names.h"
#include "tests/support/test_units.h"

namespace baton::test {
namespace {

// Normalised mean squared error allowed: sum (a - b)^2 / sum b^2. Quantised activations of 15 bits give about 1e-9, f16
// keys and values 1e-7; everything else is f32 in another order. A unit with fp16 products rounds inputs, weights and
// results of each linear layer of these models, 1e-7 in all, and the op between two of them may enlarge it: the delta
// rule by the exponential of its decay.
double nmse_allowed(OpKind kind, DType dtype, const Caps& caps) {
  const bool matrix = kind == OpKind::kLinear || kind == OpKind::kHead || kind == OpKind::kExperts;
  if (caps.product_type == DType::kF16) return kind == OpKind::kDeltaRule ? 4e-6 : 1e-6;
  // Products in bf16: two roundings to 8 bits, each at most 2^-9 of its value.
  if (matrix && caps.product_type == DType::kBF16 && dtype != DType::kF32 && format_of(dtype).block_elements == 1)
    return 1e-5;
  // 8-bit activations: a rounding error of 0.5 % of each value is 2.3e-5 of their energy; llama.cpp's own test allows
  // 5e-4.
  if (matrix && format_of(dtype).block_elements > 1) return 1e-4;
  // Against the same type a value may be rounded the other way, a whole step of its type.
  if (kind == OpKind::kAttend && caps.kv_type == DType::kQ4_0) return 1e-3;
  if (kind == OpKind::kAttend && (caps.kv_type == DType::kBF16 || caps.kv_type == DType::kQ8_0)) return 1e-5;
  if (kind == OpKind::kAttend && caps.kv_type != DType::kF32) return 1e-6;
  return 1e-9;
}

double nmse(std::span<const float> a, std::span<const float> b) {
  double error = 0, energy = 1e-12;
  for (size_t i = 0; i < a.size(); ++i) {
    error += (static_cast<double>(a[i]) - b[i]) * (static_cast<double>(a[i]) - b[i]);
    energy += static_cast<double>(b[i]) * b[i];
  }
  return error / energy;  // NaN stays NaN: a poisoned value that was not written fails every comparison
}

constexpr OpKind kKeepState[] = {OpKind::kAttend, OpKind::kDeltaRule, OpKind::kCausalConv, OpKind::kShortConv};
bool looks_back(OpKind kind) { return std::ranges::find(kKeepState, kind) != std::end(kKeepState); }
bool has(const Caps& caps, OpKind kind) { return std::ranges::find(caps.ops, kind) != caps.ops.end(); }

struct Outcome {
  std::vector<float> logits;
  std::vector<std::vector<float>> slots;
};

// Prefills in the given pieces with logits of every token, then decodes the rest one by one.
Outcome run(Unit& unit, const OpModel& op, std::span<const int32_t> ids, std::span<const size_t> pieces) {
  Outcome result;
  auto executor = unit.load(op.model, 2);
  EXPECT_TRUE(executor) << executor.error().message;
  auto state = (*executor)->new_state(ids.size() + 3);
  EXPECT_TRUE(state) << state.error().message;
  const size_t vocab = op.model->program.output_width;
  const size_t whole[] = {ids.size()};
  if (op.model->program.whole_sequence) pieces = whole;
  result.logits.assign(ids.size() * vocab, std::nanf(""));
  size_t done = 0;
  for (const size_t piece : pieces) {
    const auto status = (*executor)->prefill(**state, ids.subspan(done, piece),
                                             std::span(result.logits).subspan(done * vocab, piece * vocab));
    EXPECT_TRUE(status) << status.error().message;
    done += piece;
  }
  for (; done < ids.size(); ++done) {
    const auto status = (*executor)->decode(**state, ids[done], std::span(result.logits).subspan(done * vocab, vocab));
    EXPECT_TRUE(status) << status.error().message;
  }
  EXPECT_EQ((*state)->position(), ids.size());
  for (size_t i = 0; i < (*state)->shape().segments.size(); ++i) result.slots.push_back(segment_values(**state, i));
  return result;
}

// Skipped where the unit is not on this machine, or only prefills: its own tests compare it with `ref`.
class Conformance : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    const auto unit = create_test_unit(GetParam());
    if (!unit && unit.error().code == Code::kUnsupported) GTEST_SKIP() << unit.error().message;
    ASSERT_TRUE(unit) << unit.error().message;
    if ((*unit)->caps().decode_seats_max == 0) GTEST_SKIP() << GetParam() << " only prefills";
  }
};

std::vector<std::string> other_units() {
  std::vector<std::string> names;
  for (const UnitEntry* entry : unit_entries()) {
    if (entry->name != "ref") names.emplace_back(entry->name);
  }
  for (const char* options : {"cpu:kernels=exact", "cpu:experts=file"}) names.emplace_back(options);
  for (const std::string& unit : kv_units()) {
    if (unit.starts_with("cpu")) names.push_back(unit);
  }
  return names;
}
INSTANTIATE_TEST_SUITE_P(Units, Conformance, testing::ValuesIn(other_units()),
                         [](const auto& item) { return test_name(item.param); });

// A kind, or one with a trait.
struct TestedOp {
  OpKind kind;
  std::optional<OpTrait> trait = {};

  OpModel model(DType dtype, Random& random) const {
    return trait ? make_trait_model(*trait, random) : make_op_model(kind, dtype, random);
  }
  uint64_t seed() const { return static_cast<uint64_t>(kind) * 31 + (trait ? 7 + static_cast<uint64_t>(*trait) : 0); }
};

std::vector<TestedOp> ops_of(const Caps& caps) {
  std::vector<TestedOp> all;
  for (const OpKind kind : caps.ops) all.push_back({kind});
  for (const OpTrait trait : caps.traits) all.push_back({kind_of(trait), trait});
  return all;
}

// `ref` keeps keys and values in the same type: only arithmetic is between the two.
std::string ref_of(const std::string& unit) {
  const size_t kv = unit.find("kv=");
  return kv == std::string::npos ? "ref" : "ref:" + unit.substr(kv);
}

TEST_P(Conformance, EveryOpAgainstRef) {
  auto ref = create_unit(ref_of(GetParam()));
  auto unit = create_test_unit(GetParam());
  ASSERT_TRUE(ref && unit);
  const auto says = [](const char* option) { return GetParam().find(option) != std::string::npos; };
  for (const TestedOp& tested : ops_of((*unit)->caps())) {
    const OpKind kind = tested.kind;
    if (says("kv=") && kind != OpKind::kAttend) continue;  // no other op reads what the option changes
    if (says("experts=") && kind != OpKind::kExperts) continue;
    std::vector<DType> types = {DType::kF32};
    if (!tested.trait &&
        (kind == OpKind::kEmbed || kind == OpKind::kLinear || kind == OpKind::kHead || kind == OpKind::kExperts)) {
      types.clear();
      for (const Format& format : formats()) types.push_back(format.dtype);
    }
    int rounds = types.size() > 1 ? scaled(12, 1) : scaled(30, 2);
    if (on_this_machine(GetParam()) != GetParam()) rounds = types.size() > 1 ? 1 : 4;  // bodies are slow
    for (const DType dtype : types) {
      for (int round = 0; round < rounds; ++round) {
        Random random(static_cast<uint64_t>(round) * 1000 + tested.seed() + static_cast<uint64_t>(dtype));
        const OpModel op = tested.model(dtype, random);
        const size_t first = 1 + random.below(round % 3 == 0 ? 140 : 20), second = 1 + random.below(9);
        std::vector<int32_t> ids(first + second + 3);
        for (int32_t& id : ids) id = static_cast<int32_t>(random.below(37));
        const size_t pieces[] = {first, second};
        const Outcome wanted = run(**ref, op, ids, pieces);
        const Outcome got = run(**unit, op, ids, pieces);
        const Caps& caps = (*unit)->caps();
        const double allowed = nmse_allowed(kind, dtype, caps);
        ASSERT_LE(nmse(got.logits, wanted.logits), allowed)
            << op.description << " tokens=" << ids.size() << " round " << round;
        ASSERT_EQ(got.slots.size(), wanted.slots.size());
        for (size_t i = 0; i < got.slots.size(); ++i) {
          const bool f16_values = kind == OpKind::kAttend && caps.kv_type != DType::kF32;
          const double slot_allowed = f16_values || caps.product_type == DType::kF16 ? allowed : 1e-9;
          ASSERT_LE(nmse(got.slots[i], wanted.slots[i]), slot_allowed) << op.description << " slot " << i;
        }
      }
    }
  }
}

// Several sequences in one decode step give each its own answer.
TEST_P(Conformance, BatchedDecodeEqualsSingle) {
  auto unit = create_test_unit(GetParam());
  ASSERT_TRUE(unit);
  for (const TestedOp& tested : ops_of((*unit)->caps())) {
    const OpKind kind = tested.kind;
    if (!looks_back(kind) && kind != OpKind::kLinear && kind != OpKind::kExperts) continue;
    Random random(77 + tested.seed());
    const OpModel op = tested.model(DType::kF32, random);
    auto executor = (*unit)->load(op.model, 2);
    ASSERT_TRUE(executor);
    const size_t vocab = op.model->program.vocab;
    const size_t count = std::min<size_t>((*unit)->caps().decode_seats_max, 3);
    std::vector<std::unique_ptr<SequenceState>> together, alone;
    std::vector<std::vector<float>> rows(count, std::vector<float>(vocab, std::nanf(""))), single = rows;
    for (size_t i = 0; i < count; ++i) {
      std::vector<int32_t> ids(2 + 5 * i, static_cast<int32_t>(3 + i));
      for (auto* states : {&together, &alone}) {
        states->push_back(std::move(*(*executor)->new_state(64)));
        ASSERT_TRUE((*executor)->prefill(*states->back(), ids, {}));
      }
    }
    for (int step = 0; step < 4; ++step) {
      std::vector<SeatRows> seats;
      for (size_t i = 0; i < count; ++i)
        seats.push_back({together[i].get(), static_cast<int32_t>(7 * i + step), rows[i]});
      ASSERT_TRUE(step_together(**executor, seats));
      for (size_t i = 0; i < count; ++i) {
        ASSERT_TRUE((*executor)->decode(*alone[i], static_cast<int32_t>(7 * i + step), single[i]));
        EXPECT_LE(nmse(rows[i], single[i]), 1e-9) << op.description << " sequence " << i << " step " << step;
      }
    }
  }
}

// Several sequences in one prefill give each its own answer and its own state.
TEST_P(Conformance, BatchedPrefillEqualsSingle) {
  auto unit = create_test_unit(GetParam());
  ASSERT_TRUE(unit);
  const size_t counts[] = {1, 2, 7, 33, 12};
  for (const TestedOp& tested : ops_of((*unit)->caps())) {
    const OpKind kind = tested.kind;
    const bool looks_around = looks_back(kind) || kind == OpKind::kAttendAll;
    if (!looks_around && kind != OpKind::kLinear && kind != OpKind::kExperts) continue;
    Random random(78 + tested.seed());
    const OpModel op = tested.model(DType::kF32, random);
    auto executor = (*unit)->load(op.model, 2);
    ASSERT_TRUE(executor);
    const size_t vocab = op.model->program.vocab;
    const double allowed = nmse_allowed(kind, DType::kF32, (*unit)->caps());
    std::vector<std::unique_ptr<SequenceState>> together, alone;
    std::vector<std::vector<int32_t>> ids;
    std::vector<std::vector<float>> rows, single;
    std::vector<SeatRows> seats;
    for (const size_t count : counts) {
      ids.emplace_back(count);
      for (int32_t& id : ids.back()) id = static_cast<int32_t>(random.below(37));
      rows.emplace_back(vocab, std::nanf(""));
      single.emplace_back(vocab, std::nanf(""));
      for (auto* states : {&together, &alone}) states->push_back(std::move(*(*executor)->new_state(64)));
    }
    for (size_t i = 0; i < std::size(counts); ++i) seats.push_back({together[i].get(), ids[i], rows[i]});
    const auto status = step_together(**executor, seats);
    ASSERT_TRUE(status) << status.error().message;
    for (size_t i = 0; i < std::size(counts); ++i) {
      ASSERT_TRUE((*executor)->prefill(*alone[i], ids[i], single[i]));
      EXPECT_EQ(together[i]->position(), counts[i]);
      EXPECT_LE(nmse(rows[i], single[i]), allowed) << op.description << " sequence " << i;
      for (size_t s = 0; s < alone[i]->shape().segments.size(); ++s) {
        EXPECT_LE(nmse(segment_values(*together[i], s), segment_values(*alone[i], s)), allowed)
            << op.description << " sequence " << i << " slot " << s;
      }
    }
  }
}

TEST_P(Conformance, AForkGoesItsOwnWay) {
  auto unit = create_test_unit(GetParam());
  ASSERT_TRUE(unit);
  Random random(5);
  const OpModel op = make_op_model(OpKind::kDeltaRule, DType::kF32, random);
  auto executor = (*unit)->load(op.model, 1);
  ASSERT_TRUE(executor);
  auto state = (*executor)->new_state(16);
  const std::vector<int32_t> ids = {1, 2, 3};
  ASSERT_TRUE((*executor)->prefill(**state, ids, {}));
  auto copy = (*executor)->fork(**state, 3);
  ASSERT_TRUE(copy);
  EXPECT_EQ((*copy)->position(), 3u);
  ASSERT_TRUE((*executor)->prefill(**copy, ids, {}));
  std::vector<float> after(op.model->program.vocab, std::nanf("")), again = after;
  ASSERT_TRUE((*executor)->decode(**state, 4, after));
  auto fresh = (*executor)->new_state(16);
  ASSERT_TRUE((*executor)->prefill(**fresh, ids, {}));
  ASSERT_TRUE((*executor)->decode(**fresh, 4, again));
  EXPECT_EQ(after, again);
}

// What a state shows of itself is what it gives to be read: any rows, of states with room left too.
TEST_P(Conformance, WhatAStateShowsIsWhatIsRead) {
  auto unit = create_test_unit(GetParam());
  ASSERT_TRUE(unit);
  Random random(6);
  for (const OpKind kind : kKeepState) {
    if (!has((*unit)->caps(), kind)) continue;
    const OpModel op = make_op_model(kind, DType::kF32, random);
    SCOPED_TRACE(op.description);
    auto executor = (*unit)->load(op.model, 1);
    ASSERT_TRUE(executor);
    for (const uint64_t room : {uint64_t{7}, uint64_t{19}}) {
      auto state = (*executor)->new_state(room);
      ASSERT_TRUE((*executor)->prefill(**state, std::vector<int32_t>{3, 1, 4, 1, 5, 9, 2}, {}));
      for (int i = 0; i < 200; ++i) {
        const size_t index = random.below((*state)->shape().segments.size());
        const Segment& segment = (*state)->shape().segments[index];
        const Dims dims = dims_at(segment, 7);
        const uint64_t first = random.below(dims[0] * dims[1]), count = 1 + random.below(dims[0] * dims[1] - first);
        std::vector<std::byte> bytes(count * row_bytes_of(segment.dtype, dims[2]));
        ASSERT_TRUE((*state)->read(index, {first, count}, bytes.data()));
        const std::byte* shown = (*state)->view(index, {first, count});
        if (shown == nullptr) continue;
        EXPECT_EQ(std::memcmp(shown, bytes.data(), bytes.size()), 0) << first << " + " << count;
      }
    }
  }
}

// Back to where a state was, and on from there as one that never went further; or a refusal that changes nothing.
TEST_P(Conformance, RewindsAsFarAsItsCapsSay) {
  auto unit = create_test_unit(GetParam());
  ASSERT_TRUE(unit);
  const uint32_t most = (*unit)->caps().rewind_tokens_max;
  for (const OpKind kind : kKeepState) {
    if (!has((*unit)->caps(), kind)) continue;
    Random random(79 + static_cast<uint64_t>(kind));
    const OpModel op = make_op_model(kind, DType::kF32, random);
    SCOPED_TRACE(op.description);
    auto executor = (*unit)->load(op.model, 2);
    ASSERT_TRUE(executor);
    const std::vector<int32_t> ids = {3, 1, 4, 1, 5, 9, 2, 6};
    const auto go = [&](SequenceState& state, size_t count) {
      const Seat seat{&state, std::span(ids).subspan(state.position(), count), 0, false, true};
      ASSERT_TRUE((*executor)->step({&seat, 1}, {}, {}));
    };
    const size_t back = std::min<size_t>(most, 3);
    auto state = (*executor)->new_state(16), never = (*executor)->new_state(16);
    go(**state, 4);
    go(**state, 4);
    const auto before = state_bytes(**state);
    EXPECT_TRUE((*executor)->rewind(**state, 8));
    if (most == 0) {
      const Status refused = (*executor)->rewind(**state, 7);
      ASSERT_FALSE(refused);
      EXPECT_EQ(refused.error().code, Code::kUnsupported);
    }
    EXPECT_EQ(state_bytes(**state), before);
    ASSERT_TRUE((*executor)->rewind(**state, 8 - back));
    go(**never, 4);
    if (back < 4) go(**never, 4 - back);
    EXPECT_EQ(state_bytes(**state), state_bytes(**never));
    std::vector<float> again(op.model->program.vocab, std::nanf("")), once = again;
    ASSERT_TRUE((*executor)->decode(**state, 7, again));
    ASSERT_TRUE((*executor)->decode(**never, 7, once));
    EXPECT_EQ(again, once);
  }
}

TEST_P(Conformance, BadTokensAndFullStatesAreErrors) {
  auto unit = create_test_unit(GetParam());
  ASSERT_TRUE(unit);
  Random random(6);
  const OpModel op = make_op_model(OpKind::kAdd, DType::kF32, random);
  auto executor = (*unit)->load(op.model, 1);
  ASSERT_TRUE(executor);
  auto state = (*executor)->new_state(4);
  const auto prefill = [&](std::vector<int32_t> ids) { return (*executor)->prefill(**state, ids, {}); };
  EXPECT_FALSE(prefill({-1}));
  EXPECT_FALSE(prefill({op.model->program.vocab}));
  EXPECT_FALSE(prefill({}));
  const auto full = prefill({1, 2, 3, 4, 5});
  ASSERT_FALSE(full);
  EXPECT_EQ(full.error().code, Code::kOutOfMemory);
  EXPECT_EQ((*state)->position(), 0u);
  // In the middle of a batch: named, and the sequence before it is not begun.
  auto second = (*executor)->new_state(4);
  const std::vector<int32_t> good = {1, 2}, bad = {3, -1};
  const std::vector<SeatRows> seats = {{state->get(), good}, {second->get(), bad}};
  const auto batch = step_together(**executor, seats);
  ASSERT_FALSE(batch);
  EXPECT_EQ(batch.error().code, Code::kInvalidInput);
  EXPECT_EQ(batch.error().message.rfind("sequence 1: ", 0), 0u) << batch.error().message;
  EXPECT_EQ((*state)->position(), 0u);
}

}  // namespace
}  // namespace baton::test
