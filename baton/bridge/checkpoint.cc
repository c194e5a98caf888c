// Pages of checkpoints: made, shared, found again.
#include "baton/bridge/checkpoint.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <new>
#include <utility>

#include "baton/base/clock.h"
#include "baton/base/fault.h"
#include "baton/base/float.h"
#include "baton/bridge/segment_fill.h"
#include "baton/state/checksum.h"
#include "baton/state/values.h"

namespace baton {
namespace {

uint64_t row_bytes(const Segment& segment) { return row_bytes_of(segment.dtype, segment.dims[2]); }

tl::unexpected<Error> no_memory() {
  return fail(Code::kOutOfMemory, "bridge: no memory for a checkpoint: use a smaller state cache");
}

Status check_numbers(const Segment& segment, const std::byte* first, uint64_t bytes) {
  const std::span<const std::byte> values(first, bytes);
  const auto bad = first_not_finite(values, segment.dtype);
  if (!bad) return {};
  return fail(Code::kCorrupt,
              fmt::format("state: {}: a value is {}: the unit that made it failed, make it again",
                          segment_name(segment.kind, segment.layer), value_at(values, segment.dtype, *bad)));
}

tl::unexpected<Error> damaged(const std::string& what) {
  return fail(Code::kCorrupt,
              fmt::format("checkpoint: {} is not what was kept: the memory of this machine, or who wrote to it, is at "
                          "fault",
                          what));
}
tl::unexpected<Error> damaged_parts() { return damaged("its recurrent part"); }
tl::unexpected<Error> damaged_page(uint64_t page, uint64_t rows) {
  return damaged(fmt::format("the page of tokens {} to {}", page * kPageTokens, page * kPageTokens + rows - 1));
}

// One after the other where they stay in cache; all, so that rows of a segment follow each other, where a device gives
// and takes them in large pieces.
uint64_t pages_together(const SequenceState& state) { return state.piece_bytes() > kStatePieceBytes ? UINT64_MAX : 1; }

StateShape shape_at_rest(StateShape shape, AtRest at_rest) {
  for (Segment& segment : shape.segments) {
    if (at_rest == AtRest::kBf16 && !has_tokens_dim(segment.kind) && segment.dtype == DType::kF32)
      segment.dtype = DType::kBF16;
  }
  return shape;
}

// Whether pages of one can be pages of the other: parts lie elsewhere.
bool same_pages(const StateShape& a, const StateShape& b) {
  return std::equal(a.segments.begin(), a.segments.end(), b.segments.begin(), b.segments.end(),
                    [](const Segment& one, const Segment& other) {
                      return one == other || (!has_tokens_dim(one.kind) && one.kind == other.kind);
                    });
}

// Finite values; those beyond the largest bf16 become that.
void round_to_bf16(std::span<const float> values, std::byte* to, RoundingError& error) {
  for (const float value : values) {
    uint16_t bits = f32_to_bf16(value);
    if ((bits & 0x7fffu) == 0x7f80u) --bits;
    std::memcpy(to, &bits, sizeof bits);
    to += sizeof bits;
    const double off = std::fabs(double{bf16_to_f32(bits)} - double{value});
    if (off > 0) error.add({off, off / std::fabs(double{value})});
  }
}

}  // namespace

// A page: for each segment with a tokens dim [heads, rows, width]; or the parts without: each segment as it is.
struct CheckpointBytes {
  CheckpointBytes(std::atomic<uint64_t>& count, uint64_t size, uint64_t page_rows) : counter(count), rows(page_rows) {
    values.resize(size);
    counter += size;
  }
  ~CheckpointBytes() { counter -= values.size(); }
  CheckpointBytes(const CheckpointBytes&) = delete;
  CheckpointBytes& operator=(const CheckpointBytes&) = delete;

  std::atomic<uint64_t>& counter;
  const uint64_t rows;  // tokens in a page
  std::vector<std::byte> values;
  uint64_t sum = 0;
};

Checkpoint::Checkpoint(CheckpointMemory& memory, StateShape shape, uint64_t tokens)
    : SequenceState(tokens, memory.live_), memory_(memory), shape_(std::move(shape)) {
  for (const Segment& segment : shape_.segments) {
    if (has_tokens_dim(segment.kind)) {
      offsets_.push_back(token_bytes_);
      token_bytes_ += segment.dims[0] * row_bytes(segment);
    } else {
      offsets_.push_back(parts_bytes_);
      parts_bytes_ += segment.dims[0] * segment.dims[1] * row_bytes(segment);
    }
  }
}

Checkpoint::~Checkpoint() = default;

bool CheckpointMemory::rounds(const StateShape& shape) { return shape_at_rest(shape, AtRest::kBf16) != shape; }

uint64_t CheckpointMemory::bytes_for(const SequenceState& state, const Checkpoint* before, AtRest at_rest) {
  const StateShape shape = shape_at_rest(state.shape(), at_rest);
  const bool shares = before != nullptr && same_pages(before->shape_, shape);
  const uint64_t tokens = shares ? std::min(before->position(), state.position()) / kPageTokens * kPageTokens : 0;
  return section_bytes(shape, state.position()) - bytes_per_token(shape) * tokens;
}

Result<std::shared_ptr<const Checkpoint>> CheckpointMemory::keep(const SequenceState& state,
                                                                 const std::shared_ptr<const Checkpoint>& before,
                                                                 AtRest at_rest) try {
  if (BATON_FAULT(kKeepMemory)) throw std::bad_alloc();
  const uint64_t tokens = state.position();
  std::shared_ptr<Checkpoint> made(new Checkpoint(*this, shape_at_rest(state.shape(), at_rest), tokens));
  const auto parts = std::make_shared<CheckpointBytes>(bytes_, made->parts_bytes_, 0);
  BATON_OK(made->copy_parts(state, parts->values.data()));
  parts->sum = checksum(parts->values);
  if (BATON_FAULT(kKeepDamage) && !parts->values.empty()) parts->values[parts->values.size() / 2] ^= std::byte{1};
  made->parts_ = parts;
  if (made->token_bytes_ > 0) {
    const uint64_t pages = (tokens + kPageTokens - 1) / kPageTokens;
    if (before != nullptr && same_pages(before->shape_, made->shape_)) {
      const uint64_t whole = std::min(before->position(), tokens) / kPageTokens;
      made->pages_.assign(before->pages_.begin(), before->pages_.begin() + static_cast<ptrdiff_t>(whole));
    }
    while (made->pages_.size() < pages) {
      const uint64_t first = made->pages_.size();
      std::vector<CheckpointBytes*> next(std::min(pages - first, pages_together(state)));
      for (CheckpointBytes*& each : next) {
        const uint64_t rows = std::min(kPageTokens, tokens - made->pages_.size() * kPageTokens);
        const auto page = std::make_shared<CheckpointBytes>(bytes_, rows * made->token_bytes_, rows);
        each = page.get();
        made->pages_.push_back(page);
      }
      BATON_OK(made->copy_pages(state, first, next));
      for (CheckpointBytes* const page : next) page->sum = checksum(page->values);
    }
  }
  made->set_position(tokens);
  return made;
} catch (const std::bad_alloc&) {
  return no_memory();
}

Status Checkpoint::copy_parts(const SequenceState& state, std::byte* to) {
  std::vector<float> exact;  // of a segment that is rounded
  for (size_t i = 0; i < shape_.segments.size(); ++i) {
    const Segment &segment = shape_.segments[i], &from = state.shape().segments[i];
    if (has_tokens_dim(segment.kind)) continue;
    const uint64_t rows = segment.dims[0] * segment.dims[1], bytes = rows * row_bytes(segment);
    const bool rounds = from.dtype != segment.dtype;
    if (rounds) exact.resize(rows * segment.dims[2]);
    std::byte* read = rounds ? reinterpret_cast<std::byte*>(exact.data()) : to;
    BATON_OK(state.read(i, {0, rows}, read));
    if (BATON_FAULT(kStateNan)) std::memset(read, 0xff, sizeof(float));
    BATON_OK(check_numbers(from, read, rows * row_bytes(from)));
    if (rounds) {
      if (!rounding_) rounding_.emplace();
      round_to_bf16(exact, to, *rounding_);
    }
    to += bytes;
  }
  return {};
}

Status Checkpoint::copy_pages(const SequenceState& state, uint64_t first,
                              std::span<CheckpointBytes* const> pages) const {
  for (size_t i = 0; i < shape_.segments.size(); ++i) {
    const Segment& segment = shape_.segments[i];
    if (!has_tokens_dim(segment.kind)) continue;
    for (uint64_t head = 0; head < segment.dims[0]; ++head) {
      for (uint64_t page = 0; page < pages.size(); ++page) {
        const uint64_t rows = pages[page]->rows;
        std::byte* const to = pages[page]->values.data() + rows * (offsets_[i] + head * row_bytes(segment));
        BATON_OK(state.read(i, {head * state.position() + (first + page) * kPageTokens, rows}, to));
        BATON_OK(check_numbers(segment, to, rows * row_bytes(segment)));
      }
    }
  }
  return {};
}

uint64_t Checkpoint::bytes() const {
  uint64_t sum = parts_->values.size();
  for (const auto& page : pages_) sum += page->values.size();
  return sum;
}

uint64_t Checkpoint::bytes_beside(const Checkpoint& other) const {
  uint64_t sum = parts_ == other.parts_ ? 0 : parts_->values.size();
  for (size_t i = 0; i < pages_.size(); ++i) {
    const bool shared = i < other.pages_.size() && pages_[i] == other.pages_[i];
    sum += shared ? 0 : pages_[i]->values.size();
  }
  return sum;
}

Status Checkpoint::check() const {
  if (checksum(parts_->values) != parts_->sum) return damaged_parts();
  for (size_t i = 0; i < pages_.size(); ++i) {
    if (checksum(pages_[i]->values) != pages_[i]->sum) return damaged_page(i, pages_[i]->rows);
  }
  return {};
}

// Summed as it is read, a piece at a time: it is large, and goes through memory once.
Status Checkpoint::fill_parts(std::span<SegmentFill> fills) const {
  Checksum sum;
  for (size_t i = 0; i < fills.size(); ++i) {
    const Segment& segment = shape_.segments[i];
    if (has_tokens_dim(segment.kind)) continue;
    const uint64_t each = row_bytes(segment);
    BATON_OK(for_pieces(segment.dims, segment.dtype, [&](RowRange rows) {
      const auto piece = std::span(parts_->values).subspan(offsets_[i] + rows.first * each, rows.count * each);
      sum.update(piece);
      return fills[i].put(rows, piece);
    }));
  }
  return sum.value() == parts_->sum ? Status() : damaged_parts();
}

// Summed first, which brings a page into cache.
Status Checkpoint::fill_pages(std::span<SegmentFill> fills, uint64_t first, uint64_t count) const {
  const uint64_t tokens = position();
  for (uint64_t page = first; page < first + count; ++page) {
    if (checksum(pages_[page]->values) != pages_[page]->sum) return damaged_page(page, pages_[page]->rows);
  }
  for (size_t i = 0; i < fills.size(); ++i) {
    const Segment& segment = shape_.segments[i];
    if (!has_tokens_dim(segment.kind)) continue;
    for (uint64_t head = 0; head < segment.dims[0]; ++head) {
      for (uint64_t page = first; page < first + count; ++page) {
        const CheckpointBytes& from = *pages_[page];
        const uint64_t at = page * kPageTokens, rows = std::min(from.rows, tokens - at);
        const auto values =
            std::span(from.values)
                .subspan(from.rows * (offsets_[i] + head * row_bytes(segment)), rows * row_bytes(segment));
        BATON_OK(fills[i].put({head * tokens + at, rows}, values));
      }
    }
  }
  return {};
}

Result<std::shared_ptr<const Checkpoint>> Checkpoint::at(uint64_t position) const try {
  BATON_CHECK(position <= this->position());
  if (parts_bytes_ > 0) return nullptr;
  std::shared_ptr<Checkpoint> made(new Checkpoint(memory_, shape_, position));
  const uint64_t pages = (position + kPageTokens - 1) / kPageTokens;
  made->pages_.assign(pages_.begin(), pages_.begin() + static_cast<ptrdiff_t>(pages));
  made->parts_ = parts_;
  made->set_position(position);
  return made;
} catch (const std::bad_alloc&) {
  return no_memory();
}

Checkpoint::Place Checkpoint::place_of(size_t segment, const Dims& dims, uint64_t row, uint64_t count) const {
  const Segment& what = shape_.segments[segment];
  if (!has_tokens_dim(what.kind)) return {parts_.get(), offsets_[segment] + row * row_bytes(what), count};
  const uint64_t head = row / dims[1], token = row % dims[1], inside = token % kPageTokens;
  const CheckpointBytes& page = *pages_[token / kPageTokens];
  const uint64_t left = std::min(page.rows - inside, dims[1] - token);
  return {&page, page.rows * offsets_[segment] + (head * page.rows + inside) * row_bytes(what), std::min(count, left)};
}

Status Checkpoint::read_rows(size_t segment, const Dims& dims, RowRange rows, std::byte* out) const {
  const uint64_t each = row_bytes(shape_.segments[segment]);
  for (uint64_t done = 0; done < rows.count;) {
    const Place place = place_of(segment, dims, rows.first + done, rows.count - done);
    std::memcpy(out + done * each, place.bytes->values.data() + place.offset, place.rows * each);
    done += place.rows;
  }
  return {};
}

Status Checkpoint::write_rows(size_t, const Dims&, RowRange, const std::byte*) {
  BATON_CHECK(false);  // it never changes
  return {};
}

std::span<const std::byte> Checkpoint::view_rows(size_t segment, const Dims& dims, RowRange rows) const {
  const Place place = place_of(segment, dims, rows.first, rows.count);
  return {place.bytes->values.data() + place.offset,
          place.rows * row_bytes_of(shape().segments[segment].dtype, dims[2])};
}

Result<MoveReport> restore_state(const Checkpoint& from, SequenceState& to) try {
  const SteadyClock clock;
  const int64_t start_ns = clock.now_ns();
  const uint64_t tokens = from.position();
  BATON_TRY(const BridgePlan plan, plan_move(from.shape(), tokens, to));
  to.begin_write(tokens);
  std::vector<SegmentFill> fills;
  for (size_t i = 0; i < plan.segments.size(); ++i) fills.emplace_back(plan.segments[i], i, to);
  BATON_OK(from.fill_parts(fills));
  const uint64_t pages = from.pages_.size(), together = std::min(std::max<uint64_t>(1, pages), pages_together(to));
  for (uint64_t page = 0; page < pages; page += together)
    BATON_OK(from.fill_pages(fills, page, std::min(pages - page, together)));
  for (SegmentFill& fill : fills) BATON_OK(fill.finish());
  BATON_OK(to.finish_write(true));
  return MoveReport{section_bytes(from.shape(), tokens), 0, ms_between(start_ns, clock.now_ns())};
} catch (const std::bad_alloc&) {
  return no_memory();
}

}  // namespace baton
