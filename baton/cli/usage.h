// The words of a command line, for people: what was meant by a word that does not exist, errors in plain words, and
// help with ranges, examples, environment and exit codes.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <vector>

namespace baton::cli {

// What is wrong with the words before they are parsed: a command or flag that does not exist, with what may have been
// meant; a cluster of letters that would be read as other flags (-hf, -ngl). In the order of the command line.
std::optional<std::string> usage_problem(const CLI::App& program, const std::vector<std::string>& words);

// The parser's error in plain words. `words`: the command line, for the names that were typed.
std::string usage_text(const CLI::App& program, const CLI::Error& error, const std::vector<std::string>& words);

// Help of the program and its commands: readable ranges, and what follows the flags.
void decorate_help(CLI::App& program);

}  // namespace baton::cli
