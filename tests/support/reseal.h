// Sealed states of chosen values, and changed ones whose checksums are made right again, as a faulty writer or an
// attacker would: the checks behind the checksums can then be tested.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/state/seal_stream.h"

namespace baton::test {

// value(section) is asked for each value of each section in order.
template <class Value>
std::vector<std::byte> sealed_block(const StateIdentity& identity, const std::vector<int32_t>& tokens,
                                    const StateShape& shape, const Provenance& provenance, Value value) {
  const auto give = [&](const SealSink& sink) -> Status {
    SealWriter writer(identity, tokens, shape, provenance, sink);
    BATON_OK(writer.begin());
    for (size_t i = 0; i < shape.segments.size(); ++i) {
      const Dims dims = dims_at(shape.segments[i], tokens.size());
      const DType type = shape.segments[i].dtype;
      std::vector<std::byte> values(dims[0] * dims[1] * dims[2] * value_bytes(type));
      for (size_t at = 0; at < values.size(); at += value_bytes(type)) {
        const float next = value(i);
        if (type == DType::kF32)
          store_as<float>(&values[at], next);
        else
          store_as<uint16_t>(&values[at], type == DType::kF16 ? f32_to_f16(next) : f32_to_bf16(next));
      }
      BATON_OK(writer.add(i, values));
    }
    return writer.finish();
  };
  return SealSource(sealed_bytes(shape, tokens.size(), provenance), give).block().value();
}

// Works from the offsets of docs/state_format.md, on any bytes: sums tokens, sections and header where they lie inside
// the block; what does not is left as it is.
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
