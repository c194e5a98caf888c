// Where outputs go, what they leave behind, and inputs of any kind.
#include "baton/base/output_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <thread>

#include "baton/base/bytes.h"
#include "baton/base/file.h"
#include "baton/base/input.h"

namespace baton {
namespace {

Status put_shared(const std::filesystem::path& path, std::span<const std::byte> bytes) {
  return write_output(path, bytes, kModeShared);
}

class OutputFileTest : public testing::Test {
 protected:
  OutputFileTest() {
    folder_ =
        std::filesystem::path(testing::TempDir()) /
        ("baton_output_" + std::to_string(::getpid()) + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  ~OutputFileTest() override {
    std::error_code error;
    std::filesystem::remove_all(folder_, error);
  }
  std::filesystem::path folder_;
};

TEST_F(OutputFileTest, WritesWholeOrNothing) {
  const auto path = folder_ / "a";
  ASSERT_TRUE(put_shared(path, as_bytes("first")));
  ASSERT_TRUE(put_shared(path, as_bytes("second, longer")));
  EXPECT_EQ(read_file(path, 100).value(), "second, longer");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1) << "a temporary file stayed";
  const auto failed = put_shared(folder_ / "missing" / "a", as_bytes("x"));
  ASSERT_FALSE(failed);
  EXPECT_EQ(failed.error().code, Code::kNotFound);
  EXPECT_FALSE(put_shared(folder_, as_bytes("over a folder")));
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(OutputFileTest, AnAbandonedWriterLeavesTheOldFile) {
  const auto path = folder_ / "a";
  ASSERT_TRUE(put_shared(path, as_bytes("old")));
  {
    auto writer = OutputFile::create(path);
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->write(as_bytes("new")));
    EXPECT_EQ(read_file(path, 100).value(), "old");
    auto second = OutputFile::create(path);
    ASSERT_TRUE(second) << "two writers of one file must not share a temporary name";
  }
  EXPECT_EQ(read_file(path, 100).value(), "old");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  auto writer = OutputFile::create(path);
  ASSERT_TRUE(writer->write(as_bytes("ne")));
  ASSERT_TRUE(writer->write(as_bytes("w")));
  ASSERT_TRUE(writer->commit());
  EXPECT_EQ(read_file(path, 100).value(), "new");
}

unsigned permissions_of(const std::filesystem::path& path) {
  struct stat info {};
  EXPECT_EQ(::lstat(path.c_str(), &info), 0);
  return info.st_mode & 0777u;
}

TEST_F(OutputFileTest, OutputsAreForSharingAndStatesAreNot) {
  const mode_t before = ::umask(022);
  for (const auto temporary : {OutputFile::Temporary::kUnnamed, OutputFile::Temporary::kNamed}) {
    const auto write = [&](const char* name, unsigned mode) {
      auto writer = OutputFile::create(folder_ / name, mode, temporary);
      ASSERT_TRUE(writer) << writer.error().message;
      ASSERT_TRUE(writer->commit());
    };
    for (const char* name : {"new", "private", "was_private"}) std::filesystem::remove(folder_ / name);
    write("new", kModeShared);
    write("private", kModeOwner);
    EXPECT_EQ(permissions_of(folder_ / "new"), 0644u);
    EXPECT_EQ(permissions_of(folder_ / "private"), 0600u);
    write("private", kModeShared);
    EXPECT_EQ(permissions_of(folder_ / "private"), 0600u) << "a replaced file keeps its permissions";
    ASSERT_EQ(::chmod((folder_ / "new").c_str(), 0664), 0);
    write("new", kModeShared);
    EXPECT_EQ(permissions_of(folder_ / "new"), 0664u);
    write("new", kModeOwner);
    EXPECT_EQ(permissions_of(folder_ / "new"), 0600u);
  }
  ::umask(before);
}

TEST_F(OutputFileTest, LinksStayAndWhatTheyNameIsWritten) {
  std::filesystem::create_directories(folder_ / "inner");
  ASSERT_TRUE(put_shared(folder_ / "inner" / "real", as_bytes("old")));
  std::filesystem::create_symlink("inner/real", folder_ / "near");
  std::filesystem::create_symlink(folder_ / "near", folder_ / "far");
  std::filesystem::create_symlink("inner/none", folder_ / "dangling");
  std::filesystem::create_symlink("loop", folder_ / "loop");
  ASSERT_TRUE(put_shared(folder_ / "far", as_bytes("new")));
  EXPECT_EQ(read_file(folder_ / "inner" / "real", 100).value(), "new");
  ASSERT_TRUE(put_shared(folder_ / "dangling", as_bytes("made")));
  EXPECT_EQ(read_file(folder_ / "inner" / "none", 100).value(), "made");
  for (const char* name : {"near", "far", "dangling"}) EXPECT_TRUE(std::filesystem::is_symlink(folder_ / name)) << name;
  const auto failed = put_shared(folder_ / "loop", as_bytes("x"));
  ASSERT_FALSE(failed);
  EXPECT_NE(failed.error().message.find("too many links"), std::string::npos) << failed.error().message;
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 5) << "a temporary file stayed";
}

TEST_F(OutputFileTest, PipesAndDevicesAreWrittenInPlace) {
  const auto pipe = folder_ / "pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  std::string got;
  std::thread reader([&] { got = read_input(pipe, 1 << 20).value_or("failed"); });
  const std::string large(200000, 'x');  // more than a pipe holds
  EXPECT_TRUE(put_shared(pipe, as_bytes(large)));
  reader.join();
  EXPECT_EQ(got, large);
  EXPECT_TRUE(std::filesystem::is_fifo(pipe));
  EXPECT_TRUE(put_shared("/dev/null", as_bytes("x")));
  EXPECT_TRUE(std::filesystem::is_character_file("/dev/null"));
  if (std::filesystem::exists("/dev/full")) {
    const auto full = put_shared("/dev/full", as_bytes("x"));
    ASSERT_FALSE(full);
    EXPECT_EQ(full.error().message, "/dev/full: cannot write: No space left on device");
  }
}

// What a shell redirected is written behind what is there, and never replaced by a file of the same name.
TEST_F(OutputFileTest, OwnDescriptorsAreWrittenWhereTheyStand) {
  const auto path = folder_ / "a";
  const int fd = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  ASSERT_EQ(::write(fd, "before ", 7), 7);
  ASSERT_TRUE(put_shared("/dev/fd/" + std::to_string(fd), as_bytes("written ")));
  std::filesystem::create_symlink("/dev/fd/" + std::to_string(fd), folder_ / "link");
  ASSERT_TRUE(put_shared(folder_ / "link", as_bytes("twice")));
  ::close(fd);
  EXPECT_EQ(read_file(path, 100).value(), "before written twice");
}

TEST_F(OutputFileTest, RefusalsNameWhatWasGiven) {
  const auto message = [](const std::filesystem::path& path, OutputFile::Temporary temporary) {
    const auto writer = OutputFile::create(path, kModeShared, temporary);
    EXPECT_FALSE(writer);
    return writer ? std::string() : writer.error().message;
  };
  for (const auto temporary : {OutputFile::Temporary::kUnnamed, OutputFile::Temporary::kNamed}) {
    EXPECT_EQ(message("/nosuch/x.gguf", temporary),
              "/nosuch/x.gguf: cannot create: No such file or directory (there is no folder /nosuch)");
    EXPECT_NE(message(folder_, temporary).find("is a folder, not a file"), std::string::npos);
    EXPECT_EQ(message("", temporary), "an output file without a name");
  }
  if (::geteuid() != 0) {
    ASSERT_TRUE(put_shared(folder_ / "kept", as_bytes("x")));
    ASSERT_EQ(::chmod((folder_ / "kept").c_str(), 0444), 0);
    EXPECT_NE(message(folder_ / "kept", OutputFile::Temporary::kUnnamed).find("Permission denied"), std::string::npos);
  }
}

TEST_F(OutputFileTest, TemporaryFilesLeaveWithTheProcess) {
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGQUIT}) {
    for (const auto temporary : {OutputFile::Temporary::kUnnamed, OutputFile::Temporary::kNamed}) {
      EXPECT_EXIT(
          {
            std::signal(number, SIG_DFL);
            install_end_signals();
            auto first = OutputFile::create(folder_ / "a", kModeShared, temporary);
            auto second = OutputFile::create(folder_ / "b", kModeShared, temporary);
            BATON_CHECK(first && second && first->write(as_bytes("half")));
            std::raise(number);
          },
          testing::ExitedWithCode(128 + number), "");
      EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "signal " << number;
    }
  }
  EXPECT_EXIT(
      {
        std::signal(SIGHUP, SIG_IGN);  // nohup
        install_end_signals();
        std::raise(SIGHUP);
        std::_Exit(7);
      },
      testing::ExitedWithCode(7), "");
}

TEST_F(OutputFileTest, TheFallbackWithANameIsWholeOrNothingToo) {
  const auto path = folder_ / "a";
  ASSERT_TRUE(put_shared(path, as_bytes("old")));
  const auto entries = [&] { return std::distance(std::filesystem::directory_iterator(folder_), {}); };
  {
    auto writer = OutputFile::create(path, kModeShared, OutputFile::Temporary::kNamed);
    ASSERT_TRUE(writer && writer->write(as_bytes("new")));
    EXPECT_EQ(entries(), 2);
  }
  EXPECT_EQ(entries(), 1);
  EXPECT_EQ(read_file(path, 100).value(), "old");
  auto writer = OutputFile::create(path, kModeShared, OutputFile::Temporary::kNamed);
  ASSERT_TRUE(writer && writer->write(as_bytes("new")) && writer->commit());
  EXPECT_EQ(entries(), 1);
  EXPECT_EQ(read_file(path, 100).value(), "new");
}

// The system states a size of 0 for these.
TEST_F(OutputFileTest, InputsOfUnstatedSizeAreReadToTheirEnd) {
  if (std::filesystem::exists("/proc/self/status")) {
    EXPECT_NE(read_input("/proc/self/status", 1 << 20).value().find("Pid:"), std::string::npos);
  }
  ASSERT_TRUE(put_shared(folder_ / "long", as_bytes(std::string(100001, 'x'))));
  EXPECT_EQ(read_input(folder_ / "long", 100001).value().size(), 100001u);
  const auto refused = read_input(folder_ / "long", 100000);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("more than the 100000 bytes"), std::string::npos) << refused.error().message;
  EXPECT_FALSE(read_input(folder_, 100));
  EXPECT_EQ(read_input(folder_ / "none", 100).error().code, Code::kNotFound);
}

}  // namespace
}  // namespace baton
