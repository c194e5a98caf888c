// Written and compared.
#include "baton/bridge/segment_fill.h"

#include <fmt/format.h>

#include <cstring>

#include "baton/base/fault.h"
#include "baton/bridge/convert.h"
#include "baton/state/values.h"

namespace baton {

namespace {

const float* floats_of(std::span<const std::byte> values) { return reinterpret_cast<const float*>(values.data()); }

}  // namespace

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

// Through f32 where either type has blocks, row by row; else value by value.
Result<std::span<const std::byte>> SegmentFill::convert(RowRange rows, std::span<const std::byte> values,
                                                        FillScratch& scratch) {
  const uint64_t columns = plan_.from.dims[2], count = rows.count * columns;
  DType from = plan_.from.dtype;
  const auto widen = [&](auto fill) {
    scratch.floats.resize(count);
    fill(scratch.floats.data());
    from = DType::kF32;
    values = std::as_bytes(std::span(scratch.floats));
  };
  if (in_blocks(from)) widen([&](float* to) { decode_rows(plan_.from.dtype, values.data(), columns, rows.count, to); });
  BATON_OK(check_range(rows, values, from));
  if (from == plan_.to) return values;
  std::vector<std::byte>& converted = scratch.converted;
  converted.resize(rows.count * row_bytes_of(plan_.to, columns));
  if (!in_blocks(plan_.to)) {
    convert_run(values.data(), from, converted.data(), plan_.to, count);
    return converted;
  }
  if (from != DType::kF32) {
    widen([&, given = from](float* to) {
      convert_run(values.data(), given, reinterpret_cast<std::byte*>(to), DType::kF32, count);
    });
  }
  encode_rows(plan_.to, floats_of(values), columns, rows.count, converted.data());
  if (const auto over = first_not_finite(converted, plan_.to))
    return too_large(rows.first + *over / padded_columns(plan_.to, columns));
  return converted;
}

Status SegmentFill::put(RowRange rows, std::span<const std::byte> values) {
  if (plan_.kind() == MoveKind::kConvert) {
    BATON_TRY(values, convert(rows, values, own_));
  }
  const uint64_t piece = into_.piece_bytes();
  if (piece <= kStatePieceBytes) return write(rows, values, own_);
  const bool follows = rows.first == waiting_rows_.first + waiting_rows_.count;
  if (!follows || waiting_.size() + values.size() > piece) BATON_OK(flush());
  if (values.size() >= piece) return write(rows, values, own_);
  if (waiting_rows_.count == 0) waiting_rows_.first = rows.first;
  waiting_rows_.count += rows.count;
  waiting_.insert(waiting_.end(), values.begin(), values.end());
  return {};
}

Status SegmentFill::put_beside(RowRange rows, std::span<const std::byte> values, FillScratch& scratch) {
  if (plan_.kind() == MoveKind::kConvert) {
    BATON_TRY(values, convert(rows, values, scratch));
  }
  return write(rows, values, scratch);
}

Status SegmentFill::flush() {
  if (waiting_rows_.count == 0) return {};
  const Status written = write(waiting_rows_, waiting_, own_);
  waiting_rows_ = {};
  waiting_.clear();
  return written;
}

Status SegmentFill::write(RowRange rows, std::span<const std::byte> values, FillScratch& scratch) {
  if (BATON_FAULT(kMoveWrite)) return fail(Code::kDevice, "a fault was asked for: the state cannot be written");
  std::span<const std::byte> written = values;
  std::vector<std::byte> damaged;
  if (BATON_FAULT(kMoveDamage)) {
    damaged.assign(values.begin(), values.end());
    damaged[damaged.size() / 2] ^= std::byte{1};
    written = damaged;
  }
  BATON_OK(into_.write(index_, rows, written.data()));
  BATON_TRY(const std::byte* back, rows_of(into_, index_, rows, values.size(), scratch.back));
  if (std::memcmp(back, values.data(), values.size()) == 0) return {};
  return not_back(rows);
}

tl::unexpected<Error> SegmentFill::not_back(RowRange rows) const {
  return fail(Code::kCorrupt, fmt::format("bridge: {}: rows {} to {} do not come back as they were written: the unit "
                                          "or its memory is at fault",
                                          name_of(plan_.from), rows.first, rows.first + rows.count - 1));
}

Status SegmentFill::put_staged(RowRange rows, std::span<const std::byte> values, std::byte* staged,
                               FillScratch& scratch) {
  if (BATON_FAULT(kMoveWrite)) return fail(Code::kDevice, "a fault was asked for: the state cannot be written");
  if (plan_.kind() == MoveKind::kConvert) {
    BATON_TRY(values, convert(rows, values, scratch));
  }
  std::memcpy(staged, values.data(), values.size());
  return {};
}

Status SegmentFill::check_back(RowRange rows, std::span<const std::byte> values, const std::byte* staged,
                               const std::byte* back) {
  const std::byte* const wanted = plan_.kind() == MoveKind::kCopy ? values.data() : staged;
  if (BATON_FAULT(kMoveDamage) || std::memcmp(back, wanted, bytes_there(rows.count)) != 0) return not_back(rows);
  return {};
}

Status SegmentFill::finish() {
  BATON_OK(flush());
  waiting_ = {};
  own_ = {};
  if (!too_small_ || of_size_) return {};
  return fail(Code::kUnsupported,
              fmt::format("bridge: {}: all values are too small for {}: decode on the unit that prefilled",
                          name_of(plan_.from), to_string(plan_.to)));
}

tl::unexpected<Error> SegmentFill::too_large(uint64_t row) const {
  return fail(Code::kUnsupported,
              fmt::format("bridge: {}: row {} has values of more than {} can hold: decode on the unit that prefilled",
                          name_of(plan_.from), row, to_string(plan_.to)));
}

Status SegmentFill::check_range(RowRange rows, std::span<const std::byte> values, DType from) {
  if (const auto over = first_overflow(values, from, plan_.to)) {
    return fail(Code::kUnsupported,
                fmt::format("bridge: {}: value {} is {}, more than {} can hold: decode on the unit that prefilled",
                            name_of(plan_.from), rows.first * plan_.from.dims[2] + *over, value_at(values, from, *over),
                            to_string(plan_.to)));
  }
  if (of_size_) return {};
  if (all_underflow(values, from, plan_.to)) {
    too_small_.raise();
  } else if (first_not_zero(values, from)) {
    of_size_.raise();
  }
  return {};
}

}  // namespace baton
