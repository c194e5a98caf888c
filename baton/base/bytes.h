// Bounds-checked reading of untrusted little-endian bytes, and arithmetic that reports overflow.
// Every file reader goes through these: count <= remaining bytes / minimum element size, before any allocation.
#pragma once

#include <bit>
#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

#include "baton/base/status.h"

namespace baton {

static_assert(std::endian::native == std::endian::little, "file formats are read in place: little-endian hosts only");

// False when the result does not fit; *out is then unspecified.
template <std::integral T>
[[nodiscard]] bool checked_mul(T a, T b, T* out) {
  return !__builtin_mul_overflow(a, b, out);
}
template <std::integral T>
[[nodiscard]] bool checked_add(T a, T b, T* out) {
  return !__builtin_add_overflow(a, b, out);
}

// `alignment` is a power of two. False when the result does not fit.
[[nodiscard]] inline bool checked_align(uint64_t value, uint64_t alignment, uint64_t* out) {
  if (!checked_add<uint64_t>(value, alignment - 1, out)) return false;
  *out &= ~(alignment - 1);
  return true;
}

inline std::span<const std::byte> as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::byte*>(text.data()), text.size()};
}
inline std::string_view as_text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

// Unaligned loads and stores.
template <class T>
T load_as(const void* from) {
  static_assert(std::is_trivially_copyable_v<T>);
  T value;
  std::memcpy(&value, from, sizeof(T));
  return value;
}
template <class T>
void store_as(void* to, T value) {
  std::memcpy(to, &value, sizeof(T));
}

// A cursor over borrowed bytes. Each read fails with the offset and what was wanted; the cursor then stays put.
class ByteReader {
 public:
  explicit ByteReader(std::span<const std::byte> bytes, uint64_t offset = 0) : bytes_(bytes), offset_(offset) {}

  uint64_t offset() const { return offset_; }
  uint64_t size() const { return bytes_.size(); }
  uint64_t remaining() const { return offset_ <= bytes_.size() ? bytes_.size() - offset_ : 0; }

  template <class T>
  Result<T> read(std::string_view what) {
    static_assert(std::is_arithmetic_v<T>);
    BATON_TRY(const auto bytes, take(sizeof(T), what));
    return load_as<T>(bytes.data());
  }
  // `count` bytes, borrowed.
  Result<std::span<const std::byte>> take(uint64_t count, std::string_view what);
  // u64 length, then that many bytes (GGUF), borrowed. Refused when longer than `bytes_max`.
  Result<std::string_view> read_string(std::string_view what, uint64_t bytes_max);
  // A count of elements of at least `element_bytes_min` bytes each, refused when they cannot be in what remains.
  Result<uint64_t> read_count(std::string_view what, uint64_t element_bytes_min);

 private:
  std::span<const std::byte> bytes_;
  uint64_t offset_;
};

}  // namespace baton
