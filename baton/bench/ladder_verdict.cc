// The Pareto front and the paired intervals.
#include "baton/bench/ladder_verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "baton/base/random.h"
#include "baton/base/status.h"

namespace baton {
namespace {

double mean(std::span<const double> values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(std::max<size_t>(values.size(), 1));
}

double median(const std::vector<double>& values) { return quantile(values, 0.5); }

// What points are compared by; a point's speed is 0 when speed takes no part.
struct Figures {
  uint64_t bytes = 0;
  double kld = 0, decode_tps = 0;
};

std::optional<RatioInterval> ratio_of(const std::vector<double>& a, const std::vector<double>& b, double confidence,
                                      uint64_t seed) {
  if (a.empty() || a.size() != b.size()) return std::nullopt;
  return paired_verdict(a, b, confidence, seed, 2000);
}

class Judge {
 public:
  Judge(std::span<const LadderPoint> points, double confidence, uint64_t seed, bool emulated)
      : points_(points), confidence_(confidence), seed_(seed), emulated_(emulated) {}

  LadderVerdict run() {
    LadderVerdict verdict;
    verdict.confidence = confidence_;
    verdict.has_speed = !points_.empty();
    for (const LadderPoint& point : points_) {
      verdict.has_speed &= !point.decode_tps.empty();
      verdict.too_few_rounds |= !point.decode_tps.empty() && point.decode_tps.size() < pairs_needed(confidence_);
    }
    verdict.emulated = emulated_ && verdict.has_speed;
    verdict.has_speed &= !verdict.too_few_rounds && !emulated_;
    for (const LadderPoint& point : points_) {
      figures_.push_back({point.bytes, mean(point.kld), verdict.has_speed ? median(point.decode_tps) : 0});
    }
    verdict.intervals_known = !points_.empty() && points_.front().kld.size() >= kVerdictWindowsMin;
    verdict.standings.resize(points_.size());
    for (size_t b = 0; b < points_.size(); ++b) {
      verdict.standings[b].pareto = !first([&](size_t a) { return dominates(a, b); });
    }
    for (size_t b = 0; b < points_.size(); ++b) {
      LadderStanding& standing = verdict.standings[b];
      if (!standing.pareto) {
        standing.dominated_by = first([&](size_t a) { return verdict.standings[a].pareto && dominates(a, b); });
      } else if (verdict.intervals_known) {
        standing.challenged_by = first([&](size_t a) { return challenges(a, b, verdict.has_speed); });
      }
    }
    std::vector<size_t> order(points_.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return points_[a].bytes > points_[b].bytes; });
    for (size_t i = 0; i + 1 < order.size(); ++i) verdict.neighbours.push_back(compare(order[i], order[i + 1]));
    return verdict;
  }

 private:
  template <class Condition>
  std::optional<size_t> first(const Condition& condition) const {
    for (size_t i = 0; i < points_.size(); ++i) {
      if (condition(i)) return i;
    }
    return std::nullopt;
  }

  // As measured. But a lead in speed alone must be more than chance: copies of one file are not better than each other.
  bool dominates(size_t at_a, size_t at_b) const {
    const Figures& a = figures_[at_a];
    const Figures& b = figures_[at_b];
    if (a.bytes > b.bytes || a.kld > b.kld || a.decode_tps < b.decode_tps) return false;
    if (a.bytes < b.bytes || a.kld < b.kld) return true;
    if (a.decode_tps == b.decode_tps) return false;
    return ratio_of(points_[at_a].decode_tps, points_[at_b].decode_tps, confidence_, seed_)->differs();
  }

  // a is no larger than b, and not significantly worse; of equal size it must be better in something.
  bool challenges(size_t a, size_t b, bool has_speed) const {
    if (a == b || points_[a].bytes > points_[b].bytes) return false;
    const auto kld = paired_difference(points_[a].kld, points_[b].kld, confidence_, seed_);
    if (kld.differs() && kld.value > 0) return false;
    bool better = points_[a].bytes < points_[b].bytes || (kld.differs() && kld.value < 0);
    if (has_speed) {
      const auto speed = ratio_of(points_[a].decode_tps, points_[b].decode_tps, confidence_, seed_);
      if (speed && speed->high < 1) return false;
      better |= speed && speed->low > 1;
    }
    return better;
  }

  LadderComparison compare(size_t larger, size_t smaller) const {
    const LadderPoint& a = points_[smaller];
    const LadderPoint& b = points_[larger];
    LadderComparison comparison{larger, smaller, {}, {}, {}, {}};
    comparison.kld = paired_difference(a.kld, b.kld, confidence_, seed_);
    comparison.nll = paired_difference(a.nll, b.nll, confidence_, seed_);
    comparison.prefill = ratio_of(a.prefill_tps, b.prefill_tps, confidence_, seed_);
    comparison.decode = ratio_of(a.decode_tps, b.decode_tps, confidence_, seed_);
    return comparison;
  }

  std::span<const LadderPoint> points_;
  const double confidence_;
  const uint64_t seed_;
  const bool emulated_;
  std::vector<Figures> figures_;
};

std::string names(std::span<const LadderPoint> points, const std::vector<size_t>& which) {
  std::string text;
  for (const size_t i : which) text += fmt::format("{}{}", text.empty() ? "" : ", ", points[i].type);
  return text;
}

std::string neighbours_text(std::span<const LadderPoint> points, const LadderVerdict& verdict, std::string_view what,
                            const std::function<bool(const LadderComparison&)>& alike) {
  std::string text;
  for (const LadderComparison& item : verdict.neighbours) {
    if (alike(item))
      text += fmt::format("{}{} and {}", text.empty() ? "" : "; ", points[item.larger].type, points[item.smaller].type);
  }
  return fmt::format("Neighbours in size whose {} {} not differ significantly: {}.", what,
                     what.ends_with("speeds") ? "do" : "does", text.empty() ? "none" : text);
}

}  // namespace

DifferenceInterval paired_difference(std::span<const double> a, std::span<const double> b, double confidence,
                                     uint64_t seed, uint32_t rounds) {
  BATON_CHECK(a.size() == b.size());
  DifferenceInterval interval;
  std::vector<double> differences(a.size());
  for (size_t i = 0; i < a.size(); ++i) differences[i] = a[i] - b[i];
  interval.value = interval.low = interval.high = mean(differences);
  interval.known = a.size() >= kVerdictWindowsMin;
  if (!interval.known) return interval;
  Random random(seed);
  std::vector<double> means(rounds);
  for (double& drawn : means) {
    double sum = 0;
    for (size_t i = 0; i < differences.size(); ++i) sum += differences[random.below(differences.size())];
    drawn = sum / static_cast<double>(differences.size());
  }
  const double tail = (1 - confidence) / 2;
  interval.low = quantile(means, tail);
  interval.high = quantile(means, 1 - tail);
  return interval;
}

LadderVerdict judge_ladder(std::span<const LadderPoint> points, double confidence, uint64_t seed, bool emulated) {
  return Judge(points, confidence, seed, emulated).run();
}

std::vector<std::string> verdict_text(std::span<const LadderPoint> points, const LadderVerdict& verdict) {
  std::vector<std::string> lines;
  std::vector<size_t> front;
  std::string dominated, challenged;
  for (size_t i = 0; i < points.size(); ++i) {
    const LadderStanding& standing = verdict.standings[i];
    if (standing.pareto) front.push_back(i);
    if (standing.dominated_by) {
      dominated += fmt::format("{}{} (by {})", dominated.empty() ? "" : ", ", points[i].type,
                               points[*standing.dominated_by].type);
    }
    if (standing.challenged_by) {
      challenged += fmt::format("{}{} ({})", challenged.empty() ? "" : ", ", points[i].type,
                                points[*standing.challenged_by].type);
    }
  }
  const uint32_t rounds = pairs_needed(verdict.confidence);
  lines.push_back(fmt::format("On the Pareto front of size, KL divergence{}: {}.",
                              verdict.has_speed        ? " and decode speed"
                              : verdict.emulated       ? " (speed takes no part: emulated)"
                              : verdict.too_few_rounds ? " (speed takes no part: too few rounds)"
                                                       : " (no speeds were measured)",
                              names(points, front)));
  if (verdict.too_few_rounds && !verdict.emulated) {
    lines.push_back(fmt::format("Too few rounds to say which speeds differ: {} are needed at {:g} % (-r {}).", rounds,
                                100 * verdict.confidence, rounds));
  }
  lines.push_back(fmt::format("Dominated, as measured: {}.", dominated.empty() ? "none" : dominated));
  if (!verdict.intervals_known) {
    lines.push_back(fmt::format("Fewer than {} windows: too few to say which differences of quality are significant.",
                                kVerdictWindowsMin));
  } else {
    lines.push_back(
        fmt::format("On the front only by differences that may be chance (in brackets a type that is no larger and not "
                    "significantly worse): {}.",
                    challenged.empty() ? "none" : challenged));
    lines.push_back(neighbours_text(points, verdict, "KL divergence",
                                    [](const LadderComparison& item) { return !item.kld.differs(); }));
    lines.push_back(neighbours_text(points, verdict, "perplexity",
                                    [](const LadderComparison& item) { return !item.nll.differs(); }));
  }
  if (verdict.has_speed) {
    lines.push_back(neighbours_text(points, verdict, "decode speeds", [](const LadderComparison& item) {
      return item.decode && !item.decode->differs();
    }));
    lines.push_back(neighbours_text(points, verdict, "prefill speeds", [](const LadderComparison& item) {
      return item.prefill && !item.prefill->differs();
    }));
  }
  lines.push_back(
      fmt::format("Significant: the {:.0f} % interval of the paired difference leaves out zero; quality is drawn by "
                  "window, speed by "
                  "round. Each comparison stands for itself: of {:.0f} without a true difference at most one of speed "
                  "and about one of quality is expected to seem to have it.",
                  100 * verdict.confidence, 1 / (1 - verdict.confidence)));
  return lines;
}

}  // namespace baton
