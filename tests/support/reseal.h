// Makes the checksums of a changed sealed state right again, as a faulty writer or an attacker would: the checks behind
// the checksums can then be tested. Works from the offsets of docs/state_format.md, on any bytes.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "baton/base/bytes.h"
#include "baton/state/checksum.h"

namespace baton::test {

// Sums tokens, sections and header where they lie inside the block; what does not is left as it is.
inline void reseal(std::span<std::byte> block) {
  constexpr uint64_t kFixed = 88, kEntry = 64, kHeaderMin = 104;
  if (block.size() < kHeaderMin) return;
  std::byte* const data = block.data();
  const auto inside = [&](uint64_t offset, uint64_t bytes) {
    return offset <= block.size() && bytes <= block.size() - offset;
  };
  const auto sum_to = [&](uint64_t offset, uint64_t bytes, std::byte* to) {
    if (inside(offset, bytes)) store_as<uint64_t>(to, checksum(block.subspan(offset, bytes)));
  };
  const auto position = load_as<uint64_t>(data + 48);
  if (position <= block.size()) sum_to(load_as<uint64_t>(data + 64), position * 4, data + 72);
  const uint64_t sections = std::min<uint64_t>(load_as<uint32_t>(data + 56), (block.size() - kHeaderMin) / kEntry);
  for (uint64_t i = 0; i < sections; ++i) {
    std::byte* const entry = data + kFixed + i * kEntry;
    sum_to(load_as<uint64_t>(entry + 40), load_as<uint64_t>(entry + 48), entry + 56);
  }
  const uint64_t header_bytes = load_as<uint32_t>(data + 12);
  if (header_bytes >= kHeaderMin && header_bytes <= block.size()) {
    sum_to(0, header_bytes - 8, data + header_bytes - 8);
  }
}

}  // namespace baton::test
