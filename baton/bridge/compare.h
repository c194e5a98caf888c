// How far one state, or one row of logits, lies from another that was made from the same tokens: the figures of the
// bridge proof, and the bounds they are held to. Knows states by their rows only.
//
// A state is compared in parts: each head of keys, values and recurrent state, and each convolution window, is one
// (index 0 of the canonical dims). Over the values of a part that the state holds, `own` those of the unit's own state
// and `other` those of the state in question,
//   rms      = sqrt(sum (other - own)^2 / sum own^2)
//   largest  = max |other - own| / sqrt(mean own^2)
// both relative to the part's own size, so that they mean the same for every layer and length. Where own is zero
// throughout: 0 when other is as well, else infinite. Infinite when a value is not finite. Beside its heads a segment
// has
//   rms      = sqrt(mean of the heads' rms^2)
// which varies less between honest states than that of the worst head does, and so shows less.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "baton/base/status.h"
#include "baton/state/shape.h"
#include "baton/unit/unit.h"

namespace baton {

struct PartDifference {
  double rms = 0, largest = 0;
  friend bool operator==(const PartDifference&, const PartDifference&) = default;
};

struct SegmentDifference {
  double rms = 0;
  std::vector<PartDifference> heads;
};

// By slot of the Program.
using StateDifference = std::vector<SegmentDifference>;

// The states lie at one position and have shapes of one Program, types as they like: else it is a bug.
// Reads each value once; needs a row of each part as scratch. Throws std::bad_alloc.
StateDifference compare_states(const SequenceState& other, const SequenceState& own);

// What it makes when every value is one step of its type away: less than this is no difference to speak of between
// units whose arithmetic differs, as a value near the middle of a step may be rounded either way.
StateDifference one_step(const SequenceState& own);

// Over the vocabulary, `p` the softmax of each row: rms and largest of other - own; kl = sum p_own ln(p_own / p_other).
// Infinite when a value of either row is not finite.
struct LogitsDifference {
  double rms = 0, largest = 0, kl = 0;
  bool agreed = false;  // same largest logit, and both rows finite
};
LogitsDifference compare_logits(std::span<const float> other, std::span<const float> own);

struct LogitsBounds {
  double rms = 0, largest = 0, kl = 0;
  friend bool operator==(const LogitsBounds&, const LogitsBounds&) = default;
};

// The most that honest states of two makers may differ by, as plain data: one bound for all heads of a slot. What is
// not named is bound to 0: a value of this type as it is made asks for the same bits.
struct SegmentBounds {
  double rms = 0;       // of the segment
  PartDifference head;  // of each of its heads
  friend bool operator==(const SegmentBounds&, const SegmentBounds&) = default;
};
struct ProofBounds {
  std::string between;                  // "ref -> cpu": whose states, compared with whose own; for people
  std::vector<SegmentBounds> segments;  // by slot
  LogitsBounds logits;

  // The slot's, or zeros.
  SegmentBounds of(size_t slot) const { return slot < segments.size() ? segments[slot] : SegmentBounds(); }
  bool exact() const;  // all zero
  // Raises each bound to the largest that was seen.
  void cover(const StateDifference& seen);
  void cover(const LogitsDifference& seen);
  void cover(const ProofBounds& other);
  // Of differences; kl, which is of second order in them, grows with the square.
  void scale(double factor);
  // For a state that went through several hands: their differences may add up.
  void add(const ProofBounds& other);
  // What they allow more than `other`, at least 0, without a name: added to `other`, both are covered.
  ProofBounds beyond(const ProofBounds& other) const;
};

// The figure of a state that comes nearest to its bound, or exceeds it by the largest factor.
struct WorstPart {
  enum class Figure : uint8_t { kSegmentRms, kHeadRms, kHeadLargest };
  size_t slot = 0, head = 0;
  Figure figure = Figure::kSegmentRms;
  double value = 0, bound = 0;
  bool passed() const { return value <= bound; }
  // Above 1: exceeded. 0 for 0 of 0.
  double share() const;
};
WorstPart worst_part(const StateDifference& seen, const ProofBounds& bounds);
// "layer 3 keys head 1: largest 0.031 of 0.012 allowed"
std::string to_text(const WorstPart& worst, const StateShape& shape);

// Each of the three at most its bound. A disagreement that passes is a near tie by that: own's logit of the other's
// choice is at most two bounds of `largest` below own's best, as either of the two is off by at most one.
struct LogitsVerdict {
  bool passed = false;
  bool near_tie = false;
};
LogitsVerdict judge(const LogitsDifference& seen, const LogitsBounds& bounds);

}  // namespace baton
