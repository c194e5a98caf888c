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
#include "baton/state/checksum.h"
#include "baton/state/seal_bytes.h"
#include "baton/state/seal_list.h"

namespace baton {
namespace {

// Keys of other uses of the same file are other keys.
constexpr std::string_view kPurpose = "baton sealed state, key 1";
static_assert(kMacBytes == crypto_generichash_BYTES);

tl::unexpected<Error> key_mismatch(std::string what) {
  return fail(Code::kMismatch, "sealed state: " + std::move(what));
}

// Of a block long enough for the fixed header: what `mac` and the total length say, under a right header checksum.
void mark(std::span<std::byte> block, uint32_t mac, uint64_t total) {
  store_as<uint32_t>(block.data() + sealed::kMacAt, mac);
  store_as<uint64_t>(block.data() + sealed::kTotalBytesAt, total);
  const uint64_t summed = load_as<uint32_t>(block.data() + sealed::kHeaderBytesAt) - sealed::kChecksumBytes;
  store_as<uint64_t>(block.data() + summed, checksum(block.first(summed)));
}

using Mac = std::array<unsigned char, kMacBytes>;

Mac mac_of(std::span<const std::byte> bytes, std::span<const unsigned char> key) {
  Mac mac;
  BATON_CHECK(crypto_generichash(mac.data(), mac.size(), reinterpret_cast<const unsigned char*>(bytes.data()),
                                 bytes.size(), key.data(), key.size()) == 0);
  return mac;
}

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

bool has_mac(std::span<const std::byte> block) {
  return is_seal(block) && block.size() >= sealed::kHeaderBytesMin + kMacBytes &&
         load_as<uint32_t>(block.data() + sealed::kVersionAt) == sealed::kVersion &&
         load_as<uint32_t>(block.data() + sealed::kMacAt) == sealed::kMacKeyed;
}

Result<std::vector<std::byte>> add_mac(std::vector<std::byte> block, const StateKey& key) try {
  if (auto listing = list_seal(block); !listing) return fail(std::move(listing).error());
  if (has_mac(block)) return fail(Code::kInvalidInput, "sealed state: it carries a MAC already");
  block.resize(block.size() + kMacBytes);
  mark(block, sealed::kMacKeyed, block.size());
  const Mac mac = mac_of(std::span(block).first(block.size() - kMacBytes), key.bytes_);
  std::memcpy(block.data() + block.size() - kMacBytes, mac.data(), kMacBytes);
  return block;
} catch (const std::bad_alloc&) {
  return fail(Code::kOutOfMemory, "no memory for a sealed state");
}

Status check_mac(std::span<const std::byte> block, const StateKey& key) {
  if (!is_seal(block)) return fail(Code::kCorrupt, "sealed state: magic: these bytes are not a sealed state");
  if (!has_mac(block)) {
    return key_mismatch(
        "it carries no MAC, but a key was given: it was not sealed with a key (or is of another version); "
        "without --state-key nobody vouches for it");
  }
  const size_t summed = block.size() - kMacBytes;
  const Mac mac = mac_of(block.first(summed), key.bytes_);
  if (sodium_memcmp(mac.data(), block.data() + summed, kMacBytes) != 0)
    return key_mismatch("MAC: it was sealed with another key, or changed since: nothing in it is used");
  return {};
}

Result<std::vector<std::byte>> remove_mac(std::vector<std::byte> block, const StateKey& key) {
  BATON_OK(check_mac(block, key));
  block.resize(block.size() - kMacBytes);
  // Who has the key is believed, not trusted to write sound bytes: open_seal checks everything as ever. Only where the
  // checksum lies must hold here.
  const uint64_t header_bytes = load_as<uint32_t>(block.data() + sealed::kHeaderBytesAt);
  if (header_bytes < sealed::kHeaderBytesMin || header_bytes > block.size())
    return fail(Code::kCorrupt, fmt::format("sealed state: header length: {} bytes of {}", header_bytes, block.size()));
  mark(block, 0, block.size());
  return block;
}

}  // namespace baton
