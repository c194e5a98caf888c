// OpenSSL's, which use what the processor has for them. Without it nothing is fetched, and no sum is needed.
#include "baton/hub/sum.h"

#include <fmt/format.h>

#include <algorithm>

#ifdef BATON_HUB_FETCHES
#include <openssl/evp.h>
#endif

#include "baton/base/status.h"

namespace baton::hub {

SumKind sum_kind(std::string_view etag) {
  const auto is_hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  if (!std::all_of(etag.begin(), etag.end(), is_hex)) return SumKind::kNone;
  return etag.size() == 64 ? SumKind::kSha256 : etag.size() == 40 ? SumKind::kGitBlob : SumKind::kNone;
}

#ifdef BATON_HUB_FETCHES

struct Sum::Context {
  EVP_MD_CTX* made = nullptr;
  ~Context() { EVP_MD_CTX_free(made); }
};

Sum::Sum(SumKind kind, uint64_t bytes) : context_(std::make_unique<Context>()) {
  if (kind == SumKind::kNone) return;
  context_->made = EVP_MD_CTX_new();
  BATON_CHECK(context_->made != nullptr);
  const EVP_MD* const what = kind == SumKind::kSha256 ? EVP_sha256() : EVP_sha1();
  BATON_CHECK(EVP_DigestInit_ex(context_->made, what, nullptr) == 1);
  if (kind != SumKind::kGitBlob) return;
  const std::string head = fmt::format("blob {}", bytes);
  add(std::as_bytes(std::span(head.c_str(), head.size() + 1)));  // with its NUL
}

void Sum::add(std::span<const std::byte> bytes) {
  if (context_->made != nullptr) BATON_CHECK(EVP_DigestUpdate(context_->made, bytes.data(), bytes.size()) == 1);
}

std::string Sum::finish() {
  std::string hex;
  if (context_->made == nullptr) return hex;
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned size = 0;
  BATON_CHECK(EVP_DigestFinal_ex(context_->made, digest, &size) == 1);
  for (unsigned i = 0; i < size; ++i) hex += fmt::format("{:02x}", digest[i]);
  return hex;
}

#else

struct Sum::Context {};
Sum::Sum(SumKind, uint64_t) {}
void Sum::add(std::span<const std::byte>) {}
std::string Sum::finish() { return ""; }

#endif

Sum::Sum(Sum&& other) noexcept = default;
Sum& Sum::operator=(Sum&& other) noexcept = default;
Sum::~Sum() = default;

}  // namespace baton::hub
