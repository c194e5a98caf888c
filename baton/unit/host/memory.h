// Anonymous memory straight from the system: zeroed, page-aligned, huge pages asked for, returned on destruction.
#pragma once

#include <cstddef>
#include <utility>

#include "baton/base/status.h"

namespace baton::host {

class Memory {
 public:
  Memory() = default;
  // kOutOfMemory names `unit`, `what` and the size. Pages become resident when first touched.
  static Result<Memory> allocate(size_t bytes, std::string_view what, std::string_view unit);
  Memory(Memory&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
  Memory& operator=(Memory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~Memory();

  unsigned char* data() const { return data_; }
  float* floats() const { return reinterpret_cast<float*>(data_); }
  size_t bytes() const { return bytes_; }

 private:
  unsigned char* data_ = nullptr;
  size_t bytes_ = 0;
};

// Memory of things that are gone, for the next ones of about their size: where a virtual machine must find each page
// first, the pages of a new state took a third of the prefill of 128 tokens. Thread-safe; keeps the last few.
class Recycled {
 public:
  // Not zeroed when `used`. As Memory::allocate otherwise.
  static Result<Memory> take(size_t bytes, std::string_view what, std::string_view unit, bool* used);
  static void give(Memory memory);
};

}  // namespace baton::host
