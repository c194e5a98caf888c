// Float tensors in and out of safetensors.
#include "tests/support/safetensors_writer.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "baton/model/container.h"

namespace baton::test {

std::vector<FloatTensor> read_float_tensors(const std::filesystem::path& folder) {
  std::vector<FloatTensor> out;
  const auto container = open_container(folder);
  if (!container) {
    ADD_FAILURE() << container.error().message;
    return out;
  }
  for (const TensorView& tensor : container->tensors) {
    FloatTensor copy{std::string(tensor.name), tensor.shape, std::vector<float>(tensor.elements())};
    format_of(tensor.dtype).decode(tensor.data.data(), copy.values.data(), copy.values.size());
    out.push_back(std::move(copy));
  }
  return out;
}

void write_safetensors(const std::filesystem::path& file, const std::vector<FloatTensor>& tensors) {
  nlohmann::ordered_json header;
  uint64_t offset = 0;
  for (const FloatTensor& tensor : tensors) {
    const uint64_t bytes = tensor.values.size() * sizeof(float);
    header[tensor.name] = {{"dtype", "F32"}, {"shape", tensor.shape}, {"data_offsets", {offset, offset + bytes}}};
    offset += bytes;
  }
  const std::string text = header.dump();
  const uint64_t length = text.size();
  std::ofstream out(file, std::ios::binary);
  out.write(reinterpret_cast<const char*>(&length), 8);
  out << text;
  for (const FloatTensor& tensor : tensors) {
    out.write(reinterpret_cast<const char*>(tensor.values.data()),
              static_cast<std::streamsize>(tensor.values.size() * sizeof(float)));
  }
}

}  // namespace baton::test
