// A Hugging Face folder as a GGUF file that llama.cpp reads too: names, metadata and value conventions of the GGUF side
// (+1 on zero-centred norms, -exp(A_log), squeezed kernels, tiled value heads, adjacent rotary pairs), tokenizer and
// chat template included.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/quant/format.h"

namespace baton {

struct ConvertOptions {
  DType matrix_type = DType::kQ8_0;  // of matrices; vectors and convolution kernels are F32
  // Progress: tensors written so far, their number, the one just written. May be empty.
  std::function<void(size_t done, size_t total, std::string_view tensor)> on_tensor;
};

struct ConvertReport {
  uint64_t tensors = 0;
  uint64_t bytes = 0;              // of the file
  std::vector<std::string> notes;  // what was skipped or written in another type than asked
  std::vector<std::string> lost;   // what the file cannot say, or llama.cpp does not read: with what it does instead
};

// kUnsupported for a source that is not a Hugging Face folder, a type without an encoder, or a pre-tokenizer that has
// no GGUF name. The file appears only when it is whole.
Result<ConvertReport> convert_to_gguf(const std::filesystem::path& source, const std::filesystem::path& out,
                                      const ConvertOptions& options);

}  // namespace baton
