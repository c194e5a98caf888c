// A GGUF file's tensors in other number formats, by a recipe (recipe.h) and rules of the user's own. The bytes
// are those of llama.cpp's quantizer, keys and tensor order included.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "baton/base/status.h"
#include "baton/quant/format.h"
#include "baton/tools/imatrix.h"

namespace baton {

// Tensors whose name has a match of the regular expression (PCRE2, anywhere in the name) get this type. First rule
// wins.
struct TensorTypeRule {
  std::string pattern;
  DType type = DType::kF32;
};

struct QuantizeOptions {
  std::string type;   // one of quantize_types()
  bool pure = false;  // the recipe's base type for every matrix
  std::vector<TensorTypeRule> rules = {};
  const ImportanceMatrix* importance = nullptr;  // what quantizers weigh their errors by
  bool allow_requantize = false;                 // from a quantized file; what it has lost does not come back
  uint32_t threads = 0;                          // 0: physical cores
  // Progress: tensors written so far, their number, the one just written. May be empty.
  std::function<void(size_t done, size_t total, std::string_view tensor)> on_tensor = {};
};

struct QuantizeReport {
  uint64_t tensors = 0;
  uint64_t bytes_in = 0;                  // of the source's tensors
  uint64_t bytes = 0;                     // of the file
  std::map<std::string, uint64_t> types;  // tensors per type
  // 16 hex digits over the name and type of every tensor, and the importance matrix: what a file is called by, since
  // labels differ between tools.
  std::string recipe_hash;
  std::vector<std::string> notes;  // tensors in another type than the recipe's
};

// Names of the recipes: "Q2_K", ..., "F32".
std::vector<std::string_view> quantize_types();
// kInvalidInput names those there are.
Status check_quantize_type(const std::string& type);

// kInvalidInput says where a rule's regular expression goes wrong.
Status check_pattern(const std::string& pattern);

// `source`: a GGUF file (splits too). Works through one tensor at a time; `out` appears only when it is whole.
// kInvalidInput: an unknown type, a bad pattern, a quantized source without allow_requantize, a value that the type
// cannot hold. kNotFound: no such file.
Result<QuantizeReport> quantize_to_gguf(const std::filesystem::path& source, const std::filesystem::path& out,
                                        const QuantizeOptions& options);

}  // namespace baton
