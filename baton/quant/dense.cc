// F32, F16 and BF16: one value per block, little-endian. bf16 is the upper half of an f32.
#include <cstring>

#include "baton/quant/codec.h"

namespace baton {
namespace {

void decode_f32(const std::byte* from, float* to, size_t count) { std::memcpy(to, from, count * sizeof(float)); }
void encode_f32(const float* from, std::byte* to, size_t count) { std::memcpy(to, from, count * sizeof(float)); }

void decode_f16(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = f16_to_f32(load_as<uint16_t>(from + 2 * i));
}
void encode_f16(const float* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t i = 0; i < count; ++i) store_as<uint16_t>(to + 2 * i, f32_to_f16(from[i]));
}

void decode_bf16(const std::byte* __restrict from, float* __restrict to, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] = bf16_to_f32(load_as<uint16_t>(from + 2 * i));
}
void encode_bf16(const float* __restrict from, std::byte* __restrict to, size_t count) {
  for (size_t i = 0; i < count; ++i) store_as<uint16_t>(to + 2 * i, f32_to_bf16(from[i]));
}

}  // namespace

template <>
Codec codec<DType::kF32>() {
  return {nullptr, decode_f32, encode_f32};
}
template <>
Codec codec<DType::kF16>() {
  return {nullptr, decode_f16, encode_f16};
}
template <>
Codec codec<DType::kBF16>() {
  return {nullptr, decode_bf16, encode_bf16};
}

}  // namespace baton
