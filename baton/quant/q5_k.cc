// Q5_K: 256 values in 176 bytes. f16 d; f16 dmin; u8 pairs[12]; u8 high[32]; u8 q[128]. As Q4_K; the fifth bit of
// element l of the first half of 64-group g is bit 2g of high[l], of the second half bit 2g + 1. value = d*sc*q -
// dmin*m.
#include <array>

#include "baton/quant/codec.h"
#include "baton/quant/k_search.h"

namespace baton {
namespace {

constexpr size_t kBytes = kBlockBytes<DType::kQ5_K>, kHighAt = 16, kCodesAt = 48;

void unpack(const std::byte* block, Codes& to) {
  unpack_pairs(block, to);
  for (size_t pair = 0; pair < 4; ++pair) unpack_nibbles<32>(block + kCodesAt + 32 * pair, to.codes + 64 * pair);
  for (size_t e = 0; e < kSuperBlock; e += 8) {  // eight codes at a time
    const auto high = load_as<uint64_t>(block + kHighAt + e % 32) >> (e / 32) & 0x0101010101010101;
    store_as(to.codes + e, load_as<uint64_t>(to.codes + e) | high << 4);
  }
}

void pack(const uint8_t* codes, std::byte* block) {
  for (size_t pair = 0; pair < 4; ++pair) pack_nibbles<32>(codes + 64 * pair, block + kCodesAt + 32 * pair);
  std::fill_n(block + kHighAt, 32, std::byte{0});
  for (size_t e = 0; e < kSuperBlock; ++e) {
    block[kHighAt + e % 32] |= static_cast<std::byte>(codes[e] >> 4 << (e / 32));
  }
}

void encode_weighted(const float* from, const float* importance, std::byte* to, size_t count) {
  encode_pairs({31, -0.5f, 15, kBytes, pack}, from, importance, to, count);
}
void encode(const float* from, std::byte* to, size_t count) { encode_weighted(from, nullptr, to, count); }

}  // namespace

template <>
Codec codec<DType::kQ5_K>() {
  return codec_of<DType::kQ5_K, unpack>(encode, encode_weighted);
}

}  // namespace baton
