// GGUF bytes from anywhere: parsed or refused, and every tensor that is offered lies inside the bytes.
#include <cstdint>

#include "baton/base/bytes.h"
#include "baton/model/container.h"

namespace {

// Reads the ends of everything, so that a view outside the bytes is found by the address sanitizer.
unsigned touch(const baton::Container& container) {
  unsigned sum = 0;
  for (const baton::TensorView& tensor : container.tensors) {
    BATON_CHECK(tensor.data.size() * baton::format_of(tensor.dtype).block_elements ==
                tensor.elements() * baton::format_of(tensor.dtype).block_bytes);
    sum += static_cast<unsigned>(tensor.data.front()) + static_cast<unsigned>(tensor.data.back());
    BATON_CHECK(container.find(tensor.name) == &tensor);
  }
  for (const auto& [key, value] : container.gguf.entries) {
    BATON_CHECK(container.gguf.find(key) == &value);
    if (const auto* text = std::get_if<std::string_view>(&value); text != nullptr && !text->empty()) {
      sum += static_cast<unsigned char>(text->back());
    }
    const auto array = container.gguf.array(key);
    if (!array || *array == nullptr) continue;
    if (const auto* texts = std::get_if<std::vector<std::string_view>>(&(*array)->items)) {
      for (const std::string_view text : *texts) sum += text.empty() ? 0 : static_cast<unsigned char>(text.back());
    }
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  baton::Container container;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  if (baton::parse_gguf(bytes, "input", container)) {
    volatile unsigned sum = touch(container);
    static_cast<void>(sum);
  }
  return 0;
}
