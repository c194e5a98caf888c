// What a format's file gives to the table in format.cc: its decoder and, when this project can write it, its encoder.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/quant/format.h"

namespace baton {

struct Codec {
  void (*decode)(const std::byte* from, float* to, size_t count);
  void (*encode)(const float* from, std::byte* to, size_t count);  // null: read only
  // A row, with a weight for each of its values; null: the format does not use weights.
  void (*encode_weighted)(const float* from, const float* importance, std::byte* to, size_t count) = nullptr;
};

// Defined once per format, in its file.
template <DType kType>
Codec codec();
#define BATON_FORMAT(name, ...) \
  template <>                   \
  Codec codec<DType::k##name>();
#include "baton/quant/format_list.inc"
#undef BATON_FORMAT

inline uint8_t u8_at(const std::byte* from, size_t index) { return static_cast<uint8_t>(from[index]); }
inline float f16_at(const std::byte* from) { return f16_to_f32(load_as<uint16_t>(from)); }
inline void store_f16(std::byte* to, float value) { store_as<uint16_t>(to, f32_to_f16(value)); }

// Toward zero, into [low, high]; NaN becomes `low`: damaged weights must not be undefined behaviour.
inline int truncate_to(float value, int low, int high) {
  if (!(value > static_cast<float>(low))) return low;
  return value < static_cast<float>(high) ? static_cast<int>(value) : high;
}

// 1/d, or 0 for an all-zero block: the older formats multiply by the reciprocal, and the last bit depends on it.
inline float reciprocal_or_zero(float d) { return d != 0.0f ? 1.0f / d : 0.0f; }

}  // namespace baton
