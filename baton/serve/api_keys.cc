// SHA-256 and comparison in constant time are libsodium's.
#include "baton/serve/api_keys.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <fstream>
#include <system_error>

#include "baton/engine/request.h"

namespace baton::serve {
namespace {

constexpr size_t kKeysMax = 4096, kKeyBytesMax = 512, kNameBytesMax = 64;
constexpr std::string_view kHashed = "sha256:";

std::array<uint8_t, 32> hash_of(std::string_view key) {
  std::array<uint8_t, crypto_hash_sha256_BYTES> hash{};
  crypto_hash_sha256(hash.data(), reinterpret_cast<const unsigned char*>(key.data()), key.size());
  return hash;
}

std::optional<uint32_t> number_of(std::string_view text, uint32_t least, uint32_t most) {
  uint32_t number = 0;
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), number);
  const bool whole = problem == std::errc() && end == text.data() + text.size();
  return whole && number >= least && number <= most ? std::optional(number) : std::nullopt;
}

std::vector<std::string_view> words_of(std::string_view line) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < line.size();) {
    const size_t begin = line.find_first_not_of(" \t\r", at);
    if (begin == std::string_view::npos) break;
    at = std::min(line.find_first_of(" \t\r", begin), line.size());
    words.push_back(line.substr(begin, at - begin));
  }
  return words;
}

bool plain_name(std::string_view name) {
  return !name.empty() && name.size() <= kNameBytesMax && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' || c == '_' ||
           c == '.';
  });
}

struct Limit {
  std::string_view name;
  uint32_t ApiKey::*to;
  uint32_t least, most;
};
constexpr Limit kLimits[] = {
    {"weight", &ApiKey::weight, 1, kWeightMax},
    {"waiting", &ApiKey::waiting_max, 0, 1'000'000},
    {"running", &ApiKey::running_max, 1, 1'000'000},
    {"requests_per_minute", &ApiKey::requests_per_minute, 1, 1'000'000'000},
    {"tokens_per_minute", &ApiKey::tokens_per_minute, 1, 1'000'000'000},
};

// What stands behind a key may be a secret too: it is not repeated.
std::string what_there_is() {
  std::string names;
  for (const Limit& limit : kLimits) names += fmt::format(", {}=N", limit.name);
  return "behind a key there may be name=TEXT (letters, digits, '-', '_', '.')" + names;
}

}  // namespace

Status ApiKeys::add(std::string_view key, std::string name) {
  if (key.empty() || key.size() > kKeyBytesMax)
    return fail(Code::kInvalidInput, fmt::format("an API key has 1 to {} bytes", kKeyBytesMax));
  if (keys_.size() == kKeysMax) return fail(Code::kInvalidInput, fmt::format("more than {} API keys", kKeysMax));
  keys_.push_back({std::move(name), hash_of(key)});
  return {};
}

Status ApiKeys::add_line(std::string_view line) {
  const auto words = words_of(line.substr(0, line.find('#')));
  if (words.empty()) return {};
  BATON_OK(add(words.front(), fmt::format("key{}", keys_.size() + 1)));
  ApiKey& key = keys_.back();
  if (words.front().starts_with(kHashed)) {
    const std::string_view hex = words.front().substr(kHashed.size());
    size_t size = 0;
    if (sodium_hex2bin(key.hash.data(), key.hash.size(), hex.data(), hex.size(), nullptr, &size, nullptr) != 0 ||
        size != key.hash.size())
      return fail(Code::kInvalidInput, "sha256: takes 64 hexadecimal digits");
  }
  for (size_t i = 1; i < words.size(); ++i) {
    const size_t equals = words[i].find('=');
    const std::string_view name = words[i].substr(0, equals);
    const std::string_view value = equals == std::string_view::npos ? "" : words[i].substr(equals + 1);
    if (name == "name" && plain_name(value)) {
      key.name = value;
      continue;
    }
    const auto limit =
        std::find_if(std::begin(kLimits), std::end(kLimits), [&](const Limit& each) { return each.name == name; });
    if (limit == std::end(kLimits)) return fail(Code::kInvalidInput, what_there_is());
    const auto number = number_of(value, limit->least, limit->most);
    if (!number)
      return fail(Code::kInvalidInput, fmt::format("{} must be from {} to {}", name, limit->least, limit->most));
    key.*limit->to = *number;
  }
  return {};
}

Result<ApiKeys> ApiKeys::read(const std::filesystem::path& file) {
  std::ifstream in(file);
  if (!in) {
    return fail(Code::kNotFound,
                fmt::format("keys cannot be read from {}: {}", file.string(), std::system_category().message(errno)));
  }
  ApiKeys keys;
  std::string line;
  for (uint64_t number = 1; std::getline(in, line); ++number) {
    if (auto added = keys.add_line(line); !added)
      return fail(std::move(added).error().in(fmt::format("{}, line {}", file.string(), number)));
  }
  if (keys.empty()) return fail(Code::kInvalidInput, fmt::format("{}: no key is in it", file.string()));
  return keys;
}

std::optional<uint32_t> ApiKeys::find(std::string_view key) const {
  const auto hash = hash_of(key.substr(0, kKeyBytesMax + 1));
  std::optional<uint32_t> found;
  for (uint32_t i = 0; i < keys_.size(); ++i) {
    if (sodium_memcmp(hash.data(), keys_[i].hash.data(), hash.size()) == 0) found = i;
  }
  return found;
}

}  // namespace baton::serve
