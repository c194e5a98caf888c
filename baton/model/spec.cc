// What makes a ModelSpec usable: bounds that keep every later product of sizes within 64 bits, and heads that divide.
#include "baton/model/spec.h"

#include <fmt/format.h>

namespace baton {

Status validate(const ModelSpec& spec, std::string_view file) {
  const auto bad = [&](std::string what) { return fail(Code::kInvalidInput, fmt::format("{}: {}", file, what)); };
  const auto bounded = [&](const char* name, int64_t value, int64_t high) -> Status {
    if (value < 1 || value > high) return bad(fmt::format("{} is {}; it must be 1 to {}", name, value, high));
    return {};
  };
  BATON_OK(bounded("hidden size", spec.hidden, kHiddenMax));
  BATON_OK(bounded("layer count", spec.layers, kLayersMax));
  BATON_OK(bounded("intermediate size", spec.intermediate, kHiddenMax * 8));
  BATON_OK(bounded("attention head count", spec.heads, kHeadsMax));
  BATON_OK(bounded("kv head count", spec.kv_heads, kHeadsMax));
  BATON_OK(bounded("head dim", spec.head_dim, kHeadDimMax));
  BATON_OK(bounded("vocabulary size", spec.vocab, kVocabMax));
  BATON_OK(bounded("context length", spec.context_max, int64_t{1} << 30));
  if (spec.heads % spec.kv_heads != 0) {
    return bad(fmt::format("{} attention heads are not a multiple of {} kv heads", spec.heads, spec.kv_heads));
  }
  if (spec.rotary < 0 || spec.rotary % 2 != 0 || spec.rotary > spec.head_dim) {
    return bad(fmt::format("{} rotated dims; it must be even and at most the head dim {}", spec.rotary, spec.head_dim));
  }
  if (static_cast<int64_t>(spec.layer_kinds.size()) != spec.layers) {
    return bad(fmt::format("{} layer types for {} layers", spec.layer_kinds.size(), spec.layers));
  }
  bool linear = false, convolves = false;
  for (const LayerKind kind : spec.layer_kinds) {
    linear |= kind == LayerKind::kLinearAttention;
    convolves |= kind != LayerKind::kFullAttention;
  }
  if (convolves && (spec.conv_taps < 2 || spec.conv_taps > 16))
    return bad(fmt::format("convolution kernel of {}; it must be 2 to 16", spec.conv_taps));
  if (linear) {
    BATON_OK(bounded("linear key head count", spec.linear_key_heads, kHeadsMax));
    BATON_OK(bounded("linear value head count", spec.linear_value_heads, kHeadsMax));
    BATON_OK(bounded("linear key head dim", spec.linear_key_dim, kHeadDimMax));
    BATON_OK(bounded("linear value head dim", spec.linear_value_dim, kHeadDimMax));
    if (spec.linear_value_heads % spec.linear_key_heads != 0) {
      return bad(fmt::format("{} linear value heads are not a multiple of {} key heads", spec.linear_value_heads,
                             spec.linear_key_heads));
    }
  }
  for (const int32_t id : spec.stop_ids) {
    if (id < 0 || id >= spec.vocab)
      return bad(fmt::format("stop token {} is outside the vocabulary of {}", id, spec.vocab));
  }
  return {};
}

}  // namespace baton
