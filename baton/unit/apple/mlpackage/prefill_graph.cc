// Ops of a layer, one function each; the delta rule is in prefill_delta.cc.
#include "baton/unit/apple/mlpackage/prefill_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

#include "baton/unit/apple/mlpackage/prefill_lowering.h"

namespace baton::apple {
namespace {

constexpr float kMasked = -1e4f;         // added to scores; twice of it is still an fp16 value
constexpr float kEpsilonMin = 0x1p-20f;  // sixteen steps of fp16's smallest values: an eps within 3 %
constexpr std::array<std::string_view, 4> kSlotWords = {"keys", "values", "conv", "recurrent"};

MilDims slot_dims(const Slot& slot, int64_t past) {
  switch (slot.kind) {
    case SlotKind::kKeys:
    case SlotKind::kValues:
      return {1, slot.heads, past, slot.columns};
    case SlotKind::kConv:
      return {1, 1, slot.rows, slot.columns};
    case SlotKind::kRecurrent:
      return {1, slot.heads, slot.rows, slot.columns};
  }
  return {};
}

}  // namespace

std::string state_feature(SlotKind kind, int32_t layer) {
  return fmt::format("layer_{}_{}", layer, kSlotWords[static_cast<size_t>(kind)]);
}

Result<const Op*> common_rope(const Program& program) {
  const Op* first = nullptr;
  for (const Op& op : program.ops) {
    if (op.kind != OpKind::kRope || op.rotary == 0) continue;
    if (first == nullptr) first = &op;
    if (op.rope_theta != first->rope_theta || op.rotary != first->rotary || op.weights != first->weights ||
        op.rope_magnitude != first->rope_magnitude) {
      return fail(Code::kUnsupported,
                  fmt::format("layer {} rotates with another base or width than layer {}; Core ML packages take one "
                              "table of angles",
                              op.layer, first->layer));
    }
  }
  return first;
}

std::string lacks(const Op& op, std::string_view what) {
  return fmt::format("Core ML packages have no op {} (layer {})", what, op.layer);
}

Status check_lowerable(const Model& model) {
  BATON_OK(common_rope(model.program));
  const auto& ops = model.program.ops;
  const bool framed = ops.size() > 2 && ops.front().kind == OpKind::kEmbed && ops.back().kind == OpKind::kHead;
  if (!framed || model.spec.layers < 1) return fail(Code::kUnsupported, "no layers between an embedding and a head");
  for (const Op& op : ops) {
    if (const auto traits = traits_of(op); !traits.empty())
      return fail(Code::kUnsupported, lacks(op, to_string(traits[0])));
    if (op.kind == OpKind::kDeltaRule && (op.heads % op.kv_heads != 0 || op.key_dim < 2)) {
      return fail(Code::kUnsupported,
                  fmt::format("layer {}: {} value heads of {} key heads", op.layer, op.heads, op.kv_heads));
    }
  }
  return {};
}

PrefillLowering::Value PrefillLowering::get(RegisterId id) {
  float factor = 1;
  const Value value = get_carried(id, &factor);
  return factor == 1 ? value : block_.binary("mul", "plain", value, block_.scalar(1 / factor));
}

PrefillLowering::Value PrefillLowering::get_carried(RegisterId id, float* factor) const {
  const Value value = registers_[static_cast<size_t>(id)];
  BATON_CHECK(value.index >= 0);
  *factor = factors_[static_cast<size_t>(id)];
  return value;
}

Result<PrefillLowering::Value> PrefillLowering::vector(std::string_view name, WeightId id, MilDims dims) {
  return block_.weight(name, weight(id), whole(weight(id)), std::move(dims), report_);
}

void PrefillLowering::state_output(SlotId slot, Value value) {
  const Slot& kept = model_.program.slots[static_cast<size_t>(slot)];
  outputs_.emplace_back(state_feature(kept.kind, kept.layer) + "_out", value);
}

Status PrefillLowering::inputs() {
  const Program& program = model_.program;
  registers_.assign(program.registers.size(), {});
  factors_.assign(program.registers.size(), 1);
  states_.assign(program.slots.size(), {});
  set(program.ops.front().out, block_.input("hidden", {1, width(program.ops.front().out), 1, shape_.seq}));
  keep_ = block_.input("keep", {1, 1, 1, shape_.seq});
  if (shape_.past > 0) past_keep_ = block_.input("past_keep", {1, 1, 1, shape_.past});
  const auto in_range = [&](int32_t layer) { return layer >= layers_.begin && layer < layers_.end; };
  BATON_TRY(const Op* rope, common_rope(program));
  const bool rotates = std::any_of(program.ops.begin(), program.ops.end(), [&](const Op& op) {
    return op.kind == OpKind::kRope && op.rotary > 0 && in_range(op.layer);
  });
  if (rotates) {
    cos_ = block_.input("rope_cos", {1, 1, rope->rotary / 2, shape_.seq});
    sin_ = block_.input("rope_sin", {1, 1, rope->rotary / 2, shape_.seq});
  }
  for (size_t i = 0; i < program.slots.size() && shape_.past > 0; ++i) {
    const Slot& slot = program.slots[i];
    if (in_range(slot.layer))
      states_[i] = block_.input(state_feature(slot.kind, slot.layer), slot_dims(slot, shape_.past));
  }
  return {};
}

PrefillLowering::Value PrefillLowering::rms(std::string_view name, Value x, int64_t axis, float epsilon) {
  // An eps below what fp16 can hold is scaled up together with x: exact, because the factor is a power of two.
  float scale = 1;
  for (; epsilon > 0 && epsilon * scale * scale < kEpsilonMin; scale *= 2) {
  }
  const std::string base(name);
  if (scale > 1) x = block_.binary("mul", base + "_scaled", x, block_.scalar(scale));
  const Value negative = block_.binary("mul", base + "_negative", x, block_.scalar(-1));
  const Value both = block_.concat(base + "_both", std::array{x, negative}, axis);
  const Value normed = block_.layer_norm(base + "_norm", both, axis, epsilon * scale * scale);
  return block_.slice(base + "_half", normed, axis, 0, block_.dim(x, static_cast<size_t>(axis)));
}

Status PrefillLowering::linear(const Op& op) {
  const Weight& matrix = weight(op.weights[Op::kMatrix]);
  BATON_TRY(const Value kernel,
            block_.weight("weight", matrix, whole(matrix), {matrix.rows, matrix.columns, 1, 1}, report_));
  set(op.out, block_.conv("linear", get(op.x), kernel, 1));
  return {};
}

Status PrefillLowering::bias(const Op& op) {
  BATON_TRY(const Value values, vector("bias", op.weights[Op::kOffset], {1, width(op.out), 1, 1}));
  set(op.out, block_.binary("add", "biased", get(op.x), values));
  return {};
}

Status PrefillLowering::norm(const Op& op) {
  const int64_t channels = width(op.x), groups = channels / op.width;
  const MilDims flat = {1, channels, 1, shape_.seq};
  // rms(f x, f^2 eps) = rms(x, eps)
  float factor = 1;
  Value x = get_carried(op.x, &factor);
  const bool single = groups == 1;
  if (!single) x = block_.reshape("groups", x, {1, groups, op.width, shape_.seq});
  Value out = rms("rms", x, single ? 1 : 2, op.eps * factor * factor);
  BATON_TRY(const Value scale,
            vector("scale", op.weights[Op::kScale], single ? MilDims{1, op.width, 1, 1} : MilDims{1, 1, op.width, 1}));
  out = block_.reshape("flat", block_.binary("mul", "weighted", out, scale), flat);
  if (op.kind == OpKind::kGatedNorm) out = block_.binary("mul", "gated", out, block_.unary("silu", "gate", get(op.y)));
  set(op.out, out);
  return {};
}

void PrefillLowering::split_pairs(const Op& op) {
  const Value pairs = block_.reshape("pairs", get(op.x), {1, op.heads, 2 * op.width, shape_.seq});
  const MilDims flat = {1, int64_t{op.heads} * op.width, 1, shape_.seq};
  set(op.out, block_.reshape("first", block_.slice("first_heads", pairs, 2, 0, op.width), flat));
  set(op.out2, block_.reshape("second", block_.slice("second_heads", pairs, 2, op.width, op.width), flat));
}

// Pairs (a, b) turn: a cos - b sin, b cos + a sin. The angles come from outside, in f32 until they are rounded.
void PrefillLowering::rope(const Op& op) {
  if (op.rotary == 0) return set(op.out, get(op.x));
  const int64_t half = op.rotary / 2, seq = shape_.seq, heads = op.heads;
  const Value x = block_.reshape("heads", get(op.x), {1, heads, op.width, seq});
  const Value turned = block_.slice("turned", x, 2, 0, op.rotary);
  const bool halves = op.pairing == RopePairing::kHalf;
  Value a, b;
  if (halves) {
    a = block_.slice("a", turned, 2, 0, half);
    b = block_.slice("b", turned, 2, half, half);
  } else {
    const Value pairs = block_.reshape("pairs", turned, {heads, half, 2, seq});
    a = block_.reshape("a", block_.slice("even", pairs, 2, 0, 1), {1, heads, half, seq});
    b = block_.reshape("b", block_.slice("odd", pairs, 2, 1, 1), {1, heads, half, seq});
  }
  const auto product = [&](std::string_view name, Value value, Value by) {
    return block_.binary("mul", name, value, by);
  };
  Value out_a = block_.binary("sub", "turned_a", product("a_cos", a, cos_), product("b_sin", b, sin_));
  Value out_b = block_.binary("add", "turned_b", product("b_cos", b, cos_), product("a_sin", a, sin_));
  std::vector<Value> parts;
  if (halves) {
    parts = {out_a, out_b};
  } else {
    out_a = block_.reshape("even_a", out_a, {heads, half, 1, seq});
    out_b = block_.reshape("odd_b", out_b, {heads, half, 1, seq});
    const Value pairs = block_.concat("turned_pairs", std::array{out_a, out_b}, 2);
    parts = {block_.reshape("turned_flat", pairs, {1, heads, op.rotary, seq})};
  }
  if (op.rotary < op.width) parts.push_back(block_.slice("still", x, 2, op.rotary, op.width - op.rotary));
  set(op.out, block_.reshape("rotated", block_.concat("rotated_heads", parts, 2), {1, heads * op.width, 1, seq}));
}

// One matrix product a key head: its query heads are rows [query head, column] of it.
void PrefillLowering::attend(const Op& op) {
  const int64_t seq = shape_.seq, past = shape_.past, kv = op.kv_heads, group = op.heads / op.kv_heads;
  const auto rows = [&](std::string_view name, Value x, int64_t heads) {  // [1, heads * D, 1, S] -> [1, heads, S, D]
    const std::string base(name);
    return block_.transpose(base + "_rows", block_.reshape(base + "_heads", x, {1, heads, op.width, seq}),
                            {0, 1, 3, 2});
  };
  const Value new_keys = rows("keys", get(op.y), kv), new_values = rows("values", get(op.z), kv);
  state_output(op.slot, new_keys);
  state_output(op.slot2, new_values);
  Value keys = new_keys, values = new_values;
  if (past > 0) {
    keys = block_.concat("all_keys", std::array{states_[static_cast<size_t>(op.slot)], new_keys}, 2);
    values = block_.concat("all_values", std::array{states_[static_cast<size_t>(op.slot2)], new_values}, 2);
  }
  if (mask_.index < 0) {
    const Value causal =
        block_.constant(fmt::format("causal_{}_{}", seq, past), {1, 1, seq, past + seq}, [&](size_t i) {
          const auto at = static_cast<int64_t>(i);
          return at % (past + seq) - past > at / (past + seq) ? kMasked : 0.0f;
        });
    Value keep = keep_;
    if (past > 0) keep = block_.concat("all_keep", std::array{past_keep_, keep_}, 3);
    const Value absent = block_.binary("sub", "absent", keep, block_.scalar(1));
    mask_ = block_.binary("add", "mask", causal, block_.binary("mul", "absent_score", absent, block_.scalar(-kMasked)));
  }
  Value mask = mask_;
  if (group > 1) {
    const std::vector<Value> copies(static_cast<size_t>(group), mask_);
    mask = block_.concat("group_mask", copies, 2);
  }
  Value query = block_.binary("mul", "query_scaled", get(op.x), block_.scalar(op.scale));
  query = block_.reshape("query_groups", rows("query", query, op.heads), {1, kv, group * seq, op.width});
  const Value scores = block_.binary("add", "scores", block_.matmul("products", query, keys, false, true), mask);
  const Value mixed = block_.matmul("mixed", block_.softmax("weights", scores, 3), values, false, false);
  const Value heads = block_.reshape("mixed_heads", mixed, {1, op.heads, seq, op.width});
  set(op.out, block_.reshape("attended", block_.transpose("mixed_columns", heads, {0, 1, 3, 2}),
                             {1, int64_t{op.heads} * op.width, 1, seq}));
}

// The window before the first token is zero or the state: padding is set to zero before the taps see it, and a state's
// columns are put right before the first token by a product with a matrix of ones and zeros.
Status PrefillLowering::conv(const Op& op) {
  const int64_t channels = width(op.x), before = op.taps - 1, seq = shape_.seq, all = seq + before;
  const Value kept = block_.binary("mul", "kept", get(op.x), keep_);
  const Value zeros = block_.constant(fmt::format("zeros_{}_{}", channels, before), {1, channels, 1, before},
                                      [](size_t) { return 0.0f; });
  Value window = block_.concat("window", std::array{zeros, kept}, 3);
  if (shape_.past > 0) {
    if (place_.index < 0) {
      // 1 at the first column that is kept: keep minus keep one column to the left.
      const Value zero = block_.constant("zero_column", {1, 1, 1, 1}, [](size_t) { return 0.0f; });
      const Value left =
          block_.concat("keep_left", std::array{zero, block_.slice("keep_head", keep_, 3, 0, seq - 1)}, 3);
      const Value first = block_.binary("sub", "first_column", keep_, left);
      std::vector<Value> rows;
      for (int64_t j = 0; j < before; ++j) {
        const auto blank = [&](int64_t count) {
          return block_.constant(fmt::format("zeros_1_{}", count), {1, 1, 1, count}, [](size_t) { return 0.0f; });
        };
        std::vector<Value> parts;
        if (j > 0) parts.push_back(blank(j));
        parts.push_back(first);
        if (j < before) parts.push_back(blank(before - j));
        rows.push_back(block_.concat("place_row", parts, 3));
      }
      place_ = block_.concat("place", rows, 2);
    }
    const Value placed = block_.matmul("placed", states_[static_cast<size_t>(op.slot)], place_, true, false);
    window =
        block_.binary("add", "filled_window", window, block_.reshape("placed_window", placed, {1, channels, 1, all}));
  }
  const Value columns =
      block_.transpose("columns", block_.reshape("by_channel", window, {1, 1, channels, all}), {0, 1, 3, 2});
  state_output(op.slot, block_.slice("last_columns", columns, 2, seq, before));
  BATON_TRY(const Value taps, vector("taps", op.weights[Op::kTaps], {channels, 1, 1, op.taps}));
  set(op.out, block_.unary("silu", "convolved", block_.conv("conv", window, taps, channels)));
  return {};
}

Status PrefillLowering::op(const Op& op) {
  switch (op.kind) {
    case OpKind::kLinear:
      return linear(op);
    case OpKind::kRmsNorm:
    case OpKind::kGatedNorm:
      return norm(op);
    case OpKind::kSplitPairs:
      split_pairs(op);
      return {};
    case OpKind::kRope:
      rope(op);
      return {};
    case OpKind::kAttend:
      attend(op);
      return {};
    case OpKind::kSigmoidGate:
      set(op.out, block_.binary("mul", "gated", get(op.x), block_.unary("sigmoid", "gate", get(op.y))));
      return {};
    case OpKind::kCausalConv:
      return conv(op);
    case OpKind::kDeltaRule:
      return delta(op);
    case OpKind::kSwiGlu:
      set(op.out, block_.binary("mul", "product", block_.unary("silu", "act", get(op.x)), get(op.y)));
      return {};
    case OpKind::kAdd:
      set(op.out, block_.binary("add", "sum", get(op.x), get(op.y)));
      return {};
    case OpKind::kBias:
      return bias(op);
    case OpKind::kEmbed:
    case OpKind::kHead:
    case OpKind::kLayerNorm:
    case OpKind::kPosition:
    case OpKind::kAttendAll:
    case OpKind::kGelu:
    case OpKind::kOutput:
    case OpKind::kGeGlu:
    case OpKind::kScale:
    case OpKind::kExperts:
    case OpKind::kShortConv:
    case OpKind::kPositionScale:
      return fail(Code::kUnsupported, lacks(op, to_string(op.kind)));
  }
  return fail(Code::kInternal, "an op of no kind");
}

Status PrefillLowering::run() {
  BATON_OK(inputs());
  const Program& program = model_.program;
  for (size_t i = 0; i < program.ops.size(); ++i) {
    const Op& next = program.ops[i];
    if (next.layer < layers_.begin || next.layer >= layers_.end) continue;
    block_.set_prefix(fmt::format("layer_{}_op_{}_", next.layer, i));
    BATON_OK(op(next));
  }
  block_.output("hidden_out", get(program.ops.front().out));
  for (const auto& [name, value] : outputs_) block_.output(name, value);
  return {};
}

Status lower_prefill(const Model& model, const LayerRange& layers, const PrefillShape& shape, MilBlock& block,
                     RangeReport* report) {
  BATON_OK(check_lowerable(model));
  const bool seq_fits = shape.seq >= kSeqMin && shape.seq <= kSeqMax && shape.seq % kSeqMultiple == 0;
  if (!seq_fits || shape.past < 0 || shape.past > 1 << 17) {
    return fail(Code::kInvalidInput,
                fmt::format("a length of {} tokens after {}; lengths are multiples of {} from {} to {}", shape.seq,
                            shape.past, kSeqMultiple, kSeqMin, kSeqMax));
  }
  BATON_CHECK(layers.begin >= 0 && layers.begin < layers.end && layers.end <= model.spec.layers);
  return PrefillLowering(model, layers, shape, block, report).run();
}

}  // namespace baton::apple
