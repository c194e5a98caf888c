// What reaches a terminal from a file.
#include "baton/base/terminal.h"

#include <gtest/gtest.h>

namespace baton {
namespace {

TEST(Terminal, CommandsAreWrittenOut) {
  EXPECT_EQ(terminal_safe("plain text\n\tand \xc3\xa9, \xe6\x97\xa5, \xf0\x9f\x8c\xb3", 100),
            "plain text\n\tand \xc3\xa9, \xe6\x97\xa5, \xf0\x9f\x8c\xb3");
  EXPECT_EQ(terminal_safe("\x1b[2J\x1b]0;title\x07", 100), "\\x1b[2J\\x1b]0;title\\x07");
  EXPECT_EQ(terminal_safe("a\rb\x7f\b", 100), "a\\x0db\\x7f\\x08");
  EXPECT_EQ(terminal_safe(std::string_view("a\0b", 3), 100), "a\\x00b");
  EXPECT_EQ(terminal_safe("\xc2\x9b"
                          "31m",
                          100),
            "\\u{9b}31m")
      << "CSI in one character";
  EXPECT_EQ(terminal_safe("\xe2\x80\xae"
                          "gpj",
                          100),
            "\\u{202e}gpj");
  EXPECT_EQ(terminal_safe("\xc2\xa0\xe2\x80\xaf", 100), "\xc2\xa0\xe2\x80\xaf") << "the characters beside them stay";
}

TEST(Terminal, WhatIsNotUtf8IsWrittenOut) {
  EXPECT_EQ(terminal_safe("\xff\xc3", 100), "\\xff\\xc3");
  EXPECT_EQ(terminal_safe("\xc0\x9b", 100), "\\xc0\\x9b") << "a longer form of ESC's neighbour";
  EXPECT_EQ(terminal_safe("\xed\xa0\x80", 100), "\\xed\\xa0\\x80");
  EXPECT_EQ(terminal_safe("\xf4\x90\x80\x80", 100), "\\xf4\\x90\\x80\\x80");
}

TEST(Terminal, LengthIsBoundAndCutAtACharacter) {
  EXPECT_EQ(terminal_safe(std::string(10, 'x'), 10), std::string(10, 'x'));
  EXPECT_EQ(terminal_safe(std::string(11, 'x'), 10), std::string(10, 'x') + "...");
  EXPECT_EQ(terminal_safe("123\xe6\x97\xa5", 5), "123...");
  EXPECT_EQ(terminal_safe("1234\x1b", 7), "1234...");
}

}  // namespace
}  // namespace baton
