// Keys, and the MAC behind the last section.
#include "baton/state/state_key.h"

#include <fmt/format.h>
#include <sodium.h>

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <utility>

#include "baton/base/bytes.h"
#include "baton/base/file.h"
#include "baton/state/seal_bytes.h"
#include "baton/state/seal_list.h"

namespace baton {
namespace {

// Keys of other uses of the same file are other keys.
constexpr std::string_view kPurpose = "baton sealed state, key 1";
static_assert(kMacBytes == crypto_generichash_BYTES);

}  // namespace

Result<StateKey> StateKey::from_bytes(std::span<const std::byte> bytes) {
  if (bytes.size() < kKeyFileBytesMin || bytes.size() > kKeyFileBytesMax) {
    return fail(Code::kInvalidInput,
                fmt::format("a key of {} bytes; {} to {} are needed: head -c 32 /dev/urandom >FILE", bytes.size(),
                            kKeyFileBytesMin, kKeyFileBytesMax));
  }
  if (std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == bytes[0]; }))
    return fail(Code::kInvalidInput, "a key of one byte repeated is no secret: head -c 32 /dev/urandom >FILE");
  if (sodium_init() < 0) return fail(Code::kInternal, "libsodium does not start");
  StateKey key;
  crypto_generichash_state hash;
  const auto add = [&](const void* data, size_t size) {
    return crypto_generichash_update(&hash, static_cast<const unsigned char*>(data), size) == 0;
  };
  const bool made = crypto_generichash_init(&hash, nullptr, 0, key.bytes_.size()) == 0 &&
                    add(kPurpose.data(), kPurpose.size()) && add(bytes.data(), bytes.size()) &&
                    crypto_generichash_final(&hash, key.bytes_.data(), key.bytes_.size()) == 0;
  sodium_memzero(&hash, sizeof(hash));
  BATON_CHECK(made);
  return key;
}

Result<StateKey> StateKey::read(const std::filesystem::path& path) {
  BATON_TRY(std::string text, read_file(path, kKeyFileBytesMax));
  auto key = from_bytes(as_bytes(text));
  sodium_memzero(text.data(), text.size());
  if (!key) return fail(std::move(key).error().in(path.string()));
  std::error_code error;
  const auto permissions = std::filesystem::status(path, error).permissions();
  using Perms = std::filesystem::perms;
  if (!error && (permissions & (Perms::group_all | Perms::others_all)) != Perms::none)
    key->warning_ = fmt::format("{}: others can read or write this key: chmod 600", path.string());
  return key;
}

StateKey::StateKey(StateKey&& other) noexcept : bytes_(other.bytes_), warning_(std::move(other.warning_)) {
  sodium_memzero(other.bytes_.data(), other.bytes_.size());
}

StateKey& StateKey::operator=(StateKey&& other) noexcept {
  if (this == &other) return *this;
  bytes_ = other.bytes_;
  warning_ = std::move(other.warning_);
  sodium_memzero(other.bytes_.data(), other.bytes_.size());
  return *this;
}

StateKey::~StateKey() { sodium_memzero(bytes_.data(), bytes_.size()); }

namespace {

static_assert(sizeof(crypto_generichash_state) <= 384);
crypto_generichash_state* as_hash(std::array<unsigned char, 384>& state) {
  return reinterpret_cast<crypto_generichash_state*>(state.data());
}

}  // namespace

MacSum::MacSum(const StateKey& key) {
  BATON_CHECK(crypto_generichash_init(as_hash(state_), key.bytes_.data(), key.bytes_.size(), kMacBytes) == 0);
}

MacSum::~MacSum() { sodium_memzero(state_.data(), state_.size()); }

void MacSum::update(std::span<const std::byte> bytes) {
  const auto* data = reinterpret_cast<const unsigned char*>(bytes.data());
  BATON_CHECK(crypto_generichash_update(as_hash(state_), data, bytes.size()) == 0);
}

std::array<std::byte, kMacBytes> MacSum::value() && {
  std::array<std::byte, kMacBytes> mac;
  auto* const data = reinterpret_cast<unsigned char*>(mac.data());
  BATON_CHECK(crypto_generichash_final(as_hash(state_), data, mac.size()) == 0);
  return mac;
}

Status MacSum::check(std::span<const std::byte> mac) && {
  const auto own = std::move(*this).value();
  if (mac.size() == own.size() && sodium_memcmp(own.data(), mac.data(), own.size()) == 0) return {};
  return sealed::mismatch("MAC: it was sealed with another key, or changed since: nothing in it is used");
}

bool has_mac(std::span<const std::byte> start, uint64_t bytes) {
  return is_seal(start) && start.size() >= sealed::kHeaderBytesMin && bytes >= sealed::kHeaderBytesMin + kMacBytes &&
         load_as<uint32_t>(start.data() + sealed::kVersionAt) == sealed::kVersion &&
         load_as<uint32_t>(start.data() + sealed::kMacAt) == sealed::kMacKeyed;
}

Status check_has_mac(std::span<const std::byte> start, uint64_t bytes) {
  if (!is_seal(start)) return sealed::corrupt("magic: these bytes are not a sealed state");
  if (has_mac(start, bytes)) return {};
  return sealed::mismatch(
      "it carries no MAC, but a key was given: it was not sealed with a key (or is of another version); "
      "to be used without a key, nobody vouching for it");
}

Status check_mac(std::span<const std::byte> block, const StateKey& key) {
  BATON_OK(check_has_mac(block, block.size()));
  MacSum sum(key);
  sum.update(block.first(block.size() - kMacBytes));
  return std::move(sum).check(block.last(kMacBytes));
}

}  // namespace baton
