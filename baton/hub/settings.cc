// From the environment.
#include "baton/hub/settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "baton/base/file.h"
#include "baton/hub/name.h"

namespace baton::hub {
namespace {

namespace fs = std::filesystem;

constexpr size_t kTokenBytesMax = 64 << 10;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value != nullptr ? value : "";
}

bool is_on(const char* name) {
  const std::string value = lower_case(variable(name));
  return value == "1" || value == "on" || value == "yes" || value == "true";
}

// "~/models" as a shell would have it.
fs::path with_home(const std::string& given) {
  if (given == "~" || given.starts_with("~/"))
    return fs::path(variable("HOME")) / fs::path(given.substr(1)).relative_path();
  return given;
}

fs::path home_place() {
  if (const std::string home = variable("HF_HOME"); !home.empty()) return with_home(home);
  if (const std::string caches = variable("XDG_CACHE_HOME"); !caches.empty()) return with_home(caches) / "huggingface";
  const std::string home = variable("HOME");
  return home.empty() ? fs::path() : fs::path(home) / ".cache" / "huggingface";
}

std::string trimmed(std::string_view text) {
  const size_t from = text.find_first_not_of(" \t\r\n");
  if (from == std::string_view::npos) return "";
  return std::string(text.substr(from, text.find_last_not_of(" \t\r\n") - from + 1));
}

Result<std::string> read_token() {
  for (const char* name : {"HF_TOKEN", "HUGGING_FACE_HUB_TOKEN"}) {
    if (std::string token = trimmed(variable(name)); !token.empty()) return token;
  }
  if (is_on("HF_HUB_DISABLE_IMPLICIT_TOKEN")) return "";
  const std::string given = variable("HF_TOKEN_PATH");
  const fs::path file = given.empty() ? home_place() / "token" : with_home(given);
  std::error_code error;
  if (!fs::is_regular_file(file, error)) return "";
  BATON_TRY(const std::string text, read_file(file, kTokenBytesMax));
  return trimmed(text);
}

bool good_endpoint(std::string_view endpoint) {
  const bool known = endpoint.starts_with("https://") || endpoint.starts_with("http://");
  const auto bad = [](char c) { return c <= ' ' || c == 0x7f || c == '?' || c == '#' || c == '@'; };
  return known && endpoint.size() > 8 && std::none_of(endpoint.begin(), endpoint.end(), bad);
}

}  // namespace

fs::path cache_place() {
  for (const char* name : {"HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"}) {
    if (const std::string cache = variable(name); !cache.empty()) return with_home(cache);
  }
  const fs::path home = home_place();
  return home.empty() ? home : home / "hub";
}

Result<Settings> read_settings() {
  Settings made;
  made.cache = cache_place();
  if (made.cache.empty())
    return fail(Code::kInvalidInput, "no place for models: set HF_HUB_CACHE or HF_HOME to a folder, or HOME");
  if (std::string endpoint = variable("HF_ENDPOINT"); !endpoint.empty()) {
    while (endpoint.ends_with('/')) endpoint.pop_back();
    if (!good_endpoint(endpoint))
      return fail(Code::kInvalidInput, fmt::format("HF_ENDPOINT: '{}' is no address: https://HOST", endpoint));
    made.endpoint = std::move(endpoint);
  }
  BATON_TRY(made.token, read_token());
  const auto bad = [](char c) { return c <= ' ' || c >= 0x7f; };
  if (std::any_of(made.token.begin(), made.token.end(), bad))
    return fail(Code::kInvalidInput, "the token of HF_TOKEN, or of its file, has characters that none has: mend it");
  made.offline = is_on("HF_HUB_OFFLINE") || is_on("TRANSFORMERS_OFFLINE");
  return made;
}

}  // namespace baton::hub
