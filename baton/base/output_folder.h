// Folders that a program writes: whole or not at all, and gone when the program ends early.
#pragma once

#include <filesystem>
#include <span>
#include <string>
#include <vector>

#include "baton/base/status.h"

namespace baton {

// A folder in the making: `PLACE.part-PID` until `commit` puts it in its place. Destroyed without a commit, or ended
// with the process by a signal, it leaves nothing behind. What a killed process left for the same place is removed by
// the next one.
class OutputFolder {
 public:
  explicit OutputFolder(std::filesystem::path place);
  OutputFolder(const OutputFolder&) = delete;
  OutputFolder& operator=(const OutputFolder&) = delete;
  ~OutputFolder();

  // Once, first. `files`: all that will be written, below `path`; their folders are made.
  Status make(std::span<const std::string> files);
  const std::filesystem::path& path() const { return work_; }
  // What is in the place is removed.
  Status commit();

 private:
  void remove_left_over() const;
  void forget();

  const std::filesystem::path place_;
  const std::filesystem::path work_;
  std::vector<int> slots_;  // of what a signal removes
  bool made_ = false;
};

}  // namespace baton
