// Reading the key file of --state-key.
#include "baton/cli/state_key.h"

#include <fmt/format.h>

#include <cstdio>

namespace baton::cli {

Result<std::optional<StateKey>> read_state_key(const std::string& path) {
  if (path.empty()) return std::optional<StateKey>();
  auto key = StateKey::read(path);
  if (!key) return fail(std::move(key).error().in("--state-key"));
  if (!key->warning().empty()) fmt::print(stderr, "baton: warning: {}\n", key->warning());
  return std::optional<StateKey>(*std::move(key));
}

}  // namespace baton::cli
