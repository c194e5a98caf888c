// NFC against utf8proc's own, and the time that crafted text may take.
#include "baton/text/nfc.h"

#include <gtest/gtest.h>
#include <utf8proc.h>

#include <chrono>
#include <cstdlib>

#include "baton/base/random.h"

namespace baton {
namespace {

void append(std::string& to, utf8proc_int32_t code) {
  utf8proc_uint8_t bytes[4];
  to.append(reinterpret_cast<char*>(bytes), static_cast<size_t>(utf8proc_encode_char(code, bytes)));
}

std::string by_utf8proc(const std::string& text) {
  utf8proc_uint8_t* made = nullptr;
  const auto bytes =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()), static_cast<utf8proc_ssize_t>(text.size()),
                   &made, static_cast<utf8proc_option_t>(UTF8PROC_STABLE | UTF8PROC_COMPOSE));
  EXPECT_GE(bytes, 0);
  std::string normal(reinterpret_cast<char*>(made), static_cast<size_t>(std::max<utf8proc_ssize_t>(bytes, 0)));
  std::free(made);
  return normal;
}

TEST(Nfc, KnownAnswers) {
  EXPECT_EQ(to_nfc("").value(), "");
  EXPECT_EQ(to_nfc("plain").value(), "plain");
  EXPECT_EQ(to_nfc("e\xcc\x81").value(), "\xc3\xa9");
  EXPECT_EQ(to_nfc("\xe1\x84\x92\xe1\x85\xa1\xe1\x86\xab").value(), "\xed\x95\x9c");  // Hangul
  EXPECT_EQ(to_nfc("\xe2\x84\xab").value(), "\xc3\x85");                              // a singleton
  EXPECT_EQ(to_nfc("a\xcc\x95\xcc\xa3").value(), "\xe1\xba\xa1\xcc\x95");             // ordered first
  EXPECT_EQ(to_nfc("a\xcc\x81\xcc\xa3\xcc\x80").value(), "\xe1\xba\xa1\xcc\x81\xcc\x80") << "stable";
}

TEST(Nfc, EqualsUtf8procOnRandomText) {
  Random random(12);
  // Where marks, jamo, composites and exclusions live.
  constexpr std::pair<int32_t, int32_t> kRanges[] = {
      {0x20, 0x7e},     {0xc0, 0x24f},    {0x300, 0x36f},     {0x300, 0x36f},     {0x591, 0x5c7},     {0x610, 0x65f},
      {0x900, 0x9ff},   {0xf00, 0xfff},   {0x1100, 0x11ff},   {0x1dc0, 0x1fff},   {0x20d0, 0x212f},   {0x3040, 0x30ff},
      {0xac00, 0xd7a3}, {0xf900, 0xfb4f}, {0x110b9, 0x110bf}, {0x1d15e, 0x1d1c0}, {0x2f800, 0x2fa1d}, {0x20, 0xd7ff}};
  for (int round = 0; round < 3000; ++round) {
    std::string text;
    const uint64_t length = random.below(40);
    for (uint64_t i = 0; i < length; ++i) {
      const auto& [low, high] = kRanges[random.below(std::size(kRanges))];
      append(text, low + static_cast<int32_t>(random.below(static_cast<uint64_t>(high - low + 1))));
    }
    ASSERT_EQ(to_nfc(text).value(), by_utf8proc(text)) << "round " << round;
  }
}

// 1 MB of marks in the worst order, which utf8proc sorts in time that grows with the square of their number.
TEST(Nfc, CraftedMarksTakeNoLongerThanOthers) {
  std::string text = "a";
  for (int i = 0; i < 250000; ++i) text += "\xcc\x95\xcc\xa3";
  const auto start = std::chrono::steady_clock::now();
  const auto made = to_nfc(text);
  const auto took = std::chrono::steady_clock::now() - start;
  ASSERT_TRUE(made);
  EXPECT_EQ(made->substr(0, 5), "\xe1\xba\xa1\xcc\xa3");
  EXPECT_TRUE(made->ends_with("\xcc\x95\xcc\x95"));
  EXPECT_LT(took, std::chrono::seconds(5));
}

TEST(Nfc, NotUtf8IsRefused) { EXPECT_FALSE(to_nfc("a\xff")); }

}  // namespace
}  // namespace baton
