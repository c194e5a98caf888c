// Importance matrices: for each matrix of a model the mean square of each of its inputs on a text, by which quantizers
// weigh their errors. Files are llama.cpp's: GGUF with `<tensor>.in_sum2` and `<tensor>.counts`, or its older ".dat".
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "baton/api/text_model.h"
#include "baton/base/status.h"

namespace baton {

struct ImportanceEntry {
  std::vector<double> sums;    // of squares, [matrices][columns]; more than one matrix for experts
  std::vector<double> counts;  // tokens of each matrix
};

struct ImportanceMatrix {
  std::map<std::string, ImportanceEntry, std::less<>> entries;  // by the tensor's name in GGUF files
  std::vector<std::string> datasets;
  uint32_t chunks = 0, chunk_tokens = 0;
  std::string file;  // where it was read from

  // Mean squares of `tensor`, [matrices][columns]; ones where nothing was counted; empty when there is no entry.
  std::vector<float> means(std::string_view tensor) const;
};

// kInvalidInput: not an importance matrix, NaN or infinite values.
Result<ImportanceMatrix> read_importance(const std::filesystem::path& path);
Status write_importance(const ImportanceMatrix& matrix, const std::filesystem::path& path);

struct ImportanceOptions {
  uint32_t window = 512;      // tokens of a chunk; each starts from an empty state; a last, shorter one is left out
  uint64_t chunks_max = 0;    // 0: all
  int32_t window_start = -1;  // token in place of the first of each chunk (BOS); -1: none
  std::string unit = "cpu";   // "cpu" with options: the host's kernels; "ref": plain f32 loops, the oracle
  uint32_t threads = 0;       // 0: physical cores
  std::function<void(uint64_t done, uint64_t total)> on_chunk = {};
  std::function<bool()> stopped = {};  // asked in between, at least after each chunk; true: kCancelled
};

// Sums of squares in double, in the order of the tokens: the same whatever the number of threads. On "cpu" the inputs
// are those of its own pass, so that a quantized source's are rounded as in inference. The output head is left out, as
// llama.cpp's tool does by default. kUnsupported for a unit that does not show its inputs, and for a model that is not
// GGUF: rows and names of other containers are not those of the file to quantize.
Result<ImportanceMatrix> measure_importance(std::shared_ptr<const Model> model, std::span<const int32_t> tokens,
                                            const ImportanceOptions& options);

}  // namespace baton
