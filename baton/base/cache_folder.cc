// From the environment.
#include "baton/base/cache_folder.h"

#include <cstdlib>

namespace baton {
namespace {

// The XDG rule: what is not absolute is ignored.
std::filesystem::path folder_in(const char* variable) {
  const char* value = std::getenv(variable);
  const std::filesystem::path path = value != nullptr ? value : "";
  return path.is_absolute() ? path : std::filesystem::path();
}

}  // namespace

std::filesystem::path cache_folder() {
#if defined(__APPLE__)
  const std::filesystem::path home = folder_in("HOME");
  return home.empty() ? home : home / "Library" / "Caches" / "baton";
#else
  if (const auto given = folder_in("XDG_CACHE_HOME"); !given.empty()) return given / "baton";
  const std::filesystem::path home = folder_in("HOME");
  return home.empty() ? home : home / ".cache" / "baton";
#endif
}

}  // namespace baton
