// One way to give a model, threads and files.
#include "baton/cli/shared_flags.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace baton::cli {

void add_model(CLI::App& app, std::string& model, const std::string& text) {
  CLI::Option* positional = app.add_option("model", model, text);
  app.add_option("-m,--model", model, "the same")->excludes(positional);
}

void add_threads(CLI::App& app, uint32_t& threads) {
  app.add_option("-t,--threads", threads, "threads; 0: physical cores")
      ->capture_default_str()
      ->check(CLI::Range(0, 1024));
}

bool settle_arguments(const std::string& model, std::vector<std::string*> arguments,
                      const std::vector<std::string>& names) {
  if (!model.empty()) {
    if (!arguments.back()->empty()) {
      fmt::print(stderr, "baton: {} is given twice: as an argument and with -m\n", names.front());
      return false;
    }
    for (size_t i = arguments.size() - 1; i > 0; --i) *arguments[i] = *arguments[i - 1];
    *arguments.front() = model;
  }
  std::vector<std::string> missing;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (arguments[i]->empty()) missing.push_back(names[i]);
  }
  if (missing.empty()) return true;
  fmt::print(stderr, "baton: missing: {}; see --help\n", fmt::join(missing, ", "));
  return false;
}

}  // namespace baton::cli
