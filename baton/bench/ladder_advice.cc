// Which type to take: the smallest whose loss is surely small.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "baton/bench/human.h"
#include "baton/bench/ladder_verdict.h"

namespace baton {
namespace {

constexpr uint64_t kAdviceSeed = 11;

double percent_more(double log_ratio) { return 100 * (std::exp(log_ratio) - 1); }

// What a type loses against the source: the difference of log perplexity.
struct Loss {
  size_t point = 0;
  DifferenceInterval nll;
  bool accepted() const { return nll.known && percent_more(nll.high) <= kLossAcceptedPercent; }
  std::string text() const {
    return fmt::format("{:+.2f} % ({:+.2f} to {:+.2f})", percent_more(nll.value), percent_more(nll.low),
                       percent_more(nll.high));
  }
};

class Adviser {
 public:
  Adviser(std::span<const LadderPoint> points, const LadderVerdict& verdict) : points_(points), verdict_(verdict) {}

  LadderAdvice run() {
    const auto source = std::find_if(points_.begin(), points_.end(), [](const LadderPoint& p) { return p.is_source; });
    if (source == points_.end() || points_.size() < 2)
      return {std::nullopt, "No recommendation: there is no quantized type to compare with the source."};
    if (!verdict_.intervals_known) {
      return {std::nullopt,
              fmt::format("No recommendation: fewer than {} windows cannot tell a loss from chance; give a "
                          "longer text or smaller windows.",
                          kVerdictWindowsMin)};
    }
    source_ = static_cast<size_t>(source - points_.begin());
    for (size_t i = 0; i < points_.size(); ++i) {
      if (!points_[i].is_source)
        losses_.push_back({i, paired_difference(points_[i].nll, source->nll, verdict_.confidence, kAdviceSeed)});
    }
    std::stable_sort(losses_.begin(), losses_.end(), [&](const Loss& a, const Loss& b) { return bytes(a) < bytes(b); });
    const auto take = std::find_if(losses_.begin(), losses_.end(), [](const Loss& loss) { return loss.accepted(); });
    if (take == losses_.end()) return none_accepted();
    return {take->point, reason(*take) + smaller(*take) + speed(*take)};
  }

 private:
  uint64_t bytes(const Loss& loss) const { return points_[loss.point].bytes; }
  const std::string& type(const Loss& loss) const { return points_[loss.point].type; }
  std::string bound() const {
    return fmt::format("{:g} % of perplexity with {:.0f} % confidence", kLossAcceptedPercent,
                       100 * verdict_.confidence);
  }

  LadderAdvice none_accepted() const {
    const auto best = std::min_element(losses_.begin(), losses_.end(),
                                       [](const Loss& a, const Loss& b) { return a.nll.high < b.nll.high; });
    return {std::nullopt, fmt::format("No recommendation: no type here loses less than {}. The nearest, {}, "
                                      "loses {}; keep the source, try larger types, or measure on a longer text.",
                                      bound(), type(*best), best->text())};
  }

  std::string reason(const Loss& take) const {
    const double share = static_cast<double>(bytes(take)) / static_cast<double>(points_[source_].bytes);
    return fmt::format("Take {}: the smallest that loses less than {}: {}. It has {}, {:.0f} % of the source.",
                       type(take), bound(), take.text(), bytes_text(bytes(take)), 100 * share);
  }

  std::string smaller(const Loss& take) const {
    const Loss* next = nullptr;
    for (const Loss& loss : losses_) {
      if (bytes(loss) < bytes(take)) next = &loss;
    }
    if (next == nullptr) return "";
    return fmt::format(" The next smaller, {}, loses {} for {}.", type(*next), next->text(), bytes_text(bytes(*next)));
  }

  std::string speed(const Loss& take) const {
    if (verdict_.emulated) return " Speeds are emulated: which decodes sooner on the device is not known.";
    if (verdict_.too_few_rounds) return " Too few rounds were measured to compare speeds.";
    if (!verdict_.has_speed) return " Speeds were not measured.";
    const auto against_source = ratio(take.point, source_);
    std::string text = against_source && against_source->differs()
                           ? fmt::format(" It decodes {:.2f}x as fast as the source ({:.2f} to {:.2f}).",
                                         against_source->ratio, against_source->low, against_source->high)
                           : std::string(" No difference of its decode speed from the source's is shown.");
    const Loss* fastest = nullptr;
    std::optional<RatioInterval> lead;
    for (const Loss& loss : losses_) {
      if (!loss.accepted() || loss.point == take.point) continue;
      const auto faster = ratio(loss.point, take.point);
      if (!faster || !faster->differs() || faster->ratio <= 1 || (lead && faster->ratio <= lead->ratio)) continue;
      fastest = &loss;
      lead = faster;
    }
    if (fastest == nullptr) return text;
    return text +
           fmt::format(" Where speed counts more than size: {} decodes {:.2f}x as fast as {} ({:.2f} to {:.2f}).",
                       type(*fastest), lead->ratio, type(take), lead->low, lead->high);
  }

  std::optional<RatioInterval> ratio(size_t a, size_t b) const {
    const auto &x = points_[a].decode_tps, &y = points_[b].decode_tps;
    if (x.empty() || x.size() != y.size()) return std::nullopt;
    return paired_ratio(x, y, verdict_.confidence, kAdviceSeed, 2000);
  }

  std::span<const LadderPoint> points_;
  const LadderVerdict& verdict_;
  size_t source_ = 0;
  std::vector<Loss> losses_;  // the smallest file first
};

}  // namespace

LadderAdvice advise(std::span<const LadderPoint> points, const LadderVerdict& verdict) {
  return Adviser(points, verdict).run();
}

}  // namespace baton
