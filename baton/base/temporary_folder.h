// Folders for what is needed while a program runs.
#pragma once

#include <filesystem>
#include <string_view>
#include <utility>

#include "baton/base/status.h"

namespace baton {

// A fresh folder of the owner's, removed with what is in it.
class TemporaryFolder {
 public:
  // NAME-PID-XXXXXX where temporary files go. What killed processes of this user left under NAME is removed first.
  static Result<TemporaryFolder> create(std::string_view name);
  TemporaryFolder(TemporaryFolder&& other) noexcept : path_(std::exchange(other.path_, {})) {}
  TemporaryFolder& operator=(TemporaryFolder&& other) noexcept {
    std::swap(path_, other.path_);
    return *this;
  }
  ~TemporaryFolder();
  const std::filesystem::path& path() const { return path_; }

 private:
  TemporaryFolder() = default;
  std::filesystem::path path_;
};

}  // namespace baton
