// Scaling by thousands.
#include "baton/bench/human.h"

#include <fmt/format.h>

#include <cmath>
#include <string_view>

namespace baton {
namespace {

// `units`: a letter for each power of a thousand; a blank: none.
std::string scaled(double value, std::string_view units) {
  size_t at = 0;
  while (value >= 999.5 && at + 1 < units.size()) {
    value /= 1000;
    ++at;
  }
  return at == 0 ? fmt::format("{:.0f} ", value) : fmt::format("{} {}", three_digits(value), units[at]);
}

}  // namespace

std::string three_digits(double value) {
  const double size = std::fabs(value);
  if (size == 0 || !std::isfinite(value)) return fmt::format("{}", value);
  if (size >= 99.95) return fmt::format("{:.0f}", value);
  const int digits = size >= 9.995 ? 1 : size >= 0.9995 ? 2 : 2 - static_cast<int>(std::floor(std::log10(size)));
  return fmt::format("{:.{}f}", value, digits);
}

std::string bytes_text(uint64_t bytes) { return scaled(static_cast<double>(bytes), " kMGT") + "B"; }

std::string count_text(uint64_t count) {
  std::string text = scaled(static_cast<double>(count), " kMBT");
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

std::string milliseconds_text(double ms) {
  return ms >= 1000 ? three_digits(ms / 1000) + " s" : three_digits(ms) + " ms";
}

}  // namespace baton
