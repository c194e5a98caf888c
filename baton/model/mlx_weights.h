// Matrices of MLX-quantized folders. A module is quantized when it has `<module>.scales`: `<module>.weight` then holds
// U32 words, the rows' codes as bit streams, lowest bit first ([rows, columns * bits / 32]); `.scales` and `.biases`
// are [rows, columns / group] in F16, BF16 or F32. config.json's "quantization" has bits, group_size and mode for all
// modules, and under a module's full path an object with its own, or false.
#pragma once

#include <string_view>

#include "baton/model/model.h"

namespace baton {

// Whether `source` ("model.embed_tokens.weight") is such a matrix, complete or not.
bool is_mlx_quantized(const Container& container, std::string_view source);

// The three parts joined into blocks of one of the MLX formats, in memory added to `owned`. `name`: ours. Errors name
// the file, and the tensor or the field: another mode than affine, missing parts, other shapes than
// [rows, columns] and the configuration say.
Result<Weight> join_mlx_weight(const Container& container, std::string_view source, std::string name, int64_t rows,
                               int64_t columns, std::vector<std::unique_ptr<std::byte[]>>& owned);

}  // namespace baton
