// The command line, fit to be shown.
#include "baton/cli/page_info.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <chrono>
#include <filesystem>

namespace baton::cli {
namespace {

// Of main; they live as long as the process.
int words = 0;
char** first_word = nullptr;

// "--html=/tmp/a.html" too.
std::string shown_word(const std::string& word) {
  const size_t equals = word.starts_with("--") ? word.find('=') : std::string::npos;
  const size_t from = equals == std::string::npos ? 0 : equals + 1;
  std::string shown = word;
  if (word.compare(from, 1, "/") == 0) {
    std::filesystem::path path(word.substr(from));
    if (!path.has_filename()) path = path.parent_path();
    shown = word.substr(0, from) + path.filename().string();
  }
  return shown.find_first_of(" \t\n\"'$") == std::string::npos && !shown.empty() ? shown : fmt::format("'{}'", shown);
}

}  // namespace

void remember_command(int argc, char** argv) {
  words = argc;
  first_word = argv;
}

PageInfo page_info() {
  std::string command = "baton";
  for (int i = 1; i < words; ++i) command += " " + shown_word(first_word[i]);
  const std::time_t now = std::chrono::system_clock::to_time_t(std::chrono::system_clock::now());
  return {fmt::format("{:%Y-%m-%d %H:%M} UTC", fmt::gmtime(now)), "baton " BATON_VERSION, command};
}

}  // namespace baton::cli
