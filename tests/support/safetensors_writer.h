// Writes a safetensors file from f32 tensors: what tests use to make folders in other conventions.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace baton::test {

struct FloatTensor {
  std::string name;
  std::vector<uint64_t> shape;
  std::vector<float> values;
};

// All tensors of a folder's safetensors files, decoded to f32.
std::vector<FloatTensor> read_float_tensors(const std::filesystem::path& folder);
void write_safetensors(const std::filesystem::path& file, const std::vector<FloatTensor>& tensors);

}  // namespace baton::test
