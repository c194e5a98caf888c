// `baton state ls FOLDER`, `baton state rm FOLDER [STATE...]`: the folder of a --state-cache.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

namespace baton::cli {

struct CacheFolderFlags {
  std::string folder;               // empty: neither of the commands was given
  std::vector<std::string> states;  // names in it, or how these begin
  bool removes = false, all = false, json = false;
};

void add_cache_folder(CLI::App& state, CacheFolderFlags& flags);
// The exit code.
int list_or_remove(const CacheFolderFlags& flags);

}  // namespace baton::cli
