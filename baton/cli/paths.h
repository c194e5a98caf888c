// Options whose value is a path: none may be empty, and no file that a command writes may be one that it reads or
// writes under another flag.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

#include "baton/base/status.h"

namespace baton::cli {

// What a command does with the path.
enum class PathKind {
  kFile,          // reads it
  kModel,         // reads it: a file (with its splits), or the files of a folder
  kBundledModel,  // the same; the bundled model when the option is not given
  kState,         // reads it, and a conversation's FILE.json; a saved state may replace it
  kOutput,        // writes it
  kFolder,        // writes into it
  kSavedState,    // writes it
  kConversation,  // writes it and FILE.json
  kHistory,       // writes it; "" is a value: none
  kLog,           // writes at its end; "-" is standard error
};

// Says so of the option; its help shows the kind. Returns the option.
CLI::Option* takes_path(CLI::Option* option, PathKind kind);

// The type of an argument whose place decides what it is: the command itself looks it up and checks it.
inline constexpr char kNamedType[] = "MODEL-OR-NAME";

// The end of a model's help: what else than a path is taken.
inline constexpr char kOrName[] = "or OWNER/NAME[:TYPE] of `baton pull`";

struct UsedPath {
  std::string name;  // of the flag or argument
  std::string path;
  PathKind kind = PathKind::kFile;
};

// Before any work: what is written replaces what is there, and is not mixed with what is printed. kInvalidInput names
// the flags, kNotFound the folder that an output would lie in.
Status check_paths(std::span<const UsedPath> used);

// The same for the command of a program that has been parsed.
Status check_paths(CLI::App& program);

}  // namespace baton::cli
