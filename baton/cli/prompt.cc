// Prompts from words, files and pipes.
#include "baton/cli/prompt.h"

#include <fmt/format.h>
#include <poll.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "baton/base/input.h"
#include "baton/base/terminal.h"
#include "baton/cli/figures.h"

namespace baton::cli {
namespace {

constexpr size_t kPromptBytesMax = size_t{64} << 20;

// A better model that was fetched beside the bundled one, as a path from here where it is below; empty: none.
std::string fetched_model(const std::filesystem::path& folder) {
  std::error_code error;
  std::string best;
  for (std::filesystem::directory_iterator entry(folder, error); !error && entry != std::filesystem::end(entry);
       entry.increment(error)) {
    const std::string name = entry->path().filename().string();
    if (name.starts_with("smollm2") && name.ends_with(".gguf") && (best.empty() || name < best)) best = name;
  }
  if (best.empty()) return best;
  const std::filesystem::path whole = folder / best, near = std::filesystem::proximate(whole, error);
  return error || near.empty() || *near.begin() == ".." ? whole.string() : near.string();
}

}  // namespace

Result<std::string> read_prompt(const PromptSource& source) {
  if (source.file.empty()) return source.text;
  BATON_TRY(std::string read, read_input(source.file, kPromptBytesMax));
  if (!source.as_it_is && read.ends_with('\n')) {
    read.pop_back();
    if (read.ends_with('\r')) read.pop_back();
  }
  if (!read.empty()) return source.text.empty() ? read : source.text + "\n\n" + read;
  return fail(Code::kInvalidInput, source.file == "-"
                                       ? "no prompt: standard input is empty; give it as an argument, with -p or -f"
                                       : fmt::format("{}: is empty: a prompt has at least one character", source.file));
}

std::string model_hint(std::string_view path) {
  std::error_code error;
  const std::filesystem::path name(path);
  const bool file = path.ends_with(".gguf") && std::filesystem::is_regular_file(name, error);
  if (!file && !std::filesystem::is_regular_file(name / "config.json", error)) return "";
  return fmt::format("'{}' is a model, not a question: give it with -m", path);
}

Status check_no_model(std::string_view text) {
  std::string hint = model_hint(text);
  return hint.empty() ? Status() : fail(Code::kInvalidInput, std::move(hint));
}

void warn_of_unread_pipe() {
  struct stat info {};
  struct pollfd entry {
    STDIN_FILENO, POLLIN, 0
  };
  // At its end a pipe is no more than closed.
  if (::fstat(STDIN_FILENO, &info) != 0 || !S_ISFIFO(info.st_mode)) return;
  if (::poll(&entry, 1, 0) <= 0 || (entry.revents & POLLIN) == 0) return;
  spdlog::warn(
      "what comes through the pipe is not read, as the prompt is given: with -f - it is read and follows the prompt, "
      "with -f - alone it is the prompt");
}

void say_bundled_model(const ModelFlags& flags) {
  if (!flags.bundled) return;
  const std::filesystem::path model(flags.model);
  const std::string better = fetched_model(model.parent_path());
  const std::string text = fmt::format(
      "baton: no -m: the bundled {} answers, which knows dictionary words and little else; better: {}",
      name_of_path(model), better.empty() ? "-m MODEL (scripts/fetch_smollm2.sh gets one)" : "-m " + better);
  fmt::print(stderr, "{}\n", terminal_safe(text, kMessageShownMax));
}

std::string larger_context_flag(const Model& model, uint64_t context, uint64_t tokens) {
  const auto most = static_cast<uint64_t>(std::max(model.spec.context_max, 1));
  return context < most ? fmt::format("-c {}", std::min(std::max(context, tokens) * 2, most)) : "";
}

Error with_flags(Error error, const TextModel* text) {
  const bool unsupported = error.code == Code::kUnsupported && text != nullptr;
  if (error.code == Code::kOutOfMemory) error.message += " (-c: the context, -t: the threads)";
  if (unsupported && !text->tokenizer) error.message += " (--ids)";
  if (unsupported && text->tokenizer && !text->chat_template) error.message += " (--raw)";
  return error;
}

}  // namespace baton::cli
