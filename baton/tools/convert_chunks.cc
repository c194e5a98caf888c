// Llama 4's keys.
#include "baton/tools/convert_chunks.h"

#include <fmt/format.h>

#include <algorithm>

namespace baton {
namespace {

constexpr int32_t kUsualTokens = 8192;
constexpr int32_t kInterval = 4;        // each so many-th layer is without positions
constexpr int32_t kWithoutNorms = 128;  // experts of the model that has no norms of queries and keys
constexpr uint32_t kSigmoidRouter = 2;

bool turns(const ModelSpec& spec, int32_t layer) { return spec.blocks.position(layer) != Positions::kNone; }

bool turns_everywhere(const ModelSpec& spec) {
  const auto& all = spec.blocks.positions;
  return std::find(all.begin(), all.end(), Positions::kNone) == all.end();
}

bool has_experts(const ModelSpec& spec, int32_t layer) {
  return spec.experts != 0 && !spec.dense_layers[static_cast<size_t>(layer)];
}

// Each so many-th layer has experts; 0: none has.
int32_t step_of(const ModelSpec& spec) {
  for (int32_t layer = 0; layer < spec.layers; ++layer) {
    if (has_experts(spec, layer)) return layer + 1;
  }
  return 0;
}

}  // namespace

void put_chunks(GgufWriter& writer, const ModelSpec& spec, const std::string& prefix) {
  const BlockSpec& blocks = spec.blocks;
  // Without any, a chunk as long as the context says that there are layers without positions all the same.
  if (blocks.windows.empty()) {
    const bool all = turns_everywhere(spec);
    writer.put_u32(prefix + "attention.sliding_window", all ? 0u : static_cast<uint32_t>(spec.context_max));
    std::vector<bool> pattern;
    for (int32_t layer = 0; layer < spec.layers; ++layer) pattern.push_back(turns(spec, layer));
    if (!all) writer.put_bools(prefix + "attention.sliding_window_pattern", pattern);
  }
  if (blocks.position_scale == 0) writer.put_f32(prefix + "attention.temperature_scale", 0);
  writer.put_u32(prefix + "attention.temperature_length", static_cast<uint32_t>(blocks.position_scale_tokens));
  writer.put_u32(prefix + "interleave_moe_layer_step", static_cast<uint32_t>(step_of(spec)));
  if (spec.experts != 0) writer.put_u32(prefix + "expert_gating_func", kSigmoidRouter);
}

Unsayable unsayable_chunks(const ModelSpec& spec) {
  const BlockSpec& blocks = spec.blocks;
  const int32_t step = step_of(spec);
  const bool everywhere = turns_everywhere(spec);
  for (int32_t layer = 0; layer < spec.layers; ++layer) {
    if (step != 0 && has_experts(spec, layer) != ((layer + 1) % step == 0))
      return {"moe_layers", "GGUF files of llama4 have experts in each N-th layer and in no others"};
    const bool turned = (everywhere && blocks.windows.empty()) || (layer + 1) % kInterval != 0;
    if (turns(spec, layer) != turned)
      return {"no_rope_layers", "in GGUF files of llama4 each fourth layer, and no other, has no positions"};
  }
  if ((blocks.qk_norm == QkNorm::kNone) != (spec.experts == kWithoutNorms))
    return {"use_qk_norm", "in GGUF files of llama4 the models of 128 experts, and no others, are without norms"};
  return {};
}

std::string lost_chunks(const ModelSpec& spec) {
  const BlockSpec& blocks = spec.blocks;
  if (!blocks.chunked || turns_everywhere(spec)) return {};
  const bool chunks = std::all_of(blocks.windows.begin(), blocks.windows.end(),
                                  [](int32_t window) { return window == 0 || window == kUsualTokens; });
  const bool none = blocks.windows.empty() && spec.context_max > kUsualTokens;
  const bool scaled = blocks.position_scale == 0.1f && blocks.position_scale_tokens == kUsualTokens;
  if (chunks && !none && scaled) return {};
  return fmt::format(
      "chunks and factors of queries: llama.cpp takes chunks of {} tokens and a factor of 0.1 a {} "
      "whatever the file says",
      kUsualTokens, kUsualTokens);
}

}  // namespace baton
