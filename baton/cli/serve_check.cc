// See serve_check.h.
#include "baton/cli/serve_check.h"

#include <fmt/format.h>

#include <filesystem>

#include "baton/cli/serve_models.h"

namespace baton::cli {
namespace {

// A file that is made at the start.
Status check_folder_of(const char* what, const std::string& file) {
  if (file.empty() || file == "-") return {};
  const auto folder = std::filesystem::absolute(file).parent_path();
  std::error_code error;
  if (std::filesystem::is_directory(folder, error)) return {};
  return fail(Code::kInvalidInput, fmt::format("{} {}: its folder is not there", what, file));
}

Status check_files(const ServeFlags& flags, const serve::AppOptions& options) {
  BATON_OK(serve::App::check(options));
  BATON_OK(check_folder_of("--access-log", flags.access_log));
  return check_folder_of("--unix-socket", flags.unix_socket);
}

std::string server_line(const ServeFlags& flags, const serve::AppOptions& options) {
  std::string text = flags.unix_socket.empty() ? fmt::format("server  {}:{}", flags.host, flags.port)
                                               : fmt::format("server  {}", flags.unix_socket);
  if (!flags.tls_certificate.empty()) text += ", TLS";
  if (const size_t keys = options.keys.all().size(); keys > 0) text += fmt::format(", keys: {}", keys);
  if (!flags.access_log.empty()) text += ", access log " + flags.access_log;
  if (!flags.cache.folder.empty()) text += ", states in " + flags.cache.folder;
  return text + "\n";
}

std::string model_line(const DescribedModels::Model& model) {
  const serve::ModelFacts& facts = model.source.facts;
  std::string text = fmt::format("model   {}: {}", facts.name, model.path);
  for (const std::string& alias : facts.aliases) text += ", also " + alias;
  if (facts.vectors) text += ", makes vectors";
  if (model.at_start) text += ", loaded at the start";
  const auto unit = [&](const std::string& name) { return name + (facts.is_emulated(name) ? " (emulated)" : ""); };
  if (!facts.vectors) text += fmt::format(", {} -> {}", unit(facts.prefill_unit), unit(facts.decode_unit));
  return text + fmt::format(", {} bytes of weights\n", facts.weight_bytes);
}

}  // namespace

Result<std::string> checked_text(const ServeFlags& flags, const serve::AppOptions& options,
                                 std::atomic<uint64_t>& draws) {
  BATON_OK(check_files(flags, options));
  BATON_TRY(const DescribedModels described, describe_models(flags, draws));
  std::string text = server_line(flags, options);
  if (flags.memory_budget) text += fmt::format("memory  {} bytes for all models together\n", *flags.memory_budget);
  for (const DescribedModels::Model& model : described.models) {
    const uint64_t needs = model.source.facts.bytes();
    if (needs > described.budget_bytes) {
      return fail(Code::kInvalidInput,
                  fmt::format("the model '{}' takes {} bytes with its states; the server's budget is {}: give it more "
                              "(--memory-budget), or a smaller model",
                              model.source.facts.name, needs, described.budget_bytes));
    }
    text += model_line(model);
  }
  return text;
}

}  // namespace baton::cli
