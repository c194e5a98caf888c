// open_seal on arbitrary bytes for a fixed receiver. The first byte selects: bit 0, make the checksums right first, so
// that what lies behind them is reached; bit 1, expect a prompt; the rest, how the stream is cut. What is accepted must
// be what the receiver asked for, and as a stream the same.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <vector>

#include "baton/state/seal_stream.h"
#include "baton/state/values.h"
#include "tests/support/fake_state.h"
#include "tests/support/reseal.h"

namespace baton {
namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

void check_accepted(const SealedView& view, const SealExpectation& expected, std::span<const std::byte> block) {
  require(view.identity == expected.identity && view.position <= expected.position_max);
  require(view.tokens.size() == view.position && view.sections.size() == expected.shape->segments.size());
  uint64_t covered = 0;
  for (size_t i = 0; i < view.sections.size(); ++i) {
    const SealedSection& section = view.sections[i];
    const Segment& segment = expected.shape->segments[i];
    require(section.kind == segment.kind && section.layer == segment.layer);
    require(section.dims == dims_at(segment, view.position));
    uint64_t bytes = 0;
    require(dense_bytes(section.dims, section.dtype, &bytes) && section.bytes.size() == bytes);
    require(section.bytes.data() >= block.data() && section.bytes.data() + bytes <= block.data() + block.size());
    require(!first_not_finite(section.bytes, section.dtype));
    covered += bytes;
  }
  require(covered < block.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const StateShape layout = state_shape(test::fake_program(2, 2, 1, 2, 2, 2, 1, 4), DType::kF16);
  const std::vector<int32_t> prompt{11, 22, 33, 44};
  SealExpectation expected{{0x1111222233334444, 0x5555666677778888, 0x9999aaaabbbbcccc}, &layout, nullptr, 8, 100};
  if ((data[0] & 2) != 0) expected.tokens = &prompt;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  std::vector<std::byte> block(bytes + 1, bytes + size);
  if ((data[0] & 1) != 0) test::reseal(block);
  const auto view = open_seal(block, expected);
  require(view.has_value() || !view.error().message.empty());
  if (view) check_accepted(*view, expected, block);
  // The same in pieces, as a stream of unknown length: the same verdict.
  SealReader reader(expected, nullptr, (data[0] & 4) != 0 ? block.size() : 0);
  const uint64_t cut = 1 + data[0] / 8;
  const Status took = SealSource::borrowed(block).give([&](uint64_t offset, std::span<const std::byte> part) -> Status {
    for (uint64_t at = 0; at < part.size(); at += cut)
      BATON_OK(reader.take(offset + at, part.subspan(at, std::min<uint64_t>(cut, part.size() - at))));
    return {};
  });
  const auto streamed = reader.finish();
  require(streamed.has_value() == view.has_value() && (took || !streamed));
  if (view) require(streamed->tokens == view->tokens && streamed->provenance == view->provenance);
  // Pieces in an order that the bytes choose.
  SealReader shuffled(expected);
  uint64_t at = 0;
  for (const std::byte b : block) {
    const uint64_t part = std::min<uint64_t>(std::to_integer<uint64_t>(b), block.size() - at);
    if (!shuffled.take(at, std::span(block).subspan(at, part))) break;
    at = part % 5 == 0 ? 0 : at + part;
  }
  static_cast<void>(shuffled.finish());
  return 0;
}

}  // namespace baton
