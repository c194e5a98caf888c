// Mapping and reading of files, and what is refused.
#include "baton/base/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>

#include "baton/base/bytes.h"
#include "baton/base/output_file.h"

namespace baton {
namespace {

Status put(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  return write_output(path, bytes, kModeShared);
}

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

TEST_F(FileTest, ReadHasALimit) {
  const auto path = folder_ / "a";
  ASSERT_TRUE(put(path, as_bytes("12345")));
  EXPECT_TRUE(read_file(path, 5));
  const auto refused = read_file(path, 4);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("5 bytes, more than the 4"), std::string::npos) << refused.error().message;
}

TEST_F(FileTest, MapsAndMoves) {
  const auto path = folder_ / "a";
  ASSERT_TRUE(put(path, as_bytes("mapped bytes")));
  auto file = MappedFile::open(path);
  ASSERT_TRUE(file);
  const std::byte* data = file->bytes().data();
  MappedFile moved(std::move(*file));
  EXPECT_EQ(moved.bytes().data(), data);
  EXPECT_EQ(as_text(moved.bytes()), "mapped bytes");
  EXPECT_EQ(moved.path(), path);
  ASSERT_TRUE(put(folder_ / "b", as_bytes("other")));
  auto other = MappedFile::open(folder_ / "b");
  *other = std::move(moved);
  EXPECT_EQ(as_text(other->bytes()), "mapped bytes");
  ASSERT_TRUE(put(folder_ / "empty", {}));
  EXPECT_EQ(MappedFile::open(folder_ / "empty")->bytes().size(), 0u);
}

TEST_F(FileTest, APartOfAMappingIsReadFromTheFile) {
  const auto path = folder_ / "a";
  ASSERT_TRUE(put(path, as_bytes("mapped bytes")));
  auto opened = MappedFile::open(path);
  ASSERT_TRUE(opened);
  const MappedFile file(std::move(*opened));
  std::array<std::byte, 6> part{};
  ASSERT_TRUE(file.copy(file.bytes().subspan(3, 6), part.data()));
  EXPECT_EQ(as_text(part), "ped by");
  EXPECT_TRUE(file.holds(file.bytes()));
  EXPECT_TRUE(file.holds(file.bytes().subspan(12)));
  EXPECT_FALSE(file.holds(part));
  EXPECT_FALSE(file.holds({file.bytes().data() + 7, 6}));
  std::filesystem::resize_file(path, 5);
  const Status shorter = file.copy(file.bytes().subspan(3, 6), part.data());
  ASSERT_FALSE(shorter);
  EXPECT_EQ(shorter.error().message, path.string() + ": ends at byte 5, more was expected");
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
  ASSERT_TRUE(put(path, std::vector<std::byte>(1 << 20)));
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
