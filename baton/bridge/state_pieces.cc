// The search for values that are no numbers.
#include "baton/bridge/state_pieces.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "baton/state/values.h"

namespace baton {

const std::byte* with_nan(const std::byte* values, uint64_t bytes, std::vector<std::byte>& piece) {
  if (values != piece.data()) piece.assign(values, values + bytes);
  std::memset(piece.data(), 0xff, std::min<uint64_t>(bytes, sizeof(float)));
  return piece.data();
}

Status check_sound(const Segment& segment, uint64_t tokens, RowRange rows, std::span<const std::byte> values) {
  auto bad = first_not_finite(values, segment.dtype);
  std::string_view why = "the unit that made it failed";
  if (!bad && tokens == 0) {
    bad = first_not_zero(values, segment.dtype);
    why = "a sequence of no tokens holds zeros";
  }
  if (!bad) return {};
  return fail(Code::kCorrupt,
              fmt::format("state: {}: value {} is {}: {}, make it again", name_of(segment),
                          rows.first * segment.dims[2] + index_in_rows(segment.dtype, segment.dims[2], *bad),
                          value_at(values, segment.dtype, *bad), why));
}

}  // namespace baton
