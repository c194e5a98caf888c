// The weights of a model as tensors of a GGUF file: names, order of rows and heads, matrices that are one tensor there.
#pragma once

#include "baton/model/gguf_writer.h"
#include "baton/model/model.h"
#include "baton/tools/convert.h"

namespace baton {

// Adds them to the writer, which reads the model until the file is written: matrices as `matrix_type`, or F16 where its
// blocks do not fit (a note says which); vectors and convolution kernels as F32.
Status add_weights(GgufWriter& writer, const Model& model, DType matrix_type, ConvertReport& report);

// The values of a weight in the order that the file has them in, whatever they are in the file.
Result<std::vector<float>> gguf_values(const Model& model, const Weight& weight);

}  // namespace baton
