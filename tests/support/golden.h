// Reference vectors made with another implementation (Hugging Face transformers, f32): inputs and expected outputs per
// prompt. Read by a small reader of its own, so that the product's readers are not their own witness.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <ostream>
#include <string>
#include <vector>

#include "baton/unit/unit.h"

namespace baton::test {

struct GoldenTensor {
  std::vector<int64_t> shape;
  std::vector<float> reals;       // F32
  std::vector<int32_t> integers;  // I32
};
using GoldenTensors = std::map<std::string, GoldenTensor>;

// Fails the test (and returns nothing) when the file cannot be read.
GoldenTensors read_golden(const std::filesystem::path& file);

// A model with its vectors. `exact`: the weights are those the vectors were made from; otherwise (quantized copies)
// only tolerances per weight type apply.
struct GoldenCase {
  std::string name;
  std::filesystem::path model;
  std::filesystem::path vectors;
  bool exact = true;
  bool copy = false;  // another container of a model that is a case too: tests of states and units leave it out
};
inline void PrintTo(const GoldenCase& item, std::ostream* out) { *out << item.name; }
// The cases of this repository, and with BATON_MODELS_EXTRA the large bf16 model it was converted from. In a smoke run
// the tiny models only.
std::vector<GoldenCase> golden_cases();
// A folder for each decoder family: config.json, model.safetensors, golden.safetensors, and model.gguf with the same
// values (scripts/make_family_vectors.py). Each is a golden case, as folder and as GGUF.
std::vector<std::string> family_names();
std::filesystem::path family_folder(const std::string& name);
// Likewise for each family of encoders (scripts/make_encoder_vectors.py): ids, hidden, embedding. GGUF where it has
// one.
std::vector<std::string> encoder_names();
std::filesystem::path encoder_folder(const std::string& name);
// Empty when BATON_MODELS_EXTRA is not set.
std::filesystem::path extra_folder();
std::filesystem::path data_folder();

// Largest absolute difference; infinity when a value is not finite or the sizes differ.
float max_abs_difference(std::span<const float> a, std::span<const float> b);
// Difference of the two largest values.
float top2_gap(std::span<const float> logits);
int32_t argmax(std::span<const float> logits);

// The logits behind the last token of `ids`: N-1 tokens prefilled in chunks of `chunk` (0: in one go), then one
// decoded.
std::vector<float> last_logits(Executor& executor, std::span<const int32_t> ids, size_t chunk, SequenceState& state);

// Greedy continuation.
std::vector<int32_t> greedy(Executor& executor, SequenceState& state, std::vector<float> logits, size_t count);

// The most common type of the model's matrices: what tolerances are stated for.
DType main_type(const Model& model);

}  // namespace baton::test
