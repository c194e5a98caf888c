// safetensors bytes from anywhere: parsed or refused, and every tensor that is offered lies inside the bytes.
#include <cstdint>

#include "baton/base/bytes.h"
#include "baton/model/container.h"

namespace {

// Reads the ends of everything, so that a view outside the bytes is found by the address sanitizer.
unsigned touch(const baton::Container& container) {
  unsigned sum = 0;
  for (const baton::TensorView& tensor : container.tensors) {
    BATON_CHECK(tensor.data.size() == tensor.elements() * baton::format_of(tensor.dtype).block_bytes);
    sum += static_cast<unsigned>(tensor.data.front()) + static_cast<unsigned>(tensor.data.back());
    BATON_CHECK(container.find(tensor.name) == &tensor);
  }
  return sum;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  baton::Container container;
  const std::span<const std::byte> bytes(reinterpret_cast<const std::byte*>(data), size);
  if (baton::parse_safetensors(bytes, "input", container)) {
    volatile unsigned sum = touch(container);
    static_cast<void>(sum);
  }
  return 0;
}
