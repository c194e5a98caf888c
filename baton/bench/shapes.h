// Sizes of models without their weights: what estimates of time and memory are computed from.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/model/model.h"

namespace baton {

// A decoder of full-attention and gated DeltaNet layers, as ModelSpec.
struct ModelShape {
  std::string_view name;
  uint64_t linear_layers, full_layers;
  uint64_t hidden, intermediate;
  uint64_t heads, kv_heads, head_dim;
  bool gated_query;  // the query projection has a gate of the same size
  uint64_t key_heads, value_heads, key_dim, value_dim, taps;
  uint64_t vocab;
  bool tied;
};

// "qwen3.5-0.8b", "qwen3.5-2b", "qwen3.5-9b", "qwen3-4b": from the published configurations.
std::span<const ModelShape> model_shapes();
const ModelShape* model_shape(std::string_view name);  // null when unknown
ModelShape shape_of(const Model& model);               // the name is borrowed from the model

uint64_t parameters(const ModelShape& shape);         // of the text model
uint64_t matrix_parameters(const ModelShape& shape);  // read for each token: all matrices, the head once
// Bytes of a sequence's state at `tokens`: convolution and recurrent state in f32, keys and values in `kv_bytes` each.
uint64_t state_bytes(const ModelShape& shape, uint64_t tokens, uint64_t kv_bytes);

// One evaluation of the neural engine, all its columns.
struct KernelWork {
  uint64_t weight_bytes = 0, flops = 0;
};
struct EngineWork {
  std::vector<KernelWork> body, head;  // of one call, and of the output head
  uint64_t copied_values = 0;          // between f32 and the surfaces, for one token, without the head
};
// The kernels that the planner of baton/unit/apple makes of the layers, 32 columns each.
Result<EngineWork> engine_work(const ModelShape& shape);

// Arithmetic beside the matrices that the host does for one token at `depth` tokens: norms, convolution, delta rule,
// attention.
uint64_t host_flops(const ModelShape& shape, uint64_t depth);

}  // namespace baton
