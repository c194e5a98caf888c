// The bounds-checked reader at its edges, and arithmetic that would wrap.
#include "baton/base/bytes.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

namespace baton {
namespace {

std::string u64_bytes(uint64_t value) { return {reinterpret_cast<const char*>(&value), sizeof(value)}; }

TEST(ByteReader, ReadsUnaligned) {
  const std::string bytes = std::string(1, '\x7f') + u64_bytes(0x0123456789abcdefu) + "\x01\x02";
  ByteReader reader(as_bytes(bytes));
  EXPECT_EQ(reader.read<uint8_t>("a").value(), 0x7f);
  EXPECT_EQ(reader.read<uint64_t>("b").value(), 0x0123456789abcdefu);
  EXPECT_EQ(reader.read<uint16_t>("c").value(), 0x0201);
  EXPECT_EQ(reader.remaining(), 0u);
  EXPECT_EQ(reader.take(0, "nothing").value().size(), 0u);
}

TEST(ByteReader, StaysPutWhenItFails) {
  const std::string bytes = u64_bytes(5) + "abc";
  ByteReader reader(as_bytes(bytes));
  const auto text = reader.read_string("a name", 100);
  ASSERT_FALSE(text);
  EXPECT_EQ(text.error().code, Code::kCorrupt);
  EXPECT_NE(text.error().message.find("a name needs 5 bytes, 3 remain"), std::string::npos) << text.error().message;
  EXPECT_EQ(reader.offset(), 0u);
  EXPECT_FALSE(reader.read_string("a name", 4));
  EXPECT_EQ(reader.offset(), 0u);
  EXPECT_FALSE(reader.read_count("items", 1));
  EXPECT_EQ(reader.offset(), 0u);
  EXPECT_TRUE(reader.take(11, "all"));
  EXPECT_FALSE(reader.read<uint8_t>("more"));
  EXPECT_EQ(reader.offset(), 11u);
}

TEST(ByteReader, HugeLengthsDoNotWrap) {
  for (const uint64_t huge :
       {uint64_t{1} << 63, std::numeric_limits<uint64_t>::max(), std::numeric_limits<uint64_t>::max() - 7}) {
    const std::string bytes = u64_bytes(huge) + "12345678";
    ByteReader reader(as_bytes(bytes));
    EXPECT_FALSE(reader.read_string("text", std::numeric_limits<uint64_t>::max()));
    EXPECT_FALSE(reader.read_count("items", 1));
    EXPECT_FALSE(reader.read_count("items", 8));
    EXPECT_FALSE(reader.take(huge, "bytes"));
    EXPECT_FALSE(ByteReader(as_bytes(bytes), huge).read<uint8_t>("past the end"));
  }
}

TEST(ByteReader, CountsAreBoundByWhatRemains) {
  const std::string bytes = u64_bytes(3) + std::string(12, 'x');
  EXPECT_EQ(ByteReader(as_bytes(bytes)).read_count("items", 4).value(), 3u);
  EXPECT_FALSE(ByteReader(as_bytes(bytes)).read_count("items", 5));
}

TEST(Checked, ReportsOverflow) {
  uint64_t out = 0;
  EXPECT_TRUE(checked_mul<uint64_t>(1u << 31, uint64_t{1} << 32, &out));
  EXPECT_EQ(out, uint64_t{1} << 63);
  EXPECT_FALSE(checked_mul<uint64_t>(uint64_t{1} << 32, uint64_t{1} << 32, &out));
  EXPECT_FALSE(checked_add<uint64_t>(std::numeric_limits<uint64_t>::max(), 1, &out));
  EXPECT_TRUE(checked_align(33, 32, &out));
  EXPECT_EQ(out, 64u);
  EXPECT_TRUE(checked_align(0, 32, &out));
  EXPECT_EQ(out, 0u);
  EXPECT_FALSE(checked_align(std::numeric_limits<uint64_t>::max() - 3, 32, &out));
}

}  // namespace
}  // namespace baton
