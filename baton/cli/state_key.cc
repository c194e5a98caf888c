// Reading the key file of --state-key.
#include "baton/cli/state_key.h"

#include <fmt/format.h>

#include <cstdio>

#include "baton/base/file.h"

namespace baton::cli {

Result<std::optional<StateKey>> read_state_key(const std::string& path) {
  if (path.empty()) return std::optional<StateKey>();
  auto key = StateKey::read(path);
  if (!key) return fail(std::move(key).error().in("--state-key"));
  if (!key->warning().empty()) fmt::print(stderr, "baton: warning: {}\n", key->warning());
  return std::optional<StateKey>(*std::move(key));
}

Error with_key_flag(Error error, const std::filesystem::path& path, const std::optional<StateKey>& key) {
  if (key || error.code != Code::kMismatch) return error;
  const auto file = MappedFile::open(path);
  if (file && has_mac(file->bytes(), file->bytes().size())) error.message += " (--state-key FILE)";
  return error;
}

}  // namespace baton::cli
