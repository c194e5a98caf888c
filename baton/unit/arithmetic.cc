// Names of an arithmetic: what decides the bits of a unit's results, in one string.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <string>

#include "baton/state/checksum.h"
#include "baton/unit/unit.h"

#if defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace baton {
namespace {

constexpr char kSourceDigest[] =
#include "baton/unit/source_digest.inc"
    ;

// The mathematics library is chosen when the program starts, by version and by processor (with FMA and without): known
// by its results. 20 us.
uint64_t library_results() {
  std::vector<float> results;
  for (int i = 1; i <= 300; ++i) {
    const float x = static_cast<float>(i) * 0.0711f;
    for (const float value : {std::exp(x - 12), std::log(x), std::log1p(x), std::sin(x), std::cos(x), std::tanh(x - 9),
                              std::pow(10000.0f, -x / 22), std::pow(x, 0.31f), std::sqrt(x)}) {
      results.push_back(value);
    }
    const double wide = x;
    for (const double value : {std::exp(wide - 12), std::pow(10000.0, -wide / 22), std::sin(wide), std::cos(wide)}) {
      results.push_back(static_cast<float>((value - static_cast<float>(value)) * 1e9));
    }
  }
  return checksum(std::as_bytes(std::span(results)));
}

#if defined(__APPLE__)
std::string system_fact(const char* name) {
  char text[64] = {};
  size_t bytes = sizeof(text) - 1;
  return ::sysctlbyname(name, text, &bytes, nullptr, 0) == 0 ? text : "unknown";
}
#endif

}  // namespace

std::string arithmetic_name(std::string_view what) {
  const uint64_t library = library_results();
  const uint64_t build = checksum(std::as_bytes(std::span(std::string_view(kSourceDigest)))) ^ (library * 0x9e3779b1u);
  std::string name = fmt::format("{}/{:08x}", what, static_cast<uint32_t>(build ^ (build >> 32)));
  BATON_CHECK(name.size() <= kArithmeticNameMax);
  return name;
}

std::string system_arithmetic() {
#if defined(__APPLE__)
  std::string name = system_fact("machdep.cpu.brand_string") + "-" + system_fact("kern.osversion");
  for (char& c : name) c = c == ' ' || c == '/' ? '-' : c;
  return name;
#else
  return "unknown-system";
#endif
}

}  // namespace baton
