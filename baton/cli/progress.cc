// The line of progress, and the time left as people say it.
#include "baton/cli/progress.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>

#include "baton/cli/command.h"

namespace baton::cli {
namespace {

constexpr int64_t kQuietNs = 500'000'000, kBetweenNs = 100'000'000, kLinesNs = 5'000'000'000;

}  // namespace

std::string duration_text(double seconds) {
  const auto whole = static_cast<int64_t>(std::ceil(seconds));
  if (whole < 100) return fmt::format("{} s", whole);
  const int64_t minutes = whole / 60;
  if (minutes < 100) return fmt::format("{} min {} s", minutes, whole % 60);
  return fmt::format("{} h {} min", minutes / 60, minutes % 60);
}

Progress::Progress(std::string what, Elsewhere elsewhere)
    : what_(std::move(what)),
      on_terminal_(::isatty(2) != 0),
      lines_(elsewhere == Elsewhere::kLines && !on_terminal_),
      start_ns_(clock_.now_ns()) {}

void Progress::show(uint64_t done, uint64_t total, std::string_view detail) {
  const int64_t now_ns = clock_.now_ns();
  if (!due(now_ns)) return;
  const double share = total > 0 ? static_cast<double>(done) / static_cast<double>(total) : 1;
  put(fmt::format("{} {}/{}", what_, done, total), share, now_ns, detail);
}

void Progress::show_share(double share) {
  const int64_t now_ns = clock_.now_ns();
  if (due(now_ns)) put(fmt::format("{} {:.0f} %", what_, share * 100), share, now_ns, {});
}

bool Progress::due(int64_t now_ns) const {
  if (lines_) return now_ns - std::max(start_ns_, shown_ns_) >= kLinesNs;
  return on_terminal_ && now_ns - start_ns_ >= kQuietNs && !(visible_ && now_ns - shown_ns_ < kBetweenNs);
}

void Progress::put(std::string text, double share, int64_t now_ns, std::string_view detail) {
  if (share > 0 && share < 1) {
    // By what was done when it last went on: between two steps of the work the time left does not grow.
    if (share != share_) {
      share_ = share;
      end_ns_ = start_ns_ + static_cast<int64_t>(static_cast<double>(now_ns - start_ns_) / share);
    }
    text += fmt::format(", {} left", duration_text(std::max(static_cast<double>(end_ns_ - now_ns) * 1e-9, 1.0)));
  }
  if (!detail.empty()) text += fmt::format("; {}", detail);
  shown_ns_ = now_ns;
  if (lines_) {
    fmt::print(stderr, "baton: {}\n", text);
    return;
  }
  progress(text);
  visible_ = true;
}

void Progress::clear() {
  if (visible_) progress("");
  visible_ = false;
}

}  // namespace baton::cli
