// Sums of files as a hub tells them: SHA-256 of large files, git's name of a blob (SHA-1) of small ones.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace baton::hub {

// Which sum an etag is, by its form.
enum class SumKind { kNone, kSha256, kGitBlob };
SumKind sum_kind(std::string_view etag);

class Sum {
 public:
  // `bytes`: of the whole file, which git's sum begins with.
  Sum(SumKind kind, uint64_t bytes);
  Sum(Sum&& other) noexcept;
  Sum& operator=(Sum&& other) noexcept;
  ~Sum();
  void add(std::span<const std::byte> bytes);
  // In hex; once.
  std::string finish();

 private:
  struct Context;
  std::unique_ptr<Context> context_;
};

}  // namespace baton::hub
