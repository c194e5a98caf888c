// Anonymous memory straight from the system: zeroed, page-aligned, returned on destruction.
#pragma once

#include <cstddef>
#include <utility>

#include "baton/base/status.h"

namespace baton::host {

// What is asked of the system. Huge pages for what is touched whole; small ones for what is touched here and there: a
// huge page is zeroed whole at its first byte.
enum class Pages { kHuge, kSmall };
inline constexpr size_t kHugePage = size_t{2} << 20;

class Memory {
 public:
  Memory() = default;
  // kOutOfMemory names `unit`, `what` and the size. Pages become resident when first touched.
  static Result<Memory> allocate(size_t bytes, std::string_view what, std::string_view unit,
                                 Pages pages = Pages::kHuge);
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

  // Lets the system have the pages that lie whole in [data, data + bytes), of some Memory, which are zero: they are
  // when they are touched again.
  static void forget(unsigned char* data, size_t bytes);

 private:
  unsigned char* data_ = nullptr;
  size_t bytes_ = 0;
};

}  // namespace baton::host
