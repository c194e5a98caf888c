// What the reader and the writer of GGUF files share: the value types of metadata, by their numbers in a file.
#pragma once

#include <cstdint>

namespace baton::gguf {

inline constexpr uint64_t kTensorNameBytesMax = 63;  // by ggml

enum ValueType : uint32_t { kU8, kI8, kU16, kI16, kU32, kI32, kF32, kBool, kString, kArray, kU64, kI64, kF64, kTypes };

}  // namespace baton::gguf
