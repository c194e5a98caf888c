// Flags that mean the same in every command that has them.
#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <vector>

#include "baton/model/adapter.h"

namespace baton::cli {

// The model as the first argument or with -m; the two exclude each other.
void add_model(CLI::App& app, std::string& model, const std::string& text);
// -t: 0, or none given: physical cores.
void add_threads(CLI::App& app, uint32_t& threads);

// --kv: with_kv() takes it; empty: as the units have it.
CLI::Option* add_kv(CLI::App& app, std::string& kv, const std::string& name = "--kv", const std::string& text = {});

// --lora PATH[=SCALE], repeatable; `more` goes on with what it does here. settle_lora() reads what was given:
// kInvalidInput.
CLI::Option* add_lora(CLI::App& app, std::vector<std::string>& lora, const std::string& more = {});
Result<std::vector<AdapterChoice>> settle_lora(const std::vector<std::string>& lora);

// A number, and not NaN.
CLI::Validator real_range(double least, double most);

// The arguments of a command whose first may be given with -m instead: the others move up then. False when one is
// missing or left over; `names` are theirs, and the message for stderr names what is missing.
bool settle_arguments(const std::string& model, std::vector<std::string*> arguments,
                      const std::vector<std::string>& names);

}  // namespace baton::cli
