// Branch-free conversions of finite values, written so that the compiler vectorises them. base/float.h has the general
// ones; the tests compare both over all 2^16 halves and over random floats.
#include "baton/bridge/convert.h"

#include <bit>
#include <cstdint>
#include <cstring>

#include "baton/base/bytes.h"
#include "baton/state/shape.h"

namespace baton {
namespace {

struct F32 {
  using Bits = uint32_t;
  static float widen(Bits bits) { return std::bit_cast<float>(bits); }
  static Bits narrow(float value) { return std::bit_cast<Bits>(value); }
};

struct BF16 {
  using Bits = uint16_t;
  static float widen(Bits bits) { return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16); }
  static Bits narrow(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    return static_cast<Bits>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
  }
};

struct F16 {
  using Bits = uint16_t;
  static float widen(Bits bits) {
    const uint32_t magnitude = bits & 0x7fffu;
    // Denormals are magnitude x 2^-24; others move their exponent's bias from 15 to 127.
    const auto small = std::bit_cast<uint32_t>(static_cast<float>(static_cast<int32_t>(magnitude)) * 0x1p-24f);
    const uint32_t normal = (magnitude << 13) + 0x38000000u;
    const uint32_t sign = static_cast<uint32_t>(bits & 0x8000u) << 16;
    return std::bit_cast<float>(sign | (magnitude < 0x400u ? small : normal));
  }
  static Bits narrow(float value) {
    const auto u = std::bit_cast<uint32_t>(value);
    const uint32_t magnitude = u & 0x7fffffffu;
    // Below 2^-14 adding 0.5 aligns the bits so that the addition does the denormal rounding.
    const uint32_t small = std::bit_cast<uint32_t>(std::bit_cast<float>(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t normal = (magnitude - 0x38000000u + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
    return static_cast<Bits>(((u >> 16) & 0x8000u) | (magnitude < 0x38800000u ? small : normal));
  }
};

template <class From, class To>
void run(const std::byte* __restrict values, std::byte* __restrict out, size_t count) {
  using In = typename From::Bits;
  using Out = typename To::Bits;
  for (size_t i = 0; i < count; ++i) {
    store_as<Out>(out + i * sizeof(Out), To::narrow(From::widen(load_as<In>(values + i * sizeof(In)))));
  }
}

template <class From>
void run_to(const std::byte* values, std::byte* out, DType to, size_t count) {
  switch (to) {
    case DType::kF32:
      return run<From, F32>(values, out, count);
    case DType::kF16:
      return run<From, F16>(values, out, count);
    default:
      return run<From, BF16>(values, out, count);
  }
}

}  // namespace

void convert_run(const std::byte* values, DType from, std::byte* out, DType to, size_t count) {
  if (count == 0) return;
  if (from == to) {
    std::memcpy(out, values, count * value_bytes(from));
    return;
  }
  switch (from) {
    case DType::kF32:
      return run_to<F32>(values, out, to, count);
    case DType::kF16:
      return run_to<F16>(values, out, to, count);
    default:
      return run_to<BF16>(values, out, to, count);
  }
}

}  // namespace baton
