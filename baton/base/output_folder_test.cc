// Folders in the making: in their place whole, or not at all.
#include "baton/base/output_folder.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>

#include "baton/base/output_file.h"

namespace baton {
namespace {

namespace fs = std::filesystem;

const std::string kFilesOfFolder[] = {"top", "a/b/deep"};

class OutputFolderTest : public testing::Test {
 protected:
  void SetUp() override {
    parent_ = fs::path(testing::TempDir()) / ("output-folder-" + std::to_string(::getpid()));
    fs::remove_all(parent_);
    fs::create_directories(parent_);
  }
  void TearDown() override { fs::remove_all(parent_); }
  size_t entries() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(parent_), fs::directory_iterator()));
  }
  static void fill(const OutputFolder& folder) {
    for (const std::string& file : kFilesOfFolder) std::ofstream(folder.path() / file) << file;
  }

  fs::path parent_;
};

TEST_F(OutputFolderTest, CommitReplacesAndLeavesNothingBeside) {
  fs::create_directories(parent_ / "place" / "old");
  OutputFolder folder(parent_ / "place" / "");
  ASSERT_TRUE(folder.make(kFilesOfFolder));
  fill(folder);
  ASSERT_TRUE(folder.commit());
  EXPECT_TRUE(fs::exists(parent_ / "place" / "a" / "b" / "deep"));
  EXPECT_FALSE(fs::exists(parent_ / "place" / "old"));
  EXPECT_EQ(entries(), 1u);
}

TEST_F(OutputFolderTest, WithoutACommitNothingStays) {
  {
    OutputFolder folder(parent_ / "place");
    ASSERT_TRUE(folder.make(kFilesOfFolder));
    fill(folder);
    EXPECT_EQ(entries(), 1u);
  }
  EXPECT_EQ(entries(), 0u);
}

TEST_F(OutputFolderTest, ASignalRemovesIt) {
  const pid_t child = ::fork();
  if (child == 0) {
    install_end_signals();
    OutputFolder folder(parent_ / "place");
    if (!folder.make(kFilesOfFolder)) ::_exit(1);
    fill(folder);
    if (entries() != 1) ::_exit(2);
    ::raise(SIGTERM);
    ::_exit(3);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
  EXPECT_EQ(entries(), 0u);
}

TEST_F(OutputFolderTest, WhatAKilledProcessLeftIsRemovedByTheNext) {
  const pid_t child = ::fork();
  if (child == 0) ::_exit(0);
  ASSERT_EQ(::waitpid(child, nullptr, 0), child);
  const std::string dead = ".part-" + std::to_string(child), alive = ".part-" + std::to_string(::getppid());
  for (const std::string& name : {"place" + dead, "place" + alive, "other" + dead, std::string("place.part-x")})
    fs::create_directories(parent_ / name / "a");
  OutputFolder folder(parent_ / "place");
  ASSERT_TRUE(folder.make(kFilesOfFolder));
  EXPECT_FALSE(fs::exists(parent_ / ("place" + dead)));
  EXPECT_TRUE(fs::exists(parent_ / ("place" + alive)));
  EXPECT_TRUE(fs::exists(parent_ / ("other" + dead)));
  EXPECT_TRUE(fs::exists(parent_ / "place.part-x"));
}

}  // namespace
}  // namespace baton
