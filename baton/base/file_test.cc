// Mapping, reading and atomic writing of files, and what is refused.
#include "baton/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>

#include "baton/base/bytes.h"

namespace baton {
namespace {

class FileTest : public testing::Test {
 protected:
  FileTest() {
    folder_ =
        std::filesystem::path(testing::TempDir()) /
        ("baton_file_" + std::to_string(::getpid()) + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  ~FileTest() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  std::filesystem::path folder_;
};

TEST_F(FileTest, WritesWholeOrNothing) {
  const auto path = folder_ / "a";
  ASSERT_TRUE(write_file(path, as_bytes("first")));
  ASSERT_TRUE(write_file(path, as_bytes("second, longer")));
  EXPECT_EQ(read_file(path, 100).value(), "second, longer");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "a temporary file stayed";
  const auto failed = write_file(folder_ / "missing" / "a", as_bytes("x"));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kNotFound);
  EXPECT_FALSE(write_file(folder_, as_bytes("over a folder")));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(FileTest, AnAbandonedWriterLeavesTheOldFile) {
  const auto path = folder_ / "a";
  ASSERT_TRUE(write_file(path, as_bytes("old")));
  {
    auto writer = FileWriter::create(path);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->write(as_bytes("new")));
    EXPECT_EQ(read_file(path, 100).value(), "old");
    auto second = FileWriter::create(path);
    ASSERT_TRUE(second) << "two writers of one file must not share a temporary name";
  }
  EXPECT_EQ(read_file(path, 100).value(), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  auto writer = FileWriter::create(path);
  ASSERT_TRUE(writer->write(as_bytes("ne")));
  ASSERT_TRUE(writer->write(as_bytes("w")));
  ASSERT_TRUE(writer->commit());
  EXPECT_EQ(read_file(path, 100).value(), "new");
}

TEST_F(FileTest, ReadHasALimit) {
  const auto path = folder_ / "a";
  ASSERT_TRUE(write_file(path, as_bytes("12345")));
  EXPECT_TRUE(read_file(path, 5));
  const auto refused = read_file(path, 4);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("5 bytes, more than the 4"), std::string::npos) << refused.error().message;
}

TEST_F(FileTest, MapsAndMoves) {
  const auto path = folder_ / "a";
  ASSERT_TRUE(write_file(path, as_bytes("mapped bytes")));
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  const std::byte* data = file->bytes().data();
  MappedFile moved(std::move(*file));
  EXPECT_EQ(moved.bytes().data(), data);
  EXPECT_EQ(as_text(moved.bytes()), "mapped bytes");
  EXPECT_EQ(moved.path(), path);
  ASSERT_TRUE(write_file(folder_ / "b", as_bytes("other")));
  auto other = MappedFile::open(folder_ / "b");
  *other = std::move(moved);
  EXPECT_EQ(as_text(other->bytes()), "mapped bytes");
  ASSERT_TRUE(write_file(folder_ / "empty", {}));
  EXPECT_EQ(MappedFile::open(folder_ / "empty")->bytes().size(), 0u);
}

TEST_F(FileTest, RefusesWhatIsNotAFile) {
  ASSERT_EQ(::mkfifo((folder_ / "pipe").c_str(), 0600), 0);
  const auto message = [](const std::filesystem::path& path) {
    const auto mapped = MappedFile::open(path);
    EXPECT_FALSE(mapped);
    EXPECT_FALSE(read_file(path, 100));
    return mapped ? std::string() : mapped.error().message;
  };
  EXPECT_NE(message(folder_).find("a folder, not a regular file"), std::string::npos);
  EXPECT_NE(message(folder_ / "pipe").find("pipe or socket, not a regular file"), std::string::npos);
  EXPECT_NE(message("/dev/zero").find("not a regular file"), std::string::npos);
  EXPECT_NE(message(folder_ / "none").find("No such file"), std::string::npos);
}

// A mapped file that another program shortens must end with a message, not with a crash.
TEST_F(FileTest, ShrinkingFileEndsWithAMessage) {
  const auto path = folder_ / "a";
  ASSERT_TRUE(write_file(path, std::vector<std::byte>(1 << 20)));
  EXPECT_EXIT(
      {
        install_bus_error_message();
        auto file = MappedFile::open(path);
        std::filesystem::resize_file(path, 10);
        const volatile std::byte byte = file->bytes()[1 << 19];
        static_cast<void>(byte);
      },
      testing::ExitedWithCode(1), "became shorter while it was in use");
}

}  // namespace
}  // namespace baton
