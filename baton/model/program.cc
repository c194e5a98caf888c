// Names of ops and slots, and the printed form of a Program.
#include "baton/model/program.h"

#include <fmt/format.h>

#include <bit>
#include <cmath>

namespace baton {

std::string_view to_string(OpKind kind) {
  switch (kind) {
    case OpKind::kEmbed:
      return "embed";
    case OpKind::kRmsNorm:
      return "rms_norm";
    case OpKind::kLinear:
      return "linear";
    case OpKind::kSplitPairs:
      return "split_pairs";
    case OpKind::kRope:
      return "rope";
    case OpKind::kAttend:
      return "attend";
    case OpKind::kSigmoidGate:
      return "sigmoid_gate";
    case OpKind::kCausalConv:
      return "causal_conv";
    case OpKind::kDeltaRule:
      return "delta_rule";
    case OpKind::kGatedNorm:
      return "gated_norm";
    case OpKind::kSwiGlu:
      return "swiglu";
    case OpKind::kAdd:
      return "add";
    case OpKind::kBias:
      return "bias";
    case OpKind::kHead:
      return "head";
    case OpKind::kLayerNorm:
      return "layer_norm";
    case OpKind::kPosition:
      return "position";
    case OpKind::kAttendAll:
      return "attend_all";
    case OpKind::kGelu:
      return "gelu";
    case OpKind::kOutput:
      return "output";
    case OpKind::kGeGlu:
      return "geglu";
    case OpKind::kScale:
      return "scale";
    case OpKind::kExperts:
      return "experts";
    case OpKind::kShortConv:
      return "short_conv";
    case OpKind::kPositionScale:
      return "position_scale";
  }
  return "unknown";
}

std::string_view to_string(OpTrait trait) {
  static constexpr std::string_view kWords[] = {"attend.window",    "attend.cap",        "head.cap",
                                                "sigmoid_gate.one", "attend_all.window", "attend_all.alibi",
                                                "attend.chunk",     "experts.input",     "position_scale.ahead"};
  return kWords[static_cast<size_t>(trait)];
}

bool Op::has(OpTrait trait) const {
  switch (trait) {
    case OpTrait::kWindow:
      return kind == OpKind::kAttend && window != 0;
    case OpTrait::kScoreCap:
      return kind == OpKind::kAttend && cap != 0;
    case OpTrait::kLogitCap:
      return kind == OpKind::kHead && cap != 0;
    case OpTrait::kOneGate:
      return kind == OpKind::kSigmoidGate && width > 1;
    case OpTrait::kReach:
      return kind == OpKind::kAttendAll && window != 0;
    case OpTrait::kAlibi:
      return kind == OpKind::kAttendAll && alibi != 0;
    case OpTrait::kChunk:
      return kind == OpKind::kAttend && chunk != 0;
    case OpTrait::kGatedInput:
      return kind == OpKind::kExperts && routing == Routing::kSigmoidOfInput;
    case OpTrait::kAhead:
      return kind == OpKind::kPositionScale && ahead != 0;
  }
  return false;
}

std::vector<OpTrait> traits_of(const Op& op) {
  std::vector<OpTrait> traits;
  for (const OpTrait trait : kOpTraits) {
    if (op.has(trait)) traits.push_back(trait);
  }
  return traits;
}

std::string_view to_string(Routing routing) {
  static constexpr std::string_view kWords[] = {"softmax-of-all", "softmax-of-chosen", "sigmoid-of-input"};
  return kWords[static_cast<size_t>(routing)];
}

float alibi_slope(const Op& op, int32_t head) {
  const auto n = static_cast<float>(std::bit_floor(static_cast<uint32_t>(op.heads)));
  const auto at = static_cast<float>(head);
  return std::exp2(-op.alibi * (at < n ? at + 1 : at - n + 0.5f) / n);
}

std::string_view to_string(SlotKind kind) {
  switch (kind) {
    case SlotKind::kKeys:
      return "keys";
    case SlotKind::kValues:
      return "values";
    case SlotKind::kConv:
      return "conv";
    case SlotKind::kRecurrent:
      return "recurrent";
  }
  return "unknown";
}

namespace {

std::string details(const Op& op) {
  switch (op.kind) {
    case OpKind::kRmsNorm:
    case OpKind::kGatedNorm:
    case OpKind::kLayerNorm:
      return fmt::format("width={} eps={:g}", op.width, op.eps);
    case OpKind::kSplitPairs:
      return fmt::format("heads={} width={}", op.heads, op.width);
    case OpKind::kRope:
      return fmt::format("heads={} head_dim={} rotary={} theta={:g} pairing={}{}{}", op.heads, op.width, op.rotary,
                         op.rope_theta, op.pairing == RopePairing::kHalf ? "half" : "adjacent",
                         op.weights[Op::kRopeFactors] >= 0 ? " scaled" : "",
                         op.rope_magnitude != 1 ? fmt::format(" magnitude={:g}", op.rope_magnitude) : "");
    case OpKind::kAttend:
    case OpKind::kAttendAll:
      return fmt::format("heads={} kv_heads={} head_dim={} scale={:g}{}{}{}{}", op.heads, op.kv_heads, op.width,
                         op.scale, op.window != 0 ? fmt::format(" window={}", op.window) : "",
                         op.chunk != 0 ? fmt::format(" chunk={}", op.chunk) : "",
                         op.cap != 0 ? fmt::format(" cap={:g}", op.cap) : "",
                         op.alibi != 0 ? fmt::format(" alibi={:g}", op.alibi) : "");
    case OpKind::kGelu:
    case OpKind::kGeGlu:
      return op.gelu == Gelu::kErf ? "erf" : "tanh";
    case OpKind::kScale:
      return fmt::format("scale={:g}", op.scale);
    case OpKind::kHead:
      return op.cap != 0 ? fmt::format("cap={:g}", op.cap) : "";
    case OpKind::kExperts:
      return fmt::format("experts={} used={} {}", op.experts, op.experts_used, to_string(op.routing));
    case OpKind::kSigmoidGate:
      return op.width > 1 ? fmt::format("width={}", op.width) : "";
    case OpKind::kPositionScale:
      return fmt::format("scale={:g} tokens={}{}", op.scale, op.window,
                         op.ahead != 0 ? fmt::format(" ahead={}", op.ahead) : "");
    case OpKind::kCausalConv:
    case OpKind::kShortConv:
      return fmt::format("taps={}", op.taps);
    case OpKind::kDeltaRule:
      return fmt::format("value_heads={} key_heads={} key_dim={} value_dim={} head_map={}", op.heads, op.kv_heads,
                         op.key_dim, op.value_dim, op.head_map == HeadMap::kGrouped ? "grouped" : "tiled");
    default:
      return "";
  }
}

}  // namespace

std::string to_text(const Program& program) {
  std::string text;
  const std::string end = program.whole_sequence ? "states" : "logits";  // vectors are made of an encoder's
  const auto name = [&](RegisterId id) { return id < 0 ? end : program.registers[id].name; };
  for (const Op& op : program.ops) {
    text += fmt::format("{:>5}  ", op.layer < 0 ? std::string("-") : std::to_string(op.layer));
    text += fmt::format("{:<8} = {:<12}", name(op.out) + (op.out2 >= 0 ? "," + name(op.out2) : ""), to_string(op.kind));
    for (const RegisterId input : {op.x, op.y, op.z}) {
      if (input >= 0) text += fmt::format(" {}[{}]", name(input), program.registers[input].width);
    }
    if (const std::string more = details(op); !more.empty()) text += "  " + more;
    text += '\n';
  }
  return text;
}

}  // namespace baton
