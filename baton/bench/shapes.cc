// Counting weights, kernels and arithmetic from shapes.
#include "baton/bench/shapes.h"

#include <algorithm>

#include "baton/unit/apple/kernel.h"

namespace baton {
namespace {

// Qwen3.5: Hugging Face configurations (2B: its model card). Qwen3-4B: its configuration; every layer is full
// attention.
constexpr ModelShape kShapes[] = {
    {"qwen3.5-0.8b", 18, 6, 1024, 3584, 8, 2, 256, true, 16, 16, 128, 128, 4, 248320, true},
    {"qwen3.5-2b", 18, 6, 2048, 6144, 8, 2, 256, true, 16, 16, 128, 128, 4, 248320, true},
    {"qwen3.5-9b", 24, 8, 4096, 12288, 16, 4, 256, true, 16, 32, 128, 128, 4, 248320, false},
    {"qwen3-4b", 0, 36, 2560, 9728, 32, 8, 128, false, 0, 0, 0, 0, 0, 151936, true},
};

uint64_t channels(const ModelShape& s) { return 2 * s.key_heads * s.key_dim + s.value_heads * s.value_dim; }
uint64_t inner(const ModelShape& s) { return s.value_heads * s.value_dim; }
uint64_t query(const ModelShape& s) { return s.heads * s.head_dim; }
uint64_t query_rows(const ModelShape& s) { return s.gated_query ? 2 * query(s) : query(s); }
uint64_t key_rows(const ModelShape& s) { return s.kv_heads * s.head_dim; }

uint64_t linear_matrices(const ModelShape& s) {
  return s.hidden * (channels(s) + inner(s) + 2 * s.value_heads) + inner(s) * s.hidden;
}
uint64_t full_matrices(const ModelShape& s) {
  return s.hidden * (query_rows(s) + 2 * key_rows(s)) + query(s) * s.hidden;
}
uint64_t feed_forward(const ModelShape& s) { return 3 * s.hidden * s.intermediate; }

// A matrix without values, for plans.
Weight matrix(uint64_t rows, uint64_t columns) {
  return {"w", DType::kBF16, static_cast<int64_t>(rows), static_cast<int64_t>(columns), nullptr, 0, ""};
}

void add(const std::vector<apple::KernelPlan>& plans, uint64_t layers, std::vector<KernelWork>& work) {
  for (uint64_t i = 0; i < layers; ++i) {
    for (const apple::KernelPlan& plan : plans) work.push_back({plan.weight_bytes, plan.flops});
  }
}

uint64_t copied(const std::vector<apple::KernelPlan>& plans) {
  uint64_t values = 0;
  for (const apple::KernelPlan& plan : plans) values += static_cast<uint64_t>(plan.in_channels + plan.out_channels);
  return values;
}

// Of `layers` alike: one kernel of projections with a common input, one that leads back to the residual stream.
Status add_mixer(const ModelShape& shape, uint64_t layers, std::span<const uint64_t> rows, uint64_t out,
                 EngineWork& work) {
  if (layers == 0) return {};
  std::vector<Weight> weights;
  for (const uint64_t count : rows) weights.push_back(matrix(count, shape.hidden));
  std::vector<apple::LayerPart> parts;
  for (size_t i = 0; i < weights.size(); ++i)
    parts.push_back({std::string(1, static_cast<char>('a' + i)), &weights[i]});
  const apple::KernelLimits limits;
  BATON_TRY(const auto first, apple::plan_linear("first", parts, limits));
  const Weight back = matrix(shape.hidden, out);
  const apple::LayerPart last_part[] = {{"o", &back}};
  BATON_TRY(const auto last, apple::plan_linear("last", last_part, limits));
  add(first, layers, work.body);
  add(last, layers, work.body);
  work.copied_values += layers * (copied(first) + copied(last));
  return {};
}

}  // namespace

std::span<const ModelShape> model_shapes() { return kShapes; }

const ModelShape* model_shape(std::string_view name) {
  const auto* found =
      std::find_if(std::begin(kShapes), std::end(kShapes), [&](const ModelShape& s) { return s.name == name; });
  return found != std::end(kShapes) ? found : nullptr;
}

ModelShape shape_of(const Model& model) {
  const ModelSpec& spec = model.spec;
  const auto figure = [](int64_t value) { return static_cast<uint64_t>(value); };
  const auto linear = std::count(spec.layer_kinds.begin(), spec.layer_kinds.end(), LayerKind::kLinearAttention);
  const auto& ops = model.program.ops;
  const bool gated = std::any_of(ops.begin(), ops.end(), [](const Op& op) { return op.kind == OpKind::kSplitPairs; });
  return {spec.name,
          figure(linear),
          figure(std::count(spec.layer_kinds.begin(), spec.layer_kinds.end(), LayerKind::kFullAttention)),
          figure(spec.hidden),
          figure(spec.intermediate),
          figure(spec.heads),
          figure(spec.kv_heads),
          figure(spec.head_dim),
          gated,
          figure(spec.linear_key_heads),
          figure(spec.linear_value_heads),
          figure(spec.linear_key_dim),
          figure(spec.linear_value_dim),
          figure(spec.conv_taps),
          figure(spec.vocab),
          spec.tied_head};
}

uint64_t matrix_parameters(const ModelShape& s) {
  return s.linear_layers * linear_matrices(s) + s.full_layers * full_matrices(s) +
         (s.linear_layers + s.full_layers) * feed_forward(s) + s.vocab * s.hidden;
}

uint64_t parameters(const ModelShape& s) {
  const uint64_t layers = s.linear_layers + s.full_layers;
  // Two norms a layer and one at the end; convolution, decay, its bias and the gated norm; norms of query and key.
  const uint64_t vectors = (2 * layers + 1) * s.hidden +
                           s.linear_layers * (s.taps * channels(s) + 2 * s.value_heads + s.value_dim) +
                           s.full_layers * 2 * s.head_dim;
  return matrix_parameters(s) + vectors + (s.tied ? 0 : s.vocab * s.hidden);
}

uint64_t state_bytes(const ModelShape& s, uint64_t tokens, uint64_t kv_bytes) {
  const uint64_t columns = s.taps > 0 ? s.taps - 1 : 0;
  const uint64_t fixed =
      s.linear_layers * (s.value_heads * s.key_dim * s.value_dim + columns * channels(s)) * sizeof(float);
  return fixed + s.full_layers * 2 * key_rows(s) * tokens * kv_bytes;
}

Result<EngineWork> engine_work(const ModelShape& shape) {
  EngineWork work;
  const uint64_t delta[] = {channels(shape), inner(shape)};
  BATON_OK(add_mixer(shape, shape.linear_layers, delta, inner(shape), work));
  const uint64_t attention[] = {query_rows(shape), key_rows(shape), key_rows(shape)};
  BATON_OK(add_mixer(shape, shape.full_layers, attention, query(shape), work));
  const uint64_t layers = shape.linear_layers + shape.full_layers;
  const apple::KernelLimits limits;
  const Weight gate = matrix(shape.intermediate, shape.hidden), down = matrix(shape.hidden, shape.intermediate);
  BATON_TRY(const auto block, apple::plan_swiglu("ffn", gate, gate, down, limits));
  add(block, layers, work.body);
  work.copied_values += layers * copied(block);
  const Weight rows = matrix(shape.vocab, shape.hidden);
  const apple::LayerPart parts[] = {{"w", &rows}};
  BATON_TRY(const auto head, apple::plan_linear("head", parts, limits));
  add(head, 1, work.head);
  return work;
}

uint64_t host_flops(const ModelShape& s, uint64_t depth) {
  constexpr uint64_t kNorm = 4;   // square, sum, two products
  constexpr uint64_t kDelta = 7;  // of each value of the state: decay, read (2), update (2), read-out (2)
  const uint64_t layers = s.linear_layers + s.full_layers;
  const uint64_t norms = (2 * layers + 1) * kNorm * s.hidden;
  const uint64_t linear = 2 * s.taps * channels(s) + kDelta * s.value_heads * s.key_dim * s.value_dim +
                          2 * 2 * s.hidden * s.value_heads + 2 * kNorm * inner(s);
  const uint64_t full = 4 * query(s) * (depth + 1) + kNorm * (query(s) + key_rows(s));
  return norms + s.linear_layers * linear + s.full_layers * full;
}

}  // namespace baton
