// Matrices whose numbers lie in several tensors, by the conventions of other quantizers: GPTQ, AWQ (GEMM),
// compressed-tensors (pack-quantized, int-quantized, float-quantized, nvfp4-pack-quantized), FP8 with a scale for each
// block, row or matrix, ModelOpt's NVFP4; and in GGUF files NVFP4 with a tensor of its own for the scale.
// docs/models.md has the tensors of each. (MLX's convention: mlx_weights.h.)
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "baton/model/model.h"

namespace baton {

// Whether `source` ("model.layers.0.mlp.up_proj.weight") is such a matrix, complete or not.
bool is_packed(const Container& container, std::string_view source);

struct PackedWeight {
  Weight weight;
  std::vector<std::string> parts;  // the file's tensors that it was made from, or that are there for activations
};

// The parts as blocks of the nearest format, in memory added to `owned`: codes stay what they are, a zero point becomes
// a minimum, and no value changes (scales of F32: by a rounding to f32 at most). What no format holds (columns in
// another order than their groups, groups that are no multiples of 32) becomes F32. `name`: ours. Errors name the file,
// and the tensor or the field.
Result<PackedWeight> join_packed_weight(const Container& container, std::string_view source, std::string name,
                                        int64_t rows, int64_t columns,
                                        std::vector<std::unique_ptr<std::byte[]>>& owned);

}  // namespace baton
