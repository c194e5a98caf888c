// Words of other programs, llama.cpp, Ollama and their like, and what there is here instead.
#pragma once

#include <CLI/CLI.hpp>
#include <string_view>

namespace baton::cli {

// What stands for another program's flag ("-ngl") in the command `app`; empty: nothing is known of it.
std::string_view meaning_of_flag(const CLI::App& app, std::string_view flag);
// The command that another program's is here; empty: nothing is known of it.
std::string_view meaning_of_command(std::string_view word);

}  // namespace baton::cli
