// MLX's affine formats: a group of 32, 64 or 128 values in 8 + group * bits / 8 bytes. f32 scale; f32 bias; codes of 2,
// 3, 4, 5, 6 or 8 bits as one stream, lowest bit first: code e is bits [e * bits, (e + 1) * bits). value = scale * q +
// bias; the scale may be negative. Files hold the three parts apart and scale and bias in the model's type
// (model/mlx_weights.h joins them); f32 holds all of those types exactly.
#include <cstring>
#include <limits>

#include "baton/quant/codec.h"

namespace baton {
namespace {

constexpr size_t kCodesAt = 8;

// Eight codes take `Bits` bytes.
template <int Bits, size_t Group>
void unpack(const std::byte* block, Codes& to) {
  to.d = load_as<uint32_t>(block);
  to.m = load_as<uint32_t>(block + 4);
  for (size_t e = 0; e < Group; e += 8) {
    uint64_t eight = 0;
    std::memcpy(&eight, block + kCodesAt + e / 8 * Bits, Bits);
    for (size_t i = 0; i < 8; ++i) to.codes[e + i] = static_cast<uint8_t>(eight >> (Bits * i) & ((1u << Bits) - 1));
  }
}

// MLX's quantiser: the range's steps, moved so that the end of larger magnitude is a whole number of them.
template <int Bits, size_t Group>
void encode(const float* __restrict from, std::byte* __restrict to, size_t count) {
  constexpr float kSteps = (1 << Bits) - 1;
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (size_t group = 0; group < count / Group; ++group, from += Group, to += kCodesAt + Group * Bits / 8) {
    float lowest = kInfinity, highest = -kInfinity;
    for (size_t e = 0; e < Group; ++e) {
      lowest = std::min(lowest, from[e]);
      highest = std::max(highest, from[e]);
    }
    const bool from_below = std::abs(lowest) > std::abs(highest);
    float scale = std::max((highest - lowest) / kSteps, 1e-7f);
    if (!from_below) scale = -scale;
    const float edge = from_below ? lowest : highest;
    const float whole = std::rint(edge / scale);
    const float bias = whole != 0 ? edge : 0;
    if (whole != 0) scale = edge / whole;
    store_as(to, scale);
    store_as(to + 4, bias);
    std::byte* codes = to + kCodesAt;
    for (size_t e = 0; e < Group; e += 8, codes += Bits) {
      uint64_t eight = 0;
      for (size_t i = 0; i < 8; ++i) {
        const int q = truncate_to(std::rint((from[e + i] - bias) / scale), 0, (1 << Bits) - 1);
        eight |= static_cast<uint64_t>(q) << (Bits * i);
      }
      std::memcpy(codes, &eight, Bits);
    }
  }
}

}  // namespace

#define BATON_MLX(bits, group)                                                               \
  template <>                                                                                \
  Codec codec<DType::kMLX##bits##_G##group>() {                                              \
    return codec_of<DType::kMLX##bits##_G##group, unpack<bits, group>>(encode<bits, group>); \
  }
#define BATON_MLX_GROUPS(bits) BATON_MLX(bits, 32) BATON_MLX(bits, 64) BATON_MLX(bits, 128)
BATON_MLX_GROUPS(2)
BATON_MLX_GROUPS(3)
BATON_MLX_GROUPS(4)
BATON_MLX_GROUPS(5)
BATON_MLX_GROUPS(6)
BATON_MLX_GROUPS(8)
#undef BATON_MLX_GROUPS
#undef BATON_MLX

}  // namespace baton
