// How many tokens one prefill step of a lane takes, so that a step lasts about as long as wanted: learned from the
// steps that ran. Cancels and other requests' tokens wait for at most one step.
#pragma once

#include <algorithm>
#include <cstdint>

namespace baton {

// One per lane, in the scheduler and on its thread: asked before each prefill step, told when it came back. Takes any
// count and time; only their ratio is learned, so a unit's speed need not be known.
class PrefillBudget {
 public:
  // `step_ms`: wanted, EngineLimits::step_ms. `preferred`: the unit's own step; `tokens_max`: never more; `tokens_min`:
  // fewer would take as long, so that learning from a step of fewer would shrink the next for nothing.
  PrefillBudget(double step_ms, uint32_t preferred, uint32_t tokens_max, uint32_t tokens_min = 1)
      : step_ms_(step_ms),
        preferred_(std::max(preferred, 1u)),
        tokens_max_(std::max(tokens_max, 1u)),
        tokens_min_(std::clamp(tokens_min, 1u, std::min(preferred_, tokens_max_))),
        tokens_(std::clamp(kFirstTokens, tokens_min_, std::max(tokens_min_, std::min(preferred_, tokens_max_)))) {}

  // Of the next step. Above the preferred size a multiple of it, else of the least that pays: units sum in pieces of
  // that size, so that how long earlier steps took does not show in the bits of a state.
  uint32_t tokens() const { return tokens(step_ms_); }
  // Of one that is to last so long; not below the preferred size where a step of step_ms is not.
  uint32_t tokens(double ms) const {
    const double least = std::clamp(tokens_, static_cast<double>(tokens_min_), static_cast<double>(preferred_));
    const auto whole = static_cast<uint32_t>(std::clamp(tokens_ * ms / step_ms_, least, std::max(least, tokens_)));
    return whole > preferred_ ? whole / preferred_ * preferred_ : whole / tokens_min_ * tokens_min_;
  }

  // A step of `count` tokens took `ms`; only of steps that went well. Grows at most twofold at a time, and only by
  // steps that were full: the short end of a prompt does not tell what fits. Shrinks at once to what would have fitted.
  void learn(uint64_t count, double ms) {
    if (count == 0) return;
    const double fitting = ms > 0 ? static_cast<double>(count) * step_ms_ / ms : tokens_max_;
    if (ms > step_ms_) {
      tokens_ = fitting;
    } else if (count >= tokens()) {
      tokens_ = std::max(tokens_, std::min(fitting, 2 * static_cast<double>(count)));
    }
    tokens_ = std::clamp(tokens_, static_cast<double>(tokens_min_), static_cast<double>(tokens_max_));
  }

 private:
  // Before anything was measured: short enough for a slow unit, and a fast one soon doubles it.
  static constexpr uint32_t kFirstTokens = 8;

  double step_ms_;  // at most so long, as far as is known
  uint32_t preferred_;
  uint32_t tokens_max_;
  uint32_t tokens_min_;
  double tokens_;  // learned, between the least and the most; tokens() cuts it to whole pieces
};

}  // namespace baton
