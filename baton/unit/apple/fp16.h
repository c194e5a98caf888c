// Half precision without branches: the same results as base/float.h in forms that compilers turn into vector code.
#pragma once

#include <bit>
#include <cstdint>

namespace baton::apple {

inline constexpr float kFp16Max = 65504.0f;
inline constexpr float kFp16NormalMin = 0x1p-14f;

// All ones when the condition holds: choices are made with masks, because a conditional floating-point operation keeps
// compilers from using vectors.
inline uint32_t mask_if(bool condition) { return 0u - static_cast<uint32_t>(condition); }
inline uint32_t choose(uint32_t mask, uint32_t yes, uint32_t no) { return (yes & mask) | (no & ~mask); }

// Round to nearest even; overflow to infinity; NaN stays NaN.
inline uint16_t to_fp16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = u & 0x7fffffffu;
  const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // Adding 0.5 aligns the bits so that the FPU does the denormal rounding.
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
  uint32_t out = choose(mask_if(magnitude < 0x38800000u), small, normal);
  out = choose(mask_if(magnitude >= 0x477ff000u), 0x7c00u, out);
  out = choose(mask_if(magnitude > 0x7f800000u), 0x7e00u, out);
  return static_cast<uint16_t>(((u >> 16) & 0x8000u) | out);
}

inline float from_fp16(uint16_t bits) {
  const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
  const uint32_t magnitude = bits & 0x7fffu;
  const uint32_t finite = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude << 13) * 0x1p112f);
  const uint32_t special = 0x7f800000u | (magnitude & 0x3ffu) << 13;
  return std::bit_cast<float>(sign | choose(mask_if(magnitude >= 0x7c00u), special, finite));
}

// from_fp16(to_fp16(value)).
inline float round_to_fp16(float value) {
  const uint32_t u = std::bit_cast<uint32_t>(value);
  const uint32_t magnitude = u & 0x7fffffffu;
  const uint32_t normal = (magnitude + 0xfffu + ((magnitude >> 13) & 1u)) & ~0x1fffu;
  const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f - 0.5f);
  uint32_t out = choose(mask_if(magnitude < 0x38800000u), small, normal);
  out = choose(mask_if(magnitude >= 0x477ff000u), 0x7f800000u, out);
  out = choose(mask_if(magnitude > 0x7f800000u), 0x7fc00000u, out);
  return std::bit_cast<float>((u & 0x80000000u) | out);
}

}  // namespace baton::apple
