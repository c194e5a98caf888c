// Sums against those that sha256sum and git tell.
#include "baton/hub/sum.h"

#include <gtest/gtest.h>

namespace baton::hub {
namespace {

TEST(Sums, AreThoseOfOtherTools) {
#ifndef BATON_HUB_FETCHES
  GTEST_SKIP() << "no libcurl or no OpenSSL here";
#else
  const std::string text = "hello\n";
  const auto sum_of = [&](SumKind kind) {
    Sum sum(kind, text.size());
    sum.add(std::as_bytes(std::span(text.data(), 2)));
    sum.add(std::as_bytes(std::span(text.data() + 2, text.size() - 2)));
    return sum.finish();
  };
  EXPECT_EQ(sum_of(SumKind::kSha256), "5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03");
  EXPECT_EQ(sum_of(SumKind::kGitBlob), "ce013625030ba8dba906f756967f9e9ca394464a");
  EXPECT_EQ(sum_of(SumKind::kNone), "");
#endif
}

TEST(Sums, AreKnownByTheirForm) {
  EXPECT_EQ(sum_kind(std::string(64, 'a')), SumKind::kSha256);
  EXPECT_EQ(sum_kind(std::string(40, '0')), SumKind::kGitBlob);
  EXPECT_EQ(sum_kind(std::string(64, 'A')), SumKind::kNone);
  EXPECT_EQ(sum_kind(std::string(32, 'a')), SumKind::kNone);
  EXPECT_EQ(sum_kind("abc-1"), SumKind::kNone);
}

}  // namespace
}  // namespace baton::hub
