// The tables of what llama.cpp, Ollama and others call what is here called otherwise.
#include "baton/cli/other_words.h"

#include <algorithm>
#include <utility>

namespace baton::cli {
namespace {

// `needs`: a flag that the command must have for the answer to be one; the first row that fits is taken.
struct OtherFlags {
  std::string_view names;  // with spaces between
  std::string_view needs;
  std::string_view meaning;
};
constexpr std::string_view kPlaced =
    "-ngl --n-gpu-layers --gpu-layers -dev --device -mg --main-gpu -sm --split-mode -ts --tensor-split -fit --fit "
    "-ot --override-tensor -ncmoe --n-cpu-moe -cmoe --cpu-moe -kvo --kv-offload -nkvo --no-kv-offload";
constexpr std::string_view kUnits =
    "--prefill and --decode choose the units, for whole models (an NVIDIA card: --decode cuda); `baton units` lists "
    "them";
constexpr std::string_view kPull = "`baton pull OWNER/NAME:TYPE` fetches a model, -m takes the same name";
constexpr std::string_view kConstrained =
    "requests to `baton serve` and lines of `baton batch` say it each (docs/constrained.md)";
constexpr OtherFlags kOtherFlags[] = {
    {"-hf -hfr --hf-repo -mu --model-url", "", kPull},
    {"--hf-token", "", "HF_TOKEN, which others cannot read in the list of processes"},
    {kPlaced, "prefill", kUnits},
    {kPlaced, "unit", "--unit chooses the unit; `baton units` lists them"},
    {kPlaced, "", "no unit computes here; where one does it is chosen as `baton run --help` says"},
    {"--unit", "prefill", kUnits},
    {"--num-predict --max-tokens", "predict", "-n, --predict"},
    {"--temperature", "temp", "--temp"},
    {"--num-ctx --ctx --context", "ctx-size", "-c, --ctx-size"},
    {"-tb --threads-batch", "threads", "-t, for both phases"},
    {"-sys --system-prompt", "system", "--system"},
    {"-sys --system-prompt", "", "the first message of a request"},
    {"-cnv --conversation -i --interactive", "", "the command `baton chat`"},
    {"-st --single-turn -no-cnv --no-conversation", "", "the command `baton run` answers one prompt"},
    {"--prompt-cache", "save-state", "--save-state and --load-state"},
    {"-r --reverse-prompt", "stop", "--stop"},
    {"--jinja", "", "the model's own chat template is always used"},
    {"--chat-template --chat-template-file", "raw", "the model's own chat template is always used; --raw does without"},
    {"--chat-template --chat-template-file", "", "the model's own chat template is always used"},
    {"--grammar --grammar-file --json-schema -j --json-schema-file -jf", "", kConstrained},
    {"--no-mmap --mlock", "", "weights are always mapped"},
    {"-fa --flash-attn", "", "attention has one form here"},
    {"-ctk --cache-type-k -ctv --cache-type-v", "kv", "--kv, of keys and values both"},
    {"-b --batch-size -ub --ubatch-size", "step-tokens", "--step-tokens, of prefill and decode together"},
    {"-b --batch-size -ub --ubatch-size", "", "the unit that computes cuts a prompt into pieces as it needs them"},
    {"-np", "parallel", "--parallel"},
    {"-np --parallel", "", "`baton serve` and `baton batch` answer several at once (--parallel)"},
    {"-md --model-draft --spec-draft-model", "", "no second model drafts tokens: each is computed by the one of -m"},
    {"--lora-scaled", "lora", "--lora PATH=SCALE"},
    {"--keep --context-shift --no-context-shift", "",
     "nothing is shifted out of a full context, an answer ends there; -c makes it larger"},
    {"--embd-normalize", "raw", "vectors have length 1, with --raw they are as they come"},
};

constexpr std::pair<std::string_view, std::string_view> kOtherCommands[] = {
    {"server", "serve"},
    {"generate", "run"},
    {"ask", "run"},
    {"cli", "run or chat"},
    {"download", "pull"},
    {"show", "inspect"},
    {"list", "ls for models, units for compute units"},
    {"remove", "rm"},
    {"delete", "rm"},
    {"ppl", "perplexity"},
    {"help", "--help, of the program or behind a command"},
    {"version", "--version"},
};

bool holds_word(std::string_view words, std::string_view word) {
  for (size_t at = 0; at < words.size();) {
    const size_t end = std::min(words.find(' ', at), words.size());
    if (words.substr(at, end - at) == word) return true;
    at = end + 1;
  }
  return false;
}

bool has_flag(const CLI::App& app, std::string_view name) {
  const auto options = app.get_options();
  return std::any_of(options.begin(), options.end(), [&](const CLI::Option* option) {
    const std::vector<std::string>& names = option->get_lnames();
    return std::find(names.begin(), names.end(), name) != names.end();
  });
}

}  // namespace

std::string_view meaning_of_flag(const CLI::App& app, std::string_view flag) {
  for (const OtherFlags& row : kOtherFlags) {
    if (holds_word(row.names, flag) && (row.needs.empty() || has_flag(app, row.needs))) return row.meaning;
  }
  return {};
}

std::string_view meaning_of_command(std::string_view word) {
  for (const auto& [name, meaning] : kOtherCommands) {
    if (name == word) return meaning;
  }
  return {};
}

}  // namespace baton::cli
