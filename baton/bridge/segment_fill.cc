// Written and compared.
#include "baton/bridge/segment_fill.h"

#include <fmt/format.h>

#include <cstring>

#include "baton/base/fault.h"
#include "baton/bridge/convert.h"
#include "baton/state/values.h"

namespace baton {

Result<BridgePlan> plan_move(const StateShape& from, uint64_t tokens, const SequenceState& to) {
  BATON_TRY(BridgePlan plan, plan_bridge(from, to.shape()));
  if (tokens <= to.tokens_max()) return plan;
  return fail(Code::kMismatch,
              fmt::format("bridge: a state at position {} does not fit one of {} tokens", tokens, to.tokens_max()));
}

Result<const std::byte*> rows_of(const SequenceState& state, size_t index, RowRange rows, uint64_t bytes,
                                 std::vector<std::byte>& piece) {
  if (const std::byte* here = state.view(index, rows)) return here;
  piece.resize(bytes);
  BATON_OK(state.read(index, rows, piece.data()));
  return piece.data();
}

Status SegmentFill::put(RowRange rows, std::span<const std::byte> values) {
  BATON_OK(check_range(rows, values));
  const uint64_t count = rows.count * plan_.from.dims[2];
  if (plan_.kind() == MoveKind::kConvert) {
    converted_.resize(count * value_bytes(plan_.to));
    convert_run(values.data(), plan_.from.dtype, converted_.data(), plan_.to, count);
    values = converted_;
  }
  if (BATON_FAULT(kMoveWrite)) return fail(Code::kDevice, "a fault was asked for: the state cannot be written");
  std::span<const std::byte> written = values;
  std::vector<std::byte> damaged;
  if (BATON_FAULT(kMoveDamage)) {
    damaged.assign(values.begin(), values.end());
    damaged[damaged.size() / 2] ^= std::byte{1};
    written = damaged;
  }
  BATON_OK(into_.write(index_, rows, written.data()));
  BATON_TRY(const std::byte* back, rows_of(into_, index_, rows, values.size(), back_));
  if (std::memcmp(back, values.data(), values.size()) == 0) return {};
  return fail(Code::kCorrupt, fmt::format("bridge: {}: rows {} to {} do not come back as they were written: the unit "
                                          "or its memory is at fault",
                                          name_of(plan_.from), rows.first, rows.first + rows.count - 1));
}

Status SegmentFill::finish() const {
  if (!too_small_ || of_size_) return {};
  return fail(Code::kUnsupported,
              fmt::format("bridge: {}: all values are too small for {}: decode on the unit that prefilled",
                          name_of(plan_.from), to_string(plan_.to)));
}

Status SegmentFill::check_range(RowRange rows, std::span<const std::byte> values) {
  const DType from = plan_.from.dtype;
  if (const auto over = first_overflow(values, from, plan_.to)) {
    return fail(Code::kUnsupported,
                fmt::format("bridge: {}: value {} is {}, more than {} can hold: decode on the unit that prefilled",
                            name_of(plan_.from), rows.first * plan_.from.dims[2] + *over, value_at(values, from, *over),
                            to_string(plan_.to)));
  }
  if (of_size_) return {};
  if (all_underflow(values, from, plan_.to)) {
    too_small_ = true;
  } else {
    of_size_ = first_not_zero(values, from).has_value();
  }
  return {};
}

}  // namespace baton
