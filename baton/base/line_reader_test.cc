// Lines of files and pipes, however they are cut.
#include "baton/base/line_reader.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>
#include <vector>

namespace baton {
namespace {

class LineReaderTest : public testing::Test {
 protected:
  ~LineReaderTest() override { std::filesystem::remove(path_); }
  std::vector<Line> lines_of(const std::string& text, size_t bytes_max) {
    std::ofstream(path_, std::ios::binary) << text;
    auto reader = LineReader::open(path_, bytes_max);
    EXPECT_TRUE(reader);
    std::vector<Line> lines;
    for (Line line; reader->next(line, -1).value() == LineReader::Outcome::kLine;) lines.push_back(line);
    return lines;
  }
  const std::filesystem::path path_ =
      std::filesystem::path(testing::TempDir()) / ("baton_lines_" + std::to_string(::getpid()));
};

TEST_F(LineReaderTest, NumbersAndOffsets) {
  const auto lines = lines_of("one\n\nthree\nlast", 100);
  ASSERT_EQ(lines.size(), 4u);
  const std::vector<std::string> texts = {"one", "", "three", "last"};
  const std::vector<uint64_t> offsets = {0, 4, 5, 11};
  for (size_t i = 0; i < lines.size(); ++i) {
    EXPECT_EQ(lines[i].text, texts[i]);
    EXPECT_EQ(lines[i].number, i + 1);
    EXPECT_EQ(lines[i].offset, offsets[i]);
    EXPECT_EQ(lines[i].whole, i < 3);
  }
  EXPECT_TRUE(lines_of("", 100).empty());
  EXPECT_EQ(lines_of("\n", 100).size(), 1u);
}

TEST_F(LineReaderTest, ALineThatIsTooLongIsSkippedAndNotHeld) {
  const std::string exact(100, 'a'), over(101, 'b'), far(300'000, 'c');
  const auto lines = lines_of(exact + "\n" + over + "\n" + far + "\nend\n" + over, 100);
  ASSERT_EQ(lines.size(), 5u);
  EXPECT_EQ(lines[0].text, exact);
  for (const size_t i : {1, 2, 4}) {
    EXPECT_TRUE(lines[i].too_long);
    EXPECT_TRUE(lines[i].text.empty());
  }
  EXPECT_FALSE(lines[3].too_long);
  EXPECT_EQ(lines[3].text, "end");
  EXPECT_EQ(lines[3].offset, 101u + 102u + 300'001u);
}

TEST(LineReader, ALineWithoutEndIsReportedAtOnce) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  auto reader = LineReader::open("/dev/fd/" + std::to_string(ends[0]), 1000, LongLines::kReported);
  ASSERT_TRUE(reader);
  const std::string text(2000, 'x');
  ASSERT_EQ(::write(ends[1], text.data(), text.size()), 2000);
  Line line;
  EXPECT_EQ(reader->next(line, 0).value(), LineReader::Outcome::kLine);
  EXPECT_TRUE(line.too_long);
  EXPECT_EQ(line.number, 1u);
  EXPECT_EQ(reader->next(line, 0).value(), LineReader::Outcome::kEnd);
  ::close(ends[1]);
  ::close(ends[0]);
}

TEST_F(LineReaderTest, LinesAcrossPieces) {
  std::string text;
  for (int i = 0; i < 5000; ++i) text += std::to_string(i) + std::string(37, 'x') + "\n";
  const auto lines = lines_of(text, 1000);
  ASSERT_EQ(lines.size(), 5000u);
  for (size_t i = 0; i < lines.size(); ++i) ASSERT_EQ(lines[i].text, std::to_string(i) + std::string(37, 'x'));
}

TEST(LineReader, APipeThatHasNothingYetIsNoEnd) {
  int ends[2];
  ASSERT_EQ(::pipe(ends), 0);
  auto reader = LineReader::open("/dev/fd/" + std::to_string(ends[0]), 100);
  ASSERT_TRUE(reader);
  Line line;
  EXPECT_EQ(reader->next(line, 0).value(), LineReader::Outcome::kNone);
  ASSERT_EQ(::write(ends[1], "ab", 2), 2);
  EXPECT_EQ(reader->next(line, 0).value(), LineReader::Outcome::kNone);
  ASSERT_EQ(::write(ends[1], "c\nd", 3), 3);
  EXPECT_EQ(reader->next(line, 0).value(), LineReader::Outcome::kLine);
  EXPECT_EQ(line.text, "abc");
  ::close(ends[1]);
  EXPECT_EQ(reader->next(line, -1).value(), LineReader::Outcome::kLine);
  EXPECT_EQ(line.text, "d");
  EXPECT_FALSE(line.whole);
  EXPECT_EQ(reader->next(line, -1).value(), LineReader::Outcome::kEnd);
  ::close(ends[0]);
}

TEST(LineReader, WhatCannotBeReadIsAnError) {
  EXPECT_EQ(LineReader::open("/nowhere/at/all", 100).error().code, Code::kNotFound);
  EXPECT_FALSE(LineReader::open("/", 100));
}

}  // namespace
}  // namespace baton
