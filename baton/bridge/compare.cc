// Sums over parts, gathered piece by piece into canonical order.
#include "baton/bridge/compare.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "baton/base/bytes.h"
#include "baton/base/float.h"
#include "baton/base/highest.h"
#include "baton/bridge/convert.h"
#include "baton/bridge/plan.h"
#include "baton/state/values.h"

namespace baton {
namespace {

constexpr double kInfinite = std::numeric_limits<double>::infinity();
constexpr uint64_t kPieceValues = 8 * 1024;

// Pieces of a segment as f32; false when a value is not finite, or cannot be read.
class Reader {
 public:
  bool read(const SequenceState& state, size_t slot, RowRange rows) {
    const Segment& segment = state.shape().segments[slot];
    const uint64_t count = rows.count * segment.dims[2];
    raw_.resize(rows.count * row_bytes_of(segment.dtype, segment.dims[2]));
    values_.resize(count);
    if (!state.read(slot, rows, raw_.data()) || first_not_finite(raw_, segment.dtype)) return false;
    if (in_blocks(segment.dtype)) {
      decode_rows(segment.dtype, raw_.data(), segment.dims[2], rows.count, values_.data());
    } else {
      convert_run(raw_.data(), segment.dtype, reinterpret_cast<std::byte*>(values_.data()), DType::kF32, count);
    }
    return true;
  }
  std::span<const float> values() const { return values_; }
  // As they were read.
  std::span<const std::byte> raw() const { return raw_; }

 private:
  std::vector<std::byte> raw_;
  std::vector<float> values_;
};

struct PartSums {
  double difference = 0, own = 0, largest = 0;
  uint64_t count = 0;
  bool finite = true;

  void add(double apart, double mine) {
    difference += apart * apart;
    own += mine * mine;
    largest = std::max(largest, apart);
    ++count;
  }
  PartDifference relative() const {
    if (!finite) return {kInfinite, kInfinite};
    if (difference == 0) return {};
    if (own == 0) return {kInfinite, kInfinite};
    return {std::sqrt(difference / own), largest / std::sqrt(own / static_cast<double>(count))};
  }
};

// Calls `visit(slot, rows, sums)` for each piece of each part.
template <class Visit>
StateDifference for_parts(const SequenceState& state, Visit visit) {
  StateDifference all;
  for (size_t slot = 0; slot < state.shape().segments.size(); ++slot) {
    const Dims dims = dims_at(state.shape().segments[slot], state.position());
    SegmentDifference& segment = all.emplace_back();
    const uint64_t rows_max = std::max<uint64_t>(1, kPieceValues / std::max<uint64_t>(dims[2], 1));
    for (uint64_t head = 0; head < dims[0]; ++head) {
      PartSums sums;
      for (uint64_t row = 0; row < dims[1] && sums.finite; row += rows_max) {
        visit(slot, RowRange{head * dims[1] + row, std::min(rows_max, dims[1] - row)}, sums);
      }
      segment.heads.push_back(sums.relative());
      segment.rms += segment.heads.back().rms * segment.heads.back().rms;
    }
    segment.rms = std::sqrt(segment.rms / static_cast<double>(std::max<uint64_t>(dims[0], 1)));
  }
  return all;
}

// Of a block: between two codes, of rotated values where they are; all its values are a step away together.
double step_of_block(const std::byte* block) { return std::abs(f16_to_f32(load_as<uint16_t>(block))); }

// Between a value and the next one of its type.
double step_of(float value, DType dtype) {
  const int bits = dtype == DType::kF32 ? 23 : dtype == DType::kF16 ? 10 : 7;
  const int lowest = dtype == DType::kF16 ? -14 : -126;  // exponent of the smallest normal number
  int exponent = 0;
  std::frexp(value, &exponent);
  return std::ldexp(1.0, std::max(value == 0 ? lowest : exponent - 1, lowest) - bits);
}

double log_sum_of_exponents(std::span<const float> row, double highest) {
  double sum = 0;
  for (const float value : row) sum += std::exp(static_cast<double>(value) - highest);
  return highest + std::log(sum);
}

}  // namespace

StateDifference compare_states(const SequenceState& other, const SequenceState& own) {
  BATON_CHECK(other.position() == own.position() && plan_bridge(other.shape(), own.shape()));
  Reader theirs, mine;
  return for_parts(own, [&](size_t slot, RowRange rows, PartSums& sums) {
    sums.finite = theirs.read(other, slot, rows) && mine.read(own, slot, rows);
    if (!sums.finite) return;
    for (size_t i = 0; i < mine.values().size(); ++i) {
      const double value = mine.values()[i];
      sums.add(std::abs(static_cast<double>(theirs.values()[i]) - value), value);
    }
  });
}

StateDifference one_step(const SequenceState& own) {
  Reader mine;
  return for_parts(own, [&](size_t slot, RowRange rows, PartSums& sums) {
    sums.finite = mine.read(own, slot, rows);
    if (!sums.finite) return;
    bool any = false;
    for (const float value : mine.values()) any = any || value != 0;
    if (!any) return;  // zeros are kept as they are by all
    const Segment& segment = own.shape().segments[slot];
    const uint64_t columns = segment.dims[2];
    for (size_t i = 0; i < mine.values().size(); ++i) {
      const float value = mine.values()[i];
      if (!in_blocks(segment.dtype)) {
        sums.add(step_of(value, segment.dtype), value);
        continue;
      }
      const uint64_t block = i % columns / kRowBlock * format_of(segment.dtype).block_bytes;
      sums.add(step_of_block(mine.raw().data() + i / columns * row_bytes_of(segment.dtype, columns) + block), value);
    }
  });
}

LogitsDifference compare_logits(std::span<const float> other, std::span<const float> own) {
  BATON_CHECK(other.size() == own.size() && !own.empty());
  const auto finite = [](std::span<const float> row) {
    return std::all_of(row.begin(), row.end(), [](float value) { return std::isfinite(value); });
  };
  if (!finite(other) || !finite(own)) return {kInfinite, kInfinite, kInfinite, false};
  const size_t best = index_of_highest(own), other_best = index_of_highest(other);
  const double own_sum = log_sum_of_exponents(own, own[best]);
  const double other_sum = log_sum_of_exponents(other, other[other_best]);
  LogitsDifference made;
  double squares = 0;
  for (size_t i = 0; i < own.size(); ++i) {
    const double mine = own[i], theirs = other[i];
    const double apart = theirs - mine;
    squares += apart * apart;
    made.largest = std::max(made.largest, std::abs(apart));
    const double log_own = mine - own_sum;
    made.kl += std::exp(log_own) * (log_own - (theirs - other_sum));
  }
  made.kl = std::max(made.kl, 0.0);  // below zero by rounding only
  made.rms = std::sqrt(squares / static_cast<double>(own.size()));
  made.agreed = best == other_best;
  return made;
}

bool ProofBounds::exact() const {
  return logits == LogitsBounds() && std::all_of(segments.begin(), segments.end(),
                                                 [](const SegmentBounds& each) { return each == SegmentBounds(); });
}

void ProofBounds::cover(const StateDifference& seen) {
  segments.resize(std::max(segments.size(), seen.size()));
  for (size_t slot = 0; slot < seen.size(); ++slot) {
    SegmentBounds& bounds = segments[slot];
    bounds.rms = std::max(bounds.rms, seen[slot].rms);
    for (const PartDifference& part : seen[slot].heads) {
      bounds.head.rms = std::max(bounds.head.rms, part.rms);
      bounds.head.largest = std::max(bounds.head.largest, part.largest);
    }
  }
}

void ProofBounds::cover(const LogitsDifference& seen) {
  logits.rms = std::max(logits.rms, seen.rms);
  logits.largest = std::max(logits.largest, seen.largest);
  logits.kl = std::max(logits.kl, seen.kl);
}

void ProofBounds::cover(const ProofBounds& other) {
  segments.resize(std::max(segments.size(), other.segments.size()));
  for (size_t slot = 0; slot < other.segments.size(); ++slot) {
    SegmentBounds& mine = segments[slot];
    const SegmentBounds& more = other.segments[slot];
    mine.rms = std::max(mine.rms, more.rms);
    mine.head.rms = std::max(mine.head.rms, more.head.rms);
    mine.head.largest = std::max(mine.head.largest, more.head.largest);
  }
  cover(LogitsDifference{.rms = other.logits.rms, .largest = other.logits.largest, .kl = other.logits.kl});
}

void ProofBounds::scale(double factor) {
  for (SegmentBounds& each : segments) each.rms *= factor, each.head.rms *= factor, each.head.largest *= factor;
  logits.rms *= factor, logits.largest *= factor, logits.kl *= factor * factor;
}

void ProofBounds::add(const ProofBounds& other) {
  between += (between.empty() || other.between.empty() ? "" : ", then ") + other.between;
  segments.resize(std::max(segments.size(), other.segments.size()));
  for (size_t slot = 0; slot < other.segments.size(); ++slot) {
    const SegmentBounds& more = other.segments[slot];
    segments[slot].rms += more.rms;
    segments[slot].head.rms += more.head.rms;
    segments[slot].head.largest += more.head.largest;
  }
  logits.rms += other.logits.rms, logits.largest += other.logits.largest, logits.kl += other.logits.kl;
}

ProofBounds ProofBounds::beyond(const ProofBounds& other) const {
  const auto more = [](double mine, double theirs) { return std::max(mine - theirs, 0.0); };
  ProofBounds rest;
  for (size_t slot = 0; slot < segments.size(); ++slot) {
    const SegmentBounds &mine = segments[slot], theirs = other.of(slot);
    rest.segments.push_back({more(mine.rms, theirs.rms),
                             {more(mine.head.rms, theirs.head.rms), more(mine.head.largest, theirs.head.largest)}});
  }
  rest.logits = {more(logits.rms, other.logits.rms), more(logits.largest, other.logits.largest),
                 more(logits.kl, other.logits.kl)};
  return rest;
}

double WorstPart::share() const {
  if (value == 0) return 0;
  return bound > 0 ? value / bound : kInfinite;
}

WorstPart worst_part(const StateDifference& seen, const ProofBounds& bounds) {
  using Figure = WorstPart::Figure;
  WorstPart worst;
  worst.bound = bounds.of(0).rms;
  const auto consider = [&](const WorstPart& part) {
    if (part.share() > worst.share()) worst = part;
  };
  for (size_t slot = 0; slot < seen.size(); ++slot) {
    const SegmentBounds bound = bounds.of(slot);
    consider({slot, 0, Figure::kSegmentRms, seen[slot].rms, bound.rms});
    for (size_t head = 0; head < seen[slot].heads.size(); ++head) {
      consider({slot, head, Figure::kHeadRms, seen[slot].heads[head].rms, bound.head.rms});
      consider({slot, head, Figure::kHeadLargest, seen[slot].heads[head].largest, bound.head.largest});
    }
  }
  return worst;
}

std::string to_text(const WorstPart& worst, const StateShape& shape) {
  const Segment& segment = shape.segments.at(worst.slot);
  const bool of_head = worst.figure != WorstPart::Figure::kSegmentRms && segment.dims[0] > 1;
  return fmt::format("{}{}: {} {:.3g} of {:.3g} allowed", segment_name(segment.kind, segment.layer),
                     of_head ? fmt::format(" head {}", worst.head) : "",
                     worst.figure == WorstPart::Figure::kHeadLargest ? "largest" : "rms", worst.value, worst.bound);
}

LogitsVerdict judge(const LogitsDifference& seen, const LogitsBounds& bounds) {
  const bool within = seen.rms <= bounds.rms && seen.largest <= bounds.largest && seen.kl <= bounds.kl;
  const bool passed = within && std::isfinite(seen.largest);
  return {.passed = passed, .near_tie = passed && !seen.agreed};
}

}  // namespace baton
