// Q4_K: 256 values in 144 bytes. f16 d; f16 dmin; u8 pairs[12]; u8 q[128]. Eight sub-blocks of 32 with a 6-bit scale
// and min each (k_search.h); per 64 values 32 bytes: low nibbles the first 32, high nibbles the next. value = d*sc*q -
// dmin*m.
#include <array>

#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kBytes = kBlockBytes<DType::kQ4_K>, kCodesAt = 16;

void unpack(const std::byte* block, Codes& to) {
  unpack_pairs(block, to);
  for (size_t pair = 0; pair < 4; ++pair) unpack_nibbles<32>(block + kCodesAt + 32 * pair, to.codes + 64 * pair);
}

void pack(const uint8_t* codes, std::byte* block) {
  for (size_t pair = 0; pair < 4; ++pair) pack_nibbles<32>(codes + 64 * pair, block + kCodesAt + 32 * pair);
}

void encode_weighted(const float* from, const float* importance, std::byte* to, size_t count) {
  encode_pairs({15, -1.0f, 20, kBytes, pack}, from, importance, to, count);
}
void encode(const float* from, std::byte* to, size_t count) { encode_weighted(from, nullptr, to, count); }

}  // namespace

template <>
Codec codec<DType::kQ4_K>() {
  return codec_of<DType::kQ4_K, unpack>(encode, encode_weighted);
}

}  // namespace baton
